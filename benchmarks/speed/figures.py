"""The speed of one variant, and its figures under AIPerf's names, units and percentiles.

A figure that cannot be measured is absent, with the reason; it is never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from statistics import median
from typing import Any

import numpy as np

from plait.generators.base import Kind, Outcome, Result, add_usage
from plait.generators.document import Document, Draft, Image
from plait.generators.images import Drawing, decode

SERVER = "the model runs in a server"
STREAMED = "the stage reads the server's replies whole, not token by token"
_PERCENTILES = (90, 95, 99)
_KEPT = (
    *("seconds", "records", "usage", "peak_memory_gib", "weight_bytes", "failures"),
    *("flops", "flops_reason", "joules", "energy_reason"),
    *("parameters", "dtype"),
)


def images_of(value: Any) -> Sequence[Drawing | Image]:
    """Return the finished images of a result."""
    if isinstance(value, Drawing | Image):
        return [value]
    return value.images if isinstance(value, Draft | Document) else ()


def _size_of(image: Drawing | Image) -> tuple[int, int]:
    """Return width and height in pixels."""
    if isinstance(image, Drawing):
        height, width = image.pixels.shape[:2]
        return width, height
    return decode(image).size


@dataclass
class Speed:
    """Notes about one variant of computing the workload; times are in seconds."""

    variant: str
    """`upstream`, the original program's loop, or `batch 8`; where that loop was given
    each batch, `upstream batch 8`."""
    seconds: list[float] = field(default_factory=list)
    """For the whole workload, of every round."""
    outcomes: Sequence[Outcome[Any]] = field(default=(), repr=False)
    """Of the last round."""
    requests: list[float] = field(default_factory=list)
    """Of every request: a batch of a local model takes as long for each of its inputs."""
    per_image: list[float] = field(default_factory=list)
    """Of every request that gave images, divided by their number."""
    first_tokens: list[float] = field(default_factory=list)
    between_tokens: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    """Of every denoising step."""
    first_batch: list[float] = field(default_factory=list)
    """Of the first batch, once a round: the batch whose operations are counted."""
    warm_up: list[float] = field(default_factory=list)
    """Of the calls of the round before the timed ones; the first compiles kernels."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why `tokens` or `steps` could not be timed, where the stage says so."""
    peak_memory_gib: float = 0.0
    weight_bytes: int = 0
    """Bytes of weights read by the first batch."""
    parameters: int = 0
    """Of the modules that ran."""
    dtype: str | None = None
    """Of most of these parameters."""
    flops: int | None = None
    """Floating-point operations of the first batch."""
    flops_reason: str | None = None
    joules: list[float] = field(default_factory=list)
    """Of every round."""
    energy_reason: str | None = None

    @property
    def median_s(self) -> float:
        """Median seconds of the rounds."""
        return median(self.seconds)

    @property
    def batch_size(self) -> int | None:
        """Inputs of one call; None where the original program's loop answers one by one."""
        kind, _, size = self.variant.partition(" ")
        return int(size) if kind == "batch" else None

    @property
    def answers(self) -> list[Any]:
        """The values of all outcomes, in order; None for what is no result."""
        return [getattr(outcome, "value", None) for outcome in self.outcomes]

    @property
    def records(self) -> int:
        """Results in the workload; failures are not counted."""
        return sum(isinstance(outcome, Result) for outcome in self.outcomes)

    @cached_property
    def usage(self) -> dict[str, float]:
        """Tokens, images, steps, ... of the whole workload, as the stage counts them."""
        usage: dict[str, float] = {}
        for outcome in self.outcomes:
            add_usage(usage, getattr(outcome, "usage", {}))
        return dict(sorted(usage.items()))

    @property
    def failures(self) -> dict[str, int]:
        """Outcomes that are not results, by the three most frequent reasons."""
        reasons = Counter[str]()
        for outcome in self.outcomes:
            if not isinstance(outcome, Result):
                reasons[getattr(outcome, "reason", "")] += 1
        return dict(reasons.most_common(3))

    @cached_property
    def image_sizes(self) -> list[tuple[int, int]]:
        """Widths and heights of the images of the whole workload, in pixels."""
        sizes: list[tuple[int, int]] = []
        for answer in self.answers:
            sizes += map(_size_of, images_of(answer))
        return sizes

    def per_s(self, amount: float) -> float:
        """Divide an amount of the whole workload by the median seconds of a round."""
        return amount / self.median_s

    def data(self) -> dict[str, Any]:
        """Return it as plain data, without answers and single times."""
        inputs = len(self.outcomes)
        return {
            "way": self.variant,
            **{name: getattr(self, name) for name in _KEPT},
            "batch_size": self.batch_size,
            "seconds_per_input": self.median_s / inputs if inputs else None,
        }


