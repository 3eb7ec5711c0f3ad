"""Runs: from a config to a plan, its execution, and what a run directory says of it."""
