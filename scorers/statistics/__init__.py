"""Means and their intervals, ratings of systems, agreement of judges and people."""
