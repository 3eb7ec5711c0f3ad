"""LVLMs that write, text-to-image models that draw, and their composition."""
