"""What the choice of judge decides: one order of the systems by each judge of one kind.

    for panel in panels_of(board):
        panel.kind, panel.rankings.taus, panel.reversals

Judges of one kind are scorers that ask models the same in the same way (`judge:A` and
`judge:B`). They are compared on the answers that all of them have a score of, so that no
difference comes from what one of them could not judge.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import (
    Comparison,
    about_correction,
    compare_systems,
    comparisons,
    p_text,
    ranges_of_ranks,
    round_p,
)
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.rankings import (
    Rankings,
    Series,
    averages_of,
    table_between,
)
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn, json_text
from plait.benchmarks.tasks.controls import is_reference
from plait.benchmarks.wording import quantity
from plait.generators.buckets import AnyPath
from plait.generators.catalogue import Named, by_prefix
from plait.generators.files import write_whole
from plait.scorers.base import Scorer
from plait.scorers.statistics.estimate import Floats
from plait.scorers.turn_names import name_of_turn_scorer

FILE = "judges.json"
"""The same as plain data, in a run directory."""
_MOST_PAIRS = 40
"""Pairs of systems in a table; the file has all."""
BOTH = "both orders shown"
ONE = "one order shown"
NEITHER = "no order shown"


class Order(NamedTuple):
    """How one judge orders two systems."""

    judge: str
    better: str
    """Of the two; empty where their averages are equal."""
    p: float | None
    """Corrected, of their paired difference; None where there is none."""
    shown: bool
    """Whether the paired comparison shows it."""


@dataclass(frozen=True, slots=True)
class Reversal:
    """Two systems that judges order differently."""

    a: str
    b: str
    orders: tuple[Order, ...]
    """By judge."""

    @property
    def verdict(self) -> str:
        """Whether judges show both orders, one or none: what the choice of one decides."""
        # Of two systems at most two can be shown to be the better one.
        shown = {order.better for order in self.orders if order.shown}
        return (NEITHER, ONE, BOTH)[len(shown)]


@dataclass(frozen=True, eq=False)
class JudgePanel:
    """Judges of one kind on the answers of one run."""

    kind: str
    """Their names without the model: `judge`, `specifications`, `turns:judge`."""
    board: Board
    scorers: Sequence[Scorer]

    @cached_property
    def _common(self) -> Floats:
        """(judges, queries, systems) values of the answers that all have a score of."""
        values = np.stack([self.board.values[judge] for judge in self.judges])
        # Else two judges could differ merely because one of them failed on hard answers.
        lacking = np.isnan(values).any(axis=0)
        values[:, lacking] = np.nan
        return values

    @cached_property
    def _drawn(self) -> list[Floats]:
        """By judge, the average of each system, by fixed weights where one has such."""
        # Every judge has the same values, so that all are drawn at once.
        columns = np.concatenate([*self._common], axis=1)
        drawn = averages_of(self.board, columns, fixed=self._has_fixed)
        return np.split(drawn, len(self.scorers), axis=1)

    @property
    def _has_fixed(self) -> bool:
        """Whether some system has a value in every category that has any."""
        # All judges have the same NaN, so the first stands for all.
        has_score = ~np.isnan(self._common[0])
        everywhere = np.ones(has_score.shape[1], np.bool_)
        any_category = False
        for category in self.board.categories:
            rows = self.board.rows_of(self.board.groups_of_category(category))
            in_category = has_score[rows].any(axis=0)
            if in_category.any():
                any_category = True
                everywhere &= in_category
        return any_category and bool(everywhere.any())

    @cached_property
    def _places(self) -> list[int]:
        """The columns of systems with an average by every judge; references have none."""
        places = []
        for i, system in enumerate(self.board.systems):
            averages = [drawn[0, i] for drawn in self._drawn]
            if np.isfinite(averages).all() and not is_reference(system.name):
                places.append(i)
        return places

    @property
    def systems(self) -> list[str]:
        """Those that every judge has an average of."""
        return [self.board.systems[i].name for i in self._places]

    @property
    def judges(self) -> list[str]:
        """Their names."""
        return [scorer.name for scorer in self.scorers]

    @cached_property
    def answers(self) -> int:
        """Queries on which some system's answer is scored by all of them."""
        return int((~np.isnan(self._common[0])).any(axis=1).sum())

    @cached_property
    def rankings(self) -> Rankings:
        """The ranks by each judge, and how far they agree."""
        series = []
        for scorer, drawn in zip(self.scorers, self._drawn, strict=True):
            own = drawn[:, self._places]
            series.append(Series(scorer.name, scorer.direction, self.answers, own))
        return Rankings(self.systems, series)

    @cached_property
    def compared(self) -> list[list[Comparison]]:
        """By judge, every two systems on the answers that all judges scored."""
        if self._is_whole:
            # The board has compared these very answers.
            every = comparisons(self.board)
            systems = {*self.systems}
            return [_among(systems, every[judge]) for judge in self.judges]
        found = []
        for scorer, values in zip(self.scorers, self._common, strict=True):
            own = values[:, self._places]
            found.append(compare_systems(scorer, self.systems, own, self.board.correction))
        return found

    @property
    def _is_whole(self) -> bool:
        """Whether all judges scored the same answers, and no system is left out."""
        lacking = np.isnan(self._common[0])
        for judge in self.judges:
            if not np.array_equal(np.isnan(self.board.values[judge]), lacking):
                return False
        return not self._systems_without_average()

    @cached_property
    def ranges(self) -> list[dict[str, tuple[int, int]]]:
        """By judge, the best and worst rank of each system: all of a judge hold at once."""
        ranges = []
        for ranks, compared in zip(self.rankings.ranks, self.compared, strict=True):
            places = {name: rank.value or 0.0 for name, rank in ranks.items()}
            ranges.append(ranges_of_ranks(places, compared))
        return ranges

    @cached_property
    def reversals(self) -> list[Reversal]:
        """Pairs of systems that judges order differently; first those shown both ways."""
        found = []
        # Comparisons come in the order of these pairs.
        for place, (a, b) in enumerate(combinations(self.systems, 2)):
            orders = []
            for i, judge in enumerate(self.judges):
                ranks = self.rankings.ranks[i]
                better = _better(a, b, ranks[a].value, ranks[b].value)
                one = self.compared[i][place]
                shown = one.better is not None and one.better[0] == better
                orders.append(Order(judge, better, one.adjusted, shown))
            if {a, b} <= {order.better for order in orders}:
                found.append(Reversal(a, b, tuple(orders)))
        rank = (BOTH, ONE, NEITHER).index
        return sorted(found, key=lambda reversal: rank(reversal.verdict))

    def tables(self) -> Iterator[ResultTable]:
        """Yield ranks by judge, agreement, and the pairs that judges order differently."""
        yield self._rank_table()
        systems = quantity(len(self.systems), "system")
        title = f"Agreement of judges (Kendall's tau) over {systems}"
        yield table_between(title, self.judges, self.rankings.taus)
        if self.reversals:
            yield self._reversal_table()

    def _rank_table(self) -> ResultTable:
        """Return a row for each system, that of the best mean rank first."""
        mean_ranks = self.rankings.mean_ranks
        rows = []
        for name in self.rankings.by_mean_rank():
            row = [TableCell(name), TableCell.of(mean_ranks[name], NumberForm(1))]
            for ranks, ranges in zip(self.rankings.ranks, self.ranges, strict=True):
                low, high = ranges[name]
                value = ranks[name].value
                row.append(TableCell(f"{value:g}", f"[{low}, {high}]"))
            rows.append(row)
        columns = [TableColumn(name, numeric=True) for name in ("mean rank", *self.judges)]
        about = about_correction(self.board.correction, self.systems)
        notes = [
            "Of the answers that every judge has a score of, on "
            f"{self.answers:,} of {len(self.board.keys):,} queries; 1 is the best. Behind "
            f"a rank stand the ranks that the judge leaves open: {about}. The interval of "
            "a mean rank is by query."
        ]
        if left := self._systems_without_average():
            notes.append(f"Without an average by every judge: {', '.join(left)}.")
        return ResultTable.of(
            f"Ranks by judge ({self.kind})", ["system", *columns], rows, notes
        )

    def _systems_without_average(self) -> list[str]:
        """Return the systems that some judge has no average of; references are none."""
        compared = {*self.systems}
        names = []
        for system in self.board.systems:
            if system.name not in compared and not is_reference(system.name):
                names.append(system.name)
        return names

    def _reversal_table(self) -> ResultTable:
        """Return a row for each pair that judges order differently, up to `_MOST_PAIRS`."""
        lines: list[list[TableCell]] = []
        for reversal in self.reversals[:_MOST_PAIRS]:
            line = [TableCell(reversal.a), TableCell(reversal.b)]
            for order in reversal.orders:
                text = order.better or "equal"
                # Of a small p the text begins with `<`, which takes the place of `=`.
                p = f"p={p_text(order.p)}".replace("=<", "<")
                detail = f"shown, {p}" if order.shown else p
                line.append(TableCell(text, detail, marked=order.shown))
            lines.append([*line, TableCell(reversal.verdict)])
        pairs = math.comb(len(self.systems), 2)
        counts = Counter(reversal.verdict for reversal in self.reversals)
        verdicts = ", ".join(f"{name} {counts[name]:,}" for name in (BOTH, ONE, NEITHER))
        notes = [
            f"Judges order {len(self.reversals):,} of {pairs:,} pairs of systems "
            f"differently ({verdicts}). Under each judge stands the better system, and "
            "whether its own paired comparison shows that, corrected for all pairs. "
            "Where both orders are shown, the choice of judge decides which is better; "
            "elsewhere one of the judges, or neither, tells them apart."
        ]
        if len(self.reversals) > _MOST_PAIRS:
            notes.append(f"The first {_MOST_PAIRS}; {FILE} has all.")
        head = ["a", "b", *self.judges, "shown"]
        title = f"Pairs that judges order differently ({self.kind})"
        return ResultTable.of(title, head, lines, notes, numeric=False)

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        ranks: dict[str, dict[str, Any]] = {}
        for i, judge in enumerate(self.judges):
            ranks[judge] = {}
            for name, range95 in self.ranges[i].items():
                value = self.rankings.ranks[i][name].value
                ranks[judge][name] = {"value": value, "range95": [*range95]}
        mean_ranks = {}
        for name, rank in self.rankings.mean_ranks.items():
            mean_ranks[name] = rank.as_json("rank")
        taus = []
        for (i, j), tau in self.rankings.taus.items():
            taus.append({"judges": [self.judges[i], self.judges[j]], **tau.as_json("tau")})
        return {
            "kind": self.kind,
            "judges": self.judges,
            "systems": self.systems,
            "n": self.answers,
            "correction": self.board.correction,
            "ranks": ranks,
            "mean_ranks": mean_ranks,
            "taus": taus,
            "reversals": [*map(_plain, self.reversals)],
        }


