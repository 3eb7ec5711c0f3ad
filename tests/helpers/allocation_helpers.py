"""A simulated pool of workers: rooms and workers are counted, no process starts."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from trial import LIGHT, painter, writer

from cluster.allocation import Allocator
from cluster.placement import Node, Resources
from cluster.plan import EngineOptions
from cluster.replica import Replica
from cluster.stage_queue import StageQueue
from cluster.worker import WorkerInfo
from cluster.workers import WorkerPool
from generators.base import Job, Placement
from generators.document import Request, Text, Turn


class PaperHandle:
    """A simulated worker: no process belongs to it."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.killed = False

    def call(self, method: str, *args: Any, control: bool = False) -> object:
        return object()

    def kill(self) -> None:
        self.killed = True


class PaperPool(WorkerPool):
    """Counts rooms and workers as the real one does; starts no process."""

    def __init__(self, *nodes: Node, **options: Any) -> None:
        self.notices: list[str] = []
        super().__init__(Path(), EngineOptions(**options), [], self.notices.append)
        self.nodes = list(nodes)

    def refresh_nodes(self, *, now: bool = False) -> None:
        pass

    def start(self, queue: StageQueue, node: str) -> None:
        self.working(queue, node).enter("starting")

    def working(self, queue: StageQueue, node: str = "n") -> Replica:
        """One more worker of a stage, ready, and idle for long enough to leave."""
        replica = Replica(queue, PaperHandle(node), "ready")  # type: ignore[arg-type]
        replica.info = WorkerInfo("host", 1, None, False)
        replica.last_heard = time.monotonic() - 60
        self.replicas.append(replica)
        return replica


GPU = replace(LIGHT, num_gpus=1, num_cpus=1)
CPU = replace(LIGHT, num_cpus=1)


def node(gpus: float = 1, cpus: float = 8, name: str = "n") -> Node:
    return Node(name, Resources(cpus, gpus))


def stage(rank: int, placement: Placement = GPU, jobs: int = 0) -> StageQueue:
    queue = StageQueue(painter(rank, placement), rank)
    for i in range(jobs):
        request = Request((Turn("user", (Text(str(i)),)),))
        queue.add(Job(writer(), request, str(i)))
    return queue


def built_in(rank: int, placement: Placement = CPU, jobs: int = 0) -> StageQueue:
    """As `stage`, of a class of plait's own, whose process other stages may share."""
    queue = stage(rank, placement, jobs)
    queue.spec = replace(queue.spec, stage="painter")
    return queue


def place(pool: WorkerPool, *queues: StageQueue, growing: bool = False) -> list[Any]:
    return Allocator(pool, lambda queue: growing).allocate(queues)


def stopping(pool: WorkerPool) -> list[int]:
    return [r.queue.rank for r in pool.replicas if r.state == "stopping"]


def workers(pool: WorkerPool, queue: StageQueue) -> int:
    return len(pool.of(queue))
