"""A number with its interval, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Estimate:
    """What was estimated from `n` units: questions, or judgements in official mode."""

    value: float | None
    ci95: tuple[float, float] | None = None
    n: int = 0
    reason: str = ""
    """Why the value or the interval is missing."""

    def as_json(self) -> dict[str, Any]:
        """Rounded so that the last bits of a sum are not written."""
        value = None if self.value is None else round(self.value, _DECIMALS)
        ends = self.ci95 and [round(end, _DECIMALS) for end in self.ci95]
        found: dict[str, Any] = {"value": value, "ci95": ends, "n": self.n}
        return found | ({"reason": self.reason} if self.reason else {})
