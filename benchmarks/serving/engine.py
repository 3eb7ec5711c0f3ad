"""One model in this process: loading, answering, and the end of both."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from plait.benchmarks.serving.gate import RequestRoom, ServingLimits
from plait.benchmarks.serving.metrics import ServingMetrics
from plait.benchmarks.serving.refusals import RequestRefused
from plait.benchmarks.serving.served import ServedModel
from plait.cluster.local import STOPPING, LocalStages
from plait.cluster.walks import through
from plait.generators.base import Outcome, Result, StageSpec, Walk, add_usage
from plait.generators.secrets import print_error, without_keys

T = TypeVar("T")
_RETRY_WHILE_LOADING_S = 5


class FollowedWalk(NamedTuple, Generic[T]):
    """What has come of a walk."""

    outcome: Outcome[T]
    usage: Mapping[str, float]
    """Of all its jobs."""


class ServingEngine:
    """One model in this process: loads in a thread of its own, which then answers."""

    def __init__(
        self,
        model: ServedModel,
        limits: ServingLimits | None = None,
        *,
        on_loaded: Callable[[float], None] = lambda seconds: None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_loaded` is told the seconds; both are called from the engine's thread."""
        self.model = model
        self.limits = limits or ServingLimits()
        self.metrics = ServingMetrics()
        self.room = RequestRoom(self.limits, self.metrics)
        self.error: Exception | None = None
        """Why the stages could not be loaded."""
        self._on_loaded = on_loaded
        self._on_failure = on_failure
        self._stages = LocalStages(
            patience_s=self.limits.batch_wait_s, on_batch=self.metrics.batch
        )
        self._loaded = False
        self._stopped_at: float | None = None
        # A batch that computes on and on does not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def _work(self) -> None:
        """Load all stages, then answer until the engine is stopped."""
        began = time.monotonic()
        try:
            for spec in self.model.every_stage:
                self._stages.stage(spec)
        except Exception as error:
            print_error(error)
            self.error = error
            self._on_failure()
            return
        self._loaded = True
        self._on_loaded(time.monotonic() - began)
        self._stages.engine.run()

    @property
    def status(self) -> Literal["loading", "ready", "failed", "stopping"]:
        """Whether requests are answered now."""
        if self._stopped_at is not None:
            return "stopping"
        if self.reason:
            return "failed"
        return "ready" if self._loaded else "loading"

    @property
    def reason(self) -> str:
        """Why no request will ever be answered, once that is so."""
        if self.error is not None:
            return without_keys(str(self.error))
        return self._stages.engine.broken or ""

    def refuse_unless_ready(self) -> None:
        """RequestRefused while no requests are answered."""
        match self.status:
            case "loading":
                message = f"{self.model.name} is being loaded"
                wait = _RETRY_WHILE_LOADING_S
                raise RequestRefused("not_ready", message, retry_after_s=wait)
            case "failed":
                message = f"{self.model.name} cannot compute: {self.reason}"
                raise RequestRefused("not_ready", message)
            case "stopping":
                raise RequestRefused("stopping", STOPPING)

    def takes_max_tokens(self, spec: StageSpec) -> bool:
        """Return whether a loaded stage can be told the longest answer of one request."""
        return bool(getattr(self._stages.stage(spec), "takes_max_tokens", False))

    async def answer(self, walk: Walk[T]) -> Result[T]:
        """Return the result of a walk, with all its usage; RequestRefused where none is."""
        self.refuse_unless_ready()
        outcome, usage = await self.follow(walk)
        if not isinstance(outcome, Result):
            raise RequestRefused.of(outcome)
        return replace(outcome, usage=usage)

    async def follow(self, walk: Walk[T], priority: int = 0) -> FollowedWalk[T]:
        """Return what comes of a walk, which is a failure once the engine has stopped.

        Where this is cancelled, the walk's jobs that have not begun are dropped.
        """
        used: dict[str, float] = defaultdict(float)
        reply: Future[Outcome[T]] = Future()
        reply.set_running_or_notify_cancel()  # a request that ends leaves it to the engine

        def count(outcomes: Sequence[Outcome[Any]]) -> None:
            for outcome in outcomes:
                add_usage(used, getattr(outcome, "usage", {}))

        counted = through(walk, told=count)
        live = self._stages.engine.add(counted, reply.set_result, priority)
        try:
            outcome = await asyncio.wrap_future(reply)
        finally:
            self._stages.engine.drop(live)
        self.metrics.used(used)
        return FollowedWalk(outcome, used)

    def stop(self) -> None:
        """Take no more requests; only those whose batch has begun have the grace.

        From any thread, also from a handler of signals.
        """
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            self.room.close()
            self._stages.engine.stop()

    def join(self) -> bool:
        """After `stop`: whether nothing computes any more after the grace."""
        if self._loaded and self._stopped_at is not None:
            passed = time.monotonic() - self._stopped_at
            self._thread.join(max(0.0, self.limits.grace_s - passed))
        return not self._thread.is_alive()
