"""How fast a stage is and what its records take, with where each figure comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Origin(StrEnum):
    """Where a rate comes from, the best source first."""

    OWN = "this run"
    BESIDE = "runs beside it"
    BENCH = "bench stage"
    PUBLISHED = "published"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FigureRange:
    """A figure and the range in which it is expected."""

    mean: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> FigureRange:
        """A figure without a spread."""
        return cls(value, value, value)

    @classmethod
    def over(cls, values: Iterable[float]) -> FigureRange | None:
        """The mean of `values`, from the least to the largest; None without any."""
        known = list(values)
        if not known:
            return None
        return cls(sum(known) / len(known), min(known), max(known))

    def __add__(self, other: FigureRange) -> FigureRange:
        return FigureRange(
            self.mean + other.mean, self.low + other.low, self.high + other.high
        )

    def __mul__(self, factor: float) -> FigureRange:
        return FigureRange(self.mean * factor, self.low * factor, self.high * factor)

    @property
    def wide(self) -> bool:
        """Whether there is a range around the figure."""
        return self.low < self.high

    def at(self, end: str) -> float:
        """The figure at one `end`: mean, low or high."""
        return float(getattr(self, end))


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """One batch as a worker computed it."""

    records: int
    seconds: float


_T95 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83)
"""Student's t for a two-sided interval of 90 %, by degrees of freedom from 1."""
_Z95 = 1.645


def predicted(batches: Iterable[MeasuredBatch], new: float) -> FigureRange | None:
    """Seconds per record over `new` further batches, from those that were measured.

    The range is a 90 % prediction interval of the mean from the spread between batches,
    at most from the fastest to the slowest batch. None without batches.
    """
    known = [batch for batch in batches if batch.records]
    records = sum(batch.records for batch in known)
    if not records:
        return None
    mean = sum(batch.seconds for batch in known) / records
    rates = [batch.seconds / batch.records for batch in known]
    if len(known) < 2:
        return FigureRange.exact(mean)
    squares = sum(b.records * (b.seconds / b.records - mean) ** 2 for b in known)
    deviation = (squares / records * len(known) / (len(known) - 1)) ** 0.5
    t = _T95[len(known) - 2] if len(known) - 2 < len(_T95) else _Z95
    half = t * deviation * (1 / len(known) + 1 / max(new, 1.0)) ** 0.5
    return FigureRange(mean, max(mean - half, min(rates)), min(mean + half, max(rates)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one record uses on average; None where it is not known."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    images: float | None = None
    cost: float | None = None
    """In the unit of the prices."""
    disk_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRates:
    """What is known of one stage."""

    seconds: FigureRange | None = None
    """Seconds of one worker for one record; None where no source knows it."""
    origin: Origin = Origin.UNKNOWN
    """Of `seconds`."""
    detail: str = ""
    """The source in words: how many records, which run, file or page."""
    load_s: FigureRange | None = None
    """Seconds from the start of a worker's process until it is ready."""
    takeover_s: FigureRange | None = None
    """The same where the process has hosted another stage; None for as long."""
    usage: Usage = field(default_factory=Usage)
    usage_origin: Origin = Origin.UNKNOWN
    elsewhere: str = ""
    """Where else the stage was measured, on hardware that says nothing about this one."""
