"""The mini CLIP and what it learns from."""
