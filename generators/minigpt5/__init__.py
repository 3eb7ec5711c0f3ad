"""MiniGPT-5: Vicuna with voken ids, whose states condition Stable Diffusion 2.1."""
