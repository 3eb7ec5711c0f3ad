"""A simulated pool of workers: rooms and workers are counted, no process starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trial import LIGHT, painter, writer

from cluster.allocation import Allocator
from cluster.executors.base import HostLost
from cluster.executors.local import LocalExecutor
from cluster.executors.node_watch import NodeWatch
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

    def __init__(self, node: Node) -> None:
        self.node = node
        self.killed = False

    def call(self, method: str, *args: Any, control: bool = False) -> object:
        return object()

    def kill(self) -> None:
        self.killed = True


class PaperExecutor(LocalExecutor):
    """An executor of one machine, or of nodes that are watched."""

    def __init__(self, watched: NodeWatch | None = None) -> None:
        super().__init__(Resources())
        self.watched = watched
        self.fixed = watched is None

    def now(self) -> float:
        return self.watched.now() if self.watched else super().now()

    def silent_s(self, node: str) -> float:
        return self.watched.silent_s(node) if self.watched else 0.0

    def outlived(self, node: str, died_at: float) -> bool | None:
        return self.watched.outlived(node, died_at) if self.watched else True


class PaperPool(WorkerPool):
    """Counts rooms and workers as the real one does; starts no process."""

    def __init__(
        self, *nodes: Node, watched: NodeWatch | None = None, **options: Any
    ) -> None:
        self.notices: list[str] = []
        executor, engine = PaperExecutor(watched), EngineOptions(**options)
        super().__init__(executor, Path(), engine, [], self.notices.append)
        self.nodes = list(nodes)

    def refresh_nodes(self) -> None:
        pass

    def start(self, queue: StageQueue, node: str) -> None:
        self.working(queue, node).enter("starting")

    def working(self, queue: StageQueue, node: str = "n") -> Replica:
        """One more worker of a stage, ready, and idle for long enough to leave."""
        place = next((n for n in self.nodes if n.id == node), Node(node, Resources()))
        replica = Replica(queue, PaperHandle(place), self.now, "ready")
        replica.info = WorkerInfo(None, False)
        replica.last_heard = self.now() - 60
        self.replicas.append(replica)
        return replica


GPU = replace(LIGHT, num_gpus=1, num_cpus=1)
CPU = replace(LIGHT, num_cpus=1)


def node(gpus: float = 1, cpus: float = 8, name: str = "n") -> Node:
    return Node(name, Resources(cpus, gpus), f"10.0.0.{name}", 1)


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


KILLED = HostLost("the process was killed")


def end(pool: WorkerPool, replica: Replica, error: HostLost = KILLED) -> list[Any]:
    """The events after the process of a worker has ended."""
    pool._lost(replica, error)
    return pool.unprompted()


def stopping(pool: WorkerPool) -> list[int]:
    return [r.queue.rank for r in pool.replicas if r.state == "stopping"]


def workers(pool: WorkerPool, queue: StageQueue) -> int:
    return len(pool.of(queue))
