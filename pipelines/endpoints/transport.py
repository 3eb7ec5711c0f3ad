"""The HTTP client of an endpoint: no reply may fill the memory."""

from __future__ import annotations

from typing import Any

import httpx2
import openai

MAX_REPLY_BYTES = 128 << 20
"""Longer replies are refused; several pictures of 4096 x 4096 pixels fit."""


class ReplyTooLarge(ValueError):
    """A reply that is longer than what is read of one."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the reply is longer than {limit >> 20} MiB")


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """Reads at most so many bytes of a reply, error pages included, decompressed."""

    def __init__(self, most_bytes: int = MAX_REPLY_BYTES, **options: Any) -> None:
        super().__init__(**options)
        self._most_bytes = most_bytes

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """As httpx does; ReplyTooLarge where a reply that is read whole is too long."""
        response = await super().send(request, stream=True, **options)
        return response if stream else await _whole(response, self._most_bytes)


async def _whole(response: httpx2.Response, most_bytes: int) -> httpx2.Response:
    """The same response with its body, read."""
    try:
        body = await read_bounded(response, most_bytes)
    finally:
        await response.aclose()
    decoded = ("content-encoding", "content-length", "transfer-encoding")
    whole = httpx2.Response(
        response.status_code,
        headers=[(k, v) for k, v in response.headers.multi_items() if k not in decoded],
        content=body,
        request=response.request,
        extensions=response.extensions,
        history=response.history,
    )
    whole.elapsed = response.elapsed
    return whole


async def read_bounded(response: httpx2.Response, most_bytes: int) -> bytes:
    """The body of a response that is still to be read; ReplyTooLarge."""
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most_bytes:
        raise ReplyTooLarge(most_bytes)
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > most_bytes:
            raise ReplyTooLarge(most_bytes)
    return bytes(body)
