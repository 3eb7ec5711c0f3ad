"""Speeds as a table for people and as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from safetensors.numpy import load

from benchmarks.speed.instruments.speeds import Speed
from benchmarks.speed.reporting.figures import Figures, Surroundings
from generators.base import PEAKS
from generators.document import Draft, Image, ImageRequest, Payload, Score, Text
from generators.pictures import Drawing

PER_MINUTE = frozenset({"images"})
"""Counted by the minute; everything else by the second."""
NOT_A_RATE = PEAKS | {"input_tokens", "input_images", "steps", "image_tokens"}


@dataclass(frozen=True)
class Report:
    """All speeds of one workload, and the bandwidth they are compared with."""

    speeds: Sequence[Speed]
    bandwidth: float
    """Bytes per second that a copy on the device reads and writes."""
    shared: Surroundings | None = None
    """What the figures are computed with; without it, only what the speeds hold."""

    @property
    def around(self) -> Surroundings:
        """What all ways share."""
        return self.shared or Surroundings(None, self.bandwidth, {}, "unknown")

    def figures(self, speed: Speed) -> Figures:
        """The figures of one way in standard words, and why others are absent."""
        return Figures(speed, self.around)

    def ratio(self, speed: Speed) -> float | None:
        """How many times as fast as the first way, which is upstream's or batch 1."""
        if speed is self.speeds[0]:
            return None
        return self.speeds[0].median_s / speed.median_s

    def fraction(self, speed: Speed) -> float | None:
        """Share of the speed that reading the weights from memory alone would allow.

        None where no module of this process read any, as with a server.
        """
        if not speed.weight_bytes:
            return None
        return speed.weight_bytes / self.bandwidth / speed.median_s

    def agreement(self, speed: Speed) -> int:
        """How many answers equal those of the first way; see `_same`."""
        pairs = zip(speed.answers, self.speeds[0].answers, strict=True)
        return sum(_same(one, other) for one, other in pairs)

    def table(self) -> str:
        """One line for each way."""
        columns = self._columns()
        rows = [[head for head, _ in columns]]
        rows += [[show(speed) for _, show in columns] for speed in self.speeds]
        widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
        return "\n".join(
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))
            for row in rows
        )

    def _columns(self) -> list[tuple[str, Callable[[Speed], str]]]:
        amounts = sorted({n for s in self.speeds for n in s.usage} - NOT_A_RATE)
        return [
            ("way", lambda s: s.way),
            ("s", lambda s: f"{s.median_s:.3f}"),
            ("records/s", lambda s: f"{s.per_s(s.records):.2f}"),
            *((_head(name), _rate(name)) for name in amounts),
            ("peak GiB", self._peak),
            ("of bandwidth", lambda s: _percent(self.fraction(s))),
            (f"x {self.speeds[0].way}", lambda s: _times(self.ratio(s))),
            ("same answers", lambda s: f"{self.agreement(s)}/{len(s.answers)}"),
            ("failed", lambda s: "; ".join(f"{n} x {r}" for r, n in s.failures.items())),
        ]

    def _peak(self, speed: Speed) -> str:
        """Empty for a server: this process only asks it."""
        return "" if self.around.server else f"{speed.peak_memory_gib:.2f}"

    def data(self) -> list[dict[str, Any]]:
        """All figures as plain data."""
        return [
            _plain(speed)
            | ({"peak_memory_gib": None} if self.around.server else {})
            | self.figures(speed).data()
            | {
                "batch_size": speed.batch_size,
                "seconds_per_input": speed.seconds_per_input,
                "fraction_of_bandwidth": self.fraction(speed),
                "ratio": self.ratio(speed),
                "same_answers": self.agreement(speed),
            }
            for speed in self.speeds
        ]


_BULKY = frozenset({"answers", "timings", "pictures"})
"""Fields of a speed that its figures sum up."""


def _plain(speed: Speed) -> dict[str, Any]:
    """The fields of a speed but the bulky ones."""
    values = {f.name: getattr(speed, f.name) for f in fields(speed)}
    return {name: value for name, value in values.items() if name not in _BULKY}


def _head(name: str) -> str:
    return f"{name}/min" if name in PER_MINUTE else f"{name}/s"


def _rate(name: str) -> Callable[[Speed], str]:
    factor = 60 if name in PER_MINUTE else 1
    return lambda speed: f"{speed.per_s(speed.usage.get(name, 0.0)) * factor:.1f}"


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:.1%}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _same(one: Any, other: Any) -> bool:
    """Whether results are equal: pixels within one grey level, other numbers by 1e-4."""
    if isinstance(one, Drawing) and isinstance(other, Drawing):
        difference = one.pixels.astype(np.int16) - other.pixels
        return bool(np.abs(difference).max() <= 1)
    if isinstance(one, Score) and isinstance(other, Score):
        return math.isclose(one.value, other.value, abs_tol=1e-4)
    if isinstance(one, Payload) and isinstance(other, Payload):
        return _same_tensors(load(one.read()), load(other.read()))
    if isinstance(one, Draft) and isinstance(other, Draft):
        pairs = zip(one.segments, other.segments, strict=False)
        equal = all(_same_segment(a, b) for a, b in pairs)
        return equal and len(one.segments) == len(other.segments)
    return bool(one == other)


def _same_segment(
    one: Text | Image | ImageRequest, other: Text | Image | ImageRequest
) -> bool:
    if not isinstance(one, ImageRequest) or not isinstance(other, ImageRequest):
        return one == other
    plain = replace(one, payload=None) == replace(other, payload=None)
    return plain and _same(one.payload, other.payload)


def _same_tensors(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    close = (
        one[k].shape == other[k].shape and np.allclose(one[k], other[k], 1e-4, 1e-4)
        for k in one.keys() & other.keys()
    )
    return one.keys() == other.keys() and all(close)
