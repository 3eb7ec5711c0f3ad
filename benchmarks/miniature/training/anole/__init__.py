"""The mini Anole: its codes, its language model, and what both learn from."""
