"""A speed in standard words: AIPerf's names, units and percentiles.

A figure that cannot be measured is absent, with the reason; it is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.speed.instruments.exchanges import STREAMED
from benchmarks.speed.instruments.speeds import Speed
from generators.base import Kind

SERVER = "the model runs in a server"
_MILLI = 1000.0
_PERCENTILES = (90, 95, 99)


@dataclass(frozen=True)
class Surroundings:
    """What all ways of one measurement share."""

    kind: Kind | None
    """Of the stage; None for whole documents."""
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
        """As plain data; a distribution has `mean` in the place of `value`."""
        if self.spread is None:
            return {"value": self.value, "unit": self.unit}
        return {"unit": self.unit, "mean": self.value, **self.spread}


def distribution(values: Sequence[float], unit: str, factor: float = 1.0) -> Figure:
    """Mean, median and percentiles (linear between values, as numpy's) of some values."""
    scaled = np.asarray(values, dtype=np.float64) * factor
    spread = {"median": float(np.median(scaled))}
    spread |= {f"p{p}": float(np.percentile(scaled, p)) for p in _PERCENTILES}
    spread |= {"min": float(scaled.min()), "max": float(scaled.max()), "n": len(scaled)}
    return Figure(float(scaled.mean()), unit, spread)


class Figures:
    """All figures of one speed, and why others are absent."""

    def __init__(self, speed: Speed, around: Surroundings) -> None:
        self.present: dict[str, Figure] = {}
        self.absent: dict[str, str] = {}
        self._speed, self._around = speed, around
        self._throughput()
        self._latency()
        self._tokens()
        self._device()
        self._energy()
        self._cost()

    def data(self) -> dict[str, Any]:
        """As plain data: `figures`, and the reasons of those that are `absent`."""
        figures = {name: figure.data() for name, figure in self.present.items()}
        return {"figures": figures, "absent": self.absent}

    def _value(self, name: str, value: float | None, unit: str, reason: str) -> None:
        if value:
            self.present[name] = Figure(value, unit)
        else:
            self.absent[name] = reason

    def _times(self, name: str, seconds: Sequence[float], reason: str, unit: str) -> None:
        if seconds:
            self.present[name] = distribution(seconds, unit, _MILLI)
        else:
            self.absent[name] = reason

    def _throughput(self) -> None:
        speed = self._speed
        rates: tuple[tuple[str, float, str, str], ...] = (
            ("request_throughput", speed.records, "requests/s", "no request succeeded"),
            ("image_throughput", len(speed.pictures), "images/s", self._no_picture),
            ("megapixel_throughput", self._megapixels, "MP/s", self._no_picture),
        )
        for name, amount, unit, reason in rates:
            self._value(name, speed.per_s(amount), unit, reason)
        counts = [speed.usage.get(f"{way}_tokens", 0.0) for way in ("input", "output")]
        names = ("input_token_throughput", "output_token_throughput")
        for name, count in zip(names, counts, strict=True):
            self._value(name, speed.per_s(count), "tokens/s", "the stage counts none")
        if all(counts):
            total = speed.per_s(sum(counts))
            self.present["total_token_throughput"] = Figure(total, "tokens/s")

    def _latency(self) -> None:
        timings = self._speed.timings
        nothing = "no call was timed"
        self._times("request_latency", timings.requests, nothing, "ms")
        self._times("image_latency", timings.images, self._no_picture, "ms/image")
        steps = timings.reasons.get("steps") or self._no_step
        self._times("denoise_step_latency", timings.steps, steps, "ms")

    def _tokens(self) -> None:
        timings, reason = self._speed.timings, self._no_token
        # The loop that Emu2 regresses vectors with makes no tokens.
        first, between = timings.first_tokens, timings.between_tokens
        if self._around.kind is not Kind.DRAFT:
            first, between = (), ()
        self._times("time_to_first_token", first, reason, "ms")
        if first and not between:
            reason = "no answer has a second token"
        self._times("inter_token_latency", between, reason, "ms")

    def _device(self) -> None:
        speed, around, timings = self._speed, self._around, self._speed.timings
        memory = SERVER if around.server else "the system does not tell"
        gib = None if around.server else speed.peak_memory_gib
        self._value("peak_memory", gib, f"GiB, {around.memory_kind}", memory)
        loading = SERVER if around.server else "stages load in the first round"
        load_s = None if around.server else around.load_s
        self._value("load_time", load_s, "s", loading)
        self._value("warm_up_time", timings.warm_up, "s", "no round warmed up")
        self._value("compile_time", self._compile_s, "s", "the stage is not compiled")
        flops = None if speed.flops is None else speed.flops / 1e9
        reason = SERVER if around.server else speed.flops_reason or "not counted"
        self._value("model_flops", flops, "GFLOP/batch", reason)
        rate = around.matrix_rates.get(speed.dtype or "")
        if flops and not rate:
            reason = f"a product of {speed.dtype} matrices could not be timed"
        self._value("model_flops_utilization", self._mfu(rate), "ratio", reason)
        unread = SERVER if around.server else "no module read weights"
        read = speed.weight_bytes / around.bandwidth / speed.median_s
        self._value("memory_bandwidth_utilization", read, "ratio", unread)

    def _energy(self) -> None:
        speed = self._speed
        reason = speed.energy_reason or "the driver gave no reading"
        joules = float(np.median(speed.joules)) if speed.joules else None
        if self._around.server:
            joules, reason = None, SERVER
        elif joules == 0:
            reason = "the driver's counter did not advance; use more --queries"
        self._value("energy", joules, "J", reason)
        for name, amount in self._amounts().items():
            if joules and amount:
                figure = Figure(joules / amount, f"J/{name}")
                self.present[f"energy_per_{name}"] = figure

    def _cost(self) -> None:
        price = self._around.price_per_hour
        if price is None:
            return
        dollars = price / 3600 * self._speed.median_s
        reason = "the stage gives none"
        names = {"image": ("1000_images", 1e3), "output_token": ("1m_output_tokens", 1e6)}
        for name, (unit, many) in names.items():
            amount = self._amounts()[name]
            cost = dollars / amount * many if amount else None
            self._value(f"cost_per_{unit}", cost, "USD", reason)

    def _amounts(self) -> dict[str, float]:
        speed = self._speed
        tokens = speed.usage.get("output_tokens", 0.0)
        images = len(speed.pictures)
        return {"request": speed.records, "image": images, "output_token": tokens}

    def _mfu(self, rate: float | None) -> float | None:
        """Of the first batch, whose operations are counted."""
        speed = self._speed
        if not rate or not speed.flops or not speed.timings.first_batch:
            return None
        return speed.flops / float(np.median(speed.timings.first_batch)) / rate

    @property
    def _compile_s(self) -> float | None:
        """What the first call takes beyond the median of the same call later."""
        timings = self._speed.timings
        if not self._around.compiled or timings.first_call is None:
            return None
        return max(0.0, timings.first_call - float(np.median(timings.first_batch)))

    @property
    def _megapixels(self) -> float:
        return sum(width * height for width, height in self._speed.pictures) / 1e6

    @property
    def _no_picture(self) -> str:
        drawing = self._around.kind in (None, Kind.RENDER)
        return "no picture was drawn" if drawing else "the stage gives no pictures"

    @property
    def _no_token(self) -> str:
        around, reasons = self._around, self._speed.timings.reasons
        if around.kind is None:
            return "whole documents: measure --part draft"
        if around.kind is not Kind.DRAFT:
            return "the stage writes no text"
        if around.server:
            return STREAMED
        if self._speed.way == "upstream":
            return "the original's loop does not tell when a token arrives"
        return reasons.get("tokens", "no decoding loop that plait knows ran")

    @property
    def _no_step(self) -> str:
        if self._around.kind not in (None, Kind.RENDER):
            return "the stage does not denoise"
        return SERVER if self._around.server else "no diffusion pipeline ran"
