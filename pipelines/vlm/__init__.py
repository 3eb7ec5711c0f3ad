"""LVLMs run by `transformers`: the stage, prompts and decoding."""
