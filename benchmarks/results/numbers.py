"""How numbers and their intervals are written: in terminals, on pages, in papers.

NumberForm.of("0-100").interval((91.69, 98.6))  # [91.69, 98.60]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plait.scorers.base import ends_of
from plait.scorers.statistics.estimate import Estimate


@dataclass(frozen=True, slots=True)
class NumberForm:
    """How the numbers of one scale are written; zero never has a minus."""

    digits: int = 2
    """After the point."""
    signed: bool = False
    """Whether a plus is written: of differences."""

    @classmethod
    def of(cls, scale: str, *, signed: bool = False) -> NumberForm:
        """For the scores of a scale `LOW-HIGH`, or for their differences (`signed`)."""
        low, high = ends_of(scale)
        return cls(3 if high - low <= 3 else 2, signed)

    def number(self, value: float | None) -> str:
        """`12.30`, or a dash."""
        if value is None:
            return "-"
        return f"{value:{'+' if self.signed else ''}z.{self.digits}f}"

    def interval(self, ci95: Sequence[float] | None) -> str:
        """`[8.00, 17.10]`; empty where there is none."""
        return "" if ci95 is None else f"[{', '.join(map(self.number, ci95))}]"

    def estimate(self, estimate: Estimate) -> str:
        """`12.30 [8.00, 17.10]`, or a dash and the reason."""
        if estimate.value is None:
            return f"- ({estimate.reason})" if estimate.reason else "-"
        return f"{self.number(estimate.value)} {self.interval(estimate.ci95)}".strip()

    def counted(self, estimate: Estimate) -> str:
        """Return the same with the number of units: `12.30 [8.00, 17.10] n=37`."""
        n = "" if estimate.value is None else f" n={estimate.n}"
        return self.estimate(estimate) + n


def estimate_of(plain: Mapping[str, Any], name: str = "mean") -> Estimate:
    """The estimate that `Estimate.as_json` has made plain, with its value under `name`."""
    ends = plain["ci95"] and (plain["ci95"][0], plain["ci95"][1])
    return Estimate(plain[name], ends, plain["n"], plain.get("reason", ""))
