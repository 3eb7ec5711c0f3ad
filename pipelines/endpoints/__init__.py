"""The endpoint stage and its parts: messages, limits, replies and errors."""
