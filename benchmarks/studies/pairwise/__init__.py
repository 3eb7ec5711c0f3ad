"""Comparing the systems of a run pair by pair: `plait compare`."""

from __future__ import annotations

from benchmarks.studies.pairwise.command import compare
from benchmarks.studies.pairwise.match import CompareOptions

__all__ = ["CompareOptions", "compare"]
