"""What every request passes before it is read: key, room, size of its body, counts."""

from __future__ import annotations

import hmac
import time
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benchmarks.serving.engine import ServingEngine
from benchmarks.serving.refusals import RequestRefused

GUARDED = "/v1/"
"""Paths that need the key. Health and metrics are for probes, which have none."""
_COUNTED = (
    "/v1/chat/completions",
    "/v1/images/generations",
    "/v1/models",
    "/health",
    "/metrics",
    "/version",
)


class RequestGate:
    """ASGI middleware, so that nothing is read of a body that will be refused."""

    def __init__(self, app: ASGIApp, *, engine: ServingEngine, key: str | None) -> None:
        self._app = app
        self._key = key
        self._most = engine.limits.body_bytes
        self._metrics = engine.metrics
        self._room = engine.room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status: int | None = None

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._passed(scope, receive, seen)
        except RequestRefused as refused:
            if status is None:
                reply = JSONResponse(refused.body, refused.status, refused.headers)
                await reply(scope, receive, seen)
        finally:
            if status == 200 and scope["method"] == "POST":
                self._room.answered()
            path = scope["path"] if scope["path"] in _COUNTED else "other"
            self._metrics.request(path, status or 500, time.perf_counter() - began)

    async def _passed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, those that compute to a place in the room."""
        if refused := self._refusal(scope):
            raise refused
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        async with self._room.place():
            await self._app(scope, self._limited(receive), send)

    def _refusal(self, scope: Scope) -> RequestRefused | None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._key and scope["path"].startswith(GUARDED):
            scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
            right = hmac.compare_digest(key.strip(), self._key.encode())
            if scheme.lower() != b"bearer" or not right:
                return RequestRefused(
                    401,
                    "invalid_api_key",
                    "the key is missing or wrong: send 'Authorization: Bearer KEY'",
                )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._most:
            return self._too_large()
        return self._room.refusal() if scope["method"] == "POST" else None

    def _limited(self, receive: Receive) -> Receive:
        """`receive` that stops a body without a stated length at the limit."""
        read = 0

        async def limited() -> Any:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(413, self._too_large().message)
            return message

        return limited

    def _too_large(self) -> RequestRefused:
        mib = self._most / 2**20
        message = f"the body is longer than {mib:g} MiB, the most this server reads"
        return RequestRefused(413, "body_too_large", message)
