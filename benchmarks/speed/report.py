"""One measurement as tables, as JSON and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load

from plait.benchmarks.bench_program import write_outs
from plait.benchmarks.provenance import machine_of, versions_of
from plait.benchmarks.results.table import ResultTable, markdown_page
from plait.benchmarks.speed.figures import Figure, Figures, Speed, Surroundings
from plait.benchmarks.speed.profiling import Profile
from plait.benchmarks.terminal import command_text
from plait.generators.base import PEAKS
from plait.generators.document import (
    Draft,
    Embedding,
    Image,
    ImageRequest,
    Payload,
    Score,
    Text,
)
from plait.generators.files import safe_name
from plait.generators.images import Drawing
from plait.generators.logprobs import Logprobs

FORMS = (".json", ".md")
BANDWIDTH = "memory_bandwidth_utilization"
PER_MINUTE = frozenset({"images"})
"""Counted by the minute; everything else by the second."""
NOT_A_RATE = PEAKS | {"input_tokens", "input_images", "steps", "image_tokens"}
_SPREAD = ("median", "p90", "p95", "p99")
_NONE = "-"


def number(value: float) -> str:
    """Write a number with four digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


@dataclass(frozen=True)
class Measurement:
    """Everything that is known about one measured stage."""

    name: str
    """Beginning of the names of its files."""
    title: str
    speeds: Sequence[Speed]
    around: Surroundings
    about: Mapping[str, Any]
    """Machine, versions, command and settings."""
    loadgen: Sequence[Mapping[str, Any]] = field(default=())
    """The report of MLPerf's LoadGen on each scenario."""
    profile: Profile | None = None
    """Where the time of one call went, where that was asked for."""

    @cached_property
    def figures(self) -> list[Figures]:
        """The figures of each variant in standard words, and why others are absent."""
        return [Figures(speed, self.around) for speed in self.speeds]

    @property
    def _pairs(self) -> list[tuple[Speed, Figures]]:
        return list(zip(self.speeds, self.figures, strict=True))

    def ratio(self, speed: Speed) -> float | None:
        """Return how many times as fast it is as what it stands beside; None for that.

        That is the original's loop at the same size, or else the first variant.
        """
        beside = self._beside(speed)
        return None if speed is beside else beside.median_s / speed.median_s

    def _beside(self, speed: Speed) -> Speed:
        size = speed.variant.removeprefix("upstream ").removesuffix(" eager")
        named = {other.variant: other for other in self.speeds}
        return named.get(f"upstream {size}", self.speeds[0])

    def agreement(self, speed: Speed) -> int:
        """Count the answers that equal those of the first variant; see `same`."""
        return sum(map(same, speed.answers, self.speeds[0].answers))

    def data(self) -> dict[str, Any]:
        """Return `about`, `speeds`, and `loadgen` where a scenario was run."""
        speeds = [self._speed_data(speed, figures) for speed, figures in self._pairs]
        data: dict[str, Any] = {"about": dict(self.about), "speeds": speeds}
        if self.loadgen:
            data["loadgen"] = list(self.loadgen)
        if self.profile is not None:
            data["profile"] = self.profile.data()
        return data

    def _speed_data(self, speed: Speed, figures: Figures) -> dict[str, Any]:
        """Return one variant as plain data, beside the first variant."""
        data = speed.data()
        if self.around.server:
            # What was measured is this process, and not the server that did the work.
            data["peak_memory_gib"] = None
        data |= figures.data()
        bandwidth = figures.present.get(BANDWIDTH)
        data["fraction_of_bandwidth"] = None if bandwidth is None else bandwidth.value
        data["ratio"] = self.ratio(speed)
        data["same_answers"] = self.agreement(speed)
        return data

    # ------------------------------------------------------------------------- tables

    @property
    def tables(self) -> list[ResultTable]:
        """Rates, figures, and LoadGen's figures where a scenario was run."""
        tables = [self._rate_table(), self._figure_table()]
        if self.loadgen:
            tables.append(self._loadgen_table())
        if self.profile is not None:
            tables.append(self.profile.table)
        return tables

    def _rate_table(self) -> ResultTable:
        amounts = self._amounts()
        rates = [f"{name}/{_time_unit(name)}" for name in amounts]
        beside = self.speeds[0].variant
        if beside.startswith("upstream"):
            # Each variant stands beside the original's loop at its own size: see `ratio`.
            beside = "upstream"
        head = ["variant", "s", "records/s", *rates, "peak GiB", "of bandwidth"]
        head += [f"x {beside}", "same answers", "failed"]
        rows = [self._rate_row(speed, figures, amounts) for speed, figures in self._pairs]
        return ResultTable.of(f"{self.title} on {self.place}", head, rows)

    def _amounts(self) -> list[str]:
        """Return the names of all that any variant uses or makes at a rate."""
        names = set[str]()
        for speed in self.speeds:
            names.update(speed.usage)
        return sorted(names - NOT_A_RATE)

    def _rate_row(
        self, speed: Speed, figures: Figures, amounts: Sequence[str]
    ) -> list[str]:
        ratio = self.ratio(speed)
        used = figures.present.get(BANDWIDTH)
        failures = [f"{count} x {why}" for why, count in speed.failures.items()]
        return [
            speed.variant,
            f"{speed.median_s:.3f}",
            f"{speed.per_s(speed.records):.2f}",
            *(f"{_rate(speed, name):.1f}" for name in amounts),
            _NONE if self.around.server else f"{speed.peak_memory_gib:.2f}",
            _NONE if used is None else f"{used.value:.1%}",
            _NONE if ratio is None else f"{ratio:.2f}",
            f"{self.agreement(speed)}/{len(speed.outcomes)}",
            "; ".join(failures),
        ]

    def _figure_table(self) -> ResultTable:
        rows = []
        for name in self._present():
            rows += _rows_of(name, [figures.present.get(name) for figures in self.figures])
        head = ["figure", "unit", *(speed.variant for speed in self.speeds)]
        absent = [f"not measured: {name}: {why}" for name, why in self.absent.items()]
        return ResultTable.of("Figures", head, rows, absent)

    def _present(self) -> list[str]:
        """Return the names of the figures that any variant has, as they first come."""
        names: dict[str, None] = {}
        for figures in self.figures:
            names.update(dict.fromkeys(figures.present))
        return list(names)

    @property
    def absent(self) -> dict[str, str]:
        """Figures that no variant has, and why."""
        present = set(self._present())
        reasons: dict[str, str] = {}
        for figures in self.figures:
            for name, reason in figures.absent.items():
                if name not in present:
                    reasons.setdefault(name, reason)
        return reasons

    def _loadgen_table(self) -> ResultTable:
        rows = []
        for run in self.loadgen:
            for name, value in run["figures"].items():
                text = value if isinstance(value, str) else number(value)
                rows.append([run["scenario"], name, text])
        return ResultTable.of("MLPerf LoadGen", ["scenario", "figure", "LoadGen"], rows)

    # -------------------------------------------------------------------------- files

    def write(self, out: Path) -> list[Path]:
        """Write the form that a file's ending names, or all forms into a folder."""
        name = safe_name(self.name, "-")
        files = [out]
        if out.suffix not in FORMS:
            files = [out / f"{name}{ending}" for ending in FORMS]
        command = command_text("plait", "bench", "stage", *self.about["command"])
        remarks = (command, *self.conditions, versions_of(self.about))
        page = markdown_page(self.title, remarks, self.tables)
        write_outs(files, self.data, lambda: page)
        return files

    @property
    def place(self) -> str:
        """The device, or from where a server was asked."""
        device = str(self.about["device"])
        return f"a server, asked from {device}" if self.around.server else device

    @property
    def conditions(self) -> list[str]:
        """How the figures were taken, for people."""
        about = self.about
        lines = [
            f"{self.place}; {machine_of(about)}",
            f"{about['inputs']} inputs, {about['rounds']} timed rounds after 1 that warms "
            f"up, variants interleaved; timed by {about['timer']}",
        ]
        if self.around.server:
            # The rates of this machine say nothing about the server's.
            return lines
        line = f"a copy reads and writes {self.around.bandwidth / 1e9:.1f} GB/s"
        for dtype, rate in self.around.matrix_rates.items():
            line += f"; a {dtype} matrix product does {rate / 1e9:.1f} GFLOP/s"
        lines.append(line)
        if about["weights"] in ("dummy", "tiny"):
            lines.append(f"the weights are random ({about['weights']})")
        return lines


