"""Voken renderers: hidden states of a language model's image tokens become images."""
