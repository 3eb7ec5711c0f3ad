"""MLPerf's Offline and SingleStream scenarios, run and timed by MLCommons' LoadGen.

LoadGen chooses the queries, takes the times and writes the summary; plait only answers.
It needs the package `mlcommons-loadgen`. A run is shorter than MLPerf's rules ask for and
is no MLPerf result.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.instruments.speeds import Scenario
from benchmarks.speed.reporting.figures import Figures
from generators.base import Outcome, Result
from generators.errors import UsageError

SUMMARY = "mlperf_log_summary.txt"
_NS = 1e6
"""Nanoseconds in a millisecond."""
_FEWEST_SINGLE = 64
"""Queries of SingleStream without which LoadGen calls a run invalid: fewer cannot tell the
90th percentile (its early stopping rule), however long they take."""
_MARGIN = 1.5
"""How much faster than measured the stage may turn out."""
_ADVICE = "Recommendations"
_LINE = re.compile(r"^(?P<name>[^:*]+?)\s*:\s*(?P<value>\S.*?)\s*$")


@dataclass(frozen=True)
class LoadGenRun:
    """What LoadGen said about one scenario."""

    scenario: Scenario
    batch_size: int
    summary: str
    """Its summary, as it wrote it."""
    failures: int
    """Samples to which the stage gave no result; LoadGen counts them as answered."""

    def data(self, beside: Mapping[str, float]) -> dict[str, Any]:
        """As plain data, with plait's own figures under LoadGen's names."""
        return {
            "scenario": self.scenario,
            "batch_size": self.batch_size,
            "figures": parsed(self.summary),
            "beside": dict(beside),
            "failures": self.failures,
            "summary": self.summary,
        }


def require() -> Any:
    """The module of LoadGen; UsageError where it is not installed."""
    try:
        import mlperf_loadgen
    except ImportError:
        raise UsageError(
            "--scenario needs MLPerf's LoadGen: pip install mlcommons-loadgen, or plait "
            "with the extra `loadgen`"
        ) from None
    return mlperf_loadgen


def run(
    scenario: Scenario,
    stage: Callable[[Sequence[Any]], Sequence[Outcome[Any]]],
    inputs: Sequence[Any],
    batch_size: int,
    *,
    min_duration_s: float,
    expected_per_s: float,
) -> LoadGenRun:
    """Let LoadGen test the stage for at least so long, and on every input at least once.

    `expected_per_s` decides how many samples the one query of Offline has. What the stage
    raises is raised once LoadGen has ended.
    """
    loadgen = require()
    subject = _Subject(loadgen, stage, inputs, batch_size)
    settings = _settings(loadgen, scenario, len(inputs), min_duration_s, expected_per_s)
    with tempfile.TemporaryDirectory() as folder:
        sut = loadgen.ConstructSUT(subject.issue, lambda: None)
        count = len(inputs)
        library = loadgen.ConstructQSL(count, count, _nothing, _nothing)
        try:
            logs = _logs(loadgen, folder)
            loadgen.StartTestWithLogSettings(sut, library, settings, logs)
        finally:
            loadgen.DestroyQSL(library)
            loadgen.DestroySUT(sut)
        if subject.error is not None:
            raise subject.error
        summary = (Path(folder) / SUMMARY).read_text()
    return LoadGenRun(scenario, batch_size, summary, subject.failures)


def _nothing(samples: Sequence[int]) -> None:
    """All samples are in memory before the test begins."""


def _settings(
    loadgen: Any, scenario: Scenario, count: int, min_duration_s: float, per_s: float
) -> Any:
    settings = loadgen.TestSettings()
    scenarios = loadgen.TestScenario
    kinds = {
        Scenario.OFFLINE: scenarios.Offline,
        Scenario.SINGLE_STREAM: scenarios.SingleStream,
    }
    settings.scenario = kinds[scenario]
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = int(min_duration_s * 1000)
    single = scenario is Scenario.SINGLE_STREAM
    settings.min_query_count = max(count, _FEWEST_SINGLE) if single else count
    # Both only decide how many queries LoadGen makes ready; with too few it ends early.
    settings.offline_expected_qps = per_s * _MARGIN
    settings.single_stream_expected_latency_ns = max(1, int(1e9 / per_s / _MARGIN))
    return settings


def _logs(loadgen: Any, folder: str) -> Any:
    output = loadgen.LogOutputSettings()
    output.outdir = folder
    output.copy_summary_to_stdout = False
    settings = loadgen.LogSettings()
    settings.log_output = output
    settings.enable_trace = False
    return settings


class _Subject:
    """The system under test: answers what LoadGen issues."""

    def __init__(
        self, loadgen: Any, stage: Any, inputs: Sequence[Any], batch_size: int
    ) -> None:
        self.failures = 0
        self.error: Exception | None = None
        self._loadgen, self._stage = loadgen, stage
        self._inputs, self._size = inputs, batch_size

    def issue(self, samples: Sequence[Any]) -> None:
        """Answer all samples, a batch at a time, and tell LoadGen after each batch."""
        for start in range(0, len(samples), self._size):
            batch = samples[start : start + self._size]
            self._compute([self._inputs[sample.index] for sample in batch])
            response = self._loadgen.QuerySampleResponse
            self._loadgen.QuerySamplesComplete([response(s.id, 0, 0) for s in batch])

    def _compute(self, inputs: Sequence[Any]) -> None:
        if self.error is not None:
            return
        try:
            outcomes = self._stage(inputs)
        except Exception as error:
            # An exception would end the process inside of LoadGen.
            self.error = error
            return
        self.failures += sum(not isinstance(outcome, Result) for outcome in outcomes)


def parsed(summary: str) -> dict[str, Any]:
    """The figures of a LoadGen summary by LoadGen's own names; no test parameters.

    What it recommends, where a run is not valid, is one text.
    """
    figures: dict[str, Any] = {}
    advice: list[str] = []
    for line in summary.splitlines():
        if line.startswith("Test Parameters Used"):
            break
        if line.startswith(f"{_ADVICE}:"):
            advice = [""]
        elif advice and line.startswith(" "):
            advice.append(line.strip(" *"))
        elif match := _LINE.match(line.strip()):
            figures[match["name"].strip()] = _number(match["value"])
    if "Result is" not in figures:
        raise ValueError(f"LoadGen's summary names no result: {summary[:200]!r}")
    return figures | ({_ADVICE: " ".join(advice).strip()} if advice else {})


def _number(text: str) -> Any:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() and "." not in text else value


def beside(figures: Figures, scenario: Scenario) -> dict[str, float]:
    """Plait's own figures of the same batch size under the names of LoadGen's summary."""
    if scenario is Scenario.OFFLINE:
        rate = figures.present.get("request_throughput")
        return {} if rate is None else {"Samples per second": rate.value}
    latency = figures.present.get("request_latency")
    if latency is None or latency.spread is None:
        return {}
    parts = {"50.00": "median", "90.00": "p90", "95.00": "p95", "99.00": "p99"}
    named = {f"{p} percentile latency (ns)": latency.spread[n] for p, n in parts.items()}
    return {n: v * _NS for n, v in {"Mean latency (ns)": latency.value, **named}.items()}
