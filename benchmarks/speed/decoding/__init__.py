"""Ways of writing the same texts: plait's streams, `generate` and a server."""
