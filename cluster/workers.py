"""The workers of a run: sends them batches, collects receipts, replaces those that die.

`WorkerPool` belongs to the engine (`engine.py`). Which stage gets a worker, and on which
node, `allocation.py` decides; what one worker is doing is kept in its `Replica`; what jobs
of a failed batch are tried again, in the stage's `StageQueue`. All of it runs in the one
thread of the driver's loop.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from plait.cluster.executors.base import Executor, HostLost
from plait.cluster.manifest import now as date_and_time
from plait.cluster.placement import Node, Resources, free_resources
from plait.cluster.plan import EngineOptions
from plait.cluster.replica import Replica
from plait.cluster.stage_queue import Batch, FailedJobs, StageQueue
from plait.cluster.store import StoreError
from plait.cluster.tracing.journal import SpanJournal
from plait.cluster.usage import usage_of_stage
from plait.cluster.watcher import FailureKind, Watcher, WorkerFailure
from plait.cluster.worker import TOKEN_FOLDER, Receipt, WorkerInfo
from plait.generators.base import Failure, Fault, Job, StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.secrets import know

_CHECKED_EVERY_S = 1.0
"""How often it is seen which nodes there are, and what has lasted too long."""
_PLACED_WITHIN_S = 30.0
"""After how long a worker that has no place yet makes one ask who holds the resources."""
_SILENCE_S = 20.0
"""How long a node may give no sign before its work is given to others."""
_KINDS: Mapping[Fault | None, FailureKind] = {
    Fault.DIED: "died",
    Fault.TIMEOUT: "timed out",
    None: "lost with its node",
}
_MOST_DEATHS = 3
"""Deaths while loading, on one node that lives on, after which a stage is not loadable."""


class StageEvent(NamedTuple):
    """What has become of jobs of a stage, for the engine to keep and to tell walks."""

    queue: StageQueue
    outcome: Receipt | FailedJobs
    """The receipt of a batch whose records are committed, or jobs that failed."""

    @classmethod
    def of_failed(cls, queue: StageQueue, jobs: Sequence[Job], why: Failure) -> StageEvent:
        """Return that these jobs failed, all for the same reason."""
        return cls(queue, [(job, why) for job in jobs])


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


class _Occupied(NamedTuple):
    """Resources of a node that seemed free, and turned out to be in use by other jobs."""

    at: float
    """When that was noticed."""
    node: str
    need: Resources


@dataclass
class _LoadingTrouble:
    """Workers of one stage that were never ready, to see when the stage is the cause.

    A model too large for a machine's memory kills its worker on any machine, at every
    attempt. What could not even be started (a package that is missing there) fails on that
    node however often it is tried.
    """

    deaths: Counter[str] = field(default_factory=Counter)
    """By node, since a worker was last ready. One on which it died too often is enough,
    since they all load the same."""
    barred: set[str] = field(default_factory=set)
    """Nodes where no worker of the stage can ever be started."""
    reason: str = ""


class WorkerPool:
    """All workers, over all stages."""

    def __init__(
        self,
        executor: Executor,
        root: AnyPath,
        options: EngineOptions,
        watcher: Watcher,
        journal: SpanJournal,
        probe: list[tuple[str, str]],
    ) -> None:
        self.executor = executor
        self.now = executor.now
        self.root = root
        self.options = options
        self._watcher = watcher
        self._journal = journal
        self._probe = probe
        self._noticed: set[str] = set()
        """What the user was told."""
        self._waiting: set[StageQueue] = set()
        """Stages of which it was said who holds what they wait for."""
        self.replicas: list[Replica] = []
        """Workers that have not ended."""
        self._workers_of: dict[StageQueue, list[Replica]] = defaultdict(list)
        """The same by stage, without those that are being stopped."""
        self.nodes: list[Node] = []
        self._roomy: dict[Replica, None] = {}
        """Workers that may take a batch: all others are known not to."""
        self.released = False
        """Whether a worker has come to have nothing to do, or has ended, since the
        allocation last looked."""
        self._refs: dict[Any, Replica] = {}
        """By the reference to an answer that has not come yet, who is to give it."""
        self._nodes_read_at = -math.inf
        self._checked_at = -math.inf
        self._occupied: list[_Occupied] = []
        self._free: dict[str, Resources] | None = None
        """What is free on each node, until that changes."""
        self._trouble: dict[StageQueue, _LoadingTrouble] = defaultdict(_LoadingTrouble)
        self._deaths: list[_Death] = []
        """Deaths that are attributed once it is known what became of the node."""
        self._given_up: set[str] = set()
        """Nodes that give no sign, and whose work was given to others."""

    # ------------------------------------------------------------ starting and stopping

    def notice(self, text: str) -> None:
        """Tell the user, of equal messages the first."""
        if text not in self._noticed:
            self._noticed.add(text)
            self._watcher.notice(text)

    def of(self, queue: StageQueue) -> Sequence[Replica]:
        """Return the workers of a stage, without those that are being stopped."""
        return self._workers_of[queue]

    def excess_of(self, queue: StageQueue) -> Sequence[Replica]:
        """Return the workers of a stage that are more than it may have by now."""
        workers = self._workers_of[queue]
        most = len(workers)
        if queue.asked_workers is not None:
            most = min(most, queue.asked_workers)
        if queue.released_beyond is not None:
            most = min(most, queue.released_beyond)
        return workers[most:]

    def refresh_nodes(self) -> None:
        """Read which nodes are alive, at most once a second."""
        if self.now() - self._nodes_read_at > _CHECKED_EVERY_S:
            self._nodes_read_at = self.now()
            self._free = None
            self.nodes = self.executor.nodes()

    def free_for(self, queue: StageQueue) -> Mapping[str, Resources]:
        """The free resources of the nodes on which the stage may try a worker now."""
        avoided = self._nodes_to_avoid(queue)
        if not avoided:
            return self._free_now()
        free = dict(self._free_now())
        for node in avoided:
            free.pop(node, None)
        return free

    def is_held_back(self, queue: StageQueue) -> bool:
        """Whether some node that may yet host a worker of the stage is not tried now."""
        return bool(self._nodes_to_avoid(queue) - self._trouble[queue].barred)

    def _nodes_to_avoid(self, queue: StageQueue) -> set[str]:
        """Nodes that are not tried now: they may be gone, or cannot start the stage."""
        doubtful = {death.node.id for death in self._deaths} | self._given_up
        return doubtful | self._trouble[queue].barred

    def _free_now(self) -> dict[str, Resources]:
        """Return the free resources of each node, as far as is known."""
        if self._free is None:
            lately = self.now() - self.options.placement_timeout_s
            self._occupied = [entry for entry in self._occupied if entry.at > lately]
            used: list[tuple[str, Resources]] = []
            for replica in self.replicas:
                used.append((replica.handle.node.id, replica.need))
            for occupied in self._occupied:
                used.append((occupied.node, occupied.need))
            self._free = free_resources(self.nodes, used)
        return self._free

    def coming(self) -> dict[str, Resources]:
        """What is free on each node once the workers that are being stopped have ended."""
        coming = dict(self._free_now())
        for replica in self.replicas:
            if replica.state == "stopping" and replica.handle.node.id in coming:
                coming[replica.handle.node.id] += replica.need
        return coming

    def start(self, queue: StageQueue, node: str) -> None:
        """Start one more worker of a stage."""
        queue.waiting_since = None  # it counts anew should this worker be lost
        host = next(n for n in self.nodes if n.id == node)
        given = self._arguments_of(queue.spec, host)
        handle = self.executor.start(queue.spec.placement, host, given)
        replica = Replica(queue, handle, self.now, self._journal)
        if self._free is not None:
            self._free[node] -= replica.need
        self.replicas.append(replica)
        self._workers_of[queue].append(replica)
        self._ask(replica, "describe", self._probe, control=True)

    def may_load(self, replica: Replica, queue: StageQueue) -> bool:
        """Return whether an idle worker may load another stage than it hosts.

        Its resources stay reserved, so the stage must need the same. After trouble with
        loading, a stage has a process of its own, which nothing was loaded in before.
        """
        alike = replica.need == queue.need
        shared = replica.queue.spec.shares_process and queue.spec.shares_process
        if not (alike and shared) or self._trouble[queue].deaths:
            return False
        return replica.handle.node.id in self.free_for(queue)

    def load(self, replica: Replica, queue: StageQueue) -> None:
        """Have an idle worker load another stage, for which nothing is imported again."""
        queue.waiting_since = None
        self._workers_of[replica.queue].remove(replica)
        self._workers_of[queue].append(replica)
        self._roomy.pop(replica, None)
        replica.turn_to(queue)
        self._ask(replica, "host", queue.spec)

    def _ask(
        self, replica: Replica, method: str, *args: Any, control: bool = False
    ) -> None:
        self._refs[replica.handle.call(method, *args, control=control)] = replica

    def _arguments_of(self, spec: StageSpec, node: Node) -> tuple[Any, ...]:
        """What a `Worker` is made of."""
        know(spec.secrets)
        secrets = {name: os.environ[name] for name in spec.secrets if name in os.environ}
        shard = self.options.shard
        used = dict[str, float]()
        # Only stages behind an endpoint have ceilings, and only those read parts again.
        if spec.placement.endpoint:
            used = usage_of_stage(self.root, spec, shard)
        log_folder = shard.folder(self.root) if shard else self.root
        return spec, str(self.root), secrets, used, node.address, str(log_folder)

    def stop(self, replica: Replica) -> None:
        """Stop a worker; its resources count as taken until its process has ended."""
        self._retire(replica)
        if replica.serving:
            # It ends its server and answers, and is then killed (`_on_reply`).
            self._ask(replica, "close", control=True)
        else:
            self._end(replica)

    def _end(self, replica: Replica) -> None:
        """Kill a worker, and hear of it when its process has ended."""
        replica.handle.kill()
        # The answer is HostLost, once the process is gone.
        self._ask(replica, "ping", control=True)

    def kill_all(self) -> None:
        """End every worker at once, after the servers that they have started."""
        try:
            closing: list[Any] = []
            limit_s = 0.0
            for replica in self.replicas:
                if replica.serving:
                    closing.append(replica.handle.call("close", control=True))
                    limit_s = max(limit_s, replica.stopping_limit_s)
            self.executor.wait_for_all(closing, limit_s)
        finally:
            for replica in self.replicas:
                replica.handle.kill()
                replica.lane.enter("ended")

    def give_up(
        self, queue: StageQueue, reason: str, fault: Fault = Fault.NOT_LOADED
    ) -> StageEvent:
        """Fail all waiting records of a stage that cannot be run; other stages go on."""
        queue.unusable = reason
        queue.unusable_fault = fault
        self.notice(f"stage {queue.spec.name} cannot be used: {reason}")
        failure = Failure(reason, fault)
        return StageEvent.of_failed(queue, queue.drain(), failure)

    # -------------------------------------------------------------------- sending

    def dispatch(self) -> None:
        """Send every ready worker as many batches as it may have in flight."""
        waiting = {queue for queue in self._workers_of if queue.pending}
        ready = [replica for replica in self._roomy if replica.queue in waiting]
        # With nothing for a busy worker, and so for no other one.
        refused: set[StageQueue] = set()
        # Idle ones first: of the last jobs a busy worker should get none.
        for replica in sorted(ready, key=lambda replica: len(replica.in_flight)):
            if replica.in_flight and replica.queue in refused:
                continue
            if self.dispatch_to(replica) and replica.in_flight:
                refused.add(replica.queue)
            if replica.state != "ready" or len(replica.in_flight) >= replica.depth():
                del self._roomy[replica]

    def dispatch_to(self, replica: Replica, most: int | None = None) -> bool:
        """Send a worker as many batches as it may have in flight, or at most `most`.

        Return whether its stage has no batch for it.
        """
        if replica.state != "ready" or replica in self.excess_of(replica.queue):
            return False
        queue = replica.queue
        workers = len(self._workers_of[replica.queue])
        depth = replica.depth(self._others_at_endpoint(replica)) if most is None else most
        while not replica.exclusive and len(replica.in_flight) < depth:
            idle = not replica.in_flight
            batches = queue.take_several(
                replica.batches_a_message, idle=idle, workers=workers
            )
            if not batches:
                return True
            self._refs[replica.send(batches)] = replica
        return False

    def _others_at_endpoint(self, replica: Replica) -> int:
        """Requests that other stages have in flight at the same endpoint."""
        endpoint = replica.queue.spec.placement.endpoint
        if endpoint is None or replica.server is not None:
            return 0  # a server of its own is asked by nobody else
        requests = 0
        for other in self.replicas:
            asks_the_same = other.queue.spec.placement.endpoint == endpoint
            if asks_the_same and other is not replica:
                requests += len(other.in_flight)
        return requests

    # ------------------------------------------------------------------ receiving

    def collect(self, timeout_s: float, *bells: Any) -> list[StageEvent]:
        """Handle all replies that are ready, waiting at most `timeout_s` for the first.

        `bells` are further references that end the waiting.
        """
        events: list[StageEvent] = []
        lost: list[tuple[Replica, HostLost]] = []
        refs = [*self._refs, *bells] if bells else self._refs.keys()
        for ref in self.executor.wait(refs, timeout_s):
            replica = self._refs.pop(ref, None)
            if replica is None:
                continue  # a bell
            try:
                events += self._on_reply(replica, ref, self.executor.result(ref))
            except HostLost as error:
                lost.append((replica, error))
        # Last, because batches that a dying worker had finished must not run again.
        for replica, cause in lost:
            if replica in self.replicas:
                self._on_lost(replica, cause)
        # And what no reply brings: deaths, silence and limits of time.
        events += self._attribute_deaths()
        if self.now() - self._checked_at >= _CHECKED_EVERY_S:
            self._checked_at = self.now()
            self._give_up_silent_nodes()
            events += self._check_limits()
        return events + self._not_loadable()

    def _on_reply(self, replica: Replica, ref: Any, value: Any) -> list[StageEvent]:
        """Handle the answer to a call; which call it was, the worker's state says."""
        if ref in replica.in_flight:
            return self._on_receipts(replica, replica.in_flight.pop(ref), value)
        if replica.state == "starting":
            self._on_placed(replica, value)
        elif replica.state == "loading":
            return self._on_loaded(replica, value)
        elif replica.state == "stopping":
            self._end(replica)  # its server has ended
        return []

    def _on_placed(self, replica: Replica, info: WorkerInfo) -> None:
        """A worker's process runs: have it load its stage."""
        token = self.root / TOKEN_FOLDER / (info.token or "-")
        replica.begin_loading(info, shared=info.token is not None and token.exists())
        token.unlink(missing_ok=True)
        if not (replica.shared or self.executor.fixed):
            node = replica.handle.node.address
            self.notice(
                f"node {node} does not share {self.root}: its results are sent here"
            )
        replica.queue.unplaced = 0
        self._ask(replica, "load", replica.shared)

    def _on_loaded(self, replica: Replica, error: str | None) -> list[StageEvent]:
        """A worker has loaded its stage, or could not."""
        if error is not None:
            self.stop(replica)
            return self._never_ready(replica, error)
        self._trouble[replica.queue].deaths.clear()
        replica.enter("ready")
        self._roomy[replica] = None
        seconds = replica.since - replica.ordered
        if not replica.used:
            replica.queue.load_s = seconds
        self._watcher.worker_ready(replica.queue.spec.folder, seconds, replica.used)
        return []

    def _never_ready(self, replica: Replica, reason: str) -> list[StageEvent]:
        """A worker could not be made ready: where nothing was loaded before, none can."""
        if replica.used:
            self._note_trouble(replica, reason)
            return []
        return self._without_more(replica.queue, reason)

    def _without_more(self, queue: StageQueue, reason: str) -> list[StageEvent]:
        """Go on with the workers that a stage has; without any, the stage is given up."""
        others = len(self._workers_of[queue])
        if not others:
            return [self.give_up(queue, reason)]
        queue.max_workers = others
        self.notice(f"stage {queue.spec.name} continues with fewer workers: {reason}")
        return []

    def _on_receipts(
        self, replica: Replica, batches: list[Batch], receipts: Sequence[Receipt]
    ) -> list[StageEvent]:
        """Handle the answer to a message: a receipt for each batch that was begun."""
        queue = replica.queue
        busy_s = (self.now() - replica.last_heard) / len(receipts)
        replica.take_receipts(batches, receipts)
        self._roomy[replica] = None
        self.released = self.released or replica.idle
        for batch in batches[len(receipts) :]:  # which it did not begin
            queue.put_back(batch)
        events: list[StageEvent] = []
        for batch, receipt in zip(batches, receipts, strict=False):
            outcome: Receipt | FailedJobs
            match receipt.status:
                case "done":
                    queue.finish_batch(len(batch.jobs), busy_s)
                    replica.batch_s = receipt.took_s
                    outcome = receipt
                case "raised":
                    outcome = queue.batch_raised(batch, receipt.error)
                case "out of memory":
                    outcome = queue.out_of_memory(batch, receipt.error)
                case "store":
                    raise StoreError(receipt.error)
                case "timeout" | "broken":
                    outcome = self._end_unusable(replica, batch, receipt)
            events.append(StageEvent(queue, outcome))
        return events

    def _end_unusable(self, replica: Replica, batch: Batch, receipt: Receipt) -> FailedJobs:
        """End a worker whose process or server can compute nothing more."""
        queue = replica.queue
        fault = Fault.TIMEOUT if receipt.status == "timeout" else Fault.DIED
        waiting = self._withdraw(replica)
        self._report(replica, fault, receipt.error, [batch, *waiting])
        if replica.server is not None:
            # Any of its requests may be the one that has ended the server.
            died = self._attribute(queue, [batch, *waiting], receipt.error, fault)
        else:
            died = queue.worker_died(batch, receipt.error, certain=True, fault=fault)
            for other in waiting:
                queue.put_back(other)
        self.stop(replica)
        return died

    # --------------------------------------------------------------------- deaths

    def _on_lost(self, replica: Replica, error: HostLost) -> None:
        """A worker has ended: because of what it did, or because its node is gone."""
        replica.handle.kill()
        batches = self._withdraw(replica)
        self._remove(replica)
        if replica.state == "stopping":
            return  # as it was told
        if error.refused:
            self._report(replica, Fault.DIED, str(error), batches)
            node = replica.handle.node
            trouble = self._trouble[replica.queue]
            trouble.reason = f"no worker can be started on {node.address}: {error}"
            trouble.barred.add(node.id)
        else:
            reason = f"worker died: {error}"
            self._deaths.append(_Death(replica, reason, batches, self.now()))

    def _attribute_deaths(self) -> list[StageEvent]:
        """Attribute the deaths of which it is known whether the node died as well."""
        events: list[StageEvent] = []
        waiting = self._deaths
        self._deaths = []
        for death in waiting:
            outlived = self._has_outlived(death)
            if outlived is None:
                self._deaths.append(death)
            elif outlived:
                events += self._died_alone(death)
            else:
                self._given_up.add(death.node.id)  # Ray may still take it to be alive
                self._give_back(death.replica, "the node is gone", death.batches)
        return events

    def _has_outlived(self, death: _Death) -> bool | None:
        """Return whether the worker's node lives on; None while that is not known."""
        if not any(n.id == death.node.id for n in self.nodes):
            return False
        return self.executor.has_outlived(death.node.id, death.at)

    def _died_alone(self, death: _Death) -> list[StageEvent]:
        """A death is charged to what the worker did: to loading, or to its batches."""
        replica = death.replica
        queue = death.replica.queue
        self._report(replica, Fault.DIED, death.reason, death.batches)
        if replica.state in ("starting", "loading"):
            self._note_trouble(replica, death.reason)
            return []
        failed = self._attribute(queue, death.batches, death.reason, Fault.DIED)
        return [StageEvent(queue, failed)]

    def _note_trouble(self, replica: Replica, reason: str) -> None:
        """A worker that may be replaced was not ready when it died or gave up."""
        trouble = self._trouble[replica.queue]
        name = replica.queue.spec.name
        trouble.reason = reason
        trouble.deaths[replica.handle.node.id] += 1
        if replica.used:
            self.notice(f"stage {name} will be loaded in a process of its own: {reason}")

    def _give_back(self, replica: Replica, reason: str, batches: list[Batch]) -> None:
        """What a worker had in flight waits again, and nothing is charged."""
        self._report(replica, None, reason, batches)
        for batch in batches:
            replica.queue.put_back(batch)

    def _give_up_silent_nodes(self) -> None:
        """Give the work of nodes that have been silent for too long to other nodes."""
        at_work = {replica.handle.node for replica in self.replicas}
        at_work |= {death.node for death in self._deaths}
        # Nodes that were given up are watched on: they may answer again.
        given_up = {node for node in self.nodes if node.id in self._given_up}
        self.executor.watch(at_work | given_up)
        self._given_up = set(filter(self.executor.silent_s, self._given_up))
        for node in at_work:
            if self.executor.silent_s(node.id) > _SILENCE_S:
                self._give_up_node(node)

    def _give_up_node(self, node: Node) -> None:
        """Put the work of a node's workers back, and end them once that is possible."""
        self._given_up.add(node.id)
        text = f"no sign of node {node.address} for {_SILENCE_S:.0f} s"
        for replica in list(self.replicas):
            if replica.handle.node != node or replica.state == "stopping":
                continue
            self.notice(f"{text}: its work is given to other nodes")
            self._give_back(replica, text, self._withdraw(replica))
            self._retire(replica)
            self._end(replica)

    def _report(
        self, replica: Replica, fault: Fault | None, reason: str, batches: list[Batch]
    ) -> None:
        """Report a worker that is lost; `fault` is None where its node was lost."""
        failure = WorkerFailure(
            at=date_and_time(),
            stage=replica.queue.spec.name,
            host=replica.handle.node.address,
            kind=_KINDS[fault],
            reason=reason,
            records=sum(len(batch.jobs) for batch in batches),
        )
        self._watcher.worker_failed(failure)

    def _not_loadable(self) -> list[StageEvent]:
        """Events for stages whose workers cannot be started or loaded."""
        events: list[StageEvent] = []
        for queue, trouble in self._trouble.items():
            if not (trouble.deaths or trouble.barred) or queue.unusable is not None:
                continue
            hosts = {node.id for node in self.nodes if queue.need.fits(node.total)}
            barred_everywhere = bool(hosts) and hosts <= trouble.barred
            deaths_on_one = max((trouble.deaths[node] for node in hosts), default=0)
            if barred_everywhere:
                reason = trouble.reason
            elif deaths_on_one >= _MOST_DEATHS:
                reason = f"{trouble.reason}, {_MOST_DEATHS} times in a row while loading"
            else:
                continue
            trouble.deaths.clear()
            events += self._without_more(queue, reason)
        return events

    def _attribute(
        self, queue: StageQueue, batches: list[Batch], reason: str, fault: Fault
    ) -> FailedJobs:
        """Count a death against the batches in flight; the jobs that fail because of it."""
        certain = len(batches) == 1  # else any of them may have been the cause
        failed: FailedJobs = []
        for batch in batches:
            failed += queue.worker_died(batch, reason, certain=certain, fault=fault)
        return failed

    def _withdraw(self, replica: Replica) -> list[Batch]:
        """Stop waiting for a worker; the batches it had in flight."""
        for ref, owner in list(self._refs.items()):
            if owner is replica:
                del self._refs[ref]
        return replica.withdraw()

    def _retire(self, replica: Replica) -> None:
        """Give it no more work; its resources count as taken until it has ended."""
        replica.enter("stopping")
        self._workers_of[replica.queue].remove(replica)
        self._roomy.pop(replica, None)

    def _remove(self, replica: Replica) -> None:
        """Its process has ended."""
        self._free = None
        self.replicas.remove(replica)
        self.released = True
        self._roomy.pop(replica, None)
        if replica.state != "stopping":
            self._workers_of[replica.queue].remove(replica)
        replica.lane.enter("ended")

    def _check_limits(self) -> list[StageEvent]:
        """Act on workers that have been in one state for too long."""
        events: list[StageEvent] = []
        for replica in list(self.replicas):
            waited_s = self.now() - replica.since
            overdue = waited_s > replica.time_limit_s(self.options.placement_timeout_s)
            silent_s = self.now() - replica.last_heard
            if replica.in_flight and silent_s > replica.silence_limit_s:
                events.append(self._end_hung(replica))
            elif replica.state == "stopping" and overdue:
                replica.handle.kill()
                self._withdraw(replica)
                self._remove(replica)
            elif overdue:
                events += self._stop_overdue(replica, waited_s)
            elif replica.state == "starting" and waited_s > _PLACED_WITHIN_S:
                self._say_who_holds(replica, waited_s)
        return events

    def _end_hung(self, replica: Replica) -> StageEvent:
        """End a worker that holds the interpreter's lock: it enforces no limit itself."""
        queue = replica.queue
        batches = self._withdraw(replica)
        reason = f"no sign of life for {replica.silence_limit_s:.0f} s"
        self._report(replica, Fault.TIMEOUT, reason, batches)
        self.stop(replica)
        failed = self._attribute(queue, batches, reason, Fault.TIMEOUT)
        return StageEvent(queue, failed)

    def _say_who_holds(self, replica: Replica, waited_s: float) -> None:
        """Say once a stage which others hold resources while it waits for some."""
        if replica.queue in self._waiting:
            return
        self._waiting.add(replica.queue)
        held = self.executor.held_by_others()
        if held:
            self.notice(
                f"stage {replica.queue.spec.name} waits for {replica.need} on "
                f"{replica.handle.node.address}: its worker is still starting after "
                f"{waited_s:.0f} s. Others hold of this cluster: {'; '.join(held)}"
            )

    def _stop_overdue(self, replica: Replica, waited_s: float) -> list[StageEvent]:
        """Stop a worker that is not ready in time; what becomes of its stage."""
        queue = replica.queue
        was_placed = replica.state != "starting"
        reason = f"a worker was still {replica.state} after {waited_s:.0f} s"
        if was_placed:
            self._report(replica, Fault.TIMEOUT, reason, [])
        self._withdraw(replica)
        self.stop(replica)
        if was_placed or not self._may_be_placed_later(queue):
            return self._never_ready(replica, reason)
        occupied = _Occupied(self.now(), replica.handle.node.id, replica.need)
        self._occupied.append(occupied)
        self._free = None
        self.notice(f"stage {queue.spec.name} waits for resources: {reason}")
        return []

    def _may_be_placed_later(self, queue: StageQueue) -> bool:
        """Note that a worker found no place; whether another may be tried.

        Busy workers of this run may free resources that are not free at present; where
        they are idle, one more attempt is made.
        """
        queue.unplaced += 1
        others = [r for r in self.replicas if r.state != "stopping"]
        if any(r.in_flight for r in others):
            return True
        return bool(others) and queue.unplaced == 1
