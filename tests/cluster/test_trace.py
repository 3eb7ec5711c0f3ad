"""The trace of a run: what the journal keeps, what bounded the run, Chrome's format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from trace_helpers import (
    SECOND,
    START,
    Clock,
    Work,
    each,
    read_chrome,
    record,
    slices_of,
    threads_of,
)
from trial import LIGHT, painter, plan_of, run, sample, writer

from plait.cluster.run import MANIFEST
from plait.cluster.tracing import journal as journal_module
from plait.cluster.tracing import sessions as sessions_module
from plait.cluster.tracing.journal import JOURNAL, STARTING_RAY, Event, SpanJournal
from plait.cluster.tracing.sessions import Session, read_sessions, trace_text
from plait.cluster.tracing.summary import TRACE, summarise, write_trace
from plait.generators.base import Placement

pytestmark = pytest.mark.contract

# ---------------------------------------------------------------------------- journal


def test_a_command_that_makes_nothing_leaves_no_session(tmp_path: Path) -> None:
    with SpanJournal(tmp_path) as journal, journal.phase("counting what is missing"):
        pass
    assert not (tmp_path / JOURNAL).exists()
    assert [*read_sessions(tmp_path)] == []


def test_what_came_before_the_first_worker_is_kept(tmp_path: Path) -> None:
    clock = Clock()
    with clock.shown(), SpanJournal(tmp_path) as journal:
        with journal.phase("counting"):
            with journal.phase(STARTING_RAY):
                clock.at(2)
            clock.at(3)
        journal.activate()
    (session,) = read_sessions(tmp_path)
    times = {p.name: (p.begin, p.end) for p in session.phases}
    assert times == {STARTING_RAY: (0, 2 * SECOND), "counting": (0, 3 * SECOND)}
    assert session.status == "finished"


def test_a_killed_driver_leaves_what_was_flushed(tmp_path: Path) -> None:
    """Without an end, and with its last line cut short; the next session goes on."""
    work = Work("writer", each(1, 3), end=10)
    record(tmp_path, work, end=10)
    lines = (tmp_path / JOURNAL).read_text().splitlines(keepends=True)
    kept = [x for x in lines if '"ready","ph":"E"' not in x and '"name":"end' not in x]
    (tmp_path / JOURNAL).write_text("".join(kept) + '{"name":"ba')
    record(tmp_path, replace(work, batches=each(1, 5)), end=10, start=START + 10**15)
    sessions = read_sessions(tmp_path)
    assert [s.status for s in sessions] == ["killed", "finished"]
    assert [s.workers[0].batches for s in sessions] == [3, 5]
    assert sessions[0].workers[0].end == sessions[0].end
    assert len(slices_of(read_chrome(trace_text(sessions)), "compute")) == 8


def test_a_session_is_read_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        work = Work("writer", each(1, number + 1), end=10)
        # Written in another order than that in which they began, with a line cut short.
        record(tmp_path, work, end=10, start=START + (3 - number) * 10**15)
        with (tmp_path / JOURNAL).open("a") as file:
            file.write('{"name":"session')
    sessions = read_sessions(tmp_path)
    assert [s.workers[0].batches for s in sessions] == [4, 3, 2, 1]
    assert [s.workers[0].batches for s in sessions[1:3]] == [3, 2]
    read = list[int]()

    def count(events: Sequence[Event]) -> Session:
        read.append(len(events))
        return session_of(events)

    session_of = sessions_module._session_of
    monkeypatch.setattr(sessions_module, "_session_of", count)
    assert sessions[-1].workers[0].batches == 1
    assert len(read) == 1
    assert len(write_trace(tmp_path, print)["trace"]["sessions"]) == 4
    assert len(read) == 5
    trace = (tmp_path / TRACE).read_text()
    assert trace == trace_text(sessions)
    assert len(slices_of(read_chrome(trace), "compute")) == 10


@pytest.mark.parametrize("ahead", [5, -5, 0.0])
def test_no_batch_begins_before_it_was_sent_or_ends_after_its_answer(
    tmp_path: Path, ahead: float
) -> None:
    """A worker whose clock differs has its batches put where they must have been."""
    session = record(tmp_path, Work("a", each(1, 3, begin=6), ahead=ahead, joules=2.5))
    (worker,) = session.workers
    assert [(d.begin, d.end) for d in worker.did] == [
        (t * SECOND, (t + 1) * SECOND) for t in (6, 7, 8)
    ]
    assert worker.joules == 2.5


def test_a_long_run_has_few_lines_and_loses_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 s of batches of 10 ms, some of which raise, by two workers."""
    monkeypatch.setattr(journal_module, "FINE", 50)
    works = [Work("a", each(0.01, 3000), end=60), Work("b", each(0.01, 3000))]
    works.append(Work("c", each(0.01, 10), status="raised"))
    session = record(tmp_path, *works, end=60)
    lines = (tmp_path / JOURNAL).read_text().splitlines()
    assert len([x for x in lines if '"name":"batch"' in x]) < 600
    first, second, third = session.workers
    assert (first.batches, second.batches, third.batches) == (3000, 3000, 10)
    assert (first.records, second.records, third.records) == (12_000, 12_000, 0)
    assert summarise(session)["stages"]["a"]["compute_s"] == pytest.approx(30, rel=1e-2)
    read_chrome(trace_text([session]))


