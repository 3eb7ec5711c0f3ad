"""`plait bench fidelity`: how far answers change with the way a model is run."""
