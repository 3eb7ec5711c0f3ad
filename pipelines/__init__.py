"""LVLMs, text-to-image models, and their composition."""
