"""Stages in the current process: no Ray and no store, for servers, notebooks, measurements.

    stages = LocalStages()
    document = drive(answer(system, query, asking), stages.outcomes)

They compute as in a run: `LocalEngine` queues jobs, puts them together in batches, bisects
batches that raise and halves those that run out of memory.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from plait.cluster.engine import Engine, Known
from plait.cluster.executors.local import InlineExecutor
from plait.cluster.loading import error_text, load_stage
from plait.cluster.plan import EngineOptions
from plait.cluster.stage_queue import FailedJobs, StageQueue
from plait.cluster.walks import Walker, through
from plait.cluster.watcher import Watcher, WorkerFailure
from plait.cluster.worker import Receipt
from plait.generators.base import Failure, Fault, Job, Outcome, StageSpec, Walk
from plait.generators.secrets import print_error

STOPPING = "the server is stopping"
HIGHEST_PRIORITY = 1000
"""Priorities of walks are from the negative of this to this; they are 0 by default."""
OnBatch = Callable[[str, int, float], None]
"""Told of each batch: the stage's name, how many records, and seconds."""


@dataclass(frozen=True)
class _OwnJob(Job):
    """A job that is computed for one walk, whatever others ask; its group is the walk."""

    place: int = 0

    @cached_property
    def key(self) -> str:
        """Tells it from all other jobs."""
        return f"{self.group} {self.place}"


@dataclass(eq=False)
class LiveWalk(Walker[Any]):
    """A walk that has come from outside."""

    number: str = field(kw_only=True)
    """Its place in line: by priority, then in the order of arrival."""
    ended: Callable[[Outcome[Any]], None] = field(kw_only=True)
    """Called once with its outcome, unless it is dropped first."""
    over: bool = False


class _Failures(Watcher):
    """Remembers why this process can compute no more, once it cannot."""

    reason: str | None = None

    def worker_failed(self, failure: WorkerFailure) -> None:
        self.reason = failure.reason


