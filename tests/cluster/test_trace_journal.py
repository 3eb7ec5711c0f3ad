"""The journal of spans: what is written is read back, bounded, and survives a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_helpers import read_chrome, slices_of

from cluster.tracing import journal as journal_module
from cluster.tracing.chrome import trace_text
from cluster.tracing.journal import JOURNAL, SpanJournal, WorkerLane, append_phase
from cluster.tracing.sessions import read_sessions
from cluster.tracing.spans import CLOCK, Span, SpanList


def lane_of(journal: SpanJournal, stage: str = "writer") -> WorkerLane:
    lane = journal.lane(stage, "node", gpus=0, cpus=1, slots=1, remote=False)
    lane.placed("host")
    lane.enter("loading")
    lane.enter("ready")
    return lane


def computed(lane: WorkerLane, begin: int, took_ns: int, ahead_ns: int = 0) -> None:
    """A batch of 2 records; the worker's clock is `ahead_ns` of the driver's."""
    sent = object()
    lane.sent(sent)
    begin += ahead_ns
    spans = [
        Span("read", begin, begin + 1000),
        Span("compute", begin + 1000, begin + took_ns),
        Span("write", begin + took_ns, begin + took_ns + 1000),
    ]
    lane.received(sent, spans, records=2, status="done", joules=None)


def test_phases_are_timed_even_where_they_raise() -> None:
    spans = SpanList()
    with pytest.raises(ValueError, match="no"), spans.phase("compute"):
        raise ValueError("no")
    (span,) = spans.take()
    assert (span.phase, span.end >= span.begin, spans.take()) == ("compute", True, [])


def test_a_command_that_makes_nothing_leaves_no_session(tmp_path: Path) -> None:
    with SpanJournal(tmp_path) as journal, journal.phase("counting what is missing"):
        pass
    assert not (tmp_path / JOURNAL).exists()
    assert read_sessions(tmp_path) == []


def test_what_happened_before_the_first_worker_is_kept(tmp_path: Path) -> None:
    with SpanJournal(tmp_path) as journal:
        with journal.phase("counting what is missing"):
            pass
        journal.activate()
        computed(lane_of(journal), CLOCK.now(), 5_000_000)
    (session,) = read_sessions(tmp_path)
    assert [p.name for p in session.phases] == ["counting what is missing"]
    assert (session.status, session.workers[0].host) == ("finished", "host")
    (batch,) = session.workers[0].batches
    assert [p.busy for p in batch.phases if p] == [1, 4999, 1]


def test_a_killed_driver_leaves_what_was_flushed(tmp_path: Path) -> None:
    """Without an end, and with its last line cut short; the next session goes on."""
    journal = SpanJournal(tmp_path)
    journal.activate()
    lane = lane_of(journal)
    computed(lane, CLOCK.now() - 5_001_000, 5_000_000)
    assert journal._file is not None
    journal._file.write('["batch",0,1,')
    journal._file.flush()
    with SpanJournal(tmp_path) as second:
        second.activate()
        computed(lane_of(second), CLOCK.now() - 5_001_000, 5_000_000)
    sessions = read_sessions(tmp_path)
    assert [s.status for s in sessions] == ["killed", "finished"]
    assert [len(s.workers[0].batches) for s in sessions] == [1, 1]
    assert sessions[0].workers[0].end == sessions[0].end
    assert len(slices_of(read_chrome(trace_text(sessions)), "compute")) == 2


def test_a_session_that_ends_with_an_error_says_so(tmp_path: Path) -> None:
    journal = SpanJournal(tmp_path)
    journal.activate()
    journal.__exit__(KeyError)
    assert read_sessions(tmp_path)[0].status == "KeyError"


def test_lost_batches_are_named_from_their_sending(tmp_path: Path) -> None:
    with SpanJournal(tmp_path) as journal:
        journal.activate()
        lane, sent = lane_of(journal), object()
        lane.sent(sent)
        lane.lost(sent, 3)
        lane.enter("ended")
        computed(lane_of(journal), CLOCK.now(), 5_000_000)
    first, second = read_sessions(tmp_path)[0].workers
    assert [(w.records, w.end >= w.begin) for w in first.lost] == [(3, True)]
    assert not second.lost


@pytest.mark.parametrize("ahead_s", [5, -5])
def test_clocks_that_differ_are_brought_together(tmp_path: Path, ahead_s: int) -> None:
    with SpanJournal(tmp_path) as journal:
        journal.activate()
        lane = lane_of(journal)
        for _ in range(3):
            computed(lane, CLOCK.now(), 1000, ahead_s * 10**9)
    (session,) = read_sessions(tmp_path)
    skew = session.skews_us["host"]
    assert abs(skew - ahead_s * 10**6) < 50_000
    assert all(0 <= b.begin <= session.end for b in session.workers[0].batches)


def test_clocks_that_may_agree_are_left_alone(tmp_path: Path) -> None:
    with SpanJournal(tmp_path) as journal:
        journal.activate()
        lane, sent = lane_of(journal), object()
        lane.sent(sent)
        begin = CLOCK.now()
        spans = [Span("compute", begin, CLOCK.now())]
        lane.received(sent, spans, records=1, status="done", joules=2.5)
    (session,) = read_sessions(tmp_path)
    assert (session.skews_us, session.workers[0].joules) == ({}, 2.5)


def test_batches_that_raised_are_never_merged_with_those_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "FINE", 1)
    with SpanJournal(tmp_path) as journal:
        journal.activate()
        lane, begin = lane_of(journal), CLOCK.now()
        for i in range(9):
            sent, at = object(), begin + i * 10_000_000
            lane.sent(sent)
            spans = [Span("compute", at, at + 9_000_000)]
            status = "raised" if i == 5 else "done"
            lane.received(sent, spans, records=2, status=status, joules=None)
    batches = read_sessions(tmp_path)[0].workers[0].batches
    made = [(b.status, b.records) for b in batches]
    # The first has a line of its own, before lines are made coarser.
    assert made == [("done", 2), ("done", 8), ("raised", 2), ("done", 6)]


def test_a_long_run_has_few_lines_and_loses_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day of batches of 10 ms: 8,640,000 of them would be too many; here, 40,000."""
    monkeypatch.setattr(journal_module, "FINE", 200)
    with SpanJournal(tmp_path) as journal:
        journal.activate()
        lane = lane_of(journal)
        begin = CLOCK.now()
        for i in range(40_000):
            computed(lane, begin + i * 10_002_000, 10_000_000)
    lines = (tmp_path / JOURNAL).read_text().splitlines()
    assert len([x for x in lines if x.startswith('["batch"')]) < 200 * 3
    batches = read_sessions(tmp_path)[0].workers[0].batches
    assert sum(b.batches for b in batches) == 40_000
    assert sum(b.records for b in batches) == 80_000
    busy = sum(p.busy for b in batches if (p := b.phases[1]))
    assert busy == pytest.approx(40_000 * 9999, rel=1e-3)


def test_tables_that_are_written_later_join_the_session(tmp_path: Path) -> None:
    with SpanJournal(tmp_path) as journal:
        journal.activate()
        computed(lane_of(journal), CLOCK.now(), 1000)
    append_phase(tmp_path, "writing tables and page", CLOCK.now())
    (session,) = read_sessions(tmp_path)
    assert session.phases[-1].name == "writing tables and page"


def test_a_journal_of_a_later_plait_is_not_guessed_at(tmp_path: Path) -> None:
    about = {"version": 99, "start_ns": 1, "host": "h"}
    (tmp_path / JOURNAL).write_text(json.dumps(["session", about]) + "\n")
    assert read_sessions(tmp_path) == []


def test_a_disk_that_refuses_ends_nothing(tmp_path: Path) -> None:
    with SpanJournal(tmp_path / "missing") as journal:
        journal.activate()
        computed(lane_of(journal), CLOCK.now(), 1000)
    assert not journal.active
