"""GILL: a frozen OPT that reads pictures and requests them with eight image tokens."""
