"""What bounds a run and what one more worker saves, on timelines with known answers."""

from __future__ import annotations

import pytest
from trace_helpers import SECOND, batch, each, session, worker

from cluster.tracing.sessions import MAKING, STARTING_RAY, Interval
from cluster.tracing.summary import summarise


def test_a_single_stage_is_the_limit_and_another_worker_halves_it() -> None:
    summary = summarise(session(worker("writer", each(1, 100))))
    assert summary.bounding == "writer"
    assert summary.stages["writer"].bound_s == pytest.approx(100, abs=0.1)
    assert summary.one_more_saves_s == pytest.approx(50, abs=0.5)


def test_the_next_stage_limits_what_one_more_worker_saves() -> None:
    """A takes 1 s a batch, B 0.8 s: with two workers of A, B is the limit, at 80 s."""
    first = worker("a", each(1, 100))
    second = worker("b", [(i + 0.1, i + 0.9) for i in range(100)], number=1)
    summary = summarise(session(first, second))
    assert summary.bounding == "a"
    assert summary.one_more_saves_s == pytest.approx(20, abs=1)


def test_work_that_waits_is_done_early_where_another_stage_is_the_limit() -> None:
    """60 s of A and 80 s of B side by side: two of B are done when A is.

    Without a word on what waited for B, only the 20 s in which it was alone can be halved.
    """
    stages = worker("a", each(1, 60)), worker("b", each(1, 80), number=1)
    whole = session(*stages)
    assert summarise(whole).one_more_saves_s == pytest.approx(10, abs=1)
    whole.queues = [(t * SECOND, {"b": 4 * min(t // 3, (80 - t))}) for t in range(80)]
    assert summarise(whole).one_more_saves_s == pytest.approx(20, abs=1)


def test_a_third_worker_takes_a_third() -> None:
    workers = [worker("a", each(1, 90), number=i, end=90) for i in range(2)]
    summary = summarise(session(*workers, end=90))
    assert summary.stages["a"].workers == 2
    assert summary.one_more_saves_s == pytest.approx(30, abs=0.5)


def test_batches_are_whole() -> None:
    """One batch cannot be shared; of five, two workers compute three rounds."""
    one = summarise(session(worker("a", [(0, 100)])))
    five = summarise(session(worker("a", each(20, 5))))
    assert one.one_more_saves_s == pytest.approx(0, abs=0.01)
    assert five.one_more_saves_s == pytest.approx(40, abs=0.5)


def test_a_stage_that_waits_for_work_gains_nothing() -> None:
    """One of its two workers is always idle, as at the end of a run."""
    workers = [
        worker("a", [(0, 50)], number=0),
        worker("a", [(50, 100)], number=1),
    ]
    assert summarise(session(*workers)).one_more_saves_s == pytest.approx(0, abs=0.01)


def test_time_goes_to_stages_loading_and_waiting_and_adds_up() -> None:
    """20 s of loading, 60 s of computing, 20 s in which nobody has work."""
    summary = summarise(session(worker("a", each(1, 60, begin=20), ready=20)))
    assert summary.stages["a"].bound_s == pytest.approx(60, abs=0.1)
    assert summary.load_bound_s == pytest.approx(20, abs=0.1)
    assert summary.wait_bound_s == pytest.approx(20, abs=0.1)
    assert summary.making_s == 100


def test_the_drivers_own_time_is_neither_making_records_nor_starting_ray() -> None:
    """3 s until Ray is there, 80 s of making, and 17 s before and after both."""
    whole = session(worker("a", each(1, 80, begin=10), begin=10, ready=10, end=90))
    whole.phases = [
        Interval(STARTING_RAY, 2 * SECOND, 5 * SECOND),
        Interval(MAKING, 10 * SECOND, 90 * SECOND),
    ]
    summary = summarise(whole)
    assert (summary.seconds, summary.making_s, summary.start_ray_s) == (100, 80, 3)
    assert summary.driver_s == pytest.approx(17)
    assert summary.stages["a"].bound_s == pytest.approx(80, abs=0.1)


def test_loading_behind_another_stages_work_bounds_nothing() -> None:
    busy = worker("a", each(1, 100))
    late = worker("b", each(1, 10, begin=90), number=1, ready=60)
    assert summarise(session(busy, late)).load_bound_s == pytest.approx(0, abs=0.01)


def test_idle_hours_are_those_of_gpus_where_there_are_any() -> None:
    """Two GPUs for 100 s, of which 25 s compute; the worker on a CPU does not count."""
    artist = worker("artist", each(1, 25, begin=50), ready=50, gpus=2)
    writer = worker("writer", each(1, 100), number=1)
    summary = summarise(session(artist, writer))
    assert summary.hours_unit == "GPU"
    assert summary.held_hours == pytest.approx(200 / 3600)
    assert summary.idle_hours == pytest.approx(150 / 3600)
    assert summary.load_hours == pytest.approx(100 / 3600)


def test_an_endpoint_is_as_busy_as_its_limit_is_used() -> None:
    """Two of four calls at any time: half busy; no worker can be added to it."""
    calls = [*each(1, 100), *each(1, 100)]
    summary = summarise(session(worker("remote", calls, slots=4, remote=True)))
    assert summary.stages["remote"].bound_s == pytest.approx(50, abs=0.5)
    assert summary.one_more_saves_s is None
    assert summary.held_hours == 0


def test_time_lost_with_a_worker_is_its_own() -> None:
    trace = worker("a", each(1, 50), end=90)
    trace.lost = [Interval("lost", 49 * SECOND, 90 * SECOND, 4)]
    use = summarise(session(trace)).stages["a"]
    assert (use.compute_s, use.lost_s) == (pytest.approx(50), pytest.approx(40))
    assert use.wait_s == pytest.approx(0)


def test_records_of_batches_that_raised_are_not_made() -> None:
    trace = worker("a", each(1, 2))
    trace.batches.append(type(batch(0, 1))(1, 9, batch(3, 4).phases, 0, 0, "raised"))
    use = summarise(session(trace)).stages["a"]
    assert (use.records, use.batches) == (8, 3)


def test_a_session_without_a_batch_has_no_limit() -> None:
    summary = summarise(session(worker("a", [], ready=100)))
    assert summary.stages["a"].compute_s == 0
    assert summary.load_bound_s == pytest.approx(100, abs=0.1)
    assert (summary.bounding, summary.one_more_saves_s) == (None, None)
