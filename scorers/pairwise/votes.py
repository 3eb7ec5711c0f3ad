"""MLLM-Bench's votes of two orders merged into one result per question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scorers.pairwise.protocol import Game, Judgement
from scorers.pairwise.readers import SITUATION_ONE, SITUATION_TWO
from scorers.statistics.estimate import Estimate
from scorers.statistics.means import mean_by_question

FIRST, SECOND, TIE = "first", "second", "tie"
UNDECIDED = "unable to decide"
DRAWN = (SITUATION_ONE, SITUATION_TWO, UNDECIDED, TIE)
"""Results for neither system."""


def merged(judgement: Judgement) -> str | None:
    """The result of two votes (`parse_output` of scripts/evaluate.py); None without both.

    Equal votes stand; one for a system and one undecided are for the system; one for each
    system is a tie; the two undecided situations are plainly undecided.
    """
    votes = {_voted(judgement, swapped) for swapped in (False, True)}
    if None in votes:
        return None
    sides = votes & {FIRST, SECOND}
    if len(sides) == 2:
        return TIE
    found = sides or votes
    return found.pop() if len(found) == 1 else UNDECIDED


def _voted(judgement: Judgement, swapped: bool) -> str | None:
    verdict = judgement.verdict(swapped)
    if verdict is None:
        return None
    if verdict.preference == 0:
        return SITUATION_ONE if verdict.said == SITUATION_ONE else SITUATION_TWO
    return SECOND if (verdict.preference > 0) == swapped else FIRST


def results(games: Sequence[Game]) -> list[tuple[str, str]]:
    """(question, result) of the games with two votes."""
    judged = [(g.question, merged(g.judgement)) for g in games if g.judgement is not None]
    return [(question, result) for question, result in judged if result is not None]


def tally(games: Sequence[Game]) -> dict[str, int]:
    """Results by class: for the second system, for the first, and the others."""
    found = Counter(result for _, result in results(games))
    counts = {"win": found[SECOND], "lose": found[FIRST]}
    return counts | {name: found[name] for name in DRAWN}


def official_shares(games: Sequence[Game]) -> dict[str, Estimate]:
    """Shares of wins, ties with all that is undecided, and losses, in percent."""
    found = results(games)
    n, count = len(found), Counter(result for _, result in found)
    if n == 0:
        return dict.fromkeys(
            ("win_rate", "tie_rate", "lose_rate"),
            Estimate(None, None, 0, "no two votes read"),
        )
    ties = n - count[FIRST] - count[SECOND]
    shares = {"win_rate": count[SECOND], "tie_rate": ties, "lose_rate": count[FIRST]}
    return {name: Estimate(100 * k / n, None, n) for name, k in shares.items()}


def corrected_shares(games: Sequence[Game]) -> dict[str, Estimate]:
    """The same with intervals, and `score`: wins and half of the ties."""
    found = results(games)
    questions = [question for question, _ in found]
    wins = [100.0 * (r == SECOND) for _, r in found]
    losses = [100.0 * (r == FIRST) for _, r in found]
    ties = [100.0 - w - x for w, x in zip(wins, losses, strict=True)]
    series = {"win_rate": wins, "tie_rate": ties, "lose_rate": losses}
    series["score"] = [w + t / 2 for w, t in zip(wins, ties, strict=True)]
    return {name: mean_by_question(questions, s) for name, s in series.items()}
