"""One system or model behind HTTP, in the formats of common servers."""
