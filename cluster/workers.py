"""The workers of a run: sends them batches, collects receipts, replaces those that die."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from cluster import actors
from cluster.local_ray import is_local
from cluster.placement import SETTLING_S, LoadingDeaths, Node, Resources, free_resources
from cluster.plan import EngineOptions
from cluster.replica import Replica, lane_of
from cluster.stage_queue import Batch, FailedJobs, StageQueue
from cluster.store import StoreError
from cluster.tracing.journal import SpanJournal
from cluster.watcher import WorkerFailure
from cluster.worker import TOKEN_FOLDER, Receipt, WorkerInfo
from generators.base import Failure, Fault

_NODES_AGE_S = 1.0


class OnReady(Protocol):
    """Called as `Watcher.worker_ready`."""

    def __call__(self, folder: str, seconds: float, *, taken_over: bool) -> None:
        """A worker of the stage in `folder` has become ready."""


Event = tuple[StageQueue, Receipt | FailedJobs]
"""The outcome of a batch: a receipt of committed records, or records that failed."""


class WorkerPool:
    """All workers, over all stages."""

    def __init__(
        self,
        root: Path,
        options: EngineOptions,
        probe: list[tuple[str, str]],
        notice: Callable[[str], None],
        on_failure: Callable[[WorkerFailure], None] = lambda failure: None,
        on_ready: OnReady = lambda folder, seconds, *, taken_over: None,
        journal: SpanJournal | None = None,
    ) -> None:
        self.root = root
        self.options = options
        self.notice = notice
        self._on_failure = on_failure
        self._on_ready = on_ready
        self._journal = journal or SpanJournal()
        self.replicas: list[Replica] = []
        self.nodes: list[Node] = []
        self._probe = probe
        self._refs: dict[Any, Replica] = {}
        self._nodes_read_at = 0.0
        self._occupied: list[tuple[float, str, Resources]] = []
        """When, where and how much turned out to be in use by other jobs."""
        # The one node of a local Ray cannot be lost without this process.
        settling_s = 0.0 if is_local(options.address) else SETTLING_S
        self._loading_deaths = LoadingDeaths(time.monotonic, settling_s)

    # ------------------------------------------------------------ starting and stopping

    def of(self, queue: StageQueue) -> list[Replica]:
        """The workers of a stage, without those that are being stopped."""
        return [r for r in self.replicas if r.queue is queue and r.state != "stopping"]

    def refresh_nodes(self, *, now: bool = False) -> None:
        """Read which nodes are alive; at most once a second unless it must be `now`."""
        if now or time.monotonic() - self._nodes_read_at > _NODES_AGE_S:
            self._nodes_read_at = time.monotonic()
            if (nodes := actors.nodes()) != self.nodes:
                self.nodes = nodes
                totals = {n.id: (n.total.gpus, n.total.cpus) for n in nodes}
                self._journal.nodes(totals)

    def free_for(self, queue: StageQueue) -> dict[str, Resources]:
        """The free resources of the nodes on which the stage may try a worker now."""
        avoided = self._loading_deaths.avoided(queue)
        return {n: need for n, need in self.free().items() if n not in avoided}

    def is_held_back(self, queue: StageQueue) -> bool:
        """Whether some node is not tried now because a worker died loading there."""
        return bool(self._loading_deaths.avoided(queue))

    def free(self) -> dict[str, Resources]:
        """The free resources of each node, as far as is known."""
        lately = time.monotonic() - self.options.placement_timeout_s
        self._occupied = [entry for entry in self._occupied if entry[0] > lately]
        others = [(node, need) for _, node, need in self._occupied]
        workers = [(r.handle.node, r.need) for r in self.replicas]
        return free_resources(self.nodes, workers + others)

    def start(self, queue: StageQueue, node: str) -> None:
        """Start one more worker of a stage."""
        queue.waiting_since = None
        handle = actors.start(queue.spec, self.root, node)
        lane = lane_of(self._journal, queue, node)
        replica = Replica(queue, handle, lane=lane)
        self.replicas.append(replica)
        self._refs[handle.call("describe", self._probe, control=True)] = replica

    def hand_over(self, replica: Replica, queue: StageQueue) -> None:
        """Have the process of an idle worker load another stage of the same needs.

        Its resources stay taken throughout, and no process has to import anything again.
        """
        queue.waiting_since = None
        self._remove(replica)
        lane = lane_of(self._journal, queue, replica.handle.node)
        successor = replica.successor(queue, lane)
        self.replicas.append(successor)
        self._refs[successor.handle.call("host", queue.spec)] = successor

    def stop(self, replica: Replica) -> None:
        """Stop a worker; its resources count as taken until its process has ended."""
        replica.enter("stopping")
        if replica.serving:
            self._refs[replica.handle.call("close", control=True)] = replica
        else:
            self._end(replica)

    def _end(self, replica: Replica) -> None:
        """Kill a worker, and hear from Ray when its process has ended."""
        replica.handle.kill()
        self._refs[replica.handle.call("ping", control=True)] = replica

    def kill_all(self) -> None:
        """End every worker at once, after the servers that they have started."""
        serving = [r for r in self.replicas if r.serving]
        try:
            closing = [r.handle.call("close", control=True) for r in serving]
            limit = max((r.stopping_limit_s for r in serving), default=0.0)
            actors.wait_for_all(closing, limit)
        finally:
            for replica in self.replicas:
                replica.handle.kill()
                replica.lane.enter("ended")

    def give_up(
        self, queue: StageQueue, reason: str, fault: Fault = Fault.NOT_LOADED
    ) -> Event:
        """Fail all waiting records of a stage that cannot be run; other stages go on."""
        queue.unusable, queue.unusable_fault = reason, fault
        self.notice(f"stage {queue.spec.name} cannot be used: {reason}")
        failure = Failure(reason, fault)
        return queue, [(job, failure) for job in queue.drain()]

    # -------------------------------------------------------------------- sending

    def dispatch(self, growing: Callable[[StageQueue], bool]) -> None:
        """Send every ready worker as many batches as it may have in flight."""
        for replica in sorted(self.replicas, key=lambda r: len(r.in_flight)):
            if replica.state == "ready":
                self._dispatch_to(replica, growing(replica.queue))

    def _dispatch_to(self, replica: Replica, growing: bool) -> None:
        queue, workers = replica.queue, len(self.of(replica.queue))
        depth = replica.depth(self._others_at_endpoint(replica))
        while not replica.exclusive and len(replica.in_flight) < depth:
            idle = not replica.in_flight
            batch = queue.take(idle=idle, growing=growing, workers=workers)
            if batch is None:
                return
            self._refs[replica.send(batch)] = replica

    def _others_at_endpoint(self, replica: Replica) -> int:
        """Requests that other stages have in flight at the same endpoint."""
        if replica.server is not None:
            return 0
        endpoint = replica.queue.spec.placement.endpoint
        same = (r for r in self.replicas if r.queue.spec.placement.endpoint == endpoint)
        return sum(len(r.in_flight) for r in same if r is not replica)

    # ------------------------------------------------------------------ receiving

    def collect(self, timeout_s: float) -> list[Event]:
        """Handle all replies that are ready, waiting at most `timeout_s` for the first."""
        events: list[Event] = []
        lost: list[tuple[Any, str]] = []
        for ref in actors.wait(list(self._refs), timeout_s):
            try:
                value = actors.result(ref)
            except actors.WorkerLost as error:
                lost.append((ref, str(error)))
                continue
            if (replica := self._refs.pop(ref, None)) is not None:
                events += self._replied(replica, ref, value)
        # Last, because batches that a dying worker had finished must not run again.
        for ref, message in lost:
            if (replica := self._refs.pop(ref, None)) is not None:
                events += self._lost(replica, message)
        return events + self._check_limits() + self._not_loadable()

    def _replied(self, replica: Replica, ref: Any, value: Any) -> list[Event]:
        if ref in replica.in_flight:
            return self._received(replica, replica.in_flight.pop(ref), value)
        if replica.state == "starting":
            self._placed(replica, value)
        elif replica.state == "loading":
            return self._loaded(replica, value)
        elif replica.state == "stopping":
            self._end(replica)
        return []

    def _placed(self, replica: Replica, info: WorkerInfo) -> None:
        token = self.root / TOKEN_FOLDER / (info.token or "-")
        replica.placed(info, shared=info.token is not None and token.exists())
        token.unlink(missing_ok=True)
        replica.queue.unplaced = 0
        self._refs[replica.handle.call("load", replica.shared, True)] = replica

    def _loaded(self, replica: Replica, error: str | None) -> list[Event]:
        if error is None:
            self._loading_deaths.clear(replica.queue)
            replica.enter("ready")
            seconds = replica.since - replica.started
            folder, taken_over = replica.queue.spec.folder, replica.inherited
            self._on_ready(folder, seconds, taken_over=taken_over)
            return []
        self.stop(replica)
        if self._tries_own_process(replica, error):
            return []
        return self._never_ready(replica.queue, error)

    def _tries_own_process(self, replica: Replica, reason: str) -> bool:
        """Whether the stage failed to load after another one: alone it may succeed."""
        if not replica.inherited:
            return False
        name = replica.queue.spec.name
        self.notice(f"stage {name} will be loaded in a process of its own: {reason}")
        replica.queue.own_process = True
        return True

    def _never_ready(self, queue: StageQueue, reason: str) -> list[Event]:
        """A worker could not be made ready; without others the stage is given up."""
        others = len(self.of(queue))
        if not others:
            return [self.give_up(queue, reason)]
        queue.max_workers = others
        self.notice(f"stage {queue.spec.name} continues with fewer workers: {reason}")
        return []

    def _received(self, replica: Replica, batch: Batch, receipt: Receipt) -> list[Event]:
        queue = replica.queue
        replica.received(batch, receipt)
        match receipt.status:
            case "done":
                replica.busy_s = receipt.busy_s
                return [(queue, receipt)]
            case "raised":
                return [(queue, queue.batch_raised(batch, receipt.error))]
            case "out of memory":
                return [(queue, queue.out_of_memory(batch, receipt.error))]
            case "store":
                raise StoreError(receipt.error)
        fault = Fault.TIMEOUT if receipt.status == "timeout" else Fault.DIED
        self._report(replica, fault, receipt.error, [batch, *replica.in_flight.values()])
        if replica.server is not None:
            batches = [batch, *self._withdraw(replica)]
            died = self._attribute(queue, batches, receipt.error, fault)
        else:
            died = queue.worker_died(batch, receipt.error, certain=True, fault=fault)
            for waiting in self._withdraw(replica):
                queue.put_back(waiting)
        self.stop(replica)
        return [(queue, died)]

    # --------------------------------------------------------------------- deaths

    def _lost(self, replica: Replica, message: str) -> list[Event]:
        """A worker has died: its batches are queued again, and may count as its cause."""
        replica.handle.kill()
        queue, batches = replica.queue, self._withdraw(replica)
        self._remove(replica)
        if replica.state == "stopping":
            return []
        self.refresh_nodes(now=True)
        if not any(n.id == replica.handle.node for n in self.nodes):
            self._report(replica, None, "the node left the cluster", batches)
            for batch in batches:
                queue.put_back(batch)
            return []
        self._report(replica, Fault.DIED, actors.cause_of_death(message), batches)
        reason = f"worker died: {actors.cause_of_death(message)}"
        if replica.state in ("starting", "loading"):
            self._tries_own_process(replica, reason)
            self._loading_deaths.add(queue, replica.handle.node, reason)
            return self._not_loadable()
        return [(queue, self._attribute(queue, batches, reason, Fault.DIED))]

    def _report(
        self, replica: Replica, fault: Fault | None, reason: str, batches: list[Batch]
    ) -> None:
        """Report a worker that is lost; `fault` is None where its node was lost."""
        self._on_failure(replica.failure(fault, reason, batches))

    def _not_loadable(self) -> list[Event]:
        """Events for stages whose workers died too often on nodes that are still alive."""
        events: list[Event] = []
        for queue, reason in self._loading_deaths.unloadable(
            {n.id for n in self.nodes}
        ).items():
            self._loading_deaths.clear(queue)
            events += self._never_ready(queue, reason)
        return events

    def _attribute(
        self, queue: StageQueue, batches: list[Batch], reason: str, fault: Fault
    ) -> FailedJobs:
        """Count a death against the batches in flight; the jobs that fail because of it."""
        certain = len(batches) == 1
        deaths = (
            queue.worker_died(b, reason, certain=certain, fault=fault) for b in batches
        )
        return [failed for death in deaths for failed in death]

    def _withdraw(self, replica: Replica) -> list[Batch]:
        """Stop waiting for a worker; the batches it had in flight."""
        for ref in [r for r, owner in self._refs.items() if owner is replica]:
            del self._refs[ref]
        return replica.withdraw()

    def _remove(self, replica: Replica) -> None:
        """Its process has ended, or hosts another stage."""
        self.replicas.remove(replica)
        replica.lane.enter("ended")

    def _check_limits(self) -> list[Event]:
        """Act on workers that have been in one state for too long."""
        events: list[Event] = []
        clock = time.monotonic()
        for replica in list(self.replicas):
            queue, waited = replica.queue, clock - replica.since
            limit = replica.time_limit_s(self.options.placement_timeout_s)
            if replica.in_flight and clock - replica.last_heard > replica.silence_limit_s:
                # It holds the GIL, so that it cannot enforce its own time limit.
                reason = f"no sign of life for {replica.silence_limit_s:.0f} s"
                batches = self._withdraw(replica)
                self._report(replica, Fault.TIMEOUT, reason, batches)
                events.append(
                    (queue, self._attribute(queue, batches, reason, Fault.TIMEOUT))
                )
                self.stop(replica)
            elif replica.state == "stopping" and waited > limit:
                replica.handle.kill()
                self._withdraw(replica)
                self._remove(replica)
            elif replica.state in ("starting", "loading") and waited > limit:
                events += self._stop_overdue(replica, waited)
        return events

    def _stop_overdue(self, replica: Replica, waited: float) -> list[Event]:
        """Stop a worker that takes too long to start or to load."""
        queue, placed = replica.queue, replica.state != "starting"
        reason = f"a worker was still {replica.state} after {waited:.0f} s"
        if placed:
            self._report(replica, Fault.TIMEOUT, reason, [])
        self._withdraw(replica)
        self.stop(replica)
        if self._tries_own_process(replica, reason):
            return []
        if placed or not self._may_be_placed_later(queue):
            return self._never_ready(queue, reason)
        self._occupied.append((time.monotonic(), replica.handle.node, replica.need))
        self.notice(f"stage {queue.spec.name} waits for resources: {reason}")
        return []

    def _may_be_placed_later(self, queue: StageQueue) -> bool:
        """Whether workers of this run may free resources that are not free at present.

        They may while they are busy; where they are idle, one more attempt is made.
        """
        queue.unplaced += 1
        others = [r for r in self.replicas if r.state != "stopping"]
        return any(r.in_flight for r in others) or (bool(others) and queue.unplaced == 1)
