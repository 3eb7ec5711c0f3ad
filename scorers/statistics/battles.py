"""Judged games as battles: the Elo scale, online Elo, and the matrix of a regression.

Online Elo depends on the order of the games.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from scorers.statistics.estimate import Floats

SCALE = 400.0
INITIAL = 1000.0
POINTS = SCALE / math.log(10)
"""Elo points of one natural-log unit of Bradley-Terry strength."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battle:
    """A game on one question; everything is seen from the side of `first`."""

    question: str
    first: str
    second: str
    score: float
    """Of `first`: 1 for a win, 0 for a loss, 0.5 for a tie."""
    weight: float = 1.0
    order: int = 0
    """1 where `first` was shown first to the judge, -1 where second, 0 unknown."""
    style: tuple[float, ...] = ()
    """Style differences, `first` minus `second`."""

    @property
    def flipped(self) -> "Battle":
        """The same game seen from the other side."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            score=1.0 - self.score,
            order=-self.order,
            style=tuple(-d for d in self.style),
        )

    @property
    def upright(self) -> "Battle":
        """The game seen from the side whose name sorts first."""
        return self if self.first <= self.second else self.flipped


def expected(rating: float, other: float) -> float:
    """Expected score of a system against another, 1 / (1 + 10^((other-rating)/400)).

    ProBench section 2 prints the exponent with the opposite sign, which would favour the
    lower rating; its program and MLLM-Bench's have it as here.
    """
    return float(1 / (1 + 10 ** ((other - rating) / SCALE)))


def online_elo(
    battles: Iterable[Battle], k: float, initial: float = INITIAL
) -> dict[str, float]:
    """Ratings after updating through `battles` in the order given.

    A battle of weight w moves both ratings by k * w * (score - expected) at once, as
    MLLM-Bench's scripts/cal_clo.py@403f82c9 does with its counts of votes.
    """
    ratings: dict[str, float] = {}
    for b in battles:
        first = ratings.setdefault(b.first, initial)
        second = ratings.setdefault(b.second, initial)
        step = k * b.weight
        ratings[b.first] = first + step * (b.score - expected(first, second))
        ratings[b.second] = second + step * (1 - b.score - expected(second, first))
    return ratings


ORDER = "order"


@dataclass(frozen=True, eq=False)
class BattleMatrix:
    """Columns: one per system but the anchor, the order of showing, style differences."""

    systems: tuple[str, ...]
    """Those with a column: connected to the anchor by battles."""
    anchor: str
    unconnected: tuple[str, ...]
    """No chain of battles leads from the anchor to these, so nothing compares them."""
    effects: tuple[str, ...]
    """Names of the columns after the systems'."""
    dropped: tuple[str, ...]
    """Columns that vary with nothing, or only together with columns before them."""
    x: Floats
    """(battles, columns)"""
    score: Floats
    weight: Floats
    question: npt.NDArray[np.int64]
    """Index into `questions`, per battle."""
    questions: tuple[str, ...]


def battle_matrix(
    battles: Sequence[Battle],
    anchor: str,
    style_names: Sequence[str] = (),
    *,
    order: bool = True,
    keep_anchor: bool = False,
) -> BattleMatrix:
    """The regression's matrix; battles out of reach of the anchor are left out.

    Style differences are divided by their root mean square and not centred: a centred
    column is an intercept in disguise, whose sign depends on which system of a pair is
    written first. Battles are sorted, so that sums do not depend on their order.
    """
    upright = sorted((b.upright for b in battles if b.first != b.second), key=_sorting)
    reached = _reached(upright, anchor)
    connected = [b for b in upright if b.first in reached]
    systems = tuple(sorted(s for s in reached if keep_anchor or s != anchor))
    questions = tuple(sorted({b.question for b in connected}))
    place = {q: i for i, q in enumerate(questions)}
    strengths = _strengths(connected, systems)
    names, columns = _effects(connected, style_names, order)
    x, effects = _independent(strengths, names, columns, shift=keep_anchor)
    everyone = {s for b in battles for s in (b.first, b.second)}
    return BattleMatrix(
        systems=systems,
        anchor=anchor,
        unconnected=tuple(sorted(everyone - reached)),
        effects=effects,
        dropped=tuple(n for n in names if n not in effects),
        x=x,
        score=np.array([b.score for b in connected]),
        weight=np.array([b.weight for b in connected]),
        question=np.array([place[b.question] for b in connected], dtype=np.int64),
        questions=questions,
    )


def _sorting(battle: Battle) -> tuple[object, ...]:
    b = battle
    return (b.question, b.first, b.second, b.order, b.score, b.weight, b.style)


def _reached(battles: Sequence[Battle], anchor: str) -> set[str]:
    """The anchor and everyone a chain of battles leads to."""
    reached, grew = {anchor}, True
    while grew:
        more = {
            s for b in battles for s in (b.first, b.second) if {b.first, b.second} & reached
        }
        grew = not more <= reached
        reached |= more
    return reached


def _strengths(battles: Sequence[Battle], systems: tuple[str, ...]) -> Floats:
    column = {s: i for i, s in enumerate(systems)}
    x = np.zeros((len(battles), len(systems)))
    for row, battle in zip(x, battles, strict=True):
        for system, sign in ((battle.first, 1.0), (battle.second, -1.0)):
            if system in column:
                row[column[system]] += sign
    return x


def _effects(
    battles: Sequence[Battle], style_names: Sequence[str], order: bool
) -> tuple[list[str], list[Floats]]:
    names = [ORDER] if order else []
    columns = [np.array([float(b.order) for b in battles])] if order else []
    for i, name in enumerate(style_names):
        column = np.array([b.style[i] for b in battles])
        size = float(np.sqrt(np.mean(column**2))) if len(column) else 0.0
        names.append(name)
        columns.append(column / size if size > 0 else column)
    return names, columns


def _independent(
    x: Floats, names: Sequence[str], columns: Sequence[Floats], shift: bool
) -> tuple[Floats, tuple[str, ...]]:
    """`x` with those further columns that are independent of the ones before."""
    independent: list[str] = []
    rank = x.shape[1] - int(shift)  # With the anchor's column, all may move together.
    for name, column in zip(names, columns, strict=True):
        wider = np.column_stack([x, column])
        if len(column) and np.linalg.matrix_rank(wider) == rank + len(independent) + 1:
            x = wider
            independent.append(name)
    return x, tuple(independent)
