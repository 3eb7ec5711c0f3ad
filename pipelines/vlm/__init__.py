"""LVLMs run by `transformers`: the stage, prompts, decoding and random weights."""
