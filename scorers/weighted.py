"""Parts that are numbers on scales of their own, and the score that is their mean.

A rubric of a user's own and a scorer of a user's own class declare parts in one way: a
scale, a weight, and which values are better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from plait.scorers.base import Direction, bounds
from plait.scorers.parts import PartScale

YES_NO = "yes/no"
"""The scale of what is met or not: 1 or 0."""
SHARE = "0-100"
"""The scale of the mean of parts whose scales differ."""
_VALID = '"yes/no", "1-5", "0-10" and the like, or {min = 0, max = 7}'


def _scale(value: Any) -> str:
    if isinstance(value, Mapping) and value.keys() == {"min", "max"}:
        low = value["min"]
        high = value["max"]
        if all(isinstance(end, int | float) for end in (low, high)):
            value = f"{low:g}-{high:g}"
    ends = bounds(value) if isinstance(value, str) else None
    if value != YES_NO and (ends is None or ends[0] >= ends[1]):
        raise ValueError(f"{value!r} is not a scale; scales are {_VALID}")
    return str(value)


Scale = Annotated[str, PlainValidator(_scale)]
"""`yes/no`, or `LOW-HIGH`."""


class WeightedPart(BaseModel):
    """What one number is, and how much of the score it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scale: Scale
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    direction: Direction = "higher"
    """Which values are better."""

    @property
    def is_yes_no(self) -> bool:
        """Whether it is met or not, and nothing between."""
        return self.scale == YES_NO

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return bounds(self.scale) or (0.0, 1.0)

    def on(self, value: float, scale: str) -> float:
        """Return a value of the part on another scale, whose higher end is the best."""
        low, high = self.ends
        worst, best = bounds(scale) or (0.0, 1.0)
        if self.direction == "lower":
            # Turned around within its ends, so that the best is the higher one.
            value = low + high - value
        # Of equal scales nothing is rounded.
        return worst + (value - low) * ((best - worst) / (high - low))

    def as_part_scale(self, name: str) -> PartScale:
        """Return what a number under `criteria` by this name is."""
        step = name.replace("~", "~0").replace("/", "~1")
        low, high = self.ends
        unit = "ruling" if self.is_yes_no else "points"
        return PartScale(f"criteria/{step}", unit, f"{low:g}-{high:g}", "criterion")


def common_scale(parts: Collection[WeightedPart]) -> str:
    """Return the scale of the parts' mean: their own where it is one of numbers."""
    scales = {part.scale for part in parts}
    return SHARE if len(scales) != 1 or YES_NO in scales else scales.pop()


def weighted_mean(
    parts: Mapping[str, WeightedPart], values: Mapping[str, float], scale: str
) -> float:
    """Return the weighted mean of `values`, one for each of `parts`, on `scale`."""
    weights = []
    weighted = []
    for name, part in parts.items():
        weights.append(part.weight)
        weighted.append(part.weight * part.on(values[name], scale))
    # Exact sums, so that the order of the parts does not count.
    return math.fsum(weighted) / math.fsum(weights)
