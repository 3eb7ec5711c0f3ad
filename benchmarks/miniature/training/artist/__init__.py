"""The mini artists of the Stable Diffusion family, and the autoencoder that they share."""
