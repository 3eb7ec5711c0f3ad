"""Agreement of a judge's scores with people's: every coefficient, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scorers.statistics.bootstrap import DRAWS, estimate, weights
from scorers.statistics.coefficients import COEFFICIENTS, Coefficient, Floats
from scorers.statistics.estimate import Estimate

OTHER_SCALE = "judge and people use different scales"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One document that a judge and people have scored."""

    query: str
    """The sample's id: the unit that intervals draw again."""
    category: str
    kind: str
    """Kind of the model that wrote it: `interleaved`, `integrated`, ..."""
    judge: float
    human: float
    """Mean over the people who scored it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Every coefficient over one group of documents."""

    category: str | None
    """None for all categories."""
    kind: str | None
    """None for all kinds of models."""
    pairs: int
    queries: int
    coefficients: Mapping[str, Estimate]
    """By the names of `COEFFICIENTS`; `n` is the number of pairs."""

    def as_json(self) -> dict[str, Any]:
        """In plain form."""
        return {
            "category": self.category,
            "kind": self.kind,
            "pairs": self.pairs,
            "queries": self.queries,
            "coefficients": {n: e.as_json() for n, e in self.coefficients.items()},
        }


def agreement(
    pairs: Sequence[Pair], *, one_scale: bool = True, draws: int = DRAWS, seed: int = 0
) -> list[Agreement]:
    """Over all pairs, per kind, per category, and per category and kind.

    The coefficients are those of the MMIE paper (Tables 5, 6 and 11: cosine similarity,
    MSE, MAE, Pearson over the vectors of scores) and three of rank and class. Intervals
    draw queries again, with all systems' answers to them. Coefficients that compare
    values themselves are left out unless both use `one_scale`.
    """
    # In one order, since sums of floats and the draws of a set must not depend on it.
    ordered = sorted(pairs, key=lambda p: (p.query, p.kind, p.judge, p.human))
    queries, query = np.unique([p.query for p in ordered], return_inverse=True)
    drawn = weights(queries.tolist(), draws, seed)[:, query]
    found = []
    for category, kind in _groups(ordered):
        member = [_belongs(p, category, kind) for p in ordered]
        chosen = [p for p, kept in zip(ordered, member, strict=True) if kept]
        values = _coefficients(chosen, drawn[:, np.array(member)], one_scale)
        asked = len({p.query for p in chosen})
        found.append(
            Agreement(
                category=category,
                kind=kind,
                pairs=len(chosen),
                queries=asked,
                coefficients=values,
            )
        )
    return found


def _groups(pairs: Sequence[Pair]) -> Iterator[tuple[str | None, str | None]]:
    """Everything, then each kind, then each category and its kinds.

    Kinds are told apart only where there are several.
    """
    if not pairs:
        return
    kinds = sorted({p.kind for p in pairs})
    kinds = kinds if len(kinds) > 1 else []
    yield None, None
    yield from ((None, kind) for kind in kinds)
    for category in sorted({p.category for p in pairs}):
        yield category, None
        there = {p.kind for p in pairs if p.category == category}
        yield from ((category, kind) for kind in kinds if kind in there)


def _belongs(pair: Pair, category: str | None, kind: str | None) -> bool:
    return category in (None, pair.category) and kind in (None, pair.kind)


def _coefficients(
    pairs: Sequence[Pair], drawn: Floats, one_scale: bool
) -> dict[str, Estimate]:
    judge = np.array([p.judge for p in pairs], dtype=np.float64)
    human = np.array([p.human for p in pairs], dtype=np.float64)
    queries = len({p.query for p in pairs})

    def value(coefficient: Coefficient) -> Estimate:
        if coefficient.one_scale and not one_scale:
            return Estimate(None, None, len(pairs), OTHER_SCALE)
        found = estimated(coefficient.function, judge, human, drawn, queries)
        return replace(found, n=len(pairs))

    return {name: value(c) for name, c in COEFFICIENTS.items()}


def estimated(
    function: Callable[[Floats, Floats, Floats], Floats],
    judge: Floats,
    human: Floats,
    drawn: Floats,
    queries: int,
) -> Estimate:
    """A coefficient of the pairs as they are, with the interval of its draws."""
    plain = float(function(judge, human, np.ones((1, len(judge))))[0])
    if np.isnan(plain):
        return Estimate(None, None, queries, _undefined(judge, human))
    return estimate(plain, function(judge, human, drawn), queries)


def _undefined(judge: Floats, human: Floats) -> str:
    who = {"judge": judge, "people": human}
    flat = [name for name, values in who.items() if np.unique(values).size < 2]
    said = " and ".join(flat) or "judge or people"
    return f"undefined: {said} gave one score to all"
