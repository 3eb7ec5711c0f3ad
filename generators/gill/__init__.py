"""GILL: a frozen OPT that reads images and requests them with eight image tokens."""
