"""The axis of a column of means, which the page's tables and plots draw alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TICKS = 6
"""At most this many ticks on an axis."""
_ROOM = 24
"""Characters that fit below an axis, with two between labels."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The range that holds all means and intervals, for drawing them side by side."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def percent(self, value: float) -> str:
        """Position of a value on the axis."""
        return f"{100 * (value - self.low) / (self.high - self.low):.2f}%"


def axis_of(cells: Sequence[Mapping[str, Any]]) -> Axis | None:
    """The axis of a column of means; None where all are equal."""
    ends = [
        end for c in cells for end in (c["mean"], *(c["ci95"] or ())) if end is not None
    ]
    if not ends or min(ends) == max(ends) or math.isinf(max(ends) - min(ends)):
        return None
    margin = (max(ends) - min(ends)) * 0.04
    low, high = min(ends) - margin, max(ends) + margin
    return Axis(low, high, _ticks(low, high))


def _ticks(low: float, high: float) -> tuple[float, ...]:
    """Round numbers within a range, 1, 2 or 5 times a power of ten apart."""
    power = 10 ** math.floor(math.log10((high - low) / _TICKS))
    ticks: tuple[float, ...] = ()
    for step in (k * power for k in (1, 2, 5, 10, 20, 50)):
        first, last = math.ceil(low / step), math.floor(high / step)
        ticks = tuple(float(f"{k * step:.10g}") for k in range(first, last + 1))
        if sum(len(tick_text(t)) + 2 for t in ticks) <= _ROOM:
            break
    return ticks[:_TICKS]


def tick_text(tick: float) -> str:
    """A tick's label."""
    return f"{tick:.6g}"