def _among(systems: Container[str], compared: Iterable[Comparison]) -> list[Comparison]:
    """Return the comparisons of which both systems are among `systems`."""
    return [one for one in compared if one.a in systems and one.b in systems]


def _plain(reversal: Reversal) -> dict[str, Any]:
    orders = {}
    for order in reversal.orders:
        plain = {"better": order.better, "p_adjusted": round_p(order.p)}
        orders[order.judge] = plain | {"shown": order.shown}
    named = {"a": reversal.a, "b": reversal.b, "verdict": reversal.verdict}
    return named | {"orders": orders}


def _better(a: str, b: str, first: float | None, second: float | None) -> str:
    """Return which has the lower rank; empty where they share one."""
    if first is None or second is None or first == second:
        return ""
    return a if first < second else b


@lru_cache(maxsize=2)
def panels_of(board: Board) -> list[JudgePanel]:
    """Return the judges of each kind that has two or more, where they order systems.

    A kind whose judges have no two systems in common is left out.
    """
    kinds: dict[str, list[Scorer]] = {}
    for scorer in board.scorers:
        kind = _kind_of_judge(scorer.name)
        if kind is not None and not scorer.of_sets:
            kinds.setdefault(kind, []).append(scorer)
    panels = []
    for kind, scorers in kinds.items():
        if len(scorers) > 1:
            panel = JudgePanel(kind, board, scorers)
            if len(panel.systems) > 1:
                panels.append(panel)
    return panels


def _kind_of_judge(name: str) -> str | None:
    """Return the name of a scorer without its model; None where it asks no model.

    That of `turns:judge:A` is `turns:judge`: all that is left out is the model.
    """
    inner = name_of_turn_scorer(name)
    prefix, colon, _ = inner.partition(":")
    entry = by_prefix(Named.SCORER).get(prefix)
    if not colon or entry is None or not entry.asks:
        return None
    return name.removesuffix(inner) + prefix


def write_judges(board: Board, root: AnyPath) -> None:
    """Write what the choice of judge decides; nothing without two judges of one kind."""
    if panels := panels_of(board):
        write_whole(root / FILE, json_text([panel.as_json() for panel in panels]))
