"""Comparing the systems of a run pair by pair: `plait compare`."""

from __future__ import annotations

from benchmarks.comparing.command import compare
from benchmarks.comparing.request import CompareOptions

__all__ = ["CompareOptions", "compare"]
