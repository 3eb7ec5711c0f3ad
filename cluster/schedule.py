"""The scheduler: walks ask for records, pools form batches, workers on Ray make them.

One loop in one thread. Every turn it opens walks, places workers, sends batches, takes
receipts in, and tells its observer where things stand.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cluster import actors
from cluster.options import EngineOptions, StageProgress
from cluster.placement import Need, Node, best_node, free_room
from cluster.plan import Evaluation, Plan, allowed, outcome_name
from cluster.pool import Batch, Casualties, StagePool
from cluster.records import Item, decode, encode
from cluster.store import Store, StoreError, read_blob
from cluster.walks import Walker
from cluster.worker import TOKEN_FOLDER, Hello, Receipt
from generators.base import Failure, Fault, Job, Outcome, Result, StageSpec
from generators.document import Blob, Image, with_blobs

_IN_FLIGHT = 2
"""Batches per worker: one computes while the next one's inputs are read."""
_OPENING_S = 0.02
"""Time per turn for opening walks, so that workers never wait for the driver's."""
_IDLE_BEFORE_EVICTION_S = 1.0
_HANG_MARGIN_S = 60.0
_STARTUP_DEATHS = 3
_TURN_S = 0.2
"""Time between two looks of the observer."""
_GROWTH_BATCHES = 16
"""Batches that must wait per worker before another is started on speculation."""


@dataclass(eq=False)
class _Replica:
    """One worker process, from being asked for until its process is gone."""

    pool: StagePool
    handle: actors.Handle
    state: str = "starting"
    shared: bool = True
    in_flight: dict[Any, Batch] = field(default_factory=dict)
    exclusive: bool = False
    since: float = field(default_factory=time.monotonic)
    """When it entered its state."""
    heard: float = field(default_factory=time.monotonic)
    """When it last gave a receipt, or was given work after idleness."""
    hello: Hello | None = None

    def become(self, state: str) -> None:
        self.state, self.since = state, time.monotonic()


class Interrupted(Exception):
    """The run was asked to stop; everything committed stands."""


