"""What an endpoint has cost so far, and when to stop."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.endpoints.replies import TokenCounts
from pipelines.writers import EndpointSettings


class Budget:
    """Adds up tokens and cost; requests in flight when it is reached are still paid."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        self._limited = settings.max_total_tokens or settings.max_cost is not None
        self._tokens = 0.0
        self._cost = 0.0
        self._unknown = False

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what was used before this process began, at the prices of today."""
        self._count(usage.get("input_tokens", 0.0), usage.get("output_tokens", 0.0))

    def spend(self, counts: TokenCounts | None) -> dict[str, float]:
        """Count one reply; its usage, with its cost where prices are known.

        Cached input counts at the full price, so the cost is never too low.
        """
        if counts is None:
            self._unknown = True
            return {}
        usage = counts.as_usage()
        cost = self._count(usage["input_tokens"], usage["output_tokens"])
        return usage if cost is None else usage | {"cost": cost}

    def _count(self, read: float, written: float) -> float | None:
        """Add tokens to the totals; their cost, None where no prices are known."""
        self._tokens += read + written
        price_in = self._settings.price_per_million_input
        price_out = self._settings.price_per_million_output
        if price_in is None or price_out is None:
            return None
        cost = (read * price_in + written * price_out) / 1e6
        self._cost += cost
        return cost

    def exhausted(self) -> str | None:
        """Why no more requests may be sent; None while they may."""
        tokens, cost = self._settings.max_total_tokens, self._settings.max_cost
        if self._limited and self._unknown:
            return "the server reports no token usage, so no ceiling can be kept"
        if tokens is not None and self._tokens >= tokens:
            return f"{self._tokens:.0f} tokens used; max_total_tokens is {tokens}"
        if cost is not None and self._cost >= cost:
            return f"{self._cost:.4g} spent; max_cost is {cost:g}"
        return None
