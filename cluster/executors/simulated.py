"""Hosts on a virtual clock: the real engine and workers, with hours passing in moments.

    world = World([Node("a", Resources(cpus=8, gpus=4), "a")])
    with world.driver() as executor:
        execute(plan, root, EngineOptions(executor=nullcontext(executor)), {}, Watcher())
    print(world.now)

A call takes the time that the `Speeds` say, and the worker's method runs when it is over,
in the thread of the driver: equal calls give an equal history. Hosts and nodes can be lost
and cut off as on a cluster, at any moment that is put on the clock by `World.at`.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from plait.cluster.executors.base import Executor, HostLost, Ref
from plait.cluster.executors.node_watch import NodeWatch
from plait.cluster.placement import Node, Resources, free_resources
from plait.cluster.worker import Worker
from plait.generators.base import Placement, StageSpec

_WATCHED_EVERY_S = 2.0
"""How often a connection to each node is tried, as `NodeWatch` does."""
_MESSAGE_S = 0.001
"""How long an answer is under way."""
_ENDING_S = 0.2
"""How long a process that is killed takes to end, and a driver to hear of an end."""
GIVEN_UP_S = 30.0
"""After so much silence a node is taken to be dead, and its hosts are ended."""


class EndOfProcess(BaseException):
    """Raised by a stage to end its host, as a crash does."""


@dataclass(frozen=True)
class Speeds:
    """How long calls take, in seconds; a subclass may tell stages apart."""

    start_s: float = 4.0
    load_s: float = 6.0
    record_s: float = 1.0

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        """Return the time of one call of a worker of `spec`."""
        match method:
            case "describe":
                return self.start_s
            case "load" | "host":
                return self.load_s
            case "run_all":
                return records * self.record_s
        return 0.0


@dataclass(eq=False)
class _Answer:
    """A `Ref`."""

    value: Any = None
    lost: HostLost | None = None
    """Raised in place of a value, where the host has ended."""


class _Inline(futures.Executor):
    """Computes in the thread that submits."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **named))
        except BaseException as error:
            future.set_exception(error)
        return future


class _Worker(Worker):
    """A worker without a thread or a process of its own."""

    owns_process = False

    def __init__(self, given: tuple[Any, ...]) -> None:
        super().__init__(*given)
        self._compute = _Inline()


@dataclass(eq=False)
class SimulatedHost:
    """A host, whose worker computes in the thread of the driver."""

    driver: SimulatedExecutor
    placement: Placement
    node: Node
    worker: Worker
    slowness: float = 1.0
    """By what its times are multiplied."""
    ends_after_batch: bool = False
    """It ends once its next batch is committed, before it has said so."""
    since: float = 0.0
    """When it was started."""
    alive: bool = True
    _killed: bool = False
    """Its driver has told it to end."""
    _free_at: float = 0.0
    """When it has done what it was told so far."""
    _pending: list[_Answer] = field(default_factory=list)
    """Calls that are not answered yet."""

    @property
    def world(self) -> World:
        """Where it runs."""
        return self.driver.world

    def call(self, method: str, *args: Any, control: bool = False) -> Ref:
        """Run a method of the worker once its time has passed."""
        answer = _Answer()
        world = self.world
        self._pending.append(answer)

        def begin() -> None:
            records = sum(map(len, args[0])) if method == "run_all" else 0
            spec = args[0] if method == "host" else self.worker.spec
            computing_s = world.speeds.of(spec, method, records) * self.slowness
            # Calls for control run beside the others, which wait for each other.
            begins = world.now if control else max(world.now, self._free_at)
            ends = begins + (computing_s + _MESSAGE_S)
            if not control:
                self._free_at = ends
            world.at(ends, lambda: self._compute(answer, method, args, computing_s))

        if not self.alive:
            world.at(world.now + _MESSAGE_S, lambda: self._fail("it has ended"))
        elif not self._killed:  # else it is answered by its end
            world.when_reached(self.node, begin)
        return answer

    def kill(self) -> None:
        """End it, which takes a moment."""
        if not (self.driver.killed or self._killed):
            self._killed = True
            self.world.at(self.world.now + _ENDING_S, lambda: self.end("it was killed"))

    def end(self, reason: str) -> None:
        """It is no more, from this moment on."""
        if self.alive:
            self.world.free(self)
            self.world.at(self.world.now + _ENDING_S, lambda: self._fail(reason))

    def _compute(
        self, answer: _Answer, method: str, args: tuple[Any, ...], seconds: float
    ) -> None:
        """Run a method whose time, so many `seconds`, has passed, and answer."""
        if not self.alive:
            return
        try:
            value = getattr(self.worker, method)(*args)
        except EndOfProcess:
            self.end("the process was killed")
            return
        if self.ends_after_batch and method == "run_all":
            self.end("the process was killed")
            return
        if method == "run_all":
            # The worker has timed itself by the real clock.
            each_s = seconds / len(value)
            value = [replace(receipt, busy_s=each_s) for receipt in value]

        def deliver() -> None:
            if answer in self._pending:
                self._pending.remove(answer)
                answer.value = value
                self.driver.ready[answer] = None

        self.world.when_reached(self.node, deliver)

    def _fail(self, reason: str) -> None:
        """Tell the driver, as soon as it can be told."""

        def fail() -> None:
            for answer in self._pending:
                answer.lost = HostLost(reason)
                self.driver.ready[answer] = None
            self._pending.clear()

        self.world.when_reached(self.node, fail)