@dataclass(frozen=True)
class Surroundings:
    """Facts that all variants of one measurement share."""

    kind: Kind
    bandwidth: float
    """Bytes per second that a copy reads and writes."""
    matrix_rates: Mapping[str, float]
    """FLOP per second of a large matrix product, by type."""
    memory_kind: str
    load_s: float | None = None
    server: bool = False
    compiled: bool = False
    price_per_hour: float | None = None
    """Dollars for the device."""


@dataclass(frozen=True)
class Figure:
    """One figure: a value, or a distribution of values with this as its mean."""

    value: float
    unit: str
    spread: Mapping[str, float] | None = None
    """`median`, `p90`, `p95`, `p99`, `min`, `max`, and `n` values."""

    def data(self) -> dict[str, Any]:
        """Return it as plain data; a distribution has `mean` in the place of `value`."""
        if self.spread is None:
            return {"value": self.value, "unit": self.unit}
        return {"unit": self.unit, "mean": self.value, **self.spread}


def distribution(values: Sequence[float], unit: str) -> Figure:
    """Return mean, median and percentiles (linear between values) of seconds, in ms."""
    scaled = np.asarray(values, dtype=np.float64) * 1000
    spread = {"median": float(np.median(scaled))}
    for share in _PERCENTILES:
        spread[f"p{share}"] = float(np.percentile(scaled, share))
    spread |= {"min": float(scaled.min()), "max": float(scaled.max()), "n": len(scaled)}
    return Figure(float(scaled.mean()), unit, spread)


Entry = tuple[str, float | Sequence[float] | None, str, str]
"""A figure's name, its value or seconds, its unit, and why it is absent where it is."""
_OF_THIS_PROCESS = frozenset(
    {"peak_memory", "load_time", "energy", "model_flops", "model_flops_utilization"}
    | {"memory_bandwidth_utilization"}
)
"""Figures that say nothing about a server."""


