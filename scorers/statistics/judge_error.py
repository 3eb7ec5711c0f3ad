"""What a judge's own error adds to the interval of a mean, and what would make it smaller.

    errors = JudgeErrors.of(variance_components(...))
    errors.interval(estimate, ends)             # the judge is one of many
    errors.options(difference=1.5, queries=200) # what to buy for it to be seen

An interval by query holds for this judge, this wording and these replies. That another
judge, equally fit, would have given other scores is left out of it; with many queries it is
most of the error (arXiv:2604.11581).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from plait.scorers.statistics.components import RESIDUAL, VarianceComponents
from plait.scorers.statistics.estimate import CONFIDENCE, Estimate
from plait.scorers.statistics.means import Ends, score_interval
from plait.scorers.statistics.power import POWER

TERMS: Mapping[str, tuple[str, ...]] = {
    "query": ("query",),
    "system x query": ("system", "query"),
    "judge": ("judge",),
    "system x judge": ("system", "judge"),
    "query x judge": ("query", "judge"),
    "answer x judge": ("system", "query", "judge"),
    "wording": ("judge", "wording"),
    "system x wording": ("system", "judge", "wording"),
}
"""By term, the factors whose combinations have an effect each. A wording is one of a judge,
and what is left over is what a judge says of the same answer when it is asked again."""
ABOUT: Mapping[str, str] = {
    "query": "how hard a query is, for all systems and judges",
    "system x query": "which system does well on which query",
    "judge": "how strict a judge is, on the whole",
    "system x judge": "which judge favours which system",
    "query x judge": "which judge finds which query hard",
    "answer x judge": "which judge likes which answer",
    "wording": "how strict a judge is in one wording",
    "system x wording": "which wording favours which system",
    RESIDUAL: "what a judge says when it is asked again, and all else",
}
OF_LEVEL = ("judge", "wording", "system x judge", "system x wording")
"""Terms that move the mean of a system, however many queries there are."""
_FAR = 1_000_000
"""More of anything than can be bought."""


class Option(NamedTuple):
    """One way to make a difference of two systems visible."""

    of: str
    """`queries`, `judges`, `wordings` or `repeats`."""
    now: int
    needed: int | None
    """With all else as it is; None where no number is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeErrors:
    """The variances of one kind of score, and how often answers were judged for it."""

    variances: Mapping[str, float]
    """By the terms of `TERMS` and the residual; below 0 as 0, without unknown ones."""
    freedom: float
    """Degrees of freedom of what a judge and its wording add to the mean of a system."""
    judges: int = 1
    """Judges whose mean is a score, as the next two."""
    wordings: int = 1
    repeats: int = 1

    @classmethod
    def of(cls, found: VarianceComponents) -> JudgeErrors:
        """Return those of scores that a single judge gave once, in one wording."""
        variances = {term: max(0.0, value) for term, value in found.variances.items()}
        freedom = found.freedom(dict.fromkeys(OF_LEVEL, 1.0))
        return cls(variances=variances, freedom=freedom)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> JudgeErrors:
        """Return what `as_json` has made plain."""
        freedom = plain["freedom"]
        return cls(
            variances=plain["variances"],
            freedom=math.inf if freedom is None else float(freedom),
        )

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        freedom = None if math.isinf(self.freedom) else round(self.freedom, 4)
        return {"variances": dict(self.variances), "freedom": freedom}

    def _sum(self, *terms: str) -> float:
        return sum(self.variances.get(term, 0.0) for term in terms)

    @property
    def shares(self) -> dict[str, float]:
        """By term, its share of the variance of a score; the largest first."""
        total = sum(self.variances.values())
        if not total:
            return {}
        order = sorted(self.variances, key=lambda term: -self.variances[term])
        return {term: self.variances[term] / total for term in order}

    @property
    def of_level(self) -> float:
        """The variance that the choice of judge and wording gives the mean of a system."""
        of_judge = self._sum("judge", "system x judge") / self.judges
        return of_judge + self._sum("wording", "system x wording") / (
            self.judges * self.wordings
        )

    def of_difference(self, queries: int) -> float:
        """Return the variance of the difference of two systems' means.

        Both are judged on the same queries by the same judges: what these find hard or
        score high for all systems cancels.
        """
        by_judge = self._sum("system x judge") / self.judges
        by_wording = self._sum("system x wording") / (self.judges * self.wordings)
        by_query = self._sum("system x query") / queries
        by_answer = self._sum("answer x judge") / (queries * self.judges)
        asked = queries * self.judges * self.wordings * self.repeats
        return 2 * (
            by_judge + by_wording + by_query + by_answer + self._sum(RESIDUAL) / asked
        )

    def interval(self, mean: Estimate, ends: Ends) -> tuple[float, float] | None:
        """Return the interval of a mean whose judge is one of many that might be asked.

        The variance of the judge and its wording is added to that by query, and the
        degrees of freedom are Satterthwaite's for the sum. None where the mean has no
        interval, and where nothing was measured of judges and wordings.
        """
        if self.variances.keys().isdisjoint(OF_LEVEL):
            return None
        if mean.ci95 is None or mean.value is None or mean.n < 2:
            return None
        from scipy import special

        by_query = mean.n - 1.0
        reach = float(special.stdtrit(by_query, (1 + CONFIDENCE) / 2))
        # Of an interval on a bounded scale, whose sides differ, the mean of both.
        own = ((mean.ci95[1] - mean.ci95[0]) / (2 * reach)) ** 2
        added = self.of_level
        if not added:
            return mean.ci95
        total = own + added
        freedom = total**2 / (own**2 / by_query + added**2 / self.freedom)
        if not ends[0] < mean.value < ends[1]:
            return None
        low, high = score_interval(mean.value, total, max(1.0, freedom), ends)
        return float(low), float(high)

    def options(
        self, difference: float, queries: int, power: float = POWER
    ) -> Iterator[Option]:
        """Yield what would show a difference with that power, one kind at a time.

        By the normal approximation, with these variances as if they were known.
        """
        from scipy import special

        reach = float(special.ndtri((1 + CONFIDENCE) / 2) + special.ndtri(power))
        enough = (difference / reach) ** 2
        now = {
            "queries": queries,
            "judges": self.judges,
            "wordings": self.wordings,
            "repeats": self.repeats,
        }
        for name, number in now.items():
            # Of what was not measured, nobody knows what more of it would change.
            if name in ("queries", "repeats") or self._is_measured(name.removesuffix("s")):
                yield Option(name, number, self._least(name, now, enough))

    def _is_measured(self, factor: str) -> bool:
        return any(factor in TERMS.get(term, ()) for term in self.variances)

    def _least(self, name: str, now: Mapping[str, int], enough: float) -> int | None:
        """Return the least number of one kind with a variance that is small enough."""

        def variance(number: int) -> float:
            bought = {**now, name: number}
            queries = bought.pop("queries")
            other = JudgeErrors(variances=self.variances, freedom=self.freedom, **bought)
            return other.of_difference(queries)

        low = now[name]
        if variance(low) <= enough:
            return low
        if variance(_FAR) > enough:
            return None
        high = _FAR
        while high - low > 1:
            middle = (low + high) // 2
            if variance(middle) <= enough:
                high = middle
            else:
                low = middle
        return high
