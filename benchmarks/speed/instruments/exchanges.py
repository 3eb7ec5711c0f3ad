"""How long each request to a server takes, from the stage's call to the reply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.speed.instruments.clock import Now, replaced

STREAMED = "the stage reads the server's replies whole, not token by token"


class ExchangeTimes:
    """Seconds of requests: waiting for a free slot and retries count."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._seconds: list[float | None] = []

    def taken(self) -> list[float]:
        """Of the requests since the last time, in the order they began."""
        seconds, self._seconds = self._seconds, []
        return [s for s in seconds if s is not None]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Times all requests that this process sends inside."""
        from pipelines.endpoints.client import EndpointClient

        request = EndpointClient.request

        async def timed(client: EndpointClient, *arguments: Any) -> Any:
            place, began = len(self._seconds), self._now()
            self._seconds.append(None)
            try:
                return await request(client, *arguments)
            finally:
                self._seconds[place] = self._now() - began

        with replaced(EndpointClient, "request", timed):
            yield
