"""One request to an endpoint: a deadline for each attempt, and waits between them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
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

from pipelines.endpoints.errors import Meaning, meaning, retry_after_s

_LONGEST_WAIT_S = 60.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one request is worth waiting for."""

    timeout_s: float
    """One attempt; a server that sends a byte now and then cannot stretch it."""
    max_attempts: int
    give_up_s: float
    """No attempt begins later than this after the first."""
    backoff_s: float


async def patiently(
    attempt: Callable[[], Awaitable[T]], patience: Patience
) -> tuple[T, int]:
    """What `attempt` gives at last, and how many attempts it took.

    Raises the error of the last attempt.
    """
    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda e: meaning(e) is Meaning.AGAIN),
        stop=stop_after_attempt(patience.max_attempts)
        | stop_before_delay(patience.give_up_s),
        wait=_Wait(patience.backoff_s),
        reraise=True,
    )
    deadline = time.monotonic() + patience.give_up_s + patience.timeout_s

    async def timed() -> T:
        async with asyncio.timeout(min(patience.timeout_s, deadline - time.monotonic())):
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
        asked = retry_after_s(error)
        if asked is None:
            return self._grow(state)
        return asked + random.uniform(0, self._jitter_s)
