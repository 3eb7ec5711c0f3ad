"""What every request passes before it is read: key, room, size of its body, counts."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.benchmarks.serving.metrics import ServingMetrics
from plait.benchmarks.serving.refusals import RequestRefused
from plait.cluster.local import STOPPING

_REMEMBERED = 32
"""Replies by which the time until there is room is estimated."""
_NEED_KEY = ("/v1/", "/score")
"""Beginnings of the paths that need the key."""
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


class RequestRoom:
    """Counts the requests from before their bodies are read until they are answered.

    Used from the event loop alone, but for `close`.
    """

    def __init__(self, limits: ServingLimits, metrics: ServingMetrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self.answered: deque[float] = deque(maxlen=_REMEMBERED)
        """When the last replies were sent."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[asyncio.Timeout, RequestRefused] = {}
        """How long each may take, and why it ends where it is not answered by then."""
        metrics.open.set_function(lambda: len(self._open))

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Callable[[RequestRefused], None]]:
        """Give a request a place, and what ends it; RequestRefused without room or time."""
        if len(self._open) >= self.limits.queue:
            reason = f"the queue is full: {len(self._open)} requests are waiting"
            wait = self._until_there_is_room()
            raise RequestRefused("queue_full", reason, retry_after_s=wait)
        self._loop = asyncio.get_running_loop()
        most_s = self.limits.timeout_s
        limit = asyncio.timeout(most_s)
        self._open[limit] = RequestRefused("timeout", f"no answer within {most_s:g} s")
        try:
            async with limit:
                yield partial(self._end, limit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._open[limit] from None
        finally:
            del self._open[limit]

    def _end(
        self, limit: asyncio.Timeout, refusal: RequestRefused, within_s: float = 0.0
    ) -> None:
        """End a request within so many seconds, or earlier where it would end anyway."""
        # One that has timed out is ending already, for that reason.
        if not limit.expired():
            self._open[limit] = refusal
            until = asyncio.get_running_loop().time() + within_s
            limit.reschedule(min(until, limit.when() or until))

    def close(self) -> None:
        """Give the requests that are open the grace."""

        def end_all() -> None:
            for limit in self._open:
                self._end(limit, RequestRefused("stopping", STOPPING), self.limits.grace_s)

        # Without a loop there has been no request yet. Timeouts belong to its thread.
        if self._loop is not None:
            self._loop.call_soon_threadsafe(end_all)

    def _until_there_is_room(self) -> int:
        """Seconds until about an eighth of the queue is answered, by recent answers."""
        if len(self.answered) < 2:
            return 1
        each = (time.monotonic() - self.answered[0]) / len(self.answered)
        return min(max(1, math.ceil(each * len(self._open) / 8)), _LONGEST_WAIT_S)


class RequestGate:
    """ASGI middleware, so that nothing is read of a body that will be refused."""

    def __init__(self, app: ASGIApp, *, room: RequestRoom, key: str | None) -> None:
        self._app = app
        self._room = room
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it; those that compute take a place."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0
        posted = scope["method"] == "POST"

        async def note_and_send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            self._check(scope["path"], Headers(scope=scope))
            answer = self._answer if posted else self._app
            await answer(scope, receive, note_and_send)
        except RequestRefused as refused:
            # Of a reply that has begun, such as a stream, nothing can be taken back.
            if not status:
                await refused.reply(scope, receive, note_and_send)
        finally:
            seconds = time.perf_counter() - began
            self._room.metrics.request(scope["path"], status or 500, seconds)
        if status == 200 and posted:
            self._room.answered.append(time.monotonic())

    def _check(self, path: str, headers: Headers) -> None:
        """RequestRefused without the key, or with a body that is too long."""
        if self._key and path.startswith(_NEED_KEY):  # probes have no key
            scheme, _, key = headers.get("authorization", "").partition(" ")
            # In a time that says nothing of how much is right; headers are Latin-1.
            right = hmac.compare_digest(key.strip().encode("latin-1"), self._key.encode())
            if scheme.lower() != "bearer" or not right:
                reason = "the key is missing or wrong: send 'Authorization: Bearer KEY'"
                raise RequestRefused("invalid_api_key", reason)
        # Whoever sends in chunks says no length: then what is read is counted.
        length = headers.get("content-length", "")
        self._check_length(int(length) if length.isdecimal() else 0)

    def _check_length(self, length: int) -> None:
        most = self._room.limits.body_bytes
        if length > most:
            reason = f"the request exceeds the limit of {most / 2**20:g} MiB"
            raise RequestRefused("body_too_large", reason)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered, unless its client leaves before."""
        read = 0
        watching = None

        async def departure() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            end(RequestRefused("client_gone", "the client has left"))

        async def receive_within_limit() -> Message:
            nonlocal read, watching
            message = await receive()
            read += len(message.get("body", b""))
            self._check_length(read)
            # After the whole body the one message left is that the client has gone.
            if not message.get("more_body"):
                watching = asyncio.ensure_future(departure())
            return message

        async with self._room.place() as end:
            try:
                await self._app(scope, receive_within_limit, send)
            finally:
                if watching is not None:
                    watching.cancel()
