"""Reward, win rate and visual factuality: Creation-MMBench's numbers (paper 3.3, C.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scorers.pairwise.counts import counted, in_both_orders, preferences
from scorers.pairwise.protocol import Game
from scorers.statistics.estimate import Estimate
from scorers.statistics.means import mean_by_question

POINTS = 50
"""Reward of one level of preference."""
LEVELS = {"much_better": 2, "better": 1, "tie": 0, "worse": -1, "much_worse": -2}


def spread(games: Sequence[Game]) -> dict[str, int]:
    """Verdicts by level, from the second system's side, and replies about factuality."""
    found = Counter(_all_preferences(games))
    replies = counted(games, "factuality")
    counts = {name: found[level] for name, level in LEVELS.items()}
    return counts | {f"factuality_{n}": replies[n] for n in ("read", "unread", "failed")}


def official_rewards(games: Sequence[Game]) -> dict[str, Estimate]:
    """Means over judgements, as `merge_dual` of creation.py pools the two orders.

    Failed replies count as unread ones. A share of nothing, where the program raises
    ZeroDivisionError, has no value.
    """
    found = _all_preferences(games)
    own = [own for own, _ in _all_marks(games)]
    other = [other for _, other in _all_marks(games)]
    replies = counted(games, "factuality")
    asked = sum(2 for g in games if g.judgement is not None)
    missing = replies["unread"] + replies["failed"] + replies["skipped"]
    return {
        "reward": _share(sum(POINTS * p for p in found), len(found)),
        "win_rate": _share(100 * sum(p > 0 for p in found), len(found)),
        "preference_parse_ok": _share(len(found), asked),
        "visual_factuality": _share(sum(own), len(own)),
        "visual_factuality_of_opponent": _share(sum(other), len(other)),
        "visual_factuality_parse_ok": _share(len(own), len(own) + missing),
    }


def _share(total: float, n: int) -> Estimate:
    if n == 0:
        return Estimate(None, None, 0, "no judgement read")
    return Estimate(total / n, None, n)


def _all_preferences(games: Sequence[Game]) -> list[int]:
    return [p for g in games if g.judgement is not None for p in preferences(g.judgement)]


def _all_marks(games: Sequence[Game]) -> list[tuple[float, float]]:
    """(second's, first's) marks of every reply that was read."""
    return [pair for g in games for pair in _marks(g)]


def _marks(game: Game) -> list[tuple[float, float]]:
    if game.judgement is None:
        return []
    forward, backward = game.judgement.marks(False), game.judgement.marks(True)
    found = [(forward.second, forward.first)] if forward else []
    return found + ([(backward.first, backward.second)] if backward else [])


def corrected_rewards(games: Sequence[Game]) -> dict[str, Estimate]:
    """Means over questions read in both orders, with intervals by drawing questions.

    Where every reply can be read the values equal the official ones.
    """
    both = in_both_orders(games)
    questions = [question for question, _ in both]
    rewards = [POINTS * sum(values) / 2 for _, values in both]
    wins = [100 * sum(v > 0 for v in values) / 2 for _, values in both]
    marked = [(g.question, found) for g in games if len(found := _marks(g)) == 2]
    own = [sum(own for own, _ in found) / 2 for _, found in marked]
    gaps = [sum(own - other for own, other in found) / 2 for _, found in marked]
    of = [question for question, _ in marked]
    return {
        "reward": mean_by_question(questions, rewards),
        "win_rate": mean_by_question(questions, wins),
        "visual_factuality": mean_by_question(of, own),
        "visual_factuality_gap": mean_by_question(of, gaps),
    }
