"""One worker process as the driver sees it, from its start until it has ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cluster.executors.base import Host
from cluster.manifest import now as date_and_time
from cluster.placement import Node, Resources, may_follow
from cluster.records import Item
from cluster.stage_queue import Batch, StageQueue
from cluster.store import read_blob
from cluster.tracing.journal import SpanJournal, WorkerLane
from cluster.watcher import FailureKind, WorkerFailure
from cluster.worker import Receipt, WorkerInfo
from generators.base import Fault, ServerCommand
from generators.document import Blob, with_blobs

State = Literal["starting", "loading", "ready", "stopping"]

_IN_FLIGHT = 2
"""Batches per worker: one is computed while the inputs of the next are read."""
_SHORT_BATCH_S = 0.02
_IN_FLIGHT_SHORT = 6
"""The same, where a batch takes less time than a message and its reply."""
_HANG_MARGIN_S = 60.0
_STOPPING_LIMIT_S = 30.0


@dataclass(eq=False)
class Replica:
    """A worker of one stage."""

    queue: StageQueue
    handle: Host
    now: Callable[[], float] = time.monotonic
    """The clock."""
    state: State = "starting"
    since: float = field(init=False)
    """When it entered its state."""
    started: float = field(init=False)
    """When it was asked for."""
    last_heard: float = field(init=False)
    """When it last returned a receipt, or received a batch after being idle."""
    info: WorkerInfo | None = None
    shared: bool = True
    """Whether driver and worker see the same run directory."""
    in_flight: dict[Any, Batch] = field(default_factory=dict)
    busy_s: float = 1.0
    """How long its last batch computed."""
    inherited: bool = False
    """Its process has hosted another stage before."""
    exclusive: bool = False
    """It has a batch that must not share the worker with another."""
    lane: WorkerLane = field(default_factory=lambda: WorkerLane(SpanJournal(), 0))
    """Where the journal of the run notes what it does."""

    def __post_init__(self) -> None:
        self.since = self.started = self.last_heard = self.now()

    def enter(self, state: State) -> None:
        """Enter a state."""
        self.state, self.since = state, self.now()
        self.lane.enter(state)

    def placed(self, info: WorkerInfo, *, shared: bool) -> None:
        """Its process runs and begins to load."""
        self.info, self.shared = info, shared
        self.lane.placed(self.handle.node.address)
        self.enter("loading")

    def successor(self, queue: StageQueue, lane: WorkerLane) -> "Replica":
        """The worker of another stage in the same process, which begins to load."""
        assert self.info is not None
        successor = Replica(queue, self.handle, self.now, lane=lane, inherited=True)
        successor.placed(self.info, shared=self.shared)
        return successor

    def may_become(self, queue: StageQueue) -> bool:
        """Whether its process may load the stage of `queue` once it is idle.

        Ray has reserved the resources of the process for as long as it lives.
        """
        return not queue.own_process and may_follow(self.queue.spec, queue.spec)

    def send(self, batch: Batch) -> Any:
        """Have it compute a batch; the reference to its receipt."""
        if not self.in_flight:
            self.last_heard = self.now()
        self.exclusive = batch.alone
        self.lane.sent(batch)
        ref = self.handle.call("run", self.items_of(batch))
        self.in_flight[ref] = batch
        return ref

    def received(self, batch: Batch, receipt: Receipt) -> None:
        """Note that it has answered."""
        self.last_heard = self.now()
        self.exclusive = self.exclusive and not batch.alone
        computed = any(span.phase == "compute" for span in receipt.spans)
        if receipt.status in ("timeout", "broken") and not computed:
            self.lane.lost(batch, len(batch.jobs))  # it still computes, or never did
            return
        self.lane.received(
            batch,
            receipt.spans,
            records=len(batch.jobs),
            status=receipt.status,
            joules=receipt.joules,
        )

    def withdraw(self) -> list[Batch]:
        """The batches in flight, which it will never answer."""
        batches = list(self.in_flight.values())
        for batch in batches:
            self.lane.lost(batch, len(batch.jobs))
        self.in_flight.clear()
        return batches

    @property
    def need(self) -> Resources:
        """The resources it takes of its node."""
        return Resources.of_placement(self.queue.spec.placement)

    @property
    def server(self) -> ServerCommand | None:
        """The server that it starts for itself."""
        return self.queue.spec.placement.server

    @property
    def serving(self) -> bool:
        """Whether it has been placed, and so may have started its server."""
        return self.server is not None and self.info is not None

    @property
    def stopping_limit_s(self) -> float:
        """How long it may take to end."""
        own = 0.0 if self.server is None else self.server.stop_timeout_s
        return _STOPPING_LIMIT_S + own

    @property
    def idle(self) -> bool:
        """Ready, with nothing to do and nothing waiting for it."""
        return self.state == "ready" and not self.in_flight and not self.queue.pending

    @property
    def silence_limit_s(self) -> float:
        """Silence after which it counts as hung; it enforces its own limit earlier."""
        return _IN_FLIGHT * self.queue.spec.placement.batch_timeout_s + _HANG_MARGIN_S

    def depth(self, others: int) -> int:
        """Batches it may have in flight, `others` being those of its endpoint elsewhere."""
        placement = self.queue.spec.placement
        if placement.endpoint is not None:
            return placement.concurrency - others
        return _IN_FLIGHT if self.busy_s > _SHORT_BATCH_S else _IN_FLIGHT_SHORT

    def time_limit_s(self, placement_timeout_s: float) -> float:
        """Seconds it may stay in its state; unlimited once it is ready."""
        limits: Mapping[State, float] = {
            "starting": placement_timeout_s,
            "loading": self.queue.spec.placement.load_timeout_s,
            "stopping": self.stopping_limit_s,
        }
        return limits.get(self.state, math.inf)

    def items_of(self, batch: Batch) -> list[Item]:
        """The jobs of a batch as they are sent, with all bytes it cannot read itself."""
        items = [Item(j.key, j.label, j.input) for j in batch.jobs]
        if self.shared and self.info is not None and self.info.sees_data:
            return items
        inline = _inlining(self.shared)
        return [i._replace(input=with_blobs(i.input, inline)) for i in items]

    def failure(
        self, fault: Fault | None, reason: str, batches: Sequence[Batch]
    ) -> WorkerFailure:
        """The report that it was lost; `fault` is None where its node was lost."""
        kinds: Mapping[Fault | None, FailureKind] = {
            Fault.DIED: "died",
            Fault.TIMEOUT: "timed out",
        }
        return WorkerFailure(
            at=date_and_time(),
            stage=self.queue.spec.name,
            host=self.handle.node.address,
            kind=kinds.get(fault, "lost with its node"),
            reason=reason,
            records=sum(len(batch.jobs) for batch in batches),
        )


def lane_of(journal: SpanJournal, queue: StageQueue, node: Node) -> WorkerLane:
    """The lane of a new worker of a stage."""
    placement = queue.spec.placement
    return journal.lane(
        queue.spec.name,
        node.id,
        gpus=placement.num_gpus,
        cpus=placement.num_cpus,
        slots=placement.concurrency,
        remote=placement.remote,
    )


def _inlining(shared: bool) -> Callable[[Blob], Blob]:
    """A function that includes the bytes which the worker cannot read itself."""

    def inline(blob: Blob) -> Blob:
        in_store = blob.place is not None and ".parquet#" in blob.place
        if blob.data is not None or (in_store and shared):
            return blob
        try:
            return replace(blob, data=read_blob(blob))
        except OSError:
            return blob  # the worker reports which record lacks it

    return inline
