"""CLIP: text, pixels and weights."""
