"""MLPerf's Offline and SingleStream scenarios, run and timed by MLCommons' LoadGen.

LoadGen chooses the queries, takes the times and writes the summary; plait only answers.
It needs the package `mlcommons-loadgen`. A run is shorter than MLPerf's rules ask for and
is no MLPerf result.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.generators.base import Result
from plait.generators.extras import import_extra

if TYPE_CHECKING:
    from plait.benchmarks.speed.rounds import Variant

_FEWEST_SINGLE = 64
"""Queries of SingleStream without which LoadGen calls a run invalid: fewer cannot tell the
90th percentile (its early stopping rule), however long they take."""
_MARGIN = 1.5
"""How much faster than measured the stage may turn out."""
_LINE = re.compile(r"^ *(?P<name>[^:*=\n]+?) *: *(?P<value>\S.*?) *$", re.MULTILINE)


class Scenario(StrEnum):
    """A scenario of MLPerf."""

    OFFLINE = "offline"
    SINGLE_STREAM = "single-stream"


def require() -> Any:
    """Return LoadGen's module; UsageError where it is not installed."""
    return import_extra("mlperf_loadgen", "--scenario")


def run(
    scenario: Scenario,
    variant: Variant,
    inputs: Sequence[Any],
    *,
    min_duration_s: float,
    expected_per_s: float,
) -> dict[str, Any]:
    """Let LoadGen test a variant for at least so long, and on every input at least once.

    `expected_per_s`, inputs per second, decides how many samples LoadGen makes ready.

    Raises:
        Exception: What the stage raised, once LoadGen has ended.
    """
    loadgen = require()
    count = len(inputs)
    failures: list[Any] = []
    errors: list[Exception] = []

    def issue(samples: Sequence[Any]) -> None:
        """Answer all samples, a batch at a time, and tell LoadGen after each batch."""
        for batch in variant.batches(samples):
            try:
                asked = [inputs[sample.index] for sample in batch]
                made = [] if errors else variant.compute(asked)
                # LoadGen counts samples without a result as answered.
                for outcome in made:
                    if not isinstance(outcome, Result):
                        failures.append(outcome)
            except Exception as error:
                # An exception would end the process inside of LoadGen.
                errors.append(error)
            replies = []
            for sample in batch:
                # Without data, which only its accuracy mode reads.
                replies.append(loadgen.QuerySampleResponse(sample.id, 0, 0))
            loadgen.QuerySamplesComplete(replies)

    settings = _settings(loadgen, scenario, count, min_duration_s, expected_per_s)
    with tempfile.TemporaryDirectory() as folder:
        logs = loadgen.LogSettings()
        logs.log_output.outdir = folder
        logs.enable_trace = False
        sut = loadgen.ConstructSUT(issue, lambda: None)
        library = loadgen.ConstructQSL(count, count, lambda _: None, lambda _: None)
        try:
            loadgen.StartTestWithLogSettings(sut, library, settings, logs)
        finally:
            loadgen.DestroyQSL(library)
            loadgen.DestroySUT(sut)
        if errors:
            raise errors[0]
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
    return {
        "scenario": scenario,
        "batch_size": variant.size,
        "figures": parse(summary),
        "failures": len(failures),
        "summary": summary,
    }


def _settings(
    loadgen: Any, scenario: Scenario, count: int, min_duration_s: float, per_s: float
) -> Any:
    single = scenario is Scenario.SINGLE_STREAM
    settings = loadgen.TestSettings()
    kinds = loadgen.TestScenario
    settings.scenario = kinds.SingleStream if single else kinds.Offline
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = int(min_duration_s * 1000)
    settings.min_query_count = max(count, _FEWEST_SINGLE) if single else count
    # Both only decide how many queries LoadGen makes ready; with too few it ends early.
    settings.offline_expected_qps = per_s * _MARGIN
    settings.single_stream_expected_latency_ns = max(1, int(1e9 / per_s / _MARGIN))
    return settings


def parse(summary: str) -> dict[str, Any]:
    """Read the figures of a LoadGen summary by LoadGen's own names; no test parameters."""
    results = summary.partition("Test Parameters Used")[0]
    figures: dict[str, Any] = {}
    for line in _LINE.finditer(results):
        figures[line["name"]] = line["value"]
    if "Result is" not in figures:
        raise ValueError(f"LoadGen's summary names no result: {summary[:200]!r}")
    for name, text in figures.items():
        with contextlib.suppress(ValueError):
            figures[name] = int(text) if text.isdecimal() else float(text)
    return figures
