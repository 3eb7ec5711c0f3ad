"""Models behind a server that write or draw: stages, settings, limits, errors, replies."""