class Figures:
    """All figures of one speed that are `present`, and why others are `absent`."""

    def __init__(self, speed: Speed, around: Surroundings) -> None:
        self.present: dict[str, Figure] = {}
        self.absent: dict[str, str] = {}
        self._speed = speed
        self._around = around
        parts = (self._throughput, self._latency, self._device, self._energy, self._cost)
        for name, value, unit, reason in chain.from_iterable(part() for part in parts):
            if around.server and name in _OF_THIS_PROCESS:
                self.absent[name] = SERVER
            elif isinstance(value, Sequence) and value:
                self.present[name] = distribution(value, unit)
            elif isinstance(value, int | float) and value > 0:
                self.present[name] = Figure(value, unit)
            else:
                self.absent[name] = reason

    def data(self) -> dict[str, Any]:
        """Return plain data: `figures`, and the reasons of those that are `absent`."""
        figures = {name: figure.data() for name, figure in self.present.items()}
        return {"figures": figures, "absent": self.absent}

    def _throughput(self) -> Iterator[Entry]:
        speed = self._speed
        sizes = self._speed.image_sizes
        megapixels = sum(width * height for width, height in sizes) / 1e6
        inputs = speed.usage.get("input_tokens", 0.0)
        outputs = speed.usage.get("output_tokens", 0.0)
        uncounted = "the stage counts none"
        for name, amount, unit, reason in (
            ("request_throughput", speed.records, "requests/s", "no request succeeded"),
            ("image_throughput", len(sizes), "images/s", self._no_image),
            ("megapixel_throughput", megapixels, "MP/s", self._no_image),
            ("input_token_throughput", inputs, "tokens/s", uncounted),
            ("output_token_throughput", outputs, "tokens/s", uncounted),
        ):
            yield name, speed.per_s(amount), unit, reason
        if inputs and outputs:
            yield "total_token_throughput", speed.per_s(inputs + outputs), "tokens/s", ""

    def _latency(self) -> Iterator[Entry]:
        speed = self._speed
        no_token = self._no_token
        no_step = speed.reasons.get("steps") or self._no_step
        # The loop that Emu2 regresses vectors with makes no tokens.
        writes = self._around.kind is Kind.DRAFT
        first = speed.first_tokens if writes else ()
        between = speed.between_tokens if writes else ()
        no_second = "no answer has a second token" if first else no_token
        yield "request_latency", speed.requests, "ms", "no call was timed"
        yield "image_latency", speed.per_image, "ms/image", self._no_image
        yield "denoise_step_latency", speed.steps, "ms", no_step
        yield "time_to_first_token", first, "ms", no_token
        yield "inter_token_latency", between, "ms", no_second

    def _device(self) -> Iterator[Entry]:
        speed = self._speed
        around = self._around
        memory = f"GiB, {around.memory_kind}"
        yield "peak_memory", speed.peak_memory_gib, memory, "the system does not tell"
        yield "load_time", around.load_s, "s", "the stage was loaded before"
        yield "warm_up_time", sum(speed.warm_up), "s", "no round warmed up"
        extra = None
        reason = "the stage is not compiled"
        if around.compiled and speed.warm_up:
            # The first call takes longer than the same call later, by that of compiling.
            # Kernels that an earlier process has compiled are only read.
            extra = speed.warm_up[0] - median(speed.first_batch)
            reason = "the first call took no longer than the same call later"
        yield "compile_time", extra, "s", reason
        reason = speed.flops_reason or "not counted"
        yield "model_flops", (speed.flops or 0) / 1e9, "GFLOP/batch", reason
        rate = around.matrix_rates.get(speed.dtype or "")
        if speed.flops and not rate:
            reason = f"a product of {speed.dtype} matrices could not be timed"
        first = median(speed.first_batch) if speed.first_batch else None
        used = None
        read = None
        if first:
            # Against the rates that were measured here, not those of a data sheet.
            read = speed.weight_bytes / around.bandwidth / first
            if speed.flops and rate:
                used = speed.flops / first / rate
        yield "model_flops_utilization", used, "ratio", reason
        yield "memory_bandwidth_utilization", read, "ratio", "no module read weights"

    def _energy(self) -> Iterator[Entry]:
        speed = self._speed
        reason = speed.energy_reason or "the driver gave no reading"
        joules = median(speed.joules) if speed.joules else None
        if joules == 0:
            reason = "the driver's counter did not advance; use more --queries"
        yield "energy", joules, "J", reason
        for name, amount in self._amounts.items():
            if joules and amount and not self._around.server:
                yield f"energy_per_{name}", joules / amount, f"J/{name}", ""

    def _cost(self) -> Iterator[Entry]:
        price = self._around.price_per_hour
        if price is None:
            return
        dollars = price / 3600 * self._speed.median_s
        names = {"image": ("1000_images", 1e3), "output_token": ("1m_output_tokens", 1e6)}
        for name, (unit, many) in names.items():
            amount = self._amounts[name]
            cost = dollars / amount * many if amount else None
            yield f"cost_per_{unit}", cost, "USD", "the stage gives none"

    @property
    def _amounts(self) -> dict[str, float]:
        speed = self._speed
        tokens = speed.usage.get("output_tokens", 0.0)
        images = len(speed.image_sizes)
        return {"request": speed.records, "image": images, "output_token": tokens}

    @property
    def _no_image(self) -> str:
        drawing = self._around.kind is Kind.RENDER
        return "no image was drawn" if drawing else "the stage gives no images"

    @property
    def _no_token(self) -> str:
        if self._around.kind is not Kind.DRAFT:
            return "the stage writes no text"
        if self._around.server:
            return STREAMED
        if self._speed.variant.startswith("upstream"):
            return "the original's loop does not tell when a token arrives"
        unknown = "no decoding loop that plait knows ran"
        return self._speed.reasons.get("tokens", unknown)

    @property
    def _no_step(self) -> str:
        if self._around.kind is not Kind.RENDER:
            return "the stage does not denoise"
        return SERVER if self._around.server else "no diffusion pipeline ran"