class LocalEngine(Engine):
    """Walks that come and go, on stages of this process; nothing is stored.

    One batch is computed at a time, for the stage that the first walk in line waits for:
    the oldest of those with the highest priority. Those of servers, which only wait, are
    sent beside it. `add`, `drop` and `stop` may be called from any thread, the others from
    one.
    """

    def __init__(
        self,
        stage_of: Callable[[StageSpec], Any],
        *,
        patience_s: float = 0.0,
        on_batch: OnBatch = lambda stage, records, seconds: None,
    ) -> None:
        """A batch that is not full waits `patience_s` for further jobs."""
        folder = Path(tempfile.gettempdir()) / "plait"
        self._failures = _Failures()
        super().__init__(InlineExecutor(stage_of), folder, EngineOptions(), self._failures)
        self._patience_s = patience_s
        self._on_batch = on_batch
        self._walks: dict[str, LiveWalk] = {}
        self._numbers = map("{:012}".format, count())
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._bell: Future[None] = Future()
        """Ends the waiting of a turn: something has come into the inbox."""
        self._refusal: Failure | None = None
        """What becomes of walks, once no more are taken."""

    @property
    def broken(self) -> str | None:
        """Why this process can compute no more, once it cannot."""
        return self._failures.reason

    # ---------------------------------------------------------------- from any thread

    def add(
        self,
        walk: Walk[Any],
        ended: Callable[[Outcome[Any]], None],
        priority: int = 0,
    ) -> LiveWalk:
        """Start a walk; `ended` is told its outcome.

        Its jobs are computed before those that wait of walks with a lower `priority`.
        """
        number = f"{HIGHEST_PRIORITY - priority:04} {next(self._numbers)}"
        places = count()

        def as_own(jobs: list[Job]) -> list[Job]:
            own: list[Job] = []
            for job in jobs:
                place = next(places)
                own.append(_OwnJob(job.spec, job.input, job.label, number, place=place))
            return own

        live = LiveWalk(through(walk, as_own), number=number, ended=ended)
        if self._refusal is not None:
            self._end_walk(live, self._refusal)
        else:
            self._tell(lambda: self._begin(live))
        return live

    def drop(self, live: LiveWalk) -> None:
        """Forget a walk: jobs of it that have not begun are not computed."""
        self._tell(lambda: self._forget(live))

    def stop(self) -> None:
        """End all walks but those whose batch is being computed; take no further ones."""
        self._tell(lambda: self._refuse(Failure(STOPPING, Fault.DIED)))

    def _tell(self, action: Callable[[], None]) -> None:
        self._inbox.put(action)
        with contextlib.suppress(InvalidStateError):
            self._bell.set_result(None)

    # ---------------------------------------------------------------- the loop

    def run(self) -> None:
        """Turn until it is stopped and nothing is computed any more."""
        while not self._is_over():
            self.turn()

    def _is_over(self) -> bool:
        return self._refusal is not None and not any(q.out for q in self._queues.values())

    def turn(self) -> None:
        """Take what has come in, and wait until something happens."""
        self._bell = Future()
        while not self._inbox.empty():
            action = self._inbox.get()
            action()
        # Until the first batch that is not full has waited long enough for others.
        rest_s = 1.0
        resting = [queue.rest_s for queue in self._queues.values()]
        if any(resting):
            rest_s = min(filter(None, resting))
        self._turn(0.0 if self._is_over() else rest_s, self._bell)
        if self.broken is not None and self._refusal is None:
            self._refuse(Failure(self.broken, Fault.ERROR))

    def _begin(self, live: LiveWalk) -> None:
        self._walks[live.number] = live
        self._advance(live)

    def _forget(self, live: LiveWalk) -> None:
        live.over = True
        self._walks.pop(live.number, None)
        if live.pending is None:
            return  # it has ended by itself, and no job of it waits
        for queue in self._queues.values():
            queue.drain(lambda job: job.group == live.number)
        for job in live.pending.jobs:
            self._waiting.pop(job.key, None)

    def _refuse(self, failure: Failure) -> None:
        """Take no further walks; end those that wait, or all where nothing can compute."""
        self._refusal = failure
        drained: list[Job] = []
        for queue in self._queues.values():
            drained += queue.drain()
        numbers = self._walks if self.broken else {job.group for job in drained}
        for live in [self._walks[number] for number in numbers]:
            self._end_walk(live, failure)

    # ---------------------------------------------------------------- as an engine

    def _dispatch(self) -> None:
        # Of stages that do not ask a server.
        computed_here: list[StageQueue] = []
        for queue in self._queues.values():
            if not queue.spec.placement.asks:
                computed_here.append(queue)
            elif queue.pending:
                for replica in self._pool.of(queue):
                    self._pool.dispatch_to(replica)
        if any(queue.out for queue in computed_here):
            return  # one batch at a time
        waiting = [queue for queue in computed_here if queue.pending]
        if waiting:
            next_in_line = min(waiting, key=lambda queue: queue.oldest)
            for replica in self._pool.of(next_in_line):
                self._pool.dispatch_to(replica, most=1)

    def _advance(self, walker: Walker[Any]) -> None:
        try:
            super()._advance(walker)
        except Exception as error:
            print_error(error)
            self._end_walk(walker, Failure(error_text(error), Fault.ERROR))

    def _request(self, job: Job, walker: Walker[Any]) -> None:
        if self._refusal is None:
            super()._request(job, walker)
        else:
            self._end_walk(walker, self._refusal)

    def _end_walk(self, walker: Walker[Any], outcome: Outcome[Any]) -> None:
        assert isinstance(walker, LiveWalk)
        self._walks.pop(walker.number, None)
        if not walker.over:
            walker.over = True
            walker.ended(outcome)

    def _new_queue(self, spec: StageSpec) -> StageQueue:
        queue = super()._new_queue(spec)
        queue.patience_s = self._patience_s
        return queue

    def _lookup(self, job: Job) -> Outcome[Any] | None:
        return None

    def _keep(self, queue: StageQueue, receipt: Receipt) -> Iterable[Known]:
        self._on_batch(queue.spec.name, len(receipt.outcomes), receipt.busy_s)
        return receipt.outcomes.items()

    def _keep_failures(self, queue: StageQueue, failed: FailedJobs) -> Iterable[Known]:
        return [(job.key, failure) for job, failure in failed]


class LocalStages:
    """Stages by their spec, each loaded when it is first asked."""

    def __init__(
        self,
        *,
        patience_s: float = 0.0,
        on_batch: OnBatch = lambda stage, records, seconds: None,
    ) -> None:
        """As of `LocalEngine`."""
        self._loaded: dict[str, Any] = {}
        self._asking = threading.Lock()
        self.engine = LocalEngine(self.stage, patience_s=patience_s, on_batch=on_batch)

    def stage(self, spec: StageSpec) -> Any:
        """Return the loaded stage."""
        if spec.digest not in self._loaded:
            self._loaded[spec.digest] = load_stage(spec)
        return self._loaded[spec.digest]

    def outcomes(self, jobs: Sequence[Job]) -> list[Outcome[Any]]:
        """Return the outcomes of jobs, in order, as a worker would store them.

        A stage that cannot be loaded raises what it raises.
        """
        for job in jobs:
            self.stage(job.spec)
        ended: list[Any] = []
        with self._asking:
            live = self.engine.add(_asking(jobs), ended.append)
            try:
                while not ended:
                    self.engine.turn()
            finally:
                self.engine.drop(live)
        return ended[0]  # type: ignore[no-any-return]


def _asking(jobs: Sequence[Job]) -> Generator[list[Job], list[Outcome[Any]], Any]:
    return (yield list(jobs))