class World:
    """Nodes, their hosts, and the clock."""

    def __init__(
        self,
        nodes: Sequence[Node],
        speeds: Speeds | None = None,
        *,
        make_worker: Callable[[tuple[Any, ...]], Any] = _Worker,
        tick_s: float = 1.0,
    ) -> None:
        """Set the clock to 0.

        Args:
            nodes: The nodes at the beginning.
            speeds: How long calls take.
            make_worker: Makes what a host holds, of what `Executor.start` is given.
            tick_s: The shortest wait for what does not happen: to ask more often tells no
                more.
        """
        self.now = 0.0
        self.speeds = speeds or Speeds()
        self.make_worker = make_worker
        self.tick_s = tick_s
        self.gpu_seconds = 0.0
        """For which hosts that have ended held GPUs."""
        self.listed = list(nodes)
        """The nodes that are taken to be alive."""
        self.hosts: list[SimulatedHost] = []
        """All that have not ended, those of former drivers included."""
        self.unreachable: dict[str, float] = {}
        """Nodes that are gone or cut off, and since when."""
        self._gone: set[str] = set()
        """Those of them that will never come back."""
        self.overbooked: list[str] = []
        """Nodes on which more was started than they have."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        """A heap of what is still to happen: when, in which order, and what."""
        self._numbers = count()
        self._held: list[tuple[Node, Callable[[], None]]] = []
        """What happens once a node can be reached again or is given up."""

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Have something happen at a moment of the clock."""
        heapq.heappush(self._events, (moment, next(self._numbers), action))

    def advance(self, until: float) -> bool:
        """Go on to the next event, or to `until` where none comes first: then False."""
        if not self._events or self._events[0][0] > until:
            self.now = max(self.now, until)
            return False
        moment, _, action = heapq.heappop(self._events)
        self.now = max(self.now, moment)
        action()
        return True

    def pending(self) -> int:
        """Return how much is still to happen."""
        return len(self._events)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and what happens in it happen."""
        until = self.now + seconds
        while self.advance(until):
            pass

    def when_reached(self, node: Node, action: Callable[[], None]) -> None:
        """Have something happen now, or once the node can be reached again."""
        if node.id in self.unreachable:
            self._held.append((node, action))
        else:
            action()

    def lose(self, node: Node) -> None:
        """A node ends with all its hosts; it is given up after some time."""
        self._unreach(node)
        for host in self._hosts_on(node):
            self._end_with_node(host)
        self._gone.add(node.id)

    def _hosts_on(self, node: Node) -> list[SimulatedHost]:
        return [host for host in self.hosts if host.node.id == node.id]

    def free(self, host: SimulatedHost) -> None:
        """A host holds nothing any more."""
        host.alive = False
        self.hosts.remove(host)
        self.gpu_seconds += host.placement.num_gpus * (self.now - host.since)

    def _end_with_node(self, host: SimulatedHost) -> None:
        self.free(host)
        self.when_reached(host.node, lambda: host._fail("its node has died"))

    def cut(self, node: Node, seconds: float) -> None:
        """A node cannot be reached for some time; meanwhile its hosts go on."""

        def mend() -> None:
            if node in self.listed and node.id not in self._gone:
                self._release(node)

        self._unreach(node)
        self.at(self.now + seconds, mend)

    def join(self, node: Node) -> None:
        """A new node."""
        self.listed.append(node)

    def _unreach(self, node: Node) -> None:
        """Cut a node off; after `GIVEN_UP_S` it is taken to be dead."""
        if node.id in self.unreachable:
            return
        since = self.now
        self.unreachable[node.id] = since

        def give_up() -> None:
            if self.unreachable.get(node.id) == since:  # else it was reached in between
                self.listed.remove(node)
                self._release(node)
                for host in self._hosts_on(node):
                    host.end("its node has died")

        self.at(since + GIVEN_UP_S, give_up)

    def _release(self, node: Node) -> None:
        """Have happen what was held back until the node is reached or given up."""
        self.unreachable.pop(node.id, None)
        held = self._held
        self._held = []
        due: list[Callable[[], None]] = []
        for place, action in held:
            if place.id == node.id:
                due.append(action)
            else:
                self._held.append((place, action))
        for action in due:
            action()

    @contextlib.contextmanager
    def driver(self, leaving_s: float = _ENDING_S) -> Iterator[SimulatedExecutor]:
        """An executor; where it is killed, its hosts end some time after it."""
        executor = SimulatedExecutor(self)
        try:
            yield executor
        finally:
            for host in self.hosts:
                if executor.killed and host.driver is executor:
                    end = partial(host.end, "its driver has ended")
                    self.at(self.now + leaving_s, end)


class SimulatedExecutor(Executor):
    """The world as one driver sees it."""

    fixed = False
    signs: NodeWatch

    def __init__(self, world: World) -> None:
        self.world = world
        self.killed = False
        """Whether it can end no host any more."""
        self.ready: dict[Ref, None] = {}
        """Answers that have come and were not waited for yet, in their order."""
        self.signs = NodeWatch(lambda: world.now)
        self._watched_at: dict[str, float] = {}

    def now(self) -> float:
        """Seconds on the virtual clock."""
        return self.world.now

    def nodes(self) -> list[Node]:
        """Return those that are taken to be alive, though some may be gone."""
        return list(self.world.listed)

    def start(
        self, placement: Placement, node: Node, given: tuple[Any, ...]
    ) -> SimulatedHost:
        """Start a host; on a node that is gone it is heard of no more."""
        world = self.world
        worker = world.make_worker(given)
        host = SimulatedHost(self, placement, node, worker, since=world.now)
        world.hosts.append(host)
        used: list[tuple[str, Resources]] = []
        for other in world.hosts:
            used.append((other.node.id, Resources.of_placement(other.placement)))
        left = free_resources([node], used)[node.id]
        if not Resources().fits(left):
            world.overbooked.append(node.id)
        if node.id in world._gone:
            world._end_with_node(host)
        return host

    def wait(self, refs: Collection[Ref], timeout_s: float) -> list[Ref]:
        """Return those that are ready; time passes meanwhile."""
        wait_s = max(timeout_s, self.world.tick_s) if timeout_s else 0.0
        until = self.world.now + wait_s
        wanted = refs if isinstance(refs, Set) else set(refs)
        while wanted.isdisjoint(self.ready) and self.world.advance(until):
            pass
        ready = [ref for ref in self.ready if ref in wanted]
        for ref in ready:
            del self.ready[ref]
        return ready

    def wait_for_all(self, refs: Sequence[Ref], timeout_s: float) -> None:
        """Let time pass until all are ready."""
        until = self.world.now + timeout_s
        while not set(refs) <= self.ready.keys() and self.world.advance(until):
            pass

    def result(self, ref: Ref) -> Any:
        """Return the value of a ready reference."""
        if ref.lost is not None:
            raise ref.lost
        return ref.value

    def watch(self, nodes: Iterable[Node]) -> None:
        """Try the nodes, every few seconds."""
        now = self.world.now
        for node in nodes:
            if now - self._watched_at.get(node.id, -_WATCHED_EVERY_S) >= _WATCHED_EVERY_S:
                self._watched_at[node.id] = now
                accepted = node.id not in self.world.unreachable
                self.signs.note(node.id, now, accepted=accepted)