@pytest.mark.parametrize(
    "line",
    [
        '["session",{"version":1,"start_ns":1,"host":"h"}]',
        '{"name":"session","ph":"i","ts":0,"pid":1,"tid":1,"args":{"version":99}}',
    ],
)
def test_a_journal_of_another_version_is_not_guessed_at(tmp_path: Path, line: str) -> None:
    (tmp_path / JOURNAL).write_text(f"{line}\n")
    assert [*read_sessions(tmp_path)] == []
    assert record(tmp_path, Work("a", each(1, 2))).workers[0].batches == 2


def test_a_disk_that_refuses_ends_nothing(tmp_path: Path) -> None:
    with SpanJournal(tmp_path / "missing") as journal:
        journal.activate()
        journal.lane("a", Placement(), "n").enter("ready")
    assert [*read_sessions(tmp_path / "missing")] == []


# -------------------------------------------------------------------- Chrome's format


def test_a_worker_is_a_process_with_threads_of_states_and_batches(tmp_path: Path) -> None:
    work = Work('писатель "1"\n', each(1, 3, begin=2), ready=2, end=10, lost=(5, 9))
    trace = read_chrome(trace_text([record(tmp_path, work, end=10)]))
    computed = [(e["ts"], e["dur"]) for e in slices_of(trace, "compute")]
    assert computed == [(t * SECOND, SECOND) for t in (2, 3, 4)]
    assert [e["args"]["records"] for e in slices_of(trace, "batch")] == [4, 4, 4]
    (lost,) = slices_of(trace, "lost")
    assert (lost["ts"], lost["dur"]) == (5 * SECOND, 4 * SECOND)
    name = 'писатель "1"\n #0'
    assert threads_of(trace) == ["driver", name, f"{name} batches 1"]
    states = [e["name"] for e in trace["traceEvents"] if e["ph"] == "B"]
    assert states == ["starting", "loading", "ready"]
    processes = {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    assert "host" in processes


def test_calls_that_overlap_have_threads_of_their_own(tmp_path: Path) -> None:
    work = Work("remote", [(0, 3.1), (1, 4.1), (2, 5), (3.2, 6)], slots=4)
    trace = read_chrome(trace_text([record(tmp_path, work)]))
    assert threads_of(trace)[2:] == [f"remote #0 batches {i}" for i in (1, 2, 3)]
    assert len(slices_of(trace, "compute")) == 4


def test_sessions_follow_each_other_without_the_time_between_them(tmp_path: Path) -> None:
    """The second one began ten days later; its first batch follows after a second."""
    work = Work("a", each(1, 5), end=5)
    record(tmp_path, work, end=5)
    record(tmp_path, replace(work), end=5, start=START + 10 * 86_400 * 10**9)
    trace = read_chrome(trace_text(read_sessions(tmp_path)))
    assert [e["ts"] for e in slices_of(trace, "compute")][5] == 6 * SECOND
    sessions = trace["otherData"]["sessions"]
    assert [s["at_us"] for s in sessions] == [0, 6 * SECOND]
    assert sessions[1]["started"] == "2001-09-19T01:46:40Z"
    assert "a #0 (session 2)" in threads_of(trace)


def test_queues_are_counters_that_are_sampled_once_a_second(tmp_path: Path) -> None:
    clock = Clock()
    with clock.shown(), SpanJournal(tmp_path) as journal:
        journal.activate()
        for seconds, jobs in ((2, 7), (2.5, 6), (4, 5), (6, 5)):
            clock.at(seconds)
            journal.note_queues({"a": jobs})
    trace = read_chrome(trace_text(read_sessions(tmp_path)))
    counters = [(e["ts"], e["args"]) for e in trace["traceEvents"] if e["ph"] == "C"]
    assert counters == [(2 * SECOND, {"jobs": 7}), (4 * SECOND, {"jobs": 5})]


# ---------------------------------------------------------------------------- summary


@pytest.mark.parametrize(
    ("works", "bounding", "bound", "loading", "waiting"),
    [
        ([Work("a", each(1, 100))], "a", {"a": 100}, 0, 0),
        # 20 s of loading, 60 s of computing, 20 s in which nobody has work.
        ([Work("a", each(1, 60, begin=20), ready=20)], "a", {"a": 60}, 20, 20),
        # The busier of two stages takes what it was busy, the other what is left.
        (
            [Work("a", each(1, 100)), Work("b", [(i + 0.1, i + 0.9) for i in range(100)])],
            "a",
            {"a": 100, "b": 0},
            0,
            0,
        ),
        # Of two that are always busy, that which is busy for longer.
        ([Work("a", each(1, 60)), Work("b", each(1, 80))], "b", {"a": 0, "b": 80}, 0, 20),
        # Loading behind another stage's work bounds nothing.
        (
            [Work("a", each(1, 100)), Work("b", each(1, 10, begin=90), ready=60)],
            "a",
            {"a": 100},
            0,
            0,
        ),
        # Two workers of which one is always idle are half busy.
        ([Work("a", [(0, 50)]), Work("a", [(50, 100)])], "a", {"a": 50}, 0, 50),
        # An endpoint is as busy as its limit is used: two of four calls at any time.
        (
            [Work("a", [*each(1, 100), *each(1.0001, 99)], slots=4, remote=True)],
            "a",
            {"a": 50},
            0,
            50,
        ),
        ([Work("a", ready=100)], None, {"a": 0}, 100, 0),
    ],
)
def test_time_goes_to_the_busiest_stage_then_to_loading_and_adds_up(
    tmp_path: Path, works, bounding, bound, loading, waiting
) -> None:
    summary = summarise(record(tmp_path, *works))
    assert summary["bounding"] == bounding
    for stage, seconds in bound.items():
        assert summary["stages"][stage]["bound_s"] == pytest.approx(seconds, abs=1)
    assert summary["load_bound_s"] == pytest.approx(loading, abs=1)
    assert summary["wait_bound_s"] == pytest.approx(waiting, abs=1)
    assert (summary["seconds"], summary["making_s"]) == (100, 100)


def test_idle_hours_are_those_of_gpus_where_there_are_any(tmp_path: Path) -> None:
    """Two GPUs for 100 s, of which 25 s compute; the worker on a CPU does not count."""
    artist = Work("artist", each(1, 25, begin=50), ready=50, gpus=2, joules=3.0)
    summary = summarise(record(tmp_path, artist, Work("writer", each(1, 100))))
    assert summary["hours_unit"] == "GPU"
    hours = tuple(summary[f"{kind}_hours"] for kind in ("held", "idle", "load"))
    assert hours == pytest.approx((200 / 3600, 150 / 3600, 100 / 3600), rel=1e-3)
    assert summary["stages"]["artist"]["joules"] == 3.0
    remote = summarise(record(tmp_path, Work("x", each(1, 100), remote=True)))
    assert (remote["held_hours"], remote["stages"]["x"]["remote"]) == (0, True)


def test_time_and_records_of_a_stage(tmp_path: Path) -> None:
    """50 s are computed, 40 s lost with the worker, and what raised made no record."""
    works = [Work("a", each(1, 50), end=90, lost=(49.5, 90))]
    works.append(Work("a", each(1, 2), end=90, status="raised"))
    use = summarise(record(tmp_path, *works))["stages"]["a"]
    seconds = tuple(use[f"{state}_s"] for state in ("compute", "lost", "wait", "held"))
    assert seconds == pytest.approx((52, 40, 88, 180), abs=0.2)
    assert (use["workers"], use["records"], use["batches"]) == (2, 200, 52)


# -------------------------------------------------------------------------- processes

ONE = replace(LIGHT, workers=1)


@pytest.mark.usefixtures("worker_threads")
def test_a_sleeping_stage_is_seen_asleep(tmp_path: Path) -> None:
    slow = painter(0, replace(ONE, batch_size=1), sleep_s=0.1)
    plan = plan_of([sample(i) for i in range(8)], write=writer(ONE), paint=[slow])
    assert run(plan, tmp_path).traced
    trace = read_chrome((tmp_path / TRACE).read_text())
    assert {"painter0 #1", "writer #0"} <= set(threads_of(trace))
    for name in ("load", "read", "compute", "write", "making records"):
        assert slices_of(trace, name), name
    (session,) = read_sessions(tmp_path)
    (asleep,) = (w for w in session.workers if w.stage == "painter0")
    computed = [d.busy / SECOND for d in asleep.did if d.name == "compute"]
    assert (asleep.records, min(computed) >= 0.1) == (8, True)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (summary,) = manifest["trace"]["sessions"]
    assert summary["stages"]["painter0"]["compute_s"] >= 8 * 0.1

    before = (tmp_path / JOURNAL).read_bytes()
    assert not run(plan, tmp_path).traced
    assert (tmp_path / JOURNAL).read_bytes() == before
    further = plan_of([sample(i) for i in range(10)], write=writer(ONE), paint=[slow])
    run(further, tmp_path)
    sessions = map(summarise, read_sessions(tmp_path))
    assert [s["stages"]["writer"]["records"] for s in sessions] == [8, 2]
