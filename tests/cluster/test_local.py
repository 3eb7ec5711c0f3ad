"""Walks that come and go on stages of this process, as servers and notebooks have them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import stages
from trial import LIGHT, as_asked, painter, rebuild, system_of_stages, writer

from plait.cluster.local import HIGHEST_PRIORITY, STOPPING, LocalEngine, LocalStages
from plait.cluster.walks import drive
from plait.generators.base import Failure, Fault, Job, Outcome, Result, Walk
from plait.generators.document import Document, ImageRequest, Query, Request, Text, Turn
from plait.generators.system import Repetition, System
from plait.pipelines.composition import text_only


def walk(system: System, text: str, seed: int = 0) -> Walk[Document]:
    turns = (Turn("user", (Text(text),)),)
    asked = Query(id="query", category="c", field="f", turns=turns)
    return system.answer(asked, Repetition(as_asked, seed))


SYSTEM = system_of_stages(
    name="trial", draft=writer(pictures=2), render=painter(), max_images=2
)
TEXT = rebuild(SYSTEM, render=None, compose=text_only)


class Live:
    """An engine in a thread of its own, whose stages compute once the gate is open."""

    def __init__(self, patience_s: float = 0.0) -> None:
        self.open, self.begun = threading.Event(), threading.Event()
        self.batches: list[tuple[str, int]] = []
        self.ended: dict[str, Outcome[Any]] = {}
        self._changed = threading.Condition()
        self._stages = LocalStages()
        self.engine = LocalEngine(self._gated, patience_s=patience_s)
        self.thread = threading.Thread(target=self.engine.run, daemon=True)
        self.thread.start()

    def _gated(self, spec: Any) -> Callable[..., Any]:
        def stage(inputs: list[Any]) -> Any:
            self.begun.set()
            assert self.open.wait(60)
            self.batches.append((spec.name, len(inputs)))
            return self._stages.stage(spec)(inputs)

        return stage

    def add(self, name: str, asked: Walk[Any], priority: int = 0) -> Any:
        def end(outcome: Outcome[Any]) -> None:
            with self._changed:
                assert name not in self.ended, "a walk ends once"
                self.ended[name] = outcome
                self._changed.notify_all()

        return self.engine.add(asked, end, priority)

    def wait(self, count: int) -> dict[str, Outcome[Any]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ended) >= count, 60)
            return dict(self.ended)

    def stop(self) -> None:
        self.engine.stop()
        self.open.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def live() -> Iterator[Live]:
    live = Live()
    yield live
    live.stop()


@pytest.fixture
def patient() -> Iterator[Live]:
    """Waits until a batch is full."""
    live = Live(patience_s=600.0)
    live.open.set()
    yield live
    live.stop()


def test_walks_that_run_together_end_as_each_alone(live: Live) -> None:
    live.add("first", walk(SYSTEM, "first"))
    assert live.begun.wait(60)
    for i in range(6):
        live.add(str(i), walk(SYSTEM, f"text {i}", seed=i))
    live.open.set()
    ended = live.wait(7)
    for i in range(6):
        alone = drive(walk(SYSTEM, f"text {i}", seed=i), LocalStages().outcomes)
        assert isinstance(alone, Result)
        assert ended[str(i)] == alone
    # One alone, then batches of those that have come meanwhile, of at most 4.
    assert live.batches[0] == ("writer", 1)
    assert max(size for _, size in live.batches) == LIGHT.batch_size == 4
    assert len(live.batches) < 14


def test_a_batch_waits_for_further_walks_unless_it_is_full(patient: Live) -> None:
    begun = threading.Event()

    def told(text: str) -> Walk[Document]:
        begun.set()
        return (yield from walk(SYSTEM, text))

    for turn in range(2):  # in the second one its workers are ready
        begun.clear()
        patient.add(f"{turn}0", told("0"))
        assert begun.wait(60)
        for i in range(1, 4):
            patient.add(f"{turn}{i}", walk(SYSTEM, f"{i}"))
        patient.wait(4 * (turn + 1))
    assert patient.batches == [("writer", 4), ("painter0", 4), ("painter0", 4)] * 2


def test_equal_walks_are_computed_each(patient: Live) -> None:
    for i in range(4):
        patient.add(str(i), walk(TEXT, "the same"))
    patient.wait(4)
    assert patient.batches == [("writer", 4)]


def test_the_oldest_walk_is_not_overtaken(live: Live) -> None:
    """Its images are drawn before the drafts of walks that came later."""
    slow = replace(LIGHT, batch_size=1)
    system = system_of_stages(
        name="trial", draft=writer(slow), render=painter(placement=slow)
    )
    for i in range(3):
        live.add(str(i), walk(system, f"{i}"))
    live.open.set()
    assert list(live.wait(3)) == ["0", "1", "2"]
    assert [name for name, _ in live.batches] == ["writer", "painter0"] * 3


def test_a_walk_with_a_higher_priority_is_not_held_up(live: Live) -> None:
    """Nor are its images, by drafts of other walks; what has begun is not interrupted."""
    slow = replace(LIGHT, batch_size=1)
    system = system_of_stages(
        name="trial", draft=writer(slow), render=painter(placement=slow)
    )
    live.add("first", walk(system, "first"))
    assert live.begun.wait(60)
    priorities = {"late": -1, "usual": 0, "again": 0, "soon": HIGHEST_PRIORITY, "sooner": 7}
    for name, priority in priorities.items():
        live.add(name, walk(system, name), priority)
    live.open.set()
    assert list(live.wait(6)) == ["soon", "sooner", "first", "usual", "again", "late"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_dropped_walk_goes_no_further(live: Live, begun: bool) -> None:
    if not begun:
        live.add("first", walk(TEXT, "first"))
        assert live.begun.wait(60)
    dropped = live.add("dropped", walk(SYSTEM, "dropped"))
    if begun:
        assert live.begun.wait(60)
    live.engine.drop(dropped)
    live.add("next", walk(TEXT, "next"))
    live.open.set()
    live.wait(1 if begun else 2)
    assert "dropped" not in live.ended
    assert {name for name, _ in live.batches} == {"writer"}
    assert sum(size for _, size in live.batches) == 2


def test_one_record_that_raises_fails_alone(patient: Live) -> None:
    for text in ("a", "b !raise", "c", "d"):
        patient.add(text, walk(TEXT, text))
    ended = patient.wait(4)
    failure = ended.pop("b !raise")
    assert isinstance(failure, Failure)
    assert (failure.fault, "cannot draft" in failure.reason) == (Fault.ERROR, True)
    assert all(isinstance(o, Result) for o in ended.values())


def test_a_cuda_error_ends_all_work(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(stages.Writer, "_draft", broken)
    live.add("first", walk(SYSTEM, "first"))
    live.open.set()
    live.wait(1)
    live.add("second", walk(SYSTEM, "second"))
    for outcome in live.wait(2).values():
        assert isinstance(outcome, Failure)
        assert "illegal memory access" in outcome.reason
    assert live.engine.broken


def test_stopping_ends_what_waits_and_lets_the_batch_finish(live: Live) -> None:
    live.add("first", walk(TEXT, "first"))
    assert live.begun.wait(60)
    live.add("waits", walk(TEXT, "waits"))
    live.engine.stop()
    assert live.wait(1) == {"waits": Failure(STOPPING, Fault.DIED)}
    live.add("late", walk(TEXT, "late"))
    assert live.wait(2)["late"] == Failure(STOPPING, Fault.DIED)
    live.open.set()
    assert isinstance(live.wait(3)["first"], Result)
    live.thread.join(60)
    assert not live.thread.is_alive()


def test_requests_to_a_server_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = replace(LIGHT, batch_size=1, endpoint="http://127.0.0.1:9", concurrency=3)
    together, draft = threading.Barrier(3, timeout=60), stages.Writer._draft

    def meet(stage: Any, request: Any) -> Any:
        together.wait()
        return draft(stage, request)

    monkeypatch.setattr(stages.Writer, "_draft", meet)
    monkeypatch.setattr(stages.Writer, "concurrent", True, raising=False)
    asked = [Request((Turn("user", (Text(f"{i}"),)),)) for i in range(3)]
    outcomes = LocalStages().outcomes([Job(writer(remote), a, "x") for a in asked])
    assert all(isinstance(o, Result) for o in outcomes)


def test_a_walk_that_raises_fails_alone(live: Live) -> None:
    def wrong() -> Walk[Document]:
        yield []
        raise ZeroDivisionError("a defect")

    live.open.set()
    live.add("wrong", wrong())
    live.add("right", walk(TEXT, "right"))
    ended = live.wait(2)
    assert "a defect" in ended["wrong"].reason  # type: ignore[union-attr]
    assert isinstance(ended["right"], Result)


def test_stages_in_a_notebook_answer_in_order_and_raise_what_cannot_be_loaded() -> None:
    local = LocalStages()
    jobs = [Job(painter(), ImageRequest(f"{i}", seed=i), "x") for i in range(9)]
    one_by_one = [LocalStages().outcomes([job])[0] for job in jobs]
    assert local.outcomes(jobs) == one_by_one
    assert local.outcomes([]) == []
    broken = replace(painter(), target="stages:Unloadable")
    with pytest.raises(FileNotFoundError, match="weights"):
        local.outcomes([replace(jobs[0], spec=broken)])
    assert local.outcomes(jobs[:1]) == one_by_one[:1]
