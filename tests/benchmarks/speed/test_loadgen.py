"""MLPerf's LoadGen against a stage that takes known times."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from speed_helpers import figures

from benchmarks.speed.instruments.speeds import Scenario, Speed, Timings
from benchmarks.speed.stage import command, loadgen
from generators.base import Failure, Result
from generators.errors import UsageError

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


def test_a_summary_is_read_by_loadgens_own_names() -> None:
    assert loadgen.parsed(SUMMARY) == {
        "SUT name": "PySUT",
        "Scenario": "Offline",
        "Mode": "PerformanceOnly",
        "Samples per second": 12.9731,
        "Result is": "INVALID",
        "Min duration satisfied": "NO",
        "Mean latency (ns)": 272953865,
        "Recommendations": "Increase expected QPS so the loadgen pre-generates a larger "
        "(coalesced) query.",
    }
    with pytest.raises(ValueError, match="names no result"):
        loadgen.parsed("LoadGen crashed")


def test_our_figures_stand_beside_under_the_same_names_and_units() -> None:
    timings = Timings(requests=[v / 1000 for v in range(1, 101)])
    made = figures(Speed("batch 1", [4.0], 8, timings=timings))
    assert loadgen.beside(made, Scenario.OFFLINE) == {"Samples per second": 2.0}
    own = loadgen.beside(made, Scenario.SINGLE_STREAM)
    assert own["Mean latency (ns)"] == pytest.approx(50.5e6)
    assert own["90.00 percentile latency (ns)"] == pytest.approx(90.1e6)


def test_without_the_package_the_remedy_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    with pytest.raises(UsageError, match="pip install mlcommons-loadgen"):
        command.main(["clipscore", "--scenario", "offline", "--weights", "tiny"])


SLEEP = 0.02


class Sleeper:
    """Takes SLEEP seconds for a batch of any size."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, inputs):
        self.batches.append(list(inputs))
        time.sleep(SLEEP)
        return [Failure("no") if i == "bad" else Result(i) for i in inputs]


def measured(scenario: Scenario, stage, inputs, size: int) -> loadgen.LoadGenRun:
    pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen is not installed")
    speed = {"min_duration_s": 0.5, "expected_per_s": size / SLEEP}
    return loadgen.run(scenario, stage, inputs, size, **speed)


def test_single_stream_sends_one_input_at_a_time() -> None:
    stage = Sleeper()
    made = measured(Scenario.SINGLE_STREAM, stage, ["a", "b", "c"], 1)
    assert {len(batch) for batch in stage.batches} == {1}
    assert {batch[0] for batch in stage.batches} == {"a", "b", "c"}
    read = loadgen.parsed(made.summary)
    assert read["Scenario"] == "SingleStream"
    assert read["Min duration satisfied"] == "Yes"
    # By LoadGen's own rule: with fewer queries it cannot tell the 90th percentile.
    assert (read["Result is"], len(stage.batches) >= 64) == ("VALID", True)
    assert read["Min latency (ns)"] >= SLEEP * 1e9
    assert read["QPS w/o loadgen overhead"] <= 1 / SLEEP
    assert made.failures == 0


def test_offline_sends_all_at_once_and_they_are_answered_in_batches() -> None:
    stage = Sleeper()
    made = measured(Scenario.OFFLINE, stage, ["a", "bad"], 4)
    assert max(len(batch) for batch in stage.batches) == 4
    read = loadgen.parsed(made.summary)
    assert read["Scenario"] == "Offline"
    assert read["Min duration satisfied"] == "Yes"
    assert 0 < read["Samples per second"] <= 4 / SLEEP
    answered = [i for batch in stage.batches for i in batch]
    assert made.failures == answered.count("bad") > 0


def test_what_the_stage_raises_is_raised_after_loadgen_has_ended() -> None:
    def broken(inputs):
        raise ZeroDivisionError("the model is broken")

    with pytest.raises(ZeroDivisionError, match="the model is broken"):
        measured(Scenario.SINGLE_STREAM, broken, ["a"], 1)


@pytest.mark.models
def test_the_command_shows_both_figures_side_by_side(tmp_path: Path, capsys) -> None:
    pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen is not installed")
    words = ["anole", "--part", "render", "--weights", "tiny", "--batches", "1,2"]
    words += ["--queries", "2", "--rounds", "1", "--min-duration", "0.5"]
    scenarios = ["--scenario", "offline", "--scenario", "single-stream"]
    assert command.main([*words, *scenarios, "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "anole-render-tiny.json").read_text())
    offline, single = written["loadgen"]
    assert (offline["batch_size"], single["batch_size"]) == (2, 1)
    assert offline["figures"]["Samples per second"] > 0
    assert offline["beside"]["Samples per second"] > 0
    assert single["beside"]["Mean latency (ns)"] > 0
    page = (tmp_path / "anole-render-tiny.md").read_text()
    assert "Figures that LoadGen took" in page
    assert "| offline | Samples per second |" in page
    assert "MLPerf LoadGen" in capsys.readouterr().out
