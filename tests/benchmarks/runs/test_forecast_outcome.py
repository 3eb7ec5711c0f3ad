"""The outcome of a run beside its forecast, in the manifest and in words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from forecast_helpers import measured, stage

from benchmarks.runs.forecast.outcome import outcome_lines, outcome_of
from cluster.records import Item, encode
from generators.base import Result
from generators.document import Draft, Request, Text

WRITE = stage("write")
FOLDER = WRITE.folder


def span(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": 0.9 * mean, "high": 1.1 * mean}


def planned(**changes: Any) -> dict[str, Any]:
    """Ten records of a second each and 5 s of loading, in 100 s."""
    own = {"jobs": 10, "seconds_per_record": span(1.0), "load_seconds": span(5.0)}
    return {"seconds": span(100), "lower_bound": False, "stages": {FOLDER: own}} | changes


def actual(seconds: float, each: float = 1.0, load: float = 5.0) -> dict[str, Any]:
    stages = {FOLDER: {"jobs": 10, "seconds_per_record": each}}
    return {"seconds": seconds, "stages": stages, "load_seconds": {FOLDER: [90.0, load]}}


def test_a_run_is_longer_or_shorter_than_planned() -> None:
    (line,) = outcome_lines(planned(), actual(110.0))
    assert line == "planned 100 s (90 s to 110 s), took 110 s (10% longer)"
    (line,) = outcome_lines(planned(), actual(75.0))
    assert line.endswith("took 75 s (25% shorter)")


def test_the_largest_differences_are_named_the_last_load_among_them() -> None:
    _, causes = outcome_lines(planned(), actual(110.0, each=6.0, load=17.0))
    assert causes == (
        "write made 10 records at 6 s, planned 10 at 1 s; write loaded in 17 s, planned 5 s"
    )


def test_a_lower_bound_is_said_to_be_one() -> None:
    unknown = {"other-0": {"jobs": 1, "seconds_per_record": None, "load_seconds": None}}
    forecast = planned(lower_bound=True)
    forecast["stages"] |= unknown
    (line,) = outcome_lines(forecast, actual(110.0))
    assert line.startswith("planned at least 100 s")
    assert line.endswith("(not all rates were known; 1 of 2 stages had none)")
    assert outcome_lines(planned(lower_bound=True, stages=unknown), actual(110.0)) == []


def test_only_records_of_this_command_are_its_outcome(tmp_path: Path) -> None:
    store = measured(tmp_path, WRITE, [(1, 40.0), (1, 40.0)])
    time.sleep(0.002)
    since_us = time.time_ns() // 1000
    items = [Item(f"new-{i}", "query", Request(())) for i in range(2)]
    words = [Result(Draft((Text("words"),))) for _ in items]
    store.commit(WRITE, encode(WRITE.kind, items, words, 1.5))
    manifest = {"forecast": planned(), "timing": {"load_seconds": {FOLDER: [4.0]}}}
    assert outcome_of(tmp_path, manifest, 9.0, since_us) == {
        "seconds": 9.0,
        "stages": {FOLDER: {"jobs": 2, "seconds_per_record": pytest.approx(1.5)}},
        "load_seconds": {FOLDER: [4.0]},
    }
