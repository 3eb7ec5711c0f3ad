"""The workers of a run: sends them batches, collects receipts, replaces those that die."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cluster.executors.base import Executor, HostLost
from cluster.placement import LoadingDeaths, Node, Resources, free_resources
from cluster.plan import EngineOptions
from cluster.replica import Replica, lane_of
from cluster.stage_queue import Batch, FailedJobs, StageQueue
from cluster.store import StoreError
from cluster.tracing.journal import SpanJournal
from cluster.usage import committed_usage
from cluster.watcher import WorkerFailure
from cluster.worker import TOKEN_FOLDER, Receipt, WorkerInfo
from generators.base import Failure, Fault, StageSpec
from generators.secrets import know

_NODES_AGE_S = 1.0
_SILENCE_S = 20.0
"""How long a node may give no sign before its work is given to others."""


class OnReady(Protocol):
    """Called as `Watcher.worker_ready`."""

    def __call__(self, folder: str, seconds: float, *, taken_over: bool) -> None:
        """A worker of the stage in `folder` has become ready."""


Event = tuple[StageQueue, Receipt | FailedJobs]
"""The outcome of a batch: a receipt of committed records, or records that failed."""


@dataclass(frozen=True, slots=True)
class _Death:
    """A worker that has died, alone or with its node: that is not yet known."""

    replica: Replica
    reason: str
    batches: list[Batch]
    at: float

    @property
    def node(self) -> Node:
        """Where the worker ran."""
        return self.replica.handle.node


class WorkerPool:
    """All workers, over all stages."""

    def __init__(
        self,
        executor: Executor,
        root: Path,
        options: EngineOptions,
        probe: list[tuple[str, str]],
        notice: Callable[[str], None],
        on_failure: Callable[[WorkerFailure], None] = lambda failure: None,
        on_ready: OnReady = lambda folder, seconds, *, taken_over: None,
        journal: SpanJournal | None = None,
    ) -> None:
        self.executor = executor
        self.now = executor.now
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
        self._nodes_read_at = -math.inf
        self._occupied: list[tuple[float, str, Resources]] = []
        """When, where and how much turned out to be in use by other jobs."""
        self._loading_deaths = LoadingDeaths()
        self._deaths: list[_Death] = []
        """Deaths that are attributed once it is known what became of the node."""
        self._given_up: set[str] = set()
        """Nodes that give no sign, and whose work was given to others."""

    # ------------------------------------------------------------ starting and stopping

    def is_busy(self, queue: StageQueue) -> bool:
        """Whether a batch of the stage is in flight, or was when its worker died."""
        if any(r.in_flight for r in self.replicas if r.queue is queue):
            return True
        return any(d.batches for d in self._deaths if d.replica.queue is queue)

    def of(self, queue: StageQueue) -> list[Replica]:
        """The workers of a stage, without those that are being stopped."""
        return [r for r in self.replicas if r.queue is queue and r.state != "stopping"]

    def refresh_nodes(self) -> None:
        """Read which nodes are alive, at most once a second."""
        if self.now() - self._nodes_read_at > _NODES_AGE_S:
            self._nodes_read_at = self.now()
            if (nodes := self.executor.nodes()) != self.nodes:
                self.nodes = nodes
                totals = {n.id: (n.total.gpus, n.total.cpus) for n in nodes}
                self._journal.nodes(totals)

    def free_for(self, queue: StageQueue) -> dict[str, Resources]:
        """The free resources of the nodes on which the stage may try a worker now."""
        avoided = self._avoided(queue)
        return {n: need for n, need in self.free().items() if n not in avoided}

    def is_held_back(self, queue: StageQueue) -> bool:
        """Whether some node that may yet host a worker of the stage is not tried now."""
        return bool(self._avoided(queue) - self._loading_deaths.barred(queue))

    def _avoided(self, queue: StageQueue) -> set[str]:
        """Nodes that are not tried now: they may be gone, or cannot start the stage."""
        doubtful = {d.node.id for d in self._deaths} | self._given_up
        return doubtful | self._loading_deaths.barred(queue)

    def _hosts(self, queue: StageQueue) -> set[str]:
        """Nodes that are alive and large enough for a worker of the stage."""
        need = Resources.of_placement(queue.spec.placement)
        return {n.id for n in self.nodes if need.fits(n.total)}

    def free(self) -> dict[str, Resources]:
        """The free resources of each node, as far as is known."""
        lately = self.now() - self.options.placement_timeout_s
        self._occupied = [entry for entry in self._occupied if entry[0] > lately]
        others = [(node, need) for _, node, need in self._occupied]
        workers = [(r.handle.node.id, r.need) for r in self.replicas]
        return free_resources(self.nodes, workers + others)

    def start(self, queue: StageQueue, node: str) -> None:
        """Start one more worker of a stage."""
        queue.waiting_since = None
        host = next(n for n in self.nodes if n.id == node)
        given = self._given(queue.spec, host)
        handle = self.executor.start(queue.spec.placement, host, given)
        lane = lane_of(self._journal, queue, host)
        replica = Replica(queue, handle, self.now, lane=lane)
        self.replicas.append(replica)
        self._refs[handle.call("describe", self._probe, control=True)] = replica

    def _given(self, spec: StageSpec, node: Node) -> tuple[Any, ...]:
        """What a `Worker` is made of."""
        know(spec.secrets)
        secrets = {name: os.environ[name] for name in spec.secrets if name in os.environ}
        # Only stages behind an endpoint have ceilings, and only those read parts again.
        used = committed_usage(self.root, spec) if spec.placement.endpoint else {}
        return spec, str(self.root), secrets, used, node.address

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
            self.executor.wait_for_all(closing, limit)
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
        lost: list[tuple[Any, HostLost]] = []
        for ref in self.executor.wait(list(self._refs), timeout_s):
            try:
                value = self.executor.result(ref)
            except HostLost as error:
                lost.append((ref, error))
                continue
            if (replica := self._refs.pop(ref, None)) is not None:
                events += self._replied(replica, ref, value)
        # Last, because batches that a dying worker had finished must not run again.
        for ref, cause in lost:
            if (replica := self._refs.pop(ref, None)) is not None:
                self._lost(replica, cause)
        return events + self.unprompted()

    def unprompted(self) -> list[Event]:
        """The events that no reply brings: of deaths, silence and limits of time."""
        self._give_up_silent_nodes()
        return self._attributed() + self._check_limits() + self._not_loadable()

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

    def _lost(self, replica: Replica, error: HostLost) -> None:
        """A worker has ended: because of what it did, or because its node is gone."""
        replica.handle.kill()
        batches = self._withdraw(replica)
        self._remove(replica)
        if replica.state == "stopping":
            return
        if error.refused:
            self._report(replica, Fault.DIED, str(error), batches)
            node = replica.handle.node
            reason = f"no worker can be started on {node.address}: {error}"
            self._loading_deaths.bar(replica.queue, node.id, reason)
        else:
            reason = f"worker died: {error}"
            self._deaths.append(_Death(replica, reason, batches, self.now()))

    def _attributed(self) -> list[Event]:
        """Attribute the deaths of which it is known whether the node died as well."""
        events: list[Event] = []
        waiting, self._deaths = self._deaths, []
        for death in waiting:
            outlived = self._outlived(death)
            if outlived is None:
                self._deaths.append(death)
            elif outlived:
                events += self._died_alone(death)
            else:
                self._given_up.add(death.node.id)  # Ray may still take it to be alive
                self._lost_with_node(death.replica, "the node is gone", death.batches)
        return events

    def _outlived(self, death: _Death) -> bool | None:
        """Whether the worker's node lives on; None while that is not known."""
        if not any(n.id == death.node.id for n in self.nodes):
            return False
        return self.executor.outlived(death.node.id, death.at)

    def _died_alone(self, death: _Death) -> list[Event]:
        """A death is charged to what the worker did: to loading, or to its batches."""
        replica, queue = death.replica, death.replica.queue
        self._report(replica, Fault.DIED, death.reason, death.batches)
        if replica.state in ("starting", "loading"):
            self._tries_own_process(replica, death.reason)
            self._loading_deaths.add(queue, death.node.id, death.reason)
            return []
        return [(queue, self._attribute(queue, death.batches, death.reason, Fault.DIED))]

    def _lost_with_node(self, replica: Replica, reason: str, batches: list[Batch]) -> None:
        """What a worker had in flight waits again, and nothing is charged."""
        self._report(replica, None, reason, batches)
        for batch in batches:
            replica.queue.put_back(batch)

    def _give_up_silent_nodes(self) -> None:
        """Give the work of nodes that have been silent for too long to other nodes."""
        held = {*(r.handle.node for r in self.replicas), *(d.node for d in self._deaths)}
        self.executor.watch(held | {n for n in self.nodes if n.id in self._given_up})
        self._given_up = {n for n in self._given_up if self.executor.silent_s(n)}
        for node in held:
            if self.executor.silent_s(node.id) > _SILENCE_S:
                self._give_up_node(node)

    def _give_up_node(self, node: Node) -> None:
        self._given_up.add(node.id)
        text = f"no sign of node {node.address} for {_SILENCE_S:.0f} s"
        for replica in [r for r in self.replicas if r.handle.node == node]:
            if replica.state == "stopping":
                continue
            self.notice(f"{text}: its work is given to other nodes")
            self._lost_with_node(replica, text, self._withdraw(replica))
            replica.enter("stopping")
            self._end(replica)

    def _report(
        self, replica: Replica, fault: Fault | None, reason: str, batches: list[Batch]
    ) -> None:
        """Report a worker that is lost; `fault` is None where its node was lost."""
        self._on_failure(replica.failure(fault, reason, batches))

    def _not_loadable(self) -> list[Event]:
        """Events for stages whose workers cannot be started or loaded."""
        events: list[Event] = []
        for queue, reason in self._loading_deaths.unloadable(self._hosts).items():
            self._loading_deaths.clear(queue)
            if queue.unusable is None:
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
        clock = self.now()
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
        node = replica.handle.node.id
        self._occupied.append((self.now(), node, replica.need))
        self.notice(f"stage {queue.spec.name} waits for resources: {reason}")
        return []

    def _may_be_placed_later(self, queue: StageQueue) -> bool:
        """Whether workers of this run may free resources that are not free at present.

        They may while they are busy; where they are idle, one more attempt is made.
        """
        queue.unplaced += 1
        others = [r for r in self.replicas if r.state != "stopping"]
        return any(r.in_flight for r in others) or (bool(others) and queue.unplaced == 1)
