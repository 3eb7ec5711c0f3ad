"""Emu2: Emu2-Chat writes the text, Emu2-Gen regresses what its UNet draws images from."""
