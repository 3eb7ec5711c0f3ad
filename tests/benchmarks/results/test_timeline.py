"""Where the time of a run went, in words and as a chart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trace_helpers import START, Work, each, record

from plait.benchmarks.results.timeline import (
    MOST_LANES,
    duration,
    lanes_of,
    timeline_of,
    words_of,
)
from plait.cluster.tracing.sessions import read_sessions
from plait.cluster.tracing.summary import STATES, summarise

pytestmark = pytest.mark.figures


def two_stages(root: Path):
    """10 s of loading, then a writer for 60 s and an artist for 80 s, on GPUs."""
    write = Work("writer", each(1, 60, begin=10), ready=10, gpus=1)
    return record(root, write, Work("artist", each(2, 40, begin=12), ready=10, gpus=1))


def test_the_words_name_the_limit_and_what_was_idle(tmp_path: Path) -> None:
    time, idle = words_of(summarise(two_stages(tmp_path)))
    assert time.startswith("Time: 1 min 40 s, of which 1 min 20 s (80%) limited by artist")
    assert "10 s (10%) waiting for models to load" in time
    assert "held 0.0556 GPU-hours, of which 0.0167 (30%) were not spent computing" in idle


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (Work("gpt", each(1, 100), remote=True), "All work was done by endpoints."),
        (Work("a", ready=100), "No worker computed anything in 1 min 40 s."),
    ],
)
def test_the_words_where_nothing_was_held_or_done(tmp_path: Path, work, told) -> None:
    assert words_of(summarise(record(tmp_path, work)))[-1] == told


def test_a_short_run_is_not_said_to_be_the_work_of_endpoints(tmp_path: Path) -> None:
    work = Work("a", each(0.05, 1, begin=0.02), ready=0.02, end=0.1)
    summary = summarise(record(tmp_path, work, end=0.1))
    assert summary["held_hours"] == 0
    (time,) = words_of(summary)
    assert "limited by a" in time


def test_durations_are_rounded_before_their_unit_is_chosen() -> None:
    told = {0.04: "0.0 s", 9.96: "10 s", 59.7: "1 min 00 s", 11_400: "3 h 10 min"}
    assert {seconds: duration(seconds) for seconds in told} == told


def shares_of(lane) -> dict[str, float]:
    """The share of the axis in each state."""
    return dict(zip(STATES, lane.mean(axis=1).round(2).tolist(), strict=True))


def test_a_lane_holds_the_share_of_each_state(tmp_path: Path) -> None:
    lanes = lanes_of([two_stages(tmp_path)])
    assert list(lanes) == ["writer #1 on host", "artist #1 on host"]
    writer = lanes["writer #1 on host"]
    nothing = {"lost": 0, "transfer": 0}
    assert shares_of(writer) == {"load": 0.1, "compute": 0.6, "wait": 0.3, **nothing}
    tenth = writer.shape[1] // 10
    assert writer[STATES.index("load"), :tenth] == pytest.approx(1)
    assert np.all(writer.sum(axis=0) <= 1 + 1e-9)


def test_sessions_follow_each_other_in_a_lane(tmp_path: Path) -> None:
    record(tmp_path, Work("a", each(1, 40, begin=10), ready=10, end=90), end=90)
    record(tmp_path, Work("a", each(1, 10), end=10), end=10, start=START + 10**15)
    (lane,) = lanes_of(read_sessions(tmp_path)).values()
    shares = shares_of(lane)
    assert (shares["load"], shares["compute"], shares["wait"]) == (0.1, 0.5, 0.4)


def test_many_workers_are_drawn_by_stage(tmp_path: Path) -> None:
    many = [Work("a", each(1, 50)) for _ in range(MOST_LANES + 1)]
    ((label, lane),) = lanes_of([record(tmp_path, *many)]).items()
    assert label == f"a, {MOST_LANES + 1} workers"
    assert shares_of(lane)["compute"] == 0.5


def test_the_words_and_the_table_are_of_the_longest_session(tmp_path: Path) -> None:
    assert timeline_of(tmp_path) is None
    record(tmp_path, Work("writer", each(1, 5), end=5), end=5)
    record(tmp_path, Work("<b>artist</b>", each(1, 50)), start=START + 10**15)
    timeline = timeline_of(tmp_path)
    assert timeline is not None
    assert timeline.words[0].startswith("Session 2 of 2. ")
    (row,) = timeline.stages.rows
    assert [cell.text for cell in row[:5]] == ["<b>artist</b>", "1", "200", "50", "50 s"]
    assert "<b>" not in timeline.chart
    assert timeline.chart.count("&lt;b&gt;artist") >= 2
