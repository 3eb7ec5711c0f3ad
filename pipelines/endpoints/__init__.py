"""Models behind a server: the stages, what they send, limits and replies."""
