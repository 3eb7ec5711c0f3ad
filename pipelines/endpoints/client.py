"""Sends the requests of one stage to one server: slots, retries, ceilings."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import httpx2
import openai
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_any,
    stop_before_delay,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from generators.base import Failure, Fault
from pipelines.chat.settings import ServerSettings
from pipelines.endpoints.errors import (
    ERRORS,
    EndpointError,
    Meaning,
    Redirected,
    ReplyTooLarge,
    described,
    is_cut_short,
    meaning,
    remedy,
    retry_after_s,
)

LISTING_FAILURES = (401, 403, 408, 409, 429, 503)
"""Statuses of `/models` that end or delay a stage; others say that there is no list."""
_REJECTIONS = 3
"""How often a request is rejected before a server has answered any, and how many requests
in a row after that, before none is expected to be accepted; and how often the first
connection is refused."""
NO_KEY = "none"
"""Sent where no key is set: local servers accept any, others answer with 401."""
_LONGEST_WAIT_S = 60.0
_TOKENS = {"input_tokens", "output_tokens"}
_RETRIED = (Meaning.AGAIN, Meaning.UNREACHABLE, Meaning.REJECTED)
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answered(Generic[R]):
    """A reply, and what it took."""

    reply: R
    usage: dict[str, float]
    """With its cost, where that is known."""
    attempts: int


class EndpointClient:
    """Requests of one stage to one server; calls may come from several threads.

    A request keeps its slot while it waits to be sent again, so that a server that asks
    clients to wait is not sent the next request at once. Once several requests in a row
    are rejected (a wrong key, an unknown model), no further one is sent.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = s = settings
        self.key = os.environ.get(s.api_key_env)
        self.http = BoundedClient(
            s.most_reply_bytes,
            timeout=openai.Timeout(s.timeout_s, connect=s.connect_timeout_s),
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
        self._answered = False
        """Whether the server has answered any request."""
        self._rejected = 0
        """Requests in a row that it has rejected."""
        self._hopeless: str | None = None
        """Why no further request is sent."""
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
        used: Callable[[R], Mapping[str, float]],
        notes: dict[str, Any],
    ) -> Answered[R] | Failure:
        """The reply, retried as often as the settings allow, or why there is none.

        `used` is the usage that a reply reports; `notes` are those of a failure.
        """
        async with self._slots:
            if self._hopeless is not None:
                return Failure(self._hopeless, Fault.ENDPOINT, notes=notes)
            if reason := self._ceiling.exhausted():
                return Failure(reason, Fault.BUDGET, notes=notes)
            try:
                reply, attempts = await self._tried(attempt)
            except ERRORS as error:
                return self._failure(error, notes)
            self._answered, self._rejected = True, 0
            return Answered(reply, self._ceiling.spend(used(reply)), attempts)

    async def preflight(
        self,
        attempt: Callable[[], Awaitable[R]],
        used: Callable[[R], Mapping[str, float]] | None = None,
    ) -> None:
        """Send one small request as any other; EndpointError where it is not answered.

        Without `used`, the request is one that uses nothing.
        """
        try:
            reply, _ = await self._tried(attempt, {Meaning.UNREACHABLE: _REJECTIONS})
        except ERRORS as error:
            if is_cut_short(error):
                return
            # The SDK's error holds the request, and the request the key.
            raise EndpointError(self._explained(error)) from None
        if used is not None:
            self._ceiling.spend(used(reply))

    async def _tried(
        self,
        attempt: Callable[[], Awaitable[R]],
        most_in_a_row: Mapping[Meaning, int] = MappingProxyType({}),
    ) -> tuple[R, int]:
        # What was accepted once will most likely be accepted again.
        most = self._retries.max_attempts if self._answered else _REJECTIONS
        limits = {Meaning.REJECTED: most, **most_in_a_row}
        return await with_retries(attempt, self._retries, limits)

    def _failure(self, error: Exception, notes: dict[str, Any]) -> Failure:
        """The failure of a request that had no reply."""
        reason = described(error)
        what = meaning(error)
        self._rejected = self._rejected + 1 if what is Meaning.REJECTED else 0
        match what:
            case Meaning.REFUSED:
                return Failure(reason, Fault.REFUSED, notes=notes)
            case Meaning.RECORD:
                return Failure(reason, Fault.BAD_INPUT, notes=notes)
            case Meaning.REPLY:
                return Failure(reason, Fault.ENDPOINT, notes=notes)
            case Meaning.REJECTED | Meaning.ENDPOINT:
                reason = self._explained(error)
                if what is Meaning.ENDPOINT or self._rejected >= _REJECTIONS:
                    self._hopeless = reason
                return Failure(reason, Fault.ENDPOINT, notes=notes)
        pause = retry_after_s(error)
        if pause is not None:
            reason += f" (it asks to wait {pause:.0f} s)"
        return Failure(f"given up: {reason}", Fault.ENDPOINT, notes=notes)

    def _explained(self, error: Exception) -> str:
        s = self.settings
        advice = remedy(error, s, self.key is not None)
        said = described(error).rstrip(".")
        return f"endpoint {s.url}, model {s.model!r}: {said}. {advice}"


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


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """Reads at most so many bytes of a reply, error pages included, decompressed.

    No redirect is followed: a key is for one address, and so is what is sent.
    """

    def __init__(self, most_bytes: int, **options: Any) -> None:
        super().__init__(**options)
        self._most_bytes = most_bytes

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """As httpx does; Redirected, and ReplyTooLarge where a whole reply is too long."""
        options["follow_redirects"] = False
        response = await super().send(request, stream=True, **options)
        if response.is_redirect:
            await response.aclose()
            raise Redirected(response.status_code, response.headers.get("location", ""))
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


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How often and how long one request is tried."""

    timeout_s: float
    """One attempt; a server that sends a byte now and then cannot stretch it."""
    max_attempts: int
    give_up_s: float
    """No attempt begins later than this after the first."""
    backoff_s: float


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    limits: RetryLimits,
    most_in_a_row: Mapping[Meaning, int],
) -> tuple[T, int]:
    """The result of `attempt`, and how many attempts it took.

    Raises the error of the last attempt; also the last of so many in a row of one meaning.
    """
    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: meaning(error) in _RETRIED),
        stop=stop_any(
            *(_InARow(what, most) for what, most in most_in_a_row.items()),
            stop_after_attempt(limits.max_attempts),
            stop_before_delay(limits.give_up_s),
        ),
        wait=_Wait(limits.backoff_s),
        reraise=True,
    )
    deadline = time.monotonic() + limits.give_up_s + limits.timeout_s

    async def timed() -> T:
        async with asyncio.timeout(min(limits.timeout_s, deadline - time.monotonic())):
            return await attempt()

    result: T = await retrying(timed)
    return result, int(retrying.statistics["attempt_number"])


class _InARow(stop_base):
    """Stops a request after so many errors of one meaning in a row."""

    def __init__(self, what: Meaning, most: int) -> None:
        self._what = what
        self._left = self._most = most

    def __call__(self, state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        counts = error is not None and meaning(error) is self._what
        self._left = self._left - 1 if counts else self._most
        return self._left <= 0


class _Wait:
    """As long as the server asks, else exponentially longer; never all at once."""

    def __init__(self, backoff_s: float) -> None:
        self._jitter_s = backoff_s
        self._grow = wait_random_exponential(multiplier=backoff_s, max=_LONGEST_WAIT_S)

    def __call__(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        pause = retry_after_s(error)
        if pause is None:
            return self._grow(state)
        return pause + random.uniform(0, self._jitter_s)


class UsageCeiling:
    """Adds up tokens and cost; requests in flight when it is reached are still paid."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._tokens = 0.0
        self._cost = 0.0
        self._unknown = False

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what was used before this process began, at the prices of today."""
        self._count(usage)

    def spend(self, usage: Mapping[str, float]) -> dict[str, float]:
        """Count what one reply used; its usage, with its cost where that is known."""
        cost, s = self._count(usage), self._settings
        tokens_unknown = s.max_total_tokens is not None and not usage.keys() >= _TOKENS
        cost_unknown = s.max_cost is not None and cost is None
        self._unknown = self._unknown or tokens_unknown or cost_unknown
        return dict(usage) if cost is None else {**usage, "cost": cost}

    def _count(self, usage: Mapping[str, float]) -> float | None:
        """Add to the totals; the cost, None where it is not known."""
        self._tokens += usage.get("input_tokens", 0.0) + usage.get("output_tokens", 0.0)
        cost = self._settings.cost_of(usage)
        self._cost += cost or 0.0
        return cost

    def exhausted(self) -> str | None:
        """Why no more requests may be sent; None while they may."""
        tokens, cost = self._settings.max_total_tokens, self._settings.max_cost
        if self._unknown:
            return "the server reports no token usage, so no ceiling can be enforced"
        if tokens is not None and self._tokens >= tokens:
            return f"{self._tokens:.0f} tokens used; max_total_tokens is {tokens}"
        if cost is not None and self._cost >= cost:
            return f"{self._cost:.4g} spent; max_cost is {cost:g}"
        return None
