"""What a pilot of `plait uncertainty` says, as numbers and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.leaderboard import headline, rank
from plait.benchmarks.results.numbers import NumberForm, estimate_of
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn
from plait.benchmarks.tasks.controls import is_reference
from plait.generators.names import unknown
from plait.scorers.base import Scorer, ends_of
from plait.scorers.statistics.components import (
    VarianceComponents,
    variance_components,
)
from plait.scorers.statistics.estimate import Estimate, Floats
from plait.scorers.statistics.judge_error import ABOUT, TERMS, JudgeErrors, Option
from plait.scorers.statistics.power import POWER

_STRONG = 40
"""Share of colour behind the largest share on the page, in percent."""
ABOUT_SHARES = (
    "Variances of single scores, as the pilot has them; intervals are those of as many "
    "judges, wordings and queries drawn anew. An estimate below 0 counts as 0."
)
ABOUT_INTERVALS = (
    "Judge fixed: the interval by query, for this judge in this wording. Judge drawn: for "
    "a judge and a wording drawn from those like the pilot's."
)
ABOUT_OPTIONS = (
    f"To see a difference of {{difference}} with power {POWER:g} at 5%, with all else as "
    "it is now, by the variances above. Errors that all systems share cancel."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class PilotResult:
    """The scores of a pilot, and what follows from them."""

    scorer: str
    board: Board
    values: Floats
    """(n,) scores, on the scale of the run's scorer."""
    factors: Mapping[str, Sequence[Any]]
    """(n,) system, query, judge and wording of each."""
    lost: Mapping[str, int]
    """Judgements without a score, by reason."""
    difference: float | None = None

    @cached_property
    def components(self) -> VarianceComponents:
        """Where the variance of the scores comes from."""
        return variance_components(self.values, self.factors, TERMS, "system")

    @cached_property
    def errors(self) -> JudgeErrors:
        """What the judge adds to a mean."""
        return JudgeErrors.of(self.components)

    @property
    def _scorer(self) -> Scorer:
        for scorer in self.board.scorers:
            if scorer.name == self.scorer:
                return scorer
        raise unknown("scorer", self.scorer, [s.name for s in self.board.scorers])

    @cached_property
    def means(self) -> dict[str, Estimate]:
        """The run's mean of each system, the best first."""
        rows = rank(self.board, self._scorer)
        average = headline(rows, self.scorer)
        means = {}
        for row in rows:
            means[row["system"]] = estimate_of(row["scores"][self.scorer][average])
        return means

    @cached_property
    def seen(self) -> float | None:
        """The difference to be made visible: that asked for, or of the two best."""
        if self.difference is not None:
            return abs(self.difference)
        known = []
        for name, mean in self.means.items():
            if mean.value is not None and not is_reference(name):
                known.append(mean.value)
        for one, other in pairwise(known):
            # No number of judgements would show a difference of 0.
            if one != other:
                return abs(one - other)
        return None

    @cached_property
    def options(self) -> list[Option]:
        """What would show that difference."""
        queries = max((mean.n for mean in self.means.values()), default=0)
        if self.seen is None or queries < 1:
            return []
        return [*self.errors.options(self.seen, queries)]

    @property
    def tables(self) -> list[ResultTable]:
        """Shares of the variance, both intervals, and what to buy."""
        shares = components_table(self.scorer, self.components)
        if self.lost:
            shares = replace(shares, notes=[*shares.notes, self._about_lost])
        tables = [shares, self._interval_table()]
        if self.options:
            tables.append(self._option_table())
        return tables

    @property
    def _about_lost(self) -> str:
        reasons = "; ".join(f"{n:,}: {reason}" for reason, n in self.lost.items())
        return f"Without a score: {sum(self.lost.values()):,} judgements ({reasons})."

    def _interval_table(self) -> ResultTable:
        form = NumberForm.of(self._scorer.scale)
        ends = ends_of(self._scorer.scale)
        rows = []
        for name, mean in self.means.items():
            row = [
                name,
                form.number(mean.value),
                form.interval(mean.ci95) or "-",
                form.interval(self.errors.interval(mean, ends)) or "-",
                f"{mean.n:,}",
            ]
            rows.append(row)
        head = ["system", "mean", "judge fixed", "judge drawn", "n"]
        columns = [TableColumn(name, numeric=name != "system") for name in head]
        title = f"{self.scorer}: means, with and without the judge's error"
        return ResultTable.of(title, columns, rows, [ABOUT_INTERVALS])

    def _option_table(self) -> ResultTable:
        rows = []
        for option in self.options:
            if option.needed is None:
                needed = "no number is enough"
            elif option.needed == option.now:
                needed = "enough"
            else:
                needed = f"{option.needed:,}"
            rows.append([option.of, f"{option.now:,}", needed])
        form = NumberForm.of(self._scorer.scale)
        about = ABOUT_OPTIONS.format(difference=form.number(self.seen))
        head: list[str | TableColumn] = ["of", *_number_columns("now", "needed")]
        return ResultTable.of("What to buy next", head, rows, [about])

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        found = self.components
        components = {}
        for term, variance in found.variances.items():
            low, high = found.intervals[term]
            components[term] = {
                "variance": round(variance, 6),
                "ci95": [round(low, 6), round(high, 6)],
                "groups": found.groups[term],
            }
        return {
            "judgements": len(self.values),
            "without_score": dict(self.lost),
            "components": components,
            "unidentified": dict(found.unidentified),
            "difference": self.seen,
            "options": [option._asdict() for option in self.options],
        }


def components_table(scorer: str, found: VarianceComponents) -> ResultTable:
    """Return each variance with its share of all, and what is not told."""
    total = found.variance(*found.variances)
    rows: list[list[str | TableCell]] = []
    for term, variance in found.variances.items():
        share = max(0.0, variance) / total if total else 0.0
        low, high = found.intervals[term]
        cell = TableCell(f"{100 * share:.1f}%", tint=round(_STRONG * share))
        interval = f"[{low:.3g}, {high:.3g}]"
        sizes = f"{found.groups[term]:,}"
        rows.append([ABOUT[term], term, cell, f"{variance:.3g}", interval, sizes])
    notes = [ABOUT_SHARES]
    for term, reason in found.unidentified.items():
        notes.append(f"Not told: {term} ({ABOUT[term]}): {reason}.")
    numbers = _number_columns("share", "variance", "95% interval", "number")
    title = f"{scorer}: where the variance of scores comes from"
    return ResultTable.of(title, ["a score depends on", "term", *numbers], rows, notes)


def _number_columns(*names: str) -> list[TableColumn]:
    return [TableColumn(name, numeric=True) for name in names]
