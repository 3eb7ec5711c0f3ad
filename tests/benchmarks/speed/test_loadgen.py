"""MLPerf's LoadGen against a stage that takes known times."""

from __future__ import annotations

import sys
import time

import pytest

from plait.benchmarks.speed import command, loadgen
from plait.benchmarks.speed.loadgen import Scenario
from plait.benchmarks.speed.rounds import Variant
from plait.generators.base import Failure, Result
from plait.generators.errors import UsageError

pytestmark = pytest.mark.models

SUMMARY = """\
================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Offline
Mode     : PerformanceOnly
Samples per second: 12.9731
Result is : INVALID
  Min duration satisfied : NO
Recommendations:
 * Increase expected QPS so the loadgen pre-generates a larger (coalesced) query.

================================================
Additional Stats
================================================
Mean latency (ns)               : 272953865

================================================
Test Parameters Used
================================================
samples_per_query : 24
"""
SLEEP = 0.02


def test_a_summary_is_read_by_loadgens_own_names():
    assert loadgen.parse(SUMMARY) == {
        "SUT name": "PySUT",
        "Scenario": "Offline",
        "Mode": "PerformanceOnly",
        "Samples per second": 12.9731,
        "Result is": "INVALID",
        "Min duration satisfied": "NO",
        "Mean latency (ns)": 272953865,
    }
    with pytest.raises(ValueError, match="names no result"):
        loadgen.parse("LoadGen crashed")


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    with pytest.raises(UsageError, match=r"plait\[loadgen\]"):
        command.main(["clipscore", "--scenario", "offline", "--weights", "tiny"])


class Sleeper:
    """Takes SLEEP seconds for a batch of any size."""

    def __init__(self):
        self.batches: list[list[str]] = []

    def __call__(self, inputs):
        self.batches.append(list(inputs))
        time.sleep(SLEEP)
        return [Failure("no") if i == "bad" else Result(i) for i in inputs]


def measured(scenario, stage, inputs, size):
    pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen is not installed")
    speed = {"min_duration_s": 0.5, "expected_per_s": size / SLEEP}
    return loadgen.run(scenario, Variant(scenario, stage, size), inputs, **speed)


def test_single_stream_sends_one_input_at_a_time():
    stage = Sleeper()
    made = measured(Scenario.SINGLE_STREAM, stage, ["a", "b", "c"], 1)
    assert {len(batch) for batch in stage.batches} == {1}
    assert {batch[0] for batch in stage.batches} == {"a", "b", "c"}
    read = made["figures"]
    assert (read["Scenario"], read["Min duration satisfied"]) == ("SingleStream", "Yes")
    # By LoadGen's own rule: with fewer queries it cannot tell the 90th percentile.
    assert (read["Result is"], len(stage.batches) >= 64) == ("VALID", True)
    assert read["Min latency (ns)"] >= SLEEP * 1e9
    assert made["failures"] == 0


def test_offline_sends_all_at_once_and_they_are_answered_in_batches():
    stage = Sleeper()
    made = measured(Scenario.OFFLINE, stage, ["a", "bad"], 4)
    assert max(len(batch) for batch in stage.batches) == 4
    assert made["figures"]["Scenario"] == "Offline"
    assert 0 < made["figures"]["Samples per second"] <= 4 / SLEEP
    answered = [i for batch in stage.batches for i in batch]
    assert made["failures"] == answered.count("bad") > 0


def test_what_the_stage_raises_is_raised_after_loadgen_has_ended():
    def broken(inputs):
        raise ZeroDivisionError("the model is broken")

    with pytest.raises(ZeroDivisionError, match="the model is broken"):
        measured(Scenario.SINGLE_STREAM, broken, ["a"], 1)
