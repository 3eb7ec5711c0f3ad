"""Walks that come and go while others run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from trial import LIGHT, painter, writer

from cluster.live import STOPPING, BatchTime, LiveWalk, WalkPool
from cluster.local import LocalStages, drive
from generators.base import Failure, Fault, Job, Outcome, Result, StageSpec, Walk
from generators.document import Document, Sample, Text, Turn
from generators.system import Repetition, System, answer
from pipelines.composition import text_only


def as_asked(sample: Sample, variant: str) -> tuple[Turn, ...]:
    return sample.turns


def walk(system: System, text: str, seed: int = 0) -> Walk[Document]:
    turns = (Turn("user", (Text(text),)),)
    sample = Sample(id="query", category="c", field="f", turns=turns)
    return answer(system, sample, Repetition(as_asked, seed))


class Ends:
    """The outcomes of walks, in the order in which they end."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome[Any]] = {}
        self.changed = threading.Condition()

    def of(self, name: str) -> Any:
        def ended(outcome: Outcome[Any]) -> None:
            with self.changed:
                assert name not in self.outcomes, "a walk ends once"
                self.outcomes[name] = outcome
                self.changed.notify_all()

        return ended

    def wait(self, count: int) -> dict[str, Outcome[Any]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.outcomes) >= count, 20)
            return dict(self.outcomes)


class Gate:
    """Stages that compute only while the gate is open; counts their batches."""

    def __init__(self, stages: LocalStages | None = None) -> None:
        self.stages = stages or LocalStages(in_batches=True)
        self.open = threading.Event()
        self.begun = threading.Event()
        self.batches: list[tuple[str, int]] = []

    def __call__(self, jobs: Sequence[Job]) -> list[Outcome[Any]]:
        self.begun.set()
        assert self.open.wait(20)
        self.batches.append((jobs[0].spec.name, len(jobs)))
        return self.stages.outcomes(jobs)


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


SYSTEM = System(name="trial", draft=writer(pictures=2), render=painter(), max_images=2)


def test_walks_that_run_together_end_as_each_alone(ends: Ends, gate: Gate) -> None:
    pool = WalkPool(gate, SYSTEM.stages)
    pool.add(walk(SYSTEM, "first"), ends.of("first"))
    gate.begun.wait(20)
    for i in range(6):
        pool.add(walk(SYSTEM, f"text {i}", seed=i), ends.of(str(i)))
    gate.open.set()
    outcomes = ends.wait(7)
    for i in range(6):
        alone = drive(walk(SYSTEM, f"text {i}", seed=i), LocalStages().outcomes)
        assert isinstance(alone, Result)
        assert outcomes[str(i)] == alone
    # One alone, then the oldest first: each batch holds at most LIGHT.batch_size = 4.
    assert gate.batches[0] == ("writer", 1)
    assert max(size for _, size in gate.batches) == 4
    assert len(gate.batches) < 14
    pool.stop()
    assert pool.join(5)


def test_a_batch_waits_for_further_walks(ends: Ends, gate: Gate) -> None:
    gate.open.set()
    pool = WalkPool(gate, SYSTEM.stages, wait_s=0.5)
    for i in range(4):
        pool.add(walk(SYSTEM, f"{i}"), ends.of(str(i)))
    ends.wait(4)
    # A full batch does not wait; 8 pictures are two full batches.
    assert gate.batches == [("writer", 4), ("painter0", 4), ("painter0", 4)]
    pool.stop()


def test_the_oldest_walk_is_not_overtaken(ends: Ends, gate: Gate) -> None:
    """Its pictures are drawn before the drafts of walks that came later."""
    slow = replace(LIGHT, batch_size=1)
    system = System(name="trial", draft=writer(slow), render=painter(placement=slow))
    pool = WalkPool(gate, system.stages)
    for i in range(3):
        pool.add(walk(system, f"{i}"), ends.of(str(i)))
    gate.open.set()
    ends.wait(3)
    assert [name for name, _ in gate.batches] == ["writer", "painter0"] * 3
    assert list(ends.outcomes) == ["0", "1", "2"]
    pool.stop()


def test_a_dropped_walk_is_not_computed(ends: Ends, gate: Gate) -> None:
    pool = WalkPool(gate, SYSTEM.stages)
    pool.add(walk(SYSTEM, "first"), ends.of("first"))
    gate.begun.wait(20)
    dropped = pool.add(walk(SYSTEM, "dropped"), ends.of("dropped"))
    pool.drop(dropped)
    gate.open.set()
    ends.wait(1)
    pool.stop()
    assert pool.join(5)
    assert [s for n, s in gate.batches if n == "writer"] == [1]
    assert list(ends.outcomes) == ["first"]


def test_a_walk_dropped_while_its_batch_computes_goes_no_further(
    ends: Ends, gate: Gate
) -> None:
    pool = WalkPool(gate, SYSTEM.stages)
    dropped = pool.add(walk(SYSTEM, "dropped"), ends.of("dropped"))
    gate.begun.wait(20)
    pool.drop(dropped)
    gate.open.set()
    pool.add(walk(SYSTEM, "next"), ends.of("next"))
    ends.wait(1)
    assert list(ends.outcomes) == ["next"]
    assert sum(s for n, s in gate.batches if n == "painter0") == 2
    pool.stop()


def test_one_record_that_raises_fails_alone(ends: Ends, gate: Gate) -> None:
    pool = WalkPool(gate, SYSTEM.stages, wait_s=0.5)
    for text in ("a", "b !raise", "c", "d"):
        pool.add(walk(SYSTEM, text), ends.of(text))
    gate.open.set()
    outcomes = ends.wait(4)
    failure = outcomes.pop("b !raise")
    assert isinstance(failure, Failure)
    assert failure.fault is Fault.ERROR
    assert "cannot draft" in failure.reason
    assert all(isinstance(o, Result) for o in outcomes.values())
    pool.stop()


