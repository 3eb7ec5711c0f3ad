"""Lets requests in while there is room, and waits for their outcomes."""

from __future__ import annotations

import asyncio
import math
import time
from asyncio import FIRST_COMPLETED
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from benchmarks.serving.metrics import ServingMetrics
from benchmarks.serving.refusals import CLIENT_GONE, RequestRefused, refusal, stopping
from cluster.live import WalkPool
from cluster.local import metered
from generators.base import Outcome, Result, Walk

T = TypeVar("T")
_REMEMBERED = 32
"""Replies by which the time until there is room is estimated."""
_LONGEST_WAIT_S = 60


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """How much a server takes on at a time."""

    queue: int = 128
    """Requests that wait or are computed; further ones are refused."""
    timeout_s: float = 600.0
    """From a request's arrival to its reply."""
    batch_wait_s: float = 0.005
    """How long a batch that is not full waits for further requests."""
    body_bytes: int = 64 * 2**20
    """Longest body of a request."""
    grace_s: float = 10.0
    """How long requests in progress may still take when the server is stopped."""


class WalkAnswer(NamedTuple):
    """What a walk gave, and what it used."""

    result: Result[Any]
    usage: dict[str, float]
    seconds: float


class RequestRoom:
    """Counts the requests from before their bodies are read until they are answered.

    Used from the event loop alone, as `Admission`, but for `close`.
    """

    def __init__(self, limits: ServingLimits, metrics: ServingMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[asyncio.Timeout] = set()
        self._closes_at: float | None = None
        """On the clock of the event loop."""
        self._answers: deque[float] = deque(maxlen=_REMEMBERED)

    def refusal(self) -> RequestRefused | None:
        """Why there is no room, if there is none."""
        if len(self._open) < self._limits.queue:
            return None
        return RequestRefused(
            429,
            "queue_full",
            f"{len(self._open)} requests are waiting, as many as the server takes",
            retry_after_s=self._until_there_is_room(),
        )

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place for a request that is taken on.

        RequestRefused where it takes longer than a server that is stopped waits.
        """
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._closes_at) as limit:
                self._open.add(limit)
                self._metrics.open.set(len(self._open))
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise stopping() from None
        finally:
            self._open.discard(limit)
            self._metrics.open.set(len(self._open))

    def answered(self) -> None:
        """Note that a request had its answer."""
        self._answers.append(time.monotonic())

    def close(self) -> None:
        """Give the requests that are open the grace."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._limit, self._loop)

    def _limit(self, loop: asyncio.AbstractEventLoop) -> None:
        self._closes_at = loop.time() + self._limits.grace_s
        for limit in self._open:
            limit.reschedule(self._closes_at)

    def _until_there_is_room(self) -> int:
        """Seconds until about an eighth of the queue is answered, by recent answers."""
        if len(self._answers) < 2:
            return 1
        each = (time.monotonic() - self._answers[0]) / len(self._answers)
        return min(max(1, math.ceil(each * len(self._open) / 8)), _LONGEST_WAIT_S)


class Admission:
    """Between requests and the pool that computes them."""

    def __init__(
        self, pool: WalkPool, limits: ServingLimits, metrics: ServingMetrics
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._metrics = metrics

    async def answer(
        self, walk: Walk[Any], gone: Callable[[], Awaitable[None]]
    ) -> WalkAnswer:
        """The result of a walk; RequestRefused where there is none.

        `gone()` ends when the client leaves: the walk's jobs that have not begun are then
        dropped, as after the time limit.
        """
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Outcome[Any]] = loop.create_future()
        used: defaultdict[str, float] = defaultdict(float)

        def ended(outcome: Outcome[Any]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, reply, outcome)

        began = time.perf_counter()
        live = self._pool.add(metered(walk, used), ended)
        leaving = asyncio.ensure_future(gone())
        try:
            either: set[asyncio.Future[Any]] = {reply, leaving}
            limit = self._limits.timeout_s
            await asyncio.wait(either, timeout=limit, return_when=FIRST_COMPLETED)
        finally:
            leaving.cancel()
            self._pool.drop(live)
        if not reply.done():
            raise self._unanswered(leaving)
        outcome = reply.result()
        self._metrics.used(used)
        if not isinstance(outcome, Result):
            raise refusal(outcome)
        return WalkAnswer(outcome, dict(used), time.perf_counter() - began)

    def _unanswered(self, leaving: "asyncio.Future[None]") -> RequestRefused:
        if leaving.done() and not leaving.cancelled():
            return RequestRefused(CLIENT_GONE, "client_gone", "the client has left")
        limit = self._limits.timeout_s
        return RequestRefused(504, "timeout", f"no answer within {limit:g} s")


def _settle(reply: "asyncio.Future[T]", outcome: T) -> None:
    if not reply.done():
        reply.set_result(outcome)