def _time_unit(name: str) -> str:
    return "min" if name in PER_MINUTE else "s"


def _rate(speed: Speed, name: str) -> float:
    """Return how much of `name` a variant uses or makes in a second, or in a minute."""
    per_s = speed.per_s(speed.usage.get(name, 0.0))
    return per_s * 60 if name in PER_MINUTE else per_s


def _rows_of(name: str, figures: Sequence[Figure | None]) -> list[list[str]]:
    """Return the rows of one figure; a distribution has mean, median and percentiles."""
    present = [figure for figure in figures if figure is not None]
    # A figure has one unit, whichever variant it is of.
    unit = present[0].unit
    values = [_value_cell(figure) for figure in figures]
    if all(figure.spread is None for figure in present):
        return [[name, unit, *values]]
    rows = [[f"{name} mean", unit, *values]]
    for part in _SPREAD:
        cells = [_spread_cell(figure, part) for figure in figures]
        rows.append([f"{name} {part}", unit, *cells])
    return rows


def _value_cell(figure: Figure | None) -> str:
    return _NONE if figure is None else number(figure.value)


def _spread_cell(figure: Figure | None, part: str) -> str:
    if figure is None or figure.spread is None:
        return _NONE
    return number(figure.spread[part])


def same(one: Any, other: Any) -> bool:
    """Compare results: pixels within one grey level, other numbers within 1e-4."""
    if isinstance(one, Drawing) and isinstance(other, Drawing):
        if one.pixels.shape != other.pixels.shape:
            return False
        # Bytes would wrap around below 0.
        difference = one.pixels.astype(np.int16) - other.pixels
        return bool(np.abs(difference).max() <= 1)
    if isinstance(one, Score | Logprobs) and isinstance(other, type(one)):
        return math.isclose(one.value, other.value, abs_tol=1e-4)
    if isinstance(one, Embedding) and isinstance(other, Embedding):
        first = np.frombuffer(one.vector, "<f4")
        second = np.frombuffer(other.vector, "<f4")
        return first.shape == second.shape and np.allclose(first, second, 1e-4, 1e-4)
    if isinstance(one, Payload) and isinstance(other, Payload):
        return _same_tensors(load(one.read()), load(other.read()))
    if isinstance(one, Draft) and isinstance(other, Draft):
        equal = len(one.segments) == len(other.segments)
        return equal and all(map(_same_segment, one.segments, other.segments))
    return bool(one == other)


def _same_segment(
    one: Text | Image | ImageRequest, other: Text | Image | ImageRequest
) -> bool:
    if not isinstance(one, ImageRequest) or not isinstance(other, ImageRequest):
        return one == other
    plain = replace(one, payload=None) == replace(other, payload=None)
    return plain and same(one.payload, other.payload)


def _same_tensors(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one.keys() != other.keys():
        return False
    for name, tensor in one.items():
        if tensor.shape != other[name].shape:
            return False
        if not np.allclose(tensor, other[name], 1e-4, 1e-4):
            return False
    return True
