"""In which order stages get workers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from trial import LIGHT, writer

from plait.cluster.allocation import Allocator
from plait.cluster.estimates import Estimates
from plait.cluster.placement import Node, Resources
from plait.cluster.stage_queue import StageQueue
from plait.generators.base import Job
from plait.generators.document import Request, Text, Turn

pytestmark = pytest.mark.contract

STAGES = 16


class Pool(SimpleNamespace):
    """A pool with room for all, of which one worker of another stage is busy."""

    def __init__(self) -> None:
        room = Resources(cpus=100, gpus=0)
        nodes = [Node("n", room, "address")]
        super().__init__(nodes=nodes, replicas=[object()], released=False, started=[])

    def now(self) -> float:
        return 0.0

    def refresh_nodes(self) -> None:
        """There is one node for ever."""

    def of(self, queue: StageQueue) -> Sequence[Any]:
        return ()

    def excess_of(self, queue: StageQueue) -> Sequence[Any]:
        return ()

    def coming(self) -> dict[str, Resources]:
        return {node.id: node.total for node in self.nodes}

    def free_for(self, queue: StageQueue) -> dict[str, Resources]:
        return self.coming()

    def start(self, queue: StageQueue, node: str) -> None:
        self.started.append(queue.rank)


def timed_queue(rank: int) -> StageQueue:
    """A stage that was timed, has little to do and gets more."""
    queue = StageQueue(writer(LIGHT), rank, lambda: 0.0)
    request = Request((Turn("user", (Text("a"),)),))
    queue.add(Job(queue.spec, request, "a"))
    queue.computed = 1
    queue.busy_s = 1.0
    queue.load_s = 60.0
    return queue


def test_stages_without_workers_start_in_the_order_of_the_chains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Estimates, "is_last_call", lambda estimates, queue: False)
    pool: Any = Pool()
    queues = [timed_queue(rank) for rank in reversed(range(STAGES))]
    assert Allocator(pool).allocate(queues) == []
    assert pool.started == list(range(STAGES))
