"""A clock that a test moves on, and figures of speeds made by hand."""

from __future__ import annotations

from typing import Any

from plait.benchmarks.speed.figures import Figures, Speed, Surroundings
from plait.generators.base import Kind


class FakeTime:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds


def surroundings(**changes: Any) -> Surroundings:
    values = {"kind": Kind.RENDER, "bandwidth": 1e9, "matrix_rates": {"float32": 4e9}}
    return Surroundings(**values | {"memory_kind": "CUDA allocator"} | changes)


def figures(speed: Speed, **changes: Any) -> Figures:
    return Figures(speed, surroundings(**changes))
