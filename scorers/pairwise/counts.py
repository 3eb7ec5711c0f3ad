"""Who plays whom, and how much of it was judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from generators.base import Failure, NotApplicable, Result, Skip, Unscored
from scorers.pairwise.protocol import Aspect, Game, Judgement

_NAMES = {
    Unscored: "unread",
    NotApplicable: "not_applicable",
    Skip: "skipped",
    Failure: "failed",
}


def by_pair(
    games: Iterable[Game], baseline: str | None
) -> dict[tuple[str, str], list[Game]]:
    """Games by (first, second), told so that the baseline is always the first."""
    found: dict[tuple[str, str], list[Game]] = {}
    for game in games:
        told = game.versus(baseline)
        if (told.second, told.first) in found:
            told = told.flipped
        found.setdefault((told.first, told.second), []).append(told)
    return found


def counted(games: Sequence[Game], aspect: Aspect = "preference") -> dict[str, int]:
    """Questions, pairs of answers and replies by what became of them.

    `questions` counts one that was repeated once. `unjudged` are pairs lacking one of the
    two answers; of the judged pairs, `both_orders`, `one_order` and `no_order` tell in how
    many orders of showing the reply could be read; `read`, `unread`, `failed`, ... count
    the replies themselves.
    """
    judged = [g.judgement for g in games if g.judgement is not None]
    questions = len({g.question for g in games})
    counts = {"questions": questions, "unjudged": len(games) - len(judged)}
    counts |= dict.fromkeys(("both_orders", "one_order", "no_order", "read"), 0)
    counts |= dict.fromkeys(_NAMES.values(), 0)
    for judgement in judged:
        readings = [r for r in judgement.readings if r.aspect == aspect]
        read = sum(isinstance(r.outcome, Result) for r in readings)
        counts[("no_order", "one_order", "both_orders")[min(read, 2)]] += 1
        counts["read"] += read
        for reading in readings:
            if not isinstance(reading.outcome, Result):
                counts[_NAMES[type(reading.outcome)]] += 1
    return counts


def preferences(judgement: Judgement) -> list[int]:
    """Preference for the pair's second, from -2 to 2, per order that was read."""
    found = []
    for swapped, sign in ((False, -1), (True, 1)):
        if (verdict := judgement.verdict(swapped)) is not None:
            found.append(sign * verdict.preference)
    return found


def in_both_orders(games: Iterable[Game]) -> list[tuple[str, list[int]]]:
    """(question, preferences for the second) of the games read in both orders.

    One order alone would let the judge's liking for a position into the mean.
    """
    judged = ((g.question, g.judgement) for g in games if g.judgement is not None)
    found = [(question, preferences(j)) for question, j in judged]
    return [(question, values) for question, values in found if len(values) == 2]
