"""The real engine through histories of faults, on a virtual clock; and what they find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from checkpoint import Checkpoint
from histories import history_of

from plait.cluster.lock import RunLock
from plait.cluster.placement import Resources, free_resources
from plait.cluster.replica import Replica
from plait.cluster.workers import WorkerPool

pytestmark = [
    pytest.mark.slow,
]

SEEDS, AT_A_TIME = 40, 20
MOST_SEEDS = 120
"""Within so many of them every defect is found."""


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """Stages that raise on purpose print what they raise."""


@pytest.mark.parametrize("first", range(0, SEEDS, AT_A_TIME))
def test_nothing_is_lost_or_counted_twice(first: int) -> None:
    seeds = range(first, first + AT_A_TIME)
    assert not {seed: w for seed in seeds if (w := history_of(seed).wrong)}


def test_a_seed_has_one_history() -> None:
    first, second = history_of(17), history_of(17)
    assert (first.faults, first.commands) == (second.faults, second.commands)
    assert first.world.now == second.world.now


def test_a_series_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    place, found = tmp_path / "seeds.jsonl", []

    def result(of: Checkpoint, seed: int) -> Any:
        return of.result(seed, lambda: found.append(seed) or {"wrong": [seed]})

    for seed in (3, 4):
        assert result(Checkpoint(place), seed) == {"wrong": [seed]}
    whole = place.read_text()
    # Of the first by other code; of the next the beginning of a line.
    place.write_text(whole.replace('"code": "', '"code": "other ', 1) + whole[:9])
    for _ in range(2):
        again = Checkpoint(place)
        assert [result(again, n) for n in (3, 4)] == [{"wrong": [3]}, {"wrong": [4]}]
    assert found == [3, 4, 3]
    assert result(Checkpoint(None), 4) == {"wrong": [4]}


def stopped_is_free(pool: WorkerPool) -> dict[str, Resources]:
    workers = [(r.handle.node.id, r.need) for r in pool.replicas if r.state != "stopping"]
    return free_resources(pool.nodes, workers)


def never_withdrawn(replica: Replica) -> list[Any]:
    replica.in_flight.clear()
    return []


def always_broken(lock: RunLock, path: Path) -> None:
    path.unlink(missing_ok=True)


class Defect(NamedTuple):
    """What an attribute of the engine is replaced by."""

    owner: Any
    attribute: str
    replacement: Callable[..., Any]
    seed: int
    """Of a history that has shown it, which is tried first."""


DEFECTS = {
    "a node's end is charged to its workers": Defect(
        WorkerPool, "_has_outlived", lambda pool, death: True, seed=76
    ),
    "what a worker that stops has is free at once": Defect(
        WorkerPool, "_free_now", stopped_is_free, seed=20
    ),
    "what was in flight is forgotten": Defect(Replica, "withdraw", never_withdrawn, seed=1),
    "workers outlive their run": Defect(WorkerPool, "kill_all", lambda pool: None, seed=0),
    "a second driver is let in": Defect(RunLock, "_refuse_or_break", always_broken, seed=7),
}
"""Defects that the engine has had, put back."""


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_defects_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    defect = DEFECTS[name]
    monkeypatch.setattr(defect.owner, defect.attribute, defect.replacement)
    seeds = (defect.seed, *range(MOST_SEEDS))
    assert any(history_of(seed).wrong for seed in seeds)