class Scheduler:
    """Runs a plan to its end on the connected Ray cluster."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        options: EngineOptions,
        *,
        on_turn: Callable[[Sequence[StageProgress]], None] = lambda stages: None,
        on_notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.plan = plan
        self.store = store
        self.options = options
        self.on_turn = on_turn
        self.on_notice = on_notice
        self.should_stop: Callable[[], bool] = lambda: False
        self.finished: Counter[str] = Counter()
        self._walks: Iterator[Any] | None = plan.walks()
        self._waiting: dict[str, list[Walker[Evaluation]]] = defaultdict(list)
        self._failed_now: set[str] = set()
        self._pools: dict[str, StagePool] = {}
        self._allowed = allowed(plan, options)
        self._ranks = {s.digest: i for i, s in enumerate(plan.stages)}
        self._replicas: list[_Replica] = []
        self._refs: dict[Any, _Replica] = {}
        self._casualties: dict[str, Casualties] = defaultdict(list)
        self._nodes: list[Node] = []
        self._nodes_read = 0.0
        self._shown = 0.0
        self._noticed: set[str] = set()
        self._load_deaths: Counter[str] = Counter()
        self._probe = _probe_of(plan)

    # ---------------------------------------------------------------- the loop

    def run(self) -> None:
        """Work until nothing is missing; Interrupted once `should_stop` says so."""
        try:
            while self._walks is not None or self._waiting:
                if self.should_stop():
                    self._wind_down()
                self._open_walks()
                self._place()
                self._dispatch()
                self._collect()
                self._record_casualties()
                self._show()
        finally:
            for replica in self._replicas:
                replica.handle.kill()
        self.on_turn(self.progress())

    def _show(self) -> None:
        if time.monotonic() - self._shown > _TURN_S:
            self._shown = time.monotonic()
            self.on_turn(self.progress())

    def _wind_down(self) -> None:
        """Take in what is in flight, for a limited time, and leave."""
        until = time.monotonic() + self.options.grace_s
        while time.monotonic() < until and any(r.in_flight for r in self._replicas):
            self._collect()
            self._record_casualties()
        raise Interrupted

    def _open_walks(self) -> None:
        until = time.monotonic() + _OPENING_S
        while self._walks is not None:
            walk = next(self._walks, None)
            if walk is None:
                self._walks = None
                return
            self._advance(Walker(walk, None))
            if time.monotonic() > until:
                return

    # ------------------------------------------------------------------- walks

    def _advance(self, walker: Walker[Evaluation]) -> None:
        outcome = walker.advance(self._lookup)
        if outcome is None:
            assert walker.pending is not None
            missing = walker.pending.missing
            if all(job.spec.digest in self._allowed for job in missing):
                for job in missing:
                    self._want(job, walker)
        elif isinstance(outcome, Result):
            self.finished[outcome_name(outcome.value.document)] += 1

    def _lookup(self, job: Job) -> Outcome[Any] | None:
        row = self.store.rows(job.spec).get(job.key)
        if row is None or not (row.final or job.key in self._failed_now):
            return None
        pool = self._pool(job.spec)
        if job.key not in pool.seen:
            pool.seen.add(job.key)
            pool.settled([job.key], row.outcome, fresh=False)
        return decode(job.spec.kind, row)

    def _want(self, job: Job, walker: Walker[Evaluation]) -> None:
        asked_before = job.key in self._waiting
        self._waiting[job.key].append(walker)
        if asked_before:
            return
        pool = self._pool(job.spec)
        pool.seen.add(job.key)
        if pool.unusable is None:
            pool.add(job)
        else:
            failure = Failure(pool.unusable, Fault.NOT_LOADED)
            self._casualties[job.spec.digest].append((job, failure))

    def _settle(self, pool: StagePool, outcomes: Mapping[str, str]) -> None:
        """Wake the walks that waited for these keys."""
        for key, outcome in outcomes.items():
            pool.settled([key], outcome)
            if outcome == "failed":
                self._failed_now.add(key)
            for walker in self._waiting.pop(key, ()):
                walker.missing -= 1
                if walker.missing == 0:
                    self._advance(walker)

    def _pool(self, spec: StageSpec) -> StagePool:
        if spec.digest not in self._pools:
            self._pools[spec.digest] = StagePool(spec, self._ranks[spec.digest])
        return self._pools[spec.digest]

    # --------------------------------------------------------------- placement

    def _place(self) -> None:
        """Give every stage with work a worker where there is room, then more of them."""
        if time.monotonic() - self._nodes_read > 1.0:
            self._nodes, self._nodes_read = actors.nodes(), time.monotonic()
        wanting = sorted(
            (p for p in self._pools.values() if p.pending and p.unusable is None),
            key=lambda p: p.rank,
        )
        starved = [p for p in wanting if not self._of(p)]
        for pool in starved:
            if not self._start(pool):
                self._make_room(pool)
        if not starved:
            for pool in wanting:
                if self._wants_more(pool):
                    self._start(pool)

    def _of(self, pool: StagePool) -> list[_Replica]:
        return [r for r in self._replicas if r.pool is pool and r.state != "leaving"]

    def _start(self, pool: StagePool) -> bool:
        need = Need.of_placement(pool.spec.placement)
        node = best_node(need, self._room())
        if node is None:
            return False
        pool.waiting_since = None
        handle = actors.start(pool.spec, self.store.root, node)
        replica = _Replica(pool, handle)
        self._replicas.append(replica)
        self._refs[handle.call("hello", self._probe, control=True)] = replica
        return True

    def _room(self) -> dict[str, Need]:
        taken = [
            (r.handle.node, Need.of_placement(r.pool.spec.placement))
            for r in self._replicas
            if r.handle.node is not None
        ]
        return free_room(self._nodes, taken)

    def _wants_more(self, pool: StagePool) -> bool:
        """Whether another worker would pay for its own start."""
        replicas = self._of(pool)
        most = pool.spec.placement.workers
        if pool.spec.placement.endpoint or (most is not None and len(replicas) >= most):
            return False
        batches = _GROWTH_BATCHES if most is None else 1
        return pool.pending > batches * pool.limit * len(replicas)

    def _make_room(self, pool: StagePool) -> None:
        """Evict drained stages for one that cannot be placed; give it up at last."""
        waited = pool.wait_for_place()
        need = Need.of_placement(pool.spec.placement)
        if any(r.state == "leaving" for r in self._replicas):
            return
        idle = [r for r in self._replicas if self._evictable(r)]
        for replica in idle:
            self._dismiss(replica)
            if best_node(need, self._room_without_leaving()) is not None:
                return
        if not self._replicas or waited > 30.0:
            self._explain_wait(pool, need, waited)

    def _evictable(self, replica: _Replica) -> bool:
        pool = replica.pool
        idle_s = time.monotonic() - replica.heard
        settled = not self._growing(pool) or idle_s > _IDLE_BEFORE_EVICTION_S
        return (
            replica.state == "ready"
            and not replica.in_flight
            and not pool.pending
            and settled
        )

    def _room_without_leaving(self) -> dict[str, Need]:
        taken = [
            (r.handle.node, Need.of_placement(r.pool.spec.placement))
            for r in self._replicas
            if r.handle.node is not None and r.state != "leaving"
        ]
        return free_room(self._nodes, taken)

    def _explain_wait(self, pool: StagePool, need: Need, waited: float) -> None:
        largest = max(self._nodes, key=lambda n: (n.total.gpus, n.total.cpus), default=None)
        has = f"the largest node has {largest.total}" if largest else "no node is alive"
        text = f"stage {pool.spec.name} needs {need} for one worker; {has}"
        fits_nowhere = not any(need.fits(n.total) for n in self._nodes)
        if fits_nowhere and (self.options.address is None and self._nodes):
            self._give_up(pool, text)
        elif waited > self.options.placement_timeout_s:
            self._give_up(pool, f"{text}; waited {waited:.0f} s")
        else:
            self._notice(f"waiting: {text}")

    def _give_up(self, pool: StagePool, reason: str) -> None:
        """The stage cannot be run: its jobs fail, those of other stages go on."""
        pool.unusable = reason
        self._notice(f"stage {pool.spec.name} cannot be used: {reason}")
        failure = Failure(reason, Fault.NOT_LOADED)
        self._casualties[pool.spec.digest] += [(job, failure) for job in pool.drain()]

    # ---------------------------------------------------------------- dispatch

    def _dispatch(self) -> None:
        for replica in sorted(self._replicas, key=lambda r: len(r.in_flight)):
            if replica.state == "ready" and not self.should_stop():
                self._feed(replica)

    def _feed(self, replica: _Replica) -> None:
        pool = replica.pool
        growing = self._growing(pool)
        workers = len(self._of(pool))
        while not replica.exclusive and len(replica.in_flight) < self._depth(replica):
            batch = pool.take(idle=not replica.in_flight, growing=growing, workers=workers)
            if batch is None:
                return
            replica.exclusive = batch.alone
            if not replica.in_flight:
                replica.heard = time.monotonic()
            ref = replica.handle.call("run", self._items(replica, batch))
            replica.in_flight[ref] = batch
            self._refs[ref] = replica

    def _depth(self, replica: _Replica) -> int:
        """Batches this worker may have in flight; endpoints share one limit."""
        endpoint = replica.pool.spec.placement.endpoint
        if endpoint is None:
            return _IN_FLIGHT
        same = [r for r in self._replicas if r.pool.spec.placement.endpoint == endpoint]
        limit = min(r.pool.spec.placement.concurrency for r in same)
        others = sum(len(r.in_flight) for r in same if r is not replica)
        return limit - others

    def _growing(self, pool: StagePool) -> bool:
        """Whether more jobs may still reach the stage from stages before it."""
        if self._walks is not None:
            return True
        busy = {id(r.pool) for r in self._replicas if r.in_flight}
        return any(
            p.rank < pool.rank and (p.pending or id(p) in busy)
            for p in self._pools.values()
        )

    def _items(self, replica: _Replica, batch: Batch) -> list[Item]:
        items = [Item(j.key, j.label, j.input) for j in batch.jobs]
        if replica.shared and replica.hello is not None and replica.hello.sees_data:
            return items
        return [
            i._replace(input=with_blobs(i.input, self._inlined(replica))) for i in items
        ]

    def _inlined(self, replica: _Replica) -> Callable[[Blob], Blob]:
        """Bytes the worker cannot read itself travel with the job."""

        def inline(blob: Blob) -> Blob:
            in_store = blob.place is not None and ".parquet#" in blob.place
            if in_store and replica.shared:
                return blob
            try:
                return replace(blob, data=read_blob(blob))
            except OSError:
                return blob

        return inline

    # ----------------------------------------------------------------- collect

    def _collect(self) -> None:
        busy = self._walks is not None
        lost: list[tuple[Any, str]] = []
        for ref in actors.wait(list(self._refs), 0.0 if busy else 0.1):
            try:
                value = actors.result(ref)
            except actors.WorkerLost as error:
                lost.append((ref, str(error)))
                continue
            if (replica := self._refs.pop(ref, None)) is not None:
                self._answered(replica, ref, value)
        # Only now: what a dying worker had finished must not be given back.
        for ref, message in lost:
            if (replica := self._refs.pop(ref, None)) is not None:
                self._lost(replica, message)
        self._watch()

    def _answered(self, replica: _Replica, ref: Any, value: Any) -> None:
        if ref in replica.in_flight:
            self._received(replica, replica.in_flight.pop(ref), value)
        elif replica.state == "starting":
            self._greeted(replica, value)
        elif replica.state == "loading":
            self._loaded(replica, value)
        elif replica.state == "leaving":
            self._refs[replica.handle.call("pulse", control=True)] = replica

    def _greeted(self, replica: _Replica, hello: Hello) -> None:
        token = self.store.root / TOKEN_FOLDER / (hello.token or "-")
        replica.hello = hello
        replica.shared = hello.token is not None and token.exists()
        token.unlink(missing_ok=True)
        replica.become("loading")
        self._refs[replica.handle.call("load", replica.shared)] = replica

    def _loaded(self, replica: _Replica, error: str | None) -> None:
        if error is None:
            replica.become("ready")
            replica.heard = time.monotonic()
            return
        self._dismiss(replica)
        self._give_up(replica.pool, error)

    def _received(self, replica: _Replica, batch: Batch, receipt: Receipt) -> None:
        pool = replica.pool
        replica.heard = time.monotonic()
        replica.exclusive = replica.exclusive and not batch.alone
        casualties: Casualties = []
        if receipt.status == "done":
            self._take_in(pool, receipt)
        elif receipt.status == "raised":
            casualties = pool.raised(batch, receipt.error)
        elif receipt.status == "out of memory":
            casualties = pool.out_of_memory(batch, receipt.error)
        elif receipt.status == "store":
            raise StoreError(receipt.error)
        else:
            fault = Fault.TIMEOUT if receipt.status == "timeout" else Fault.DIED
            casualties = pool.killed(batch, receipt.error, certain=True, fault=fault)
            self._condemn(replica)
        self._casualties[pool.spec.digest] += casualties

    def _take_in(self, pool: StagePool, receipt: Receipt) -> None:
        rows = receipt.rows
        if receipt.table is not None:
            rows = self.store.commit(pool.spec, receipt.table)
        else:
            self.store.add(pool.spec, rows)
        pool.busy_s += receipt.busy_s
        self._settle(pool, {key: row.outcome for key, row in rows.items()})

    def _condemn(self, replica: _Replica) -> None:
        """Kill a worker for the sake of one batch; its other batches are innocent."""
        for batch in self._taken_back(replica):
            replica.pool.returned(batch)
        self._dismiss(replica)

    def _lost(self, replica: _Replica, error: str) -> None:
        """A worker is gone: give its batches back, with or without suspicion."""
        replica.handle.kill()
        if replica in self._replicas:
            self._replicas.remove(replica)
        if replica.state == "leaving":
            return
        pool = replica.pool
        batches = self._taken_back(replica)
        self._nodes, self._nodes_read = actors.nodes(), time.monotonic()
        if not any(n.id == replica.handle.node for n in self._nodes):
            for batch in batches:
                pool.returned(batch)
            return
        reason = f"worker died: {_cause(error)}"
        if replica.state in ("starting", "loading"):
            self._load_deaths[pool.spec.digest] += 1
            if self._load_deaths[pool.spec.digest] >= _STARTUP_DEATHS:
                self._give_up(pool, f"{reason}, {_STARTUP_DEATHS} times while loading")
        for batch in batches:
            died = pool.killed(batch, reason, certain=len(batches) == 1)
            self._casualties[pool.spec.digest] += died

    def _taken_back(self, replica: _Replica) -> list[Batch]:
        batches = list(replica.in_flight.values())
        for ref in replica.in_flight:
            self._refs.pop(ref, None)
        replica.in_flight.clear()
        return batches

    def _dismiss(self, replica: _Replica) -> None:
        """Send a worker away; its room counts as taken until its process is gone."""
        replica.become("leaving")
        replica.handle.kill()
        self._refs[replica.handle.call("pulse", control=True)] = replica

    def _watch(self) -> None:
        """Act on workers that have been in one state for too long."""
        now = time.monotonic()
        for replica in list(self._replicas):
            waited = now - replica.since
            pool = replica.pool
            patience = _IN_FLIGHT * pool.spec.placement.batch_timeout_s + _HANG_MARGIN_S
            if replica.in_flight and now - replica.heard > patience:
                self._hung(replica, patience)
            if replica.state == "leaving" and waited > 30.0:
                self._replicas.remove(replica)
            elif replica.state == "starting" and waited > self.options.placement_timeout_s:
                self._dismiss(replica)
                self._give_up(pool, f"Ray gave it no place in {waited:.0f} s")
            elif replica.state == "loading" and waited > pool.spec.placement.load_timeout_s:
                self._dismiss(replica)
                self._give_up(pool, f"it did not load within {waited:.0f} s")

    def _hung(self, replica: _Replica, patience: float) -> None:
        """A worker too stuck to notice its own time limit (it holds the GIL)."""
        pool = replica.pool
        batches = self._taken_back(replica)
        reason = f"no sign of life for {patience:.0f} s"
        for batch in batches:
            certain = len(batches) == 1
            died = pool.killed(batch, reason, certain=certain, fault=Fault.TIMEOUT)
            self._casualties[pool.spec.digest] += died
        self._dismiss(replica)

    # --------------------------------------------------------------- book-keeping

    def _record_casualties(self) -> None:
        """Failures that the driver, not a worker, has to write down."""
        casualties, self._casualties = self._casualties, defaultdict(list)
        for digest, failed in casualties.items():
            if not failed:
                continue
            pool = self._pools[digest]
            items = [Item(j.key, j.label, j.input) for j, _ in failed]
            table = encode(pool.spec.kind, items, [f for _, f in failed], 0.0)
            rows = self.store.commit(pool.spec, table)
            self._settle(pool, {key: row.outcome for key, row in rows.items()})

    def _notice(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self.on_notice(text)

    @property
    def made(self) -> int:
        """Records made by this scheduler."""
        return sum(pool.fresh for pool in self._pools.values())

    def progress(self) -> list[StageProgress]:
        """Where every stage stands."""
        now = time.monotonic()
        pools = sorted(self._pools.values(), key=lambda p: p.rank)
        return [self._progress_of(pool, now) for pool in pools]

    def _progress_of(self, pool: StagePool, now: float) -> StageProgress:
        replicas = self._of(pool)
        ready = [r for r in replicas if r.state == "ready"]
        state = "idle" if ready or not pool.pending else "waiting"
        if any(r.in_flight for r in ready):
            state = "running"
        elif replicas and not ready:
            state = "loading"
        seconds = now - min((r.since for r in ready), default=now)
        if pool.unusable is not None:
            state = "unusable"
        return StageProgress(
            pool.spec.name,
            len(pool.seen),
            dict(pool.outcomes),
            pool.fresh,
            len(ready),
            state,
            seconds,
        )


def _probe_of(plan: Plan) -> list[tuple[str, str]]:
    """(path, digest) of one picture file, to see which workers can read the data."""
    for sample in plan.samples:
        for image in getattr(sample, "question", ()):
            if isinstance(image, Image) and image.data is None and image.place:
                return [(image.place, image.digest)]
    return []


def _cause(error: str) -> str:
    """The line of Ray's message that says why a worker died."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    telling = ("killed", "exit", "died", "memory", "disconnect", "dead")
    return next((x for x in lines[1:] if any(t in x.lower() for t in telling)), lines[0])
