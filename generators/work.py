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

    def times(self, other: FigureRange) -> FigureRange:
        """Return the product with an independent figure, all ends above 0.

        Both are hardly ever at the same end: factors from the means to the ends add up as
        the squares of their logarithms do.
        """

        def together(one: float, two: float) -> float:
            return math.exp(math.hypot(math.log(one), math.log(two)))

        mean = self.mean * other.mean
        below = together(self.mean / self.low, other.mean / other.low)
        above = together(self.high / self.mean, other.high / other.mean)
        return FigureRange(mean, mean / below, mean * above)

    def __mul__(self, factor: float) -> FigureRange:
        return FigureRange(self.mean * factor, self.low * factor, self.high * factor)


NOTHING = FigureRange.exact(0.0)
PROMPT_TOKENS = FigureRange.between(300, 1200)
"""Mean over a task set: a text, and for most queries an image of 512 to 1024 pixels a side,
of which Qwen2-VL (28 pixels a side for a token) makes 334 to 1369 tokens. The queries of
`plait bench stage` have 450 (benchmarks/speed/measured/h100/qwen2-vl-7b.md)."""
LONGEST_PROMPT = 4200
"""Tokens of three such images and a text."""
ANSWER_TOKENS = FigureRange.between(115, 330)
"""Mean tokens of answers: 99 and 121 to VisionArena (vllm #15748, #25337), 215 in
LMSYS-Chat-1M (arXiv:2309.11998), 338 in ShareGPT (arXiv:2309.06180, figure 11)."""
_SHORTEST_THOUGHT = 99
DRAWN_S = FigureRange.between(0.05, 0.2)
"""Seconds of the host for an image that was drawn, to fetch, convert and encode it: what
sdxl's and sdxl-turbo's calls take besides denoising on an H100 (measured/h100)."""
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
    passes: int = 0
    """How often the layers are gone through for it, one pass after another: the steps of
    denoising."""
    blocks: int = 0
    """Blocks of layers in a pass, and in a step of decoding, whose kernels the host
    launches one by one; 0 in decoding where those of a step are launched together."""
    steps: FigureRange = NOTHING
    """Tokens that are decoded, one after another."""
    most_steps: float = math.inf
    """At which an answer is cut."""
    step_flops: float = 0.0
    """Operations of a step."""
    cache_bytes: float = 0.0
    """Keys and values that a step reads."""
    cpu_s: FigureRange = NOTHING
    """Seconds of a CPU core."""
    compiled: bool = False
    """Whether kernels are fused."""
    compile_s: float = 0.0
    """Seconds that fusing them takes a worker; 0 where a model has no such setting."""
    usage: Mapping[str, FigureRange] = field(default_factory=dict)
    """What the record says it used, by name, and its `disk_bytes`."""


def answer_tokens(most: int) -> FigureRange:
    """Return the mean length of answers that may have up to `most` tokens."""
    usual = ANSWER_TOKENS
    return FigureRange(min(most, usual.mean), min(most, usual.low), min(most, usual.high))


def thought_tokens(most: int) -> FigureRange:
    """Return the mean length of answers with thoughts, up to `most` tokens together.

    No published mean was found: anything up to the limit.
    """
    return FigureRange.between(min(_SHORTEST_THOUGHT, most), most)


def usage_of_writing(
    read: FigureRange, answer: FigureRange, payload_bytes: float = 0.0
) -> dict[str, FigureRange]:
    """Return the usage of a record that reads a prompt and writes an answer, in tokens."""
    disk = answer * _TOKEN_BYTES + FigureRange.exact(payload_bytes)
    return {"input_tokens": read, "output_tokens": answer, "disk_bytes": disk}


def usage_of_drawing(pixels: float) -> dict[str, FigureRange]:
    """Return the usage of a record that is an image of so many pixels."""
    return {"images": FigureRange.exact(1.0), "disk_bytes": _PIXEL_BYTES * pixels}
