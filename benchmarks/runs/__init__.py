"""Runs: from a config to a plan and its execution, and back from a run directory."""
