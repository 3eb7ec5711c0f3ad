"""Sends the requests of one stage to one server: slots, retries, ceilings, no key shown."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import openai

from generators.base import Failure, Fault
from pipelines.chat.settings import ServerSettings
from pipelines.endpoints.errors import (
    ERRORS,
    EndpointError,
    Meaning,
    described,
    is_cut_short,
    meaning,
    remedy,
    retry_after_s,
)
from pipelines.endpoints.limits import RetryLimits, UsageCeiling, with_retries
from pipelines.endpoints.transport import BoundedClient

LISTING_FAILURES = (401, 403, 408, 409, 429, 503)
"""Statuses of `/models` that end or delay a stage; others say that there is no list."""
_PREFLIGHT_ATTEMPTS = 3
NO_KEY = "none"
"""Sent where no key is set: local servers accept any, others answer with 401."""
_SHORTEST_KEY = 8
"""Shorter ones are words such as `none`, which an error may contain."""
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answered(Generic[R]):
    """A reply, and what it took."""

    reply: R
    usage: dict[str, float]
    """With its cost, where prices are known."""
    attempts: int


class EndpointClient:
    """Requests of one stage to one server; calls may come from several threads.

    A request keeps its slot while it waits to be sent again, so that a server that asks
    clients to wait is not sent the next request at once. Once a request shows that none
    can succeed (a wrong key, an unknown model), no further one is sent.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = s = settings
        self.key = os.environ.get(s.api_key_env)
        self.http = BoundedClient(
            timeout=openai.Timeout(s.timeout_s, connect=s.connect_timeout_s)
        )
        self.openai = openai.AsyncOpenAI(
            api_key=self.key or NO_KEY,
            base_url=s.url,
            timeout=openai.Timeout(s.timeout_s, connect=s.connect_timeout_s),
            max_retries=0,
            http_client=self.http,
        )
        self._retries = RetryLimits(s.timeout_s, s.max_attempts, s.give_up_s, s.backoff_s)
        self._ceiling = UsageCeiling(s)
        self._slots = asyncio.Semaphore(s.concurrency)
        self._condemned: str | None = None
        self._loop = _LoopThread()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; called from any thread but the loop's own."""
        return self._loop.run(work)

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        self._ceiling.continue_from(usage)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._loop.run(self.openai.close())
        self._loop.end()

    async def request(
        self,
        attempt: Callable[[], Awaitable[R]],
        used: Callable[[R], Mapping[str, float] | None],
        notes: dict[str, Any],
    ) -> Answered[R] | Failure:
        """The reply, retried as often as the settings allow, or why there is none.

        `used` is the usage that a reply reports, None where it reports none; `notes` are
        those of a failure.
        """
        async with self._slots:
            if self._condemned is not None:
                return Failure(self._condemned, Fault.ENDPOINT, notes=notes)
            if reason := self._ceiling.exhausted():
                return Failure(reason, Fault.BUDGET, notes=notes)
            try:
                reply, attempts = await with_retries(attempt, self._retries)
            except ERRORS as error:
                return self._failure(error, notes)
            return Answered(reply, self._ceiling.spend(used(reply)), attempts)

    async def preflight(
        self,
        attempt: Callable[[], Awaitable[R]],
        used: Callable[[R], Mapping[str, float] | None],
    ) -> None:
        """Send one small request; EndpointError where none could be answered."""
        attempts = min(self._retries.max_attempts, _PREFLIGHT_ATTEMPTS)
        limits = replace(self._retries, max_attempts=attempts)
        try:
            reply, _ = await with_retries(attempt, limits)
        except ERRORS as error:
            if is_cut_short(error):
                return
            # The SDK's error holds the request, and the request the key.
            raise EndpointError(self._explained(error)) from None
        self._ceiling.spend(used(reply))

    def public(self, text: str) -> str:
        """`text` without the key, which some servers repeat in their errors."""
        if self.key is None or len(self.key) < _SHORTEST_KEY:
            return text
        return text.replace(self.key, "***")

    def _failure(self, error: Exception, notes: dict[str, Any]) -> Failure:
        """The failure of a request that had no reply."""
        reason = self.public(described(error))
        match meaning(error):
            case Meaning.REFUSED:
                return Failure(reason, Fault.REFUSED, notes=notes)
            case Meaning.RECORD:
                return Failure(reason, Fault.BAD_INPUT, notes=notes)
            case Meaning.REPLY:
                return Failure(reason, Fault.ENDPOINT, notes=notes)
            case Meaning.ENDPOINT:
                self._condemned = self._explained(error)
                return Failure(self._condemned, Fault.ENDPOINT, notes=notes)
        pause = retry_after_s(error)
        if pause is not None:
            reason += f" (it asks to wait {pause:.0f} s)"
        return Failure(f"given up: {reason}", Fault.ENDPOINT, notes=notes)

    def _explained(self, error: Exception) -> str:
        s = self.settings
        advice = remedy(error, s, self.key is not None)
        what = (
            f"endpoint {s.url}, model {s.model!r}: {described(error).rstrip('.')}. {advice}"
        )
        return self.public(what)


class _LoopThread:
    """An event loop in its own thread, for callers that are not asynchronous."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="endpoint", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; called from any thread but the loop's own."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
