"""What one record of a stage takes, as far as its model's published sizes tell.

A forecast of a stage that nobody has measured is made of it. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

RangeEnd = Literal["mean", "low", "high"]


@dataclass(frozen=True, slots=True)
class FigureRange:
    """A figure and the range in which it is expected."""

    mean: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> FigureRange:
        """Return a figure without a spread."""
        return cls(value, value, value)

    @classmethod
    def over(cls, values: Iterable[float | None]) -> FigureRange | None:
        """Return the mean of the known `values` and their range; None without any."""
        known = [value for value in values if value is not None]
        return cls(sum(known) / len(known), min(known), max(known)) if known else None

    @classmethod
    def between(cls, low: float, high: float) -> FigureRange:
        """Return a range of which the ends are known, and their geometric mean."""
        return cls(math.sqrt(low * high), low, high)

    def at(self, end: RangeEnd) -> float:
        """Return the figure at one end of the range."""
        return {"mean": self.mean, "low": self.low, "high": self.high}[end]

    def __add__(self, other: FigureRange) -> FigureRange:
        return FigureRange(
            self.mean + other.mean, self.low + other.low, self.high + other.high
        )

    def __mul__(self, factor: float) -> FigureRange:
        return FigureRange(self.mean * factor, self.low * factor, self.high * factor)


NOTHING = FigureRange.exact(0.0)
PROMPT_TOKENS = FigureRange(1000, 100, 4200)
"""From a line of text to three images of 1024 x 1024 pixels, of which Qwen2-VL (28 pixels
a side for a token) makes 1369 tokens each; on average one image of that size or less."""
_SHORT_ANSWER = 99
"""Tokens of the mean answer to VisionArena: 864 a second in 8.74 requests (vllm #15748)."""
_TOKEN_BYTES = 4.0
_PIXEL_BYTES = FigureRange.between(0.5, 2.5)
"""Of an image in PNG, from flat colours to film grain; 1.6 in Kodak's 24 photographs."""

SCORED: Mapping[str, FigureRange] = {"disk_bytes": FigureRange.between(200, 2000)}
"""Usage of a record that is a score with its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one record takes of a device: operations, bytes, tokens."""

    weight_bytes: float = 0.0
    """Loaded, and read by every step of decoding."""
    flops: FigureRange = NOTHING
    """Floating-point operations on what is known at once: prompts, noise, images."""
    steps: FigureRange = NOTHING
    """Tokens that are decoded, one after another."""
    step_flops: float = 0.0
    """Operations of a step."""
    cache_bytes: float = 0.0
    """Keys and values that a step reads."""
    cpu_s: FigureRange = NOTHING
    """Seconds of a CPU core."""
    compiled: bool = False
    """Whether kernels are fused."""
    usage: Mapping[str, FigureRange] = field(default_factory=dict)
    """What the record says it used, by name, and its `disk_bytes`."""


def answer_tokens(most: int) -> FigureRange:
    """Return the length of answers that may have up to `most` tokens."""
    return FigureRange.between(min(_SHORT_ANSWER, most), most)


def written(
    read: FigureRange, answer: FigureRange, payload_bytes: float = 0.0
) -> dict[str, FigureRange]:
    """Return the usage of a record that reads a prompt and writes an answer, in tokens."""
    disk = answer * _TOKEN_BYTES + FigureRange.exact(payload_bytes)
    return {"input_tokens": read, "output_tokens": answer, "disk_bytes": disk}


def drawn(pixels: float) -> dict[str, FigureRange]:
    """Return the usage of a record that is an image."""
    return {"images": FigureRange.exact(1.0), "disk_bytes": _PIXEL_BYTES * pixels}
