"""Is one as good as another but for a margin? Verdicts of non-inferiority.

    margin = parse_margin("clipscore=0.5%")
    verdict_of(Estimate(-0.002, (-0.006, 0.002), 64), -0.009, "higher")     # "shown"
    wilson_share(190, 190).ci95                                 # (0.9802, 1.0)
    share_verdict(190, 190, 0.98)                               # "shown"

What is estimated is shown to be good enough where the whole 95% interval lies on the good
side of the bound. Its lower end alone is that of a one-sided 97.5% interval, so that a
system which is worse by exactly the margin passes in at most 2.5% of cases. Of several
margins that must all hold each is tested at that level, and nothing is corrected: a system
that violates any of them passes all with at most that probability (intersection-union test:
Berger 1982, Technometrics 24:295).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from plait.generators.errors import UsageError
from plait.scorers.base import Direction
from plait.scorers.statistics.estimate import CONFIDENCE, Estimate
from plait.scorers.statistics.means import WILSON
from plait.scorers.statistics.power import MOST_QUERIES, POWER, queries_needed

Verdict = Literal["shown", "not shown", "worse"]
SCORER = "scorer:"
"""Before the name of a scorer that is called as a comparison of answers."""
_RULE = "write MEASURE=VALUE, such as clipscore=0.5%, lpips=0.02 or exact=0.98"


@dataclass(frozen=True, slots=True)
class Margin:
    """How much worse is still good enough, by one measure."""

    measure: str
    """A scorer, or how two answers are compared."""
    value: float
    percent: bool = False
    """Whether `value` is in percent."""

    @property
    def scorer(self) -> str:
        """The scorer that it is of, where it is of one."""
        return self.measure.removeprefix(SCORER)

    @property
    def text(self) -> str:
        """`0.02` or `0.5%`."""
        return f"{self.value:g}{'%' if self.percent else ''}"


def parse_margin(text: str) -> Margin:
    """Return the margin that `MEASURE=VALUE` or `MEASURE=VALUE%` says; UsageError."""
    measure, equals, written = text.rpartition("=")
    number = written.strip()
    percent = number.endswith("%")
    try:
        value = float(number.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not (equals and measure.strip() and math.isfinite(value)):
        raise UsageError(f"margin {text!r} is not valid: {_RULE}")
    if value <= 0:
        raise UsageError(
            f"margin {text!r} is not valid: it must be more than 0, since no number of "
            "queries shows that two are exactly equal"
        )
    return Margin(measure.strip(), value, percent)


def verdict_of(estimate: Estimate, bound: float, better: Direction) -> Verdict:
    """Return whether `estimate` is shown to be better than `bound`.

    `better` says which values are. `worse` where the whole interval is on the other side;
    without an interval nothing is shown.
    """
    if estimate.ci95 is None:
        return "not shown"
    low, high = estimate.ci95
    if better == "lower":
        low, high = -high, -low
        bound = -bound
    if low > bound:
        return "shown"
    return "worse" if high < bound else "not shown"


def more_queries(estimate: Estimate, bound: float, sd: float) -> int | None:
    """Return how many more queries decide, at power 0.8, if the estimate is the truth.

    `sd` is the standard deviation over queries. None where no number would, or over
    `MOST_QUERIES`, and where too little is seen for an interval.
    """
    if estimate.value is None or estimate.ci95 is None:
        return None
    needed = queries_needed(estimate.value - bound, sd)
    return None if needed is None else max(1, needed - estimate.n)


def wilson_share(count: int, n: int) -> Estimate:
    """Return the share `count` of `n` with Wilson's interval, which 0 and 1 have too.

    Wilson 1927, Journal of the American Statistical Association 22:209.
    """
    if not n:
        return Estimate(None, None, 0, "nothing to compare")
    z = _normal((1 + CONFIDENCE) / 2)
    share = count / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    root = math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    half = z * root / (1 + z**2 / n)
    # The ends of these two are exact, but for rounding.
    low = 0.0 if count == 0 else centre - half
    high = 1.0 if count == n else centre + half
    return Estimate(share, (low, high), n, "", WILSON)


def share_verdict(count: int, n: int, least: float) -> Verdict:
    """Return whether the share of which `count` of `n` are is shown to be above `least`.

    By Wilson's interval and by the exact binomial test at 2.5%: of shares below 0.98 the
    interval alone passes up to 4% of those that are just `least`.
    """
    from scipy import special

    verdict = verdict_of(wilson_share(count, n), least, "higher")
    if verdict == "shown":
        # Of so many or more equal ones, where the share is `least`.
        chance = float(special.bdtrc(count - 1, n, least))
        return "shown" if chance <= (1 - CONFIDENCE) / 2 else "not shown"
    return verdict


def more_for_share(estimate: Estimate, least: float) -> int | None:
    """Return how many more queries decide whether a share is above `least`.

    At power 0.8, if the estimate is the truth, by the normal approximation: the distance
    from `least` is z standard errors of a share of `least` and those of the estimate that
    the power takes. Of a share of 1 it is the number that shows it. None where no number
    would, or over `MOST_QUERIES`.
    """
    share = estimate.value
    if share is None or share == least:
        return None
    reach = _normal((1 + CONFIDENCE) / 2) * math.sqrt(least * (1 - least))
    reach += _normal(POWER) * math.sqrt(share * (1 - share))
    needed = math.floor((reach / (share - least)) ** 2) + 1
    if share == 1.0:
        exact = math.log((1 - CONFIDENCE) / 2) / math.log(least)
        needed = max(needed, math.ceil(exact))
    return max(1, needed - estimate.n) if needed <= MOST_QUERIES else None


def _normal(probability: float) -> float:
    from scipy import special

    return float(special.ndtri(probability))
