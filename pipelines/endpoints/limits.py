"""How often and how long one request is tried, and what all requests may cost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)

from pipelines.chat.settings import ServerSettings
from pipelines.endpoints.errors import Meaning, meaning, retry_after_s

_LONGEST_WAIT_S = 60.0
T = TypeVar("T")


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
    attempt: Callable[[], Awaitable[T]], limits: RetryLimits
) -> tuple[T, int]:
    """The result of `attempt`, and how many attempts it took.

    Raises the error of the last attempt.
    """
    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda e: meaning(e) is Meaning.AGAIN),
        stop=stop_after_attempt(limits.max_attempts) | stop_before_delay(limits.give_up_s),
        wait=_Wait(limits.backoff_s),
        reraise=True,
    )
    deadline = time.monotonic() + limits.give_up_s + limits.timeout_s

    async def timed() -> T:
        async with asyncio.timeout(min(limits.timeout_s, deadline - time.monotonic())):
            return await attempt()

    result: T = await retrying(timed)
    return result, int(retrying.statistics["attempt_number"])


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
        self._limited = settings.max_total_tokens or settings.max_cost is not None
        self._tokens = 0.0
        self._cost = 0.0
        self._unknown = False

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what was used before this process began, at the prices of today."""
        self._count(usage)

    def spend(self, usage: Mapping[str, float] | None) -> dict[str, float]:
        """Count what one reply used; its usage, with its cost where prices are known."""
        if usage is None:
            self._unknown = True
            return {}
        cost = self._count(usage)
        return dict(usage) if cost is None else {**usage, "cost": cost}

    def _count(self, usage: Mapping[str, float]) -> float | None:
        """Add to the totals; the cost, None where no prices are known."""
        self._tokens += usage.get("input_tokens", 0.0) + usage.get("output_tokens", 0.0)
        cost = self._settings.cost_of(usage)
        self._cost += cost or 0.0
        return cost

    def exhausted(self) -> str | None:
        """Why no more requests may be sent; None while they may."""
        tokens, cost = self._settings.max_total_tokens, self._settings.max_cost
        if self._limited and self._unknown:
            return "the server reports no token usage, so no ceiling can be enforced"
        if tokens is not None and self._tokens >= tokens:
            return f"{self._tokens:.0f} tokens used; max_total_tokens is {tokens}"
        if cost is not None and self._cost >= cost:
            return f"{self._cost:.4g} spent; max_cost is {cost:g}"
        return None
