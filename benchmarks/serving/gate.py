"""What every request passes before it is read: key, room, size of its body, counts."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benchmarks.serving.metrics import ServingMetrics
from benchmarks.serving.refusals import RequestRefused, stopping

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


class RequestPlace:
    """Of one request: how long it may take, and why it ends before it is answered."""

    def __init__(self, limit: asyncio.Timeout, timeout_s: float) -> None:
        self._limit = limit
        self.refusal = RequestRefused("timeout", f"no answer within {timeout_s:g} s")

    def end(self, refusal: RequestRefused, within_s: float = 0.0) -> None:
        """End the request, unless it is answered before."""
        if not self._limit.expired():
            self.refusal = refusal
            until = asyncio.get_running_loop().time() + within_s
            self._limit.reschedule(min(until, self._limit.when() or until))


class RequestRoom:
    """Counts the requests from before their bodies are read until they are answered.

    Used from the event loop alone, but for `close`.
    """

    def __init__(self, limits: ServingLimits, metrics: ServingMetrics) -> None:
        self.limits, self.metrics = limits, metrics
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places: set[RequestPlace] = set()
        self._answers: deque[float] = deque(maxlen=_REMEMBERED)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[RequestPlace]:
        """A place for a request; RequestRefused where there is none, or no time left."""
        if len(self._places) >= self.limits.queue:
            reason = f"{len(self._places)} requests wait, as many as the server takes"
            wait = self._until_there_is_room()
            raise RequestRefused("queue_full", reason, retry_after_s=wait)
        self._loop = asyncio.get_running_loop()
        limit = asyncio.timeout(self.limits.timeout_s)
        place = RequestPlace(limit, self.limits.timeout_s)
        try:
            async with limit:
                self._places.add(place)
                self.metrics.open.set(len(self._places))
                yield place
        except TimeoutError:
            if not limit.expired():
                raise
            raise place.refusal from None
        finally:
            self._places.discard(place)
            self.metrics.open.set(len(self._places))

    def answered(self) -> None:
        """Note that a request had its answer."""
        self._answers.append(time.monotonic())

    def close(self) -> None:
        """Give the requests that are open the grace."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        for place in self._places:
            place.end(stopping(), self.limits.grace_s)

    def _until_there_is_room(self) -> int:
        """Seconds until about an eighth of the queue is answered, by recent answers."""
        if len(self._answers) < 2:
            return 1
        each = (time.monotonic() - self._answers[0]) / len(self._answers)
        return min(max(1, math.ceil(each * len(self._places) / 8)), _LONGEST_WAIT_S)


class RequestGate:
    """ASGI middleware, so that nothing is read of a body that will be refused."""

    def __init__(self, app: ASGIApp, *, room: RequestRoom, key: str | None) -> None:
        self._app, self._room, self._key = app, room, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it; those that compute take a place."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def seen(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            self._check(scope)
            if scope["method"] == "POST":
                await self._computed(scope, receive, seen)
            else:
                await self._app(scope, receive, seen)
        except RequestRefused as refused:
            if not status:
                await refused.reply(scope, receive, seen)
        finally:
            seconds = time.perf_counter() - began
            self._room.metrics.request(scope["path"], status or 500, seconds)
        if status == 200 and scope["method"] == "POST":
            self._room.answered()

    def _check(self, scope: Scope) -> None:
        """RequestRefused without the key, or with a body that is too long."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._key and scope["path"].startswith("/v1/"):  # probes have no key
            scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
            right = hmac.compare_digest(key.strip(), self._key.encode())
            if scheme.lower() != b"bearer" or not right:
                reason = "the key is missing or wrong: send 'Authorization: Bearer KEY'"
                raise RequestRefused("invalid_api_key", reason)
        length = headers.get(b"content-length", b"0")
        self._check_length(int(length) if length.isdigit() else 0)

    def _check_length(self, length: int) -> None:
        if length > (most := self._room.limits.body_bytes):
            reason = f"the body is longer than {most / 2**20:g} MiB, the most that is read"
            raise RequestRefused("body_too_large", reason)

    async def _computed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered, unless its client leaves before."""
        read, watching = 0, None

        async def departure(place: RequestPlace) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            place.end(RequestRefused("client_gone", "the client has left"))

        async def limited() -> Message:
            nonlocal read, watching
            message = await receive()
            read += len(message.get("body", b""))
            self._check_length(read)
            if not message.get("more_body"):
                watching = asyncio.ensure_future(departure(place))
            return message

        async with self._room.place() as place:
            try:
                await self._app(scope, limited, send)
            finally:
                if watching is not None:
                    watching.cancel()