def test_out_of_memory_halves_the_batch_and_remembers(ends: Ends, gate: Gate) -> None:
    system = replace(SYSTEM, draft=writer(memory=2))
    pool = WalkPool(gate, system.stages, wait_s=0.2)
    gate.open.set()
    for round_ in range(2):
        for i in range(4):
            pool.add(walk(system, f"{i}"), ends.of(f"{round_}{i}"))
        ends.wait(4 * (round_ + 1))
    assert all(isinstance(o, Result) for o in ends.outcomes.values())
    drafts = [size for name, size in gate.batches if name == "writer"]
    assert drafts == [4, 2, 2, 2, 2]
    pool.stop()


def test_a_cuda_error_ends_all_work(ends: Ends) -> None:
    def broken(jobs: Sequence[Job]) -> list[Outcome[Any]]:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    pool = WalkPool(broken, SYSTEM.stages)
    pool.add(walk(SYSTEM, "first"), ends.of("first"))
    ends.wait(1)
    pool.add(walk(SYSTEM, "second"), ends.of("second"))
    for outcome in ends.wait(2).values():
        assert isinstance(outcome, Failure)
        assert "illegal memory access" in outcome.reason
    assert pool.broken
    assert pool.join(5)


def test_stopping_ends_what_waits_and_lets_the_batch_finish(ends: Ends, gate: Gate) -> None:
    system = replace(SYSTEM, compose=text_only, render=None)
    pool = WalkPool(gate, system.stages)
    pool.add(walk(system, "first"), ends.of("first"))
    gate.begun.wait(20)
    pool.add(walk(system, "waits"), ends.of("waits"))
    pool.stop()
    assert ends.outcomes == {"waits": Failure(STOPPING, Fault.DIED)}
    assert not pool.join(0.05)
    gate.open.set()
    assert pool.join(10)
    assert isinstance(ends.outcomes["first"], Result)
    pool.add(walk(system, "late"), ends.of("late"))
    assert ends.outcomes["late"] == Failure(STOPPING, Fault.DIED)


def test_requests_to_a_server_run_at_the_same_time_as_local_stages(ends: Ends) -> None:
    remote = replace(LIGHT, batch_size=1, endpoint="http://127.0.0.1:9", concurrency=3)
    system = System(name="trial", draft=writer(remote), render=painter())
    together = threading.Barrier(3, timeout=20)
    stages = LocalStages()

    def answering(jobs: Sequence[Job]) -> list[Outcome[Any]]:
        if jobs[0].spec.name == "writer":
            together.wait()
        return stages.outcomes(jobs)

    pool = WalkPool(answering, system.stages)
    for i in range(3):
        pool.add(walk(system, f"{i}"), ends.of(str(i)))
    assert all(isinstance(o, Result) for o in ends.wait(3).values())
    pool.stop()
    assert pool.join(5)


def test_batches_are_reported(ends: Ends) -> None:
    batches: list[BatchTime] = []
    pool = WalkPool(LocalStages().outcomes, SYSTEM.stages, on_batch=batches.append)
    live = pool.add(walk(SYSTEM, "first"), ends.of("first"))
    ends.wait(1)
    pool.stop()
    assert pool.join(5)
    assert isinstance(live, LiveWalk)
    assert [(b.stage, b.jobs) for b in batches] == [("writer", 1), ("painter0", 2)]
    assert all(b.seconds >= 0 for b in batches)


def test_a_walk_that_raises_fails_alone(ends: Ends) -> None:
    def wrong(spec: StageSpec) -> Walk[Document]:
        yield []
        raise ZeroDivisionError("a defect")

    pool = WalkPool(LocalStages().outcomes, SYSTEM.stages)
    pool.add(wrong(writer()), ends.of("wrong"))
    pool.add(walk(SYSTEM, "right"), ends.of("right"))
    outcomes = ends.wait(2)
    assert "a defect" in outcomes["wrong"].reason
    assert isinstance(outcomes["right"], Result)
    pool.stop()


def test_a_walk_that_waited_for_a_server_is_drawn_before_later_ones(ends: Ends) -> None:
    remote = replace(LIGHT, batch_size=1, endpoint="http://127.0.0.1:9", concurrency=3)
    alone = replace(LIGHT, batch_size=1)
    system = System(name="trial", draft=writer(remote), render=painter(placement=alone))
    stages, slow, busy, free = LocalStages(), *(threading.Event() for _ in range(3))

    def answering(jobs: Sequence[Job]) -> list[Outcome[Any]]:
        if jobs[0].spec.name == "painter0":
            busy.set()
            assert free.wait(20)
        elif "first" in jobs[0].input.turns[0].content[0].text:  # type: ignore[union-attr]
            assert slow.wait(20)
        return stages.outcomes(jobs)

    pool = WalkPool(answering, system.stages)
    for text in ("first", "second", "third"):
        pool.add(walk(system, text), ends.of(text))
        if text != "first":
            assert busy.wait(20)
    drafted = _waiting(pool, "third")
    slow.set()
    assert drafted
    assert _waiting(pool, "first")
    free.set()
    ends.wait(3)
    assert list(ends.outcomes) == ["second", "first", "third"]
    pool.stop()


def _waiting(pool: WalkPool, text: str) -> bool:
    """Whether the picture of the walk that asks for `text` waits to be drawn, or soon."""
    for _ in range(1000):
        with pool._changed:
            tasks = [t for tasks in pool._waiting.values() for t in tasks]
        prompts = [getattr(t.job.input, "prompt", None) or "" for t in tasks]
        if any(text in prompt for prompt in prompts):
            return True
        threading.Event().wait(0.01)
    return False
