"""One measurement as JSON, as diffusers' benchmark CSV, as Markdown and as a plot."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.provenance import machine_of, versions_of
from benchmarks.speed.instruments.speeds import Speed
from benchmarks.speed.reporting.figures import Figure, Figures
from benchmarks.speed.reporting.output import Report
from benchmarks.speed.reporting.plot import plot
from benchmarks.speed.reporting.tables import markdown_table, number
from generators.files import safe_name, write_whole

DIFFUSERS_COLUMNS = (
    "scenario",
    "model_cls",
    "num_params_B",
    "flops_G",
    "time_plain_s",
    "mem_plain_GB",
    "time_compile_s",
    "mem_compile_GB",
    "fullgraph",
    "mode",
    "github_sha",
)
"""Columns of diffusers' `benchmarks/benchmarking_utils.py`."""
Scenarios = Sequence[Mapping[str, Any]]
"""What MLPerf's LoadGen said, one entry per scenario."""


@dataclass(frozen=True)
class Measurement:
    """Everything that is known about one measured stage."""

    name: str
    """Beginning of the names of its files."""
    title: str
    report: Report
    about: Mapping[str, Any]
    """Machine, versions, command and settings."""
    loadgen: Scenarios = field(default=())

    def write(self, out: Path) -> list[Path]:
        """Write the form that a file's ending names, or all forms into a folder."""
        forms = {".json": self.json, ".csv": self.csv, ".md": self.markdown}
        forms[".svg"] = self.svg
        if out.suffix in forms:
            contents = {out: forms[out.suffix]()}
        else:
            name = safe_name(self.name, "-")
            contents = {out / f"{name}{end}": form() for end, form in forms.items()}
        for path, content in contents.items():
            write_whole(path, content)
        return list(contents)

    def json(self) -> str:
        """`about`, `speeds`, and `loadgen` where a scenario was run."""
        written = {"about": dict(self.about), "speeds": self.report.data()}
        if self.loadgen:
            written["loadgen"] = list(self.loadgen)
        return json.dumps(written, indent=1) + "\n"

    def csv(self) -> str:
        """One line per way, in the columns of diffusers' benchmarks."""
        file = io.StringIO()
        writer = csv.DictWriter(file, DIFFUSERS_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._row(speed) for speed in self.report.speeds)
        return file.getvalue()

    def _row(self, speed: Speed) -> dict[str, Any]:
        """Memory stays empty on a CPU: the columns are of the CUDA allocator."""
        figures = self.report.figures(speed).present
        how = "compile" if self.report.around.compiled else "plain"
        row: dict[str, Any] = {
            "scenario": f"{self.title}, {speed.way}",
            "model_cls": speed.largest_module or "",
            "github_sha": self.about["git"]["commit"],
        }
        if (latency := figures.get("request_latency")) and latency.spread:
            row[f"time_{how}_s"] = f"{latency.spread['median'] / 1000:.6g}"
        if speed.parameters:
            row["num_params_B"] = f"{speed.parameters / 1e9:.6g}"
        if speed.flops:
            row["flops_G"] = f"{speed.flops / 1e9:.6g}"
        memory = figures.get("peak_memory")
        if memory is not None and "CUDA" in memory.unit:
            row[f"mem_{how}_GB"] = f"{memory.value:.4g}"
        if how == "compile":
            row |= {"fullgraph": False, "mode": "default"}
        return row

    def markdown(self) -> str:
        """The figures as a table, and how they were taken."""
        about = self.about
        lines = [
            f"# {self.title}",
            "",
            f"`plait bench stage {' '.join(about['command'])}`",
            "",
            *(f"* {line}" for line in self.conditions()),
            f"* {versions_of(about)}",
            "",
            *markdown_table(self.figure_rows()),
            "",
            *self._absent_lines(),
            *self._loadgen_lines(),
        ]
        return "\n".join(lines).rstrip() + "\n"

    @property
    def place(self) -> str:
        """The device, or from where a server was asked."""
        device = str(self.about["device"])
        return f"a server, asked from {device}" if self.report.around.server else device

    def conditions(self) -> list[str]:
        """How the figures were taken, for people."""
        about = self.about
        rates = about["matrix_rates"].items()
        lines = [
            f"{self.place}; {machine_of(about)}",
            f"{about['inputs']} inputs, {about['rounds']} timed rounds after 1 that warms "
            f"up, ways interleaved; timed by {about['timer']}",
        ]
        if self.report.around.server:
            # What this machine can do says nothing about the server's.
            return lines
        lines.append(
            f"a copy reads and writes {about['bandwidth'] / 1e9:.1f} GB/s"
            + "".join(
                f"; a {t} matrix product does {r / 1e9:.1f} GFLOP/s" for t, r in rates
            )
        )
        if about["weights"] in ("dummy", "tiny"):
            lines.append(f"the weights are random ({about['weights']})")
        return lines

    def figure_rows(self) -> list[list[str]]:
        """A heading, and one row per figure: its name, its unit, and each way's value."""
        each = [self.report.figures(speed) for speed in self.report.speeds]
        names = list(dict.fromkeys(name for figures in each for name in figures.present))
        rows = [["figure", "unit", *(speed.way for speed in self.report.speeds)]]
        for name in names:
            rows += _rows_of(name, [figures.present.get(name) for figures in each])
        return rows

    def absent(self) -> dict[str, str]:
        """Figures that no way has, and why."""
        each: list[Figures] = [self.report.figures(s) for s in self.report.speeds]
        present = {name for figures in each for name in figures.present}
        reasons: dict[str, str] = {}
        for figures in each:
            for name, reason in figures.absent.items():
                if name not in present:
                    reasons.setdefault(name, reason)
        return reasons

    def _absent_lines(self) -> list[str]:
        reasons = self.absent()
        if not reasons:
            return []
        return ["Not measured:", "", *(f"* {n}: {r}" for n, r in reasons.items()), ""]

    def _loadgen_lines(self) -> list[str]:
        if not self.loadgen:
            return []
        lines = [
            "## MLPerf LoadGen",
            "",
            "Figures that LoadGen took, outside of plait:",
            "",
        ]
        return [*lines, *markdown_table(loadgen_rows(self.loadgen)), ""]

    def svg(self) -> str:
        """Throughput and latency of each way."""
        return plot(self.title, self.report)


_SPREAD = ("median", "p90", "p95", "p99")


def _rows_of(name: str, figures: Sequence[Figure | None]) -> list[list[str]]:
    """The rows of one figure; a distribution has its mean, median and percentiles."""
    unit = next(f.unit for f in figures if f is not None)
    if all(f is None or f.spread is None for f in figures):
        return [[name, unit, *("–" if f is None else number(f.value) for f in figures)]]
    rows = [
        [f"{name} mean", unit, *("–" if f is None else number(f.value) for f in figures)]
    ]
    for part in _SPREAD:
        cells = ["–" if f is None else number((f.spread or {})[part]) for f in figures]
        rows.append([f"{name} {part}", unit, *cells])
    return rows


def loadgen_rows(scenarios: Scenarios) -> list[list[str]]:
    """A heading, and one row per line of LoadGen's summaries, beside plait's own figure."""
    rows = [["scenario", "figure", "LoadGen", "plait"]]
    for scenario in scenarios:
        for name, value in scenario["figures"].items():
            own = scenario["beside"].get(name)
            cells = [_cell(value), "" if own is None else _cell(own)]
            rows.append([scenario["scenario"], name, *cells])
    return rows


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)
