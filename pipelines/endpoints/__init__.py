"""LVLMs behind an OpenAI-compatible server: the stage, messages, limits and replies."""
