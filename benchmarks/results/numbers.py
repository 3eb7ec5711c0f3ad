"""How numbers and their intervals are written: in terminals, on pages, in papers.

    NumberForm.of("0-100").interval((91.69, 100.6))  # [91.69, 100.00*]

What is stored is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scorers.base import bounds
from scorers.statistics.estimate import Estimate

BEYOND = "*"
"""Behind an end of a scale that an interval reaches beyond."""
ABOUT_BEYOND = f"{BEYOND} an end of the scale: the interval computed reaches beyond it."


@dataclass(frozen=True, slots=True)
class NumberForm:
    """How the numbers of one scale are written; zero never has a minus."""

    digits: int = 2
    """After the point."""
    ends: tuple[float, float] | None = None
    """Of the scale. What lies beyond cannot be, and is not shown as a bound."""
    signed: bool = False
    """Whether a plus is written: of differences."""

    @classmethod
    def of(cls, scale: str, *, signed: bool = False) -> NumberForm:
        """For the scores of a scale `LOW-HIGH`, or for their differences (`signed`)."""
        ends = bounds(scale)
        if ends is None:
            return cls(signed=signed)
        width = ends[1] - ends[0]
        return cls(3 if width <= 3 else 2, (-width, width) if signed else ends, signed)

    @classmethod
    def of_measure(cls, name: str, digits: int = 2) -> NumberForm:
        """For a measure whose name ends in its unit: `%`, or `points of %`."""
        share = (-100.0, 100.0) if name.endswith("points of %") else (0.0, 100.0)
        return cls(digits, share if name.endswith(" %") else None)

    def number(self, value: float | None) -> str:
        """`12.30`, or a dash."""
        if value is None:
            return "-"
        return f"{value:{'+' if self.signed else ''}z.{self.digits}f}"

    def interval(self, ci95: Sequence[float] | None) -> str:
        """`[8.00, 17.10]`; empty where there is none."""
        return "" if ci95 is None else f"[{', '.join(map(self._bound, ci95))}]"

    def within(self, bound: float) -> float:
        """Return `bound`, or the end of the scale that it lies beyond."""
        low, high = self.ends or (bound, bound)
        return min(max(bound, low), high)

    def _bound(self, bound: float) -> str:
        shown = self.number(self.within(bound))
        return shown if shown == self.number(bound) else shown + BEYOND

    def estimate(self, estimate: Estimate) -> str:
        """`12.30 [8.00, 17.10]`, or a dash and the reason."""
        if estimate.value is None:
            return f"- ({estimate.reason})" if estimate.reason else "-"
        return f"{self.number(estimate.value)} {self.interval(estimate.ci95)}".strip()

    def counted(self, estimate: Estimate) -> str:
        """The same with the number of units: `12.30 [8.00, 17.10] n=37`."""
        n = "" if estimate.value is None else f" n={estimate.n}"
        return self.estimate(estimate) + n


def estimate_of(plain: Mapping[str, Any], name: str = "mean") -> Estimate:
    """The estimate that `Estimate.as_json` has made plain, with its value under `name`."""
    ends = plain["ci95"] and (plain["ci95"][0], plain["ci95"][1])
    return Estimate(plain[name], ends, plain["n"], plain.get("reason", ""))


def reaches_beyond(text: str) -> bool:
    """Whether an interval in `text` has a bound to be explained."""
    return re.search(rf"\d{re.escape(BEYOND)}[,\]]", text) is not None
