"""Does a judge rank the ground truth above answers that are worse by construction?

For every scorer of a board and every control on it (`plait.benchmarks.tasks.controls`),
both means and their paired difference over the queries scored on both, with intervals by
query. A scorer that does not read the question cannot rank the ground truth above
`gt:other-answer`, and one that scores only images or only text is blind to the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.tasks.controls import TRUTH, is_control
from plait.scorers.base import bounds, ends_of
from plait.scorers.statistics.estimate import CONFIDENCE, Estimate, Floats
from plait.scorers.statistics.means import mean, of_differences

EQUAL = 1e-9
"""Part of the scale below which two scores are the same score, rounded otherwise."""
Order = Literal["right", "wrong", "undecided", "blind", "not scored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCheck:
    """One scorer's results for the ground truth and for one control."""

    scorer: str
    scale: str
    control: str
    truth: Estimate
    """Mean of the ground truth over the queries that have both scores."""
    made: Estimate
    """Mean of the control over the same queries."""
    difference: Estimate
    """Mean of ground truth less control."""
    above: int
    """Queries on which the ground truth scores higher."""
    below: int

    @property
    def order(self) -> Order:
        """Whether the ground truth ranks above the control, as it should.

        `right` and `wrong` where the whole interval of the difference is on one side of
        0 or, where the differences support no interval (all are equal), where the exact
        sign test rejects equality at 5%; `blind` where the two score the same on every
        query, as from a scorer that ignores what the control changes.
        """
        if self.difference.value is None:
            return "not scored"
        if not self.above and not self.below:
            return "blind"
        if self.difference.ci95 is None:
            from scipy.stats import binomtest

            sure = binomtest(self.above, self.above + self.below).pvalue < 1 - CONFIDENCE
            if not sure:
                return "undecided"
            return "right" if self.above > self.below else "wrong"
        low, high = self.difference.ci95
        if low > 0:
            return "right"
        return "wrong" if high < 0 else "undecided"


def checks(board: Board) -> list[ControlCheck]:
    """Return a check for each scorer and control; none without a ground truth."""
    names = board.system_names
    if TRUTH not in names:
        return []
    found = []
    for scorer in board.scorers:
        by_system = dict(zip(names, board.values[scorer.name].T, strict=True))
        truth = by_system[TRUTH]
        for name in filter(is_control, names):
            made = by_system[name]
            found.append(compare_values(scorer.name, scorer.scale, name, truth, made))
    return found


def compare_values(
    scorer: str, scale: str, name: str, truth: Floats, made: Floats
) -> ControlCheck:
    """Compare one scorer's values of a better answer and of a worse one.

    Both are (queries,), NaN for a query without a score.
    """
    difference = _difference(truth, made, scale)
    ends = ends_of(scale)
    both = np.flatnonzero(~np.isnan(difference)).tolist()
    return ControlCheck(
        scorer=scorer,
        scale=scale,
        control=name,
        truth=mean(truth[both], ends),
        made=mean(made[both], ends),
        difference=mean(difference[both], of_differences(ends)),
        above=int((difference[both] > 0).sum()),
        below=int((difference[both] < 0).sum()),
    )


def _difference(truth: Floats, made: Floats, scale: str) -> Floats:
    """`truth - made`, 0 where sums of the same numbers in another order may differ so."""
    ends = bounds(scale)
    sizes = np.maximum(np.abs(truth), np.abs(made))
    size = ends[1] - ends[0] if ends else np.nanmax(sizes, initial=0.0)
    with np.errstate(over="ignore"):
        difference = truth - made
    return np.where(np.abs(difference) < EQUAL * size, 0.0, difference)
