"""One worker as the driver sees it, from its start until its process has ended.

The pool (`workers.py`) has a `Replica` for each `Worker` (`worker.py`), and decides what
becomes of it. Here is what it is doing, what it was sent, and how long it may take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

from plait.cluster.executors.base import Host
from plait.cluster.placement import Resources
from plait.cluster.record_values import read_blob
from plait.cluster.records import Item, StoredCell
from plait.cluster.stage_queue import Batch, StageQueue
from plait.cluster.tracing.journal import Span, SpanJournal, WorkerLane
from plait.cluster.watcher import WorkerProgress
from plait.cluster.worker import UNUSABLE, Receipt, WorkerInfo
from plait.generators.base import ServerCommand
from plait.generators.document import Blob, with_blobs

State = Literal["starting", "loading", "ready", "stopping"]

_IN_FLIGHT = 2
"""Messages per worker: batches of one are computed while inputs of the next are read."""
_MESSAGE_S = 0.2
"""How much work a message holds at least, where batches are short: each costs the driver
and the worker a millisecond or two, and the worker an fsync."""
_MOST_BATCHES = 32
"""In a message, however short they are."""
_HANG_MARGIN_S = 60.0
"""Beside its own limit for a batch, after which a silent worker counts as hung."""
_STOPPING_LIMIT_S = 30.0
"""How long a worker may take to end, without a server."""


@dataclass(eq=False)
class Replica:
    """A worker, which hosts one stage at a time."""

    queue: StageQueue
    """Of the stage that it hosts or loads."""
    handle: Host
    now: Callable[[], float]
    """The clock."""
    journal: SpanJournal
    state: State = "starting"
    since: float = field(init=False)
    """When it entered its state."""
    ordered: float = field(init=False)
    """When it was told to host its stage."""
    last_heard: float = field(init=False)
    """When it last returned a receipt, or received a batch after being idle."""
    info: WorkerInfo | None = None
    shared: bool = True
    """Whether driver and worker see the same run directory."""
    in_flight: dict[Any, list[Batch]] = field(default_factory=dict)
    """By the reference to its receipts, the batches of each message."""
    records: int = 0
    """That it has made of its stage."""
    batch_s: float = 1.0
    """How long it was at its last batch."""
    used: bool = False
    """It has hosted another stage before."""
    exclusive: bool = False
    """It has a batch that must not share the worker with another."""
    lane: WorkerLane = field(init=False)
    """Where the journal of the run notes what it does."""

    def __post_init__(self) -> None:
        self._order()
        self.enter("starting")

    def _order(self) -> None:
        spec = self.queue.spec
        self.ordered = self.last_heard = self.now()
        self.lane = self.journal.lane(spec.name, spec.placement, self.handle.node.id)

    def enter(self, state: State) -> None:
        """Enter a state."""
        self.state = state
        self.since = self.now()
        self.lane.enter(state)

    def begin_loading(self, info: WorkerInfo, *, shared: bool) -> None:
        """Its process runs and begins to load."""
        self.info = info
        self.shared = shared
        self.lane.note_host(self.handle.node.address)
        self.enter("loading")

    def turn_to(self, queue: StageQueue) -> None:
        """Leave its stage, and begin to load another."""
        self.lane.enter("ended")
        self.queue = queue
        self.used = True
        self.batch_s = 1.0
        self.records = 0
        self._order()
        self.lane.note_host(self.handle.node.address)
        self.enter("loading")

    @property
    def progress(self) -> WorkerProgress:
        """What is shown of it."""
        ready = "running" if self.in_flight else "idle"
        return WorkerProgress(
            stage=self.queue.spec.name,
            node=self.handle.node.address,
            state=ready if self.state == "ready" else self.state,
            records=self.records,
        )

    def send(self, batches: list[Batch]) -> Any:
        """Have it compute batches, in one message; the reference to their receipts."""
        if not self.in_flight:
            self.last_heard = self.now()
        self.exclusive = batches[0].alone  # which then is the only one, see `take_several`
        self.lane.note_sent(batches)
        ref = self.handle.call("run_all", [self._items(batch) for batch in batches])
        self.in_flight[ref] = batches
        return ref

    def _items(self, batch: Batch) -> list[Item]:
        """The jobs of a batch as they travel, with what the worker cannot read itself."""
        sees_all = self.shared and self.info is not None and self.info.sees_data
        items: list[Item] = []
        for job in batch.jobs:
            value = job.input if sees_all else with_blobs(job.input, self._inline)
            items.append(Item(job.key, job.label, value))
        return items

    def take_receipts(self, batches: Sequence[Batch], receipts: Sequence[Receipt]) -> None:
        """Note that it has answered a message, with a receipt for each batch it began."""
        self.last_heard = self.now()
        self.exclusive = False
        made = 0
        spans: list[Span] = []
        # Of the first batch that was not done, if there is one.
        status = "done"
        for batch, receipt in zip(batches, receipts, strict=False):
            spans += receipt.spans
            if receipt.status == "done":
                made += len(batch.jobs) - len(receipt.waiting)
            elif status == "done":
                status = receipt.status
        self.records += made
        has_computed = any(span.phase == "compute" for span in spans)
        if receipts[-1].status in UNUSABLE and not has_computed:
            # It still computes, or never did.
            self.lane.note_loss(batches, _count_jobs(batches))
            return
        self.lane.note_answer(
            batches,
            spans,
            records=made,
            batches=len(receipts),
            status=status,
            joules=receipts[-1].joules,
        )

    def withdraw(self) -> list[Batch]:
        """Return the batches in flight, which it will never answer."""
        messages = list(self.in_flight.values())
        for batches in messages:
            self.lane.note_loss(batches, _count_jobs(batches))
        self.in_flight.clear()
        return list(chain.from_iterable(messages))

    @property
    def need(self) -> Resources:
        """The resources it takes of its node."""
        return self.queue.need

    @property
    def server(self) -> ServerCommand | None:
        """The server that it starts for itself."""
        return self.queue.spec.placement.server

    @property
    def serving(self) -> bool:
        """Whether it has been placed, and so may have started its server."""
        return self.server is not None and self.info is not None

    @property
    def idle(self) -> bool:
        """Ready, with nothing to do and nothing waiting for it."""
        return self.state == "ready" and not self.in_flight and not self.queue.pending

    @property
    def silence_limit_s(self) -> float:
        """Silence after which it counts as hung; it enforces its own limit earlier."""
        return _IN_FLIGHT * self.queue.spec.placement.batch_timeout_s + _HANG_MARGIN_S

    @property
    def stopping_limit_s(self) -> float:
        """How long it may take to end."""
        own = 0.0 if self.server is None else self.server.stop_timeout_s
        return _STOPPING_LIMIT_S + own

    def time_limit_s(self, placement_timeout_s: float) -> float:
        """Seconds it may stay in its state; unlimited once it is ready."""
        limits: Mapping[State, float] = {
            "starting": placement_timeout_s,
            "loading": self.queue.spec.placement.load_timeout_s,
            "stopping": self.stopping_limit_s,
        }
        return limits.get(self.state, math.inf)

    def depth(self, others: int = 0) -> int:
        """Batches it may have in flight, `others` being those of its endpoint elsewhere."""
        placement = self.queue.spec.placement
        if placement.endpoint is not None:
            # Stages that ask one endpoint share its limit.
            return placement.concurrency - others
        return _IN_FLIGHT

    @property
    def batches_a_message(self) -> int:
        """How many batches are worth a message; one where its calls may overlap."""
        if self.queue.spec.placement.asks:
            return 1
        return min(_MOST_BATCHES, max(1, int(_MESSAGE_S / max(self.batch_s, 1e-9))))

    def _inline(self, blob: Blob) -> Blob:
        """`blob` with its bytes where the worker cannot read them itself."""
        # It can read parts of a shared run directory, but perhaps no files of the data.
        if blob.data is not None or (self.shared and StoredCell.of(blob.place)):
            return blob
        try:
            return replace(blob, data=read_blob(blob))
        except OSError:
            return blob  # the worker reports which record lacks it


def _count_jobs(batches: Sequence[Batch]) -> int:
    return sum(len(batch.jobs) for batch in batches)
