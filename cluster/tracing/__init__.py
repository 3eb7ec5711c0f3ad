"""The trace of a run: what every worker did when, on one time axis."""
