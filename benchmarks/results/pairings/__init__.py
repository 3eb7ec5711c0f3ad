"""LVLM x text-to-image model: what each adds, what pairings cost, in files and page."""

from benchmarks.results.pairings.comparison import Pairings, pairings_of
from benchmarks.results.pairings.tables import FILES, write_pairings

__all__ = ["FILES", "Pairings", "pairings_of", "write_pairings"]
