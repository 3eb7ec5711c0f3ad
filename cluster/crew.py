"""The workers of a run: sends them batches, takes their receipts, survives their deaths."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster import actors
from cluster.loading import SETTLING_S, LoadingDeaths
from cluster.manifest import now
from cluster.options import EngineOptions
from cluster.placement import Need, Node, free_room
from cluster.pool import Batch, Casualties, StagePool
from cluster.records import Item
from cluster.replica import Replica
from cluster.store import StoreError, read_blob
from cluster.watcher import FailureKind, WorkerFailure
from cluster.worker import TOKEN_FOLDER, Hello, Receipt
from generators.base import Failure, Fault
from generators.document import Blob, with_blobs

_NODES_AGE_S = 1.0

Event = tuple[StagePool, Receipt | Casualties]
"""What came of a batch: a receipt of committed records, or records that failed."""


class Crew:
    """All workers, over all stages."""

    def __init__(
        self,
        root: Path,
        options: EngineOptions,
        probe: list[tuple[str, str]],
        notice: Callable[[str], None],
        on_failure: Callable[[WorkerFailure], None] = lambda failure: None,
    ) -> None:
        self.root = root
        self.options = options
        self.notice = notice
        self._on_failure = on_failure
        self.replicas: list[Replica] = []
        self.nodes: list[Node] = []
        self._probe = probe
        self._refs: dict[Any, Replica] = {}
        self._nodes_read = 0.0
        self._held: list[tuple[float, str, Need]] = []
        """When, where and how much room turned out to be held by others than this run."""
        # The one node of a local Ray cannot go without this process.
        settling_s = 0.0 if actors.is_local(options.address) else SETTLING_S
        self._loading_deaths = LoadingDeaths(time.monotonic, settling_s)

    # ------------------------------------------------------------ coming and going

    def of(self, pool: StagePool) -> list[Replica]:
        """The workers of a stage that are or will be of use."""
        return [r for r in self.replicas if r.pool is pool and r.state != "leaving"]

    def look_at_nodes(self, *, now: bool = False) -> None:
        """Read which nodes live; at most once a second unless it must be `now`."""
        if now or time.monotonic() - self._nodes_read > _NODES_AGE_S:
            self.nodes, self._nodes_read = actors.nodes(), time.monotonic()

    def room_for(self, pool: StagePool) -> dict[str, Need]:
        """What is free on each node where a worker of the stage may be tried now."""
        avoided = self._loading_deaths.avoided(pool)
        return {n: need for n, need in self.room().items() if n not in avoided}

    def is_held_back(self, pool: StagePool) -> bool:
        """Whether some node is not tried now because a worker died loading there."""
        return bool(self._loading_deaths.avoided(pool))

    def room(self) -> dict[str, Need]:
        """What is free on each node, as far as is known."""
        lately = time.monotonic() - self.options.placement_timeout_s
        self._held = [held for held in self._held if held[0] > lately]
        others = [(node, need) for _, node, need in self._held]
        own = [(r.handle.node, r.need) for r in self.replicas]
        return free_room(self.nodes, own + others)

    def start(self, pool: StagePool, node: str) -> None:
        """Ask for one more worker of a stage."""
        pool.waiting_since = None
        handle = actors.start(pool.spec, self.root, node)
        replica = Replica(pool, handle)
        self.replicas.append(replica)
        self._refs[handle.call("hello", self._probe, control=True)] = replica

    def dismiss(self, replica: Replica) -> None:
        """Send a worker away; its room counts as taken until its process is gone."""
        replica.become("leaving")
        replica.handle.kill()
        self._refs[replica.handle.call("pulse", control=True)] = replica

    def kill_all(self) -> None:
        """End every worker at once."""
        for replica in self.replicas:
            replica.handle.kill()

    def give_up(
        self, pool: StagePool, reason: str, fault: Fault = Fault.NOT_LOADED
    ) -> Event:
        """A stage that cannot be run: its records fail, those of other stages go on."""
        pool.unusable, pool.unusable_fault = reason, fault
        self.notice(f"stage {pool.spec.name} cannot be used: {reason}")
        failure = Failure(reason, fault)
        return pool, [(job, failure) for job in pool.drain()]

    # -------------------------------------------------------------------- sending

    def feed(self, growing: Callable[[StagePool], bool]) -> None:
        """Give every ready worker what it may have in flight."""
        for replica in sorted(self.replicas, key=lambda r: len(r.in_flight)):
            if replica.state == "ready":
                self._feed(replica, growing(replica.pool))

    def _feed(self, replica: Replica, growing: bool) -> None:
        pool, workers = replica.pool, len(self.of(replica.pool))
        depth = replica.depth(self._others_at_endpoint(replica))
        while not replica.exclusive and len(replica.in_flight) < depth:
            idle = not replica.in_flight
            batch = pool.take(idle=idle, growing=growing, workers=workers)
            if batch is None:
                return
            if idle:
                replica.heard = time.monotonic()
            replica.exclusive = batch.alone
            ref = replica.handle.call("run", self._items(replica, batch))
            replica.in_flight[ref] = batch
            self._refs[ref] = replica

    def _others_at_endpoint(self, replica: Replica) -> int:
        """Requests that other stages have in flight at the same endpoint."""
        endpoint = replica.pool.spec.placement.endpoint
        same = (r for r in self.replicas if r.pool.spec.placement.endpoint == endpoint)
        return sum(len(r.in_flight) for r in same if r is not replica)

    def _items(self, replica: Replica, batch: Batch) -> list[Item]:
        items = [Item(j.key, j.label, j.input) for j in batch.jobs]
        if replica.shared and replica.hello is not None and replica.hello.sees_data:
            return items
        inline = _inlining(replica.shared)
        return [i._replace(input=with_blobs(i.input, inline)) for i in items]

    # ------------------------------------------------------------------ receiving

    def collect(self, timeout_s: float) -> list[Event]:
        """What has come in, waiting at most `timeout_s` for the first answer."""
        events: list[Event] = []
        lost: list[tuple[Any, str]] = []
        for ref in actors.wait(list(self._refs), timeout_s):
            try:
                value = actors.result(ref)
            except actors.WorkerLost as error:
                lost.append((ref, str(error)))
                continue
            if (replica := self._refs.pop(ref, None)) is not None:
                events += self._answered(replica, ref, value)
        # Only now: what a dying worker had finished must not be given back.
        for ref, message in lost:
            if (replica := self._refs.pop(ref, None)) is not None:
                events += self._lost(replica, message)
        return events + self._overdue() + self._not_loadable()

    def _answered(self, replica: Replica, ref: Any, value: Any) -> list[Event]:
        if ref in replica.in_flight:
            return self._received(replica, replica.in_flight.pop(ref), value)
        if replica.state == "starting":
            self._greeted(replica, value)
        elif replica.state == "loading":
            return self._loaded(replica, value)
        elif replica.state == "leaving":
            self._refs[replica.handle.call("pulse", control=True)] = replica
        return []

    def _greeted(self, replica: Replica, hello: Hello) -> None:
        token = self.root / TOKEN_FOLDER / (hello.token or "-")
        replica.hello = hello
        replica.shared = hello.token is not None and token.exists()
        token.unlink(missing_ok=True)
        replica.become("loading")
        replica.pool.unplaced = 0
        self._refs[replica.handle.call("load", replica.shared, True)] = replica

    def _loaded(self, replica: Replica, error: str | None) -> list[Event]:
        if error is None:
            self._loading_deaths.clear(replica.pool)
            replica.become("ready")
            return []
        self.dismiss(replica)
        return self._never_ready(replica.pool, error)

    def _never_ready(self, pool: StagePool, reason: str) -> list[Event]:
        """A worker did not come to work: the others go on, the last gives the stage up."""
        others = len(self.of(pool))
        if not others:
            return [self.give_up(pool, reason)]
        pool.most_workers = others
        self.notice(f"stage {pool.spec.name} goes on with fewer workers: {reason}")
        return []

    def _received(self, replica: Replica, batch: Batch, receipt: Receipt) -> list[Event]:
        pool = replica.pool
        replica.heard = time.monotonic()
        replica.exclusive = replica.exclusive and not batch.alone
        match receipt.status:
            case "done":
                replica.busy_s = receipt.busy_s
                return [(pool, receipt)]
            case "raised":
                return [(pool, pool.raised(batch, receipt.error))]
            case "out of memory":
                return [(pool, pool.out_of_memory(batch, receipt.error))]
            case "store":
                raise StoreError(receipt.error)
        fault = Fault.TIMEOUT if receipt.status == "timeout" else Fault.DIED
        self._report(replica, fault, receipt.error, [batch, *replica.in_flight.values()])
        died = pool.killed(batch, receipt.error, certain=True, fault=fault)
        for innocent in self._taken_back(replica):
            pool.returned(innocent)
        self.dismiss(replica)
        return [(pool, died)]

    # --------------------------------------------------------------------- deaths

    def _lost(self, replica: Replica, message: str) -> list[Event]:
        """A worker is gone: give its batches back, with or without suspicion."""
        replica.handle.kill()
        self.replicas.remove(replica)
        pool, batches = replica.pool, self._taken_back(replica)
        if replica.state == "leaving":
            return []
        self.look_at_nodes(now=True)
        if not any(n.id == replica.handle.node for n in self.nodes):
            self._report(replica, None, "the node left the cluster", batches)
            for batch in batches:
                pool.returned(batch)
            return []
        self._report(replica, Fault.DIED, _cause(message), batches)
        reason = f"worker died: {_cause(message)}"
        if replica.state in ("starting", "loading"):
            self._loading_deaths.add(pool, replica.handle.node, reason)
            return self._not_loadable()
        return [(pool, self._blamed(pool, batches, reason, Fault.DIED))]

    def _report(
        self, replica: Replica, fault: Fault | None, reason: str, batches: list[Batch]
    ) -> None:
        """Tell the watcher of a worker that is lost; no `fault` where its node went."""
        kinds: Mapping[Fault | None, FailureKind] = {
            Fault.DIED: "died",
            Fault.TIMEOUT: "timed out",
        }
        host = replica.hello.host if replica.hello else f"node {replica.handle.node[:8]}"
        failure = WorkerFailure(
            at=now(),
            stage=replica.pool.spec.name,
            host=host,
            kind=kinds.get(fault, "lost with its node"),
            reason=reason,
            records=sum(len(batch.jobs) for batch in batches),
        )
        self._on_failure(failure)

    def _not_loadable(self) -> list[Event]:
        """Stages whose workers died too often on nodes that live on."""
        events: list[Event] = []
        for pool, reason in self._loading_deaths.hopeless(
            {n.id for n in self.nodes}
        ).items():
            self._loading_deaths.clear(pool)
            events += self._never_ready(pool, reason)
        return events

    def _blamed(
        self, pool: StagePool, batches: list[Batch], reason: str, fault: Fault
    ) -> Casualties:
        certain = len(batches) == 1
        blamed = (pool.killed(b, reason, certain=certain, fault=fault) for b in batches)
        return [casualty for died in blamed for casualty in died]

    def _taken_back(self, replica: Replica) -> list[Batch]:
        batches = list(replica.in_flight.values())
        for ref in [r for r, owner in self._refs.items() if owner is replica]:
            del self._refs[ref]
        replica.in_flight.clear()
        return batches

    def _overdue(self) -> list[Event]:
        """Act on workers that have been in one state for too long."""
        events: list[Event] = []
        clock = time.monotonic()
        for replica in list(self.replicas):
            pool, waited = replica.pool, clock - replica.since
            limit = _limit_of(replica, self.options)
            if replica.in_flight and clock - replica.heard > replica.patience_s:
                # Too stuck to notice its own time limit: it holds the GIL.
                reason = f"no sign of life for {replica.patience_s:.0f} s"
                batches = self._taken_back(replica)
                self._report(replica, Fault.TIMEOUT, reason, batches)
                events.append((pool, self._blamed(pool, batches, reason, Fault.TIMEOUT)))
                self.dismiss(replica)
            elif replica.state == "leaving" and waited > limit:
                self._taken_back(replica)
                self.replicas.remove(replica)
            elif replica.state in ("starting", "loading") and waited > limit:
                events += self._written_off(replica, waited)
        return events

    def _written_off(self, replica: Replica, waited: float) -> list[Event]:
        """Part from a worker that takes too long to start or to load."""
        pool, placed = replica.pool, replica.state != "starting"
        reason = f"a worker was still {replica.state} after {waited:.0f} s"
        if placed:
            self._report(replica, Fault.TIMEOUT, reason, [])
        self._taken_back(replica)
        self.dismiss(replica)
        if placed or not self._may_find_room(pool):
            return self._never_ready(pool, reason)
        self._held.append((time.monotonic(), replica.handle.node, replica.need))
        self.notice(f"stage {pool.spec.name} waits for room: {reason}")
        return []

    def _may_find_room(self, pool: StagePool) -> bool:
        """Others hold the room it was promised: whether workers of this run may leave some.

        They will where they are still at work; where they idle, it is tried once more.
        """
        pool.unplaced += 1
        own = [r for r in self.replicas if r.state != "leaving"]
        return any(r.in_flight for r in own) or (bool(own) and pool.unplaced == 1)


def _limit_of(replica: Replica, options: EngineOptions) -> float:
    """Seconds a worker may stay in a state on the way in or out."""
    limits: Mapping[str, float] = {
        "starting": options.placement_timeout_s,
        "loading": replica.pool.spec.placement.load_timeout_s,
        "leaving": 30.0,
    }
    return limits.get(replica.state, float("inf"))


def _inlining(shared: bool) -> Callable[[Blob], Blob]:
    """Brings bytes along that the worker cannot read itself."""

    def inline(blob: Blob) -> Blob:
        in_store = blob.place is not None and ".parquet#" in blob.place
        if blob.data is not None or (in_store and shared):
            return blob
        try:
            return replace(blob, data=read_blob(blob))
        except OSError:
            return blob  # the worker will say of which record it is missing

    return inline


def _cause(message: str) -> str:
    """The line of Ray's message that says why a worker died."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = ("killed", "exit", "died", "memory", "disconnect", "dead")
    tells = (x for x in lines[1:] if any(word in x.lower() for word in telling))
    reason = next(tells, lines[0] if lines else "no reason given")
    return reason.partition(" Some common causes include")[0]
