"""Parts of CLIPScore: pairs, text, pixels, weights, and the stage itself."""
