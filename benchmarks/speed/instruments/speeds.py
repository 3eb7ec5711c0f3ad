"""The speed of one way of computing a workload, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any


class Scenario(StrEnum):
    """A scenario of MLPerf."""

    OFFLINE = "offline"
    SINGLE_STREAM = "single-stream"


Sizes = Sequence[tuple[int, int]]
"""Width and height of pictures."""


@dataclass(frozen=True)
class Timings:
    """What was timed inside the rounds, in seconds."""

    requests: Sequence[float] = ()
    """Of every request: a batch of a local model takes as long for each of its inputs."""
    images: Sequence[float] = ()
    """Of every request that gave pictures, divided by their number."""
    first_tokens: Sequence[float] = ()
    between_tokens: Sequence[float] = ()
    steps: Sequence[float] = ()
    """Of every denoising step."""
    first_batch: Sequence[float] = ()
    """Of the first batch, once a round: the batch whose operations are counted."""
    warm_up: float | None = None
    """Of the round before the timed ones."""
    first_call: float | None = None
    """Of the first batch of that round, in which kernels are compiled."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a field is empty, where the stage says so."""


@dataclass(frozen=True)
class Speed:
    """One way of computing the workload."""

    way: str
    seconds: Sequence[float]
    """For the whole workload, of every round."""
    records: int
    """Results in the workload; failures are not counted."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Tokens, images, steps, ... of the whole workload, as the stage counts them."""
    peak_memory_gib: float = 0.0
    weight_bytes: int = 0
    """Bytes of weights read in one round."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Outcomes that are not results, by reason."""
    answers: Sequence[Any] = field(default=(), repr=False)
    timings: Timings = field(default_factory=Timings, repr=False)
    pictures: Sizes = ()
    """Sizes of the pictures of the whole workload."""
    flops: int | None = None
    """Floating-point operations of the first batch."""
    flops_reason: str | None = None
    joules: Sequence[float] = ()
    """Of every round."""
    energy_reason: str | None = None
    parameters: int = 0
    """Of the modules that ran."""
    dtype: str | None = None
    """Of most of these parameters."""
    largest_module: str | None = None

    @property
    def median_s(self) -> float:
        """Of the rounds."""
        return median(self.seconds)

    @property
    def batch_size(self) -> int | None:
        """Inputs of one call; None where the original program's loop answers one by one."""
        kind, _, size = self.way.partition(" ")
        return int(size) if kind == "batch" else None

    @property
    def seconds_per_input(self) -> float | None:
        """Median seconds of a round over its inputs; None where there were none."""
        return self.median_s / len(self.answers) if self.answers else None

    def per_s(self, amount: float) -> float:
        """An amount of the whole workload by the second."""
        return amount / self.median_s
