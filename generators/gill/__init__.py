"""GILL: a frozen OPT that reads pictures and asks for them by eight image tokens."""
