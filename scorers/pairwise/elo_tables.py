"""MLLM-Bench's Elo ratings over all pairs of systems (scripts/cal_clo.py@403f82c9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scorers.pairwise.protocol import Game
from scorers.pairwise.table import Row
from scorers.pairwise.votes import FIRST, SECOND, TIE, results, tally
from scorers.statistics.battles import Battle
from scorers.statistics.bradley_terry import bradley_terry
from scorers.statistics.elo import online_elo
from scorers.statistics.estimate import Estimate

K = 4
ROUNDS = 1000
SEED = 42

Played = Mapping[tuple[str, str], Sequence[Game]]


def official_elo(played: Played, baseline: str | None, draws: int) -> list[Row]:
    """Online Elo over counts of merged votes, and the median of 1000 resamplings.

    The pairs are taken in the order given, where the program takes files in the order of
    the folder's listing: the ratings depend on it. Every count enters twice, once from
    either side, and undecided votes enter not at all. Resampled are the counts, not the
    votes. Both numbers are rounded half up as printed.
    """
    battles = [b for pair, games in played.items() for b in counted_battles(pair, games)]
    online, medians = online_elo(battles, K), _medians(battles)
    rows = []
    for system, rating in sorted(online.items(), key=lambda item: -item[1]):
        # Every vote stands in two battles.
        votes = round(sum(b.weight for b in battles if system in (b.first, b.second)) / 2)
        median = medians.get(system)
        values = {"elo": _printed(rating, votes), "elo_median": _printed(median, votes)}
        rows.append(Row(system=system, values=values))
    return rows


def counted_battles(pair: tuple[str, str], games: Sequence[Game]) -> list[Battle]:
    """The rows that `parse_json_files` makes of one pair's counts, in its order.

    The second system comes first, as in the program's files of counts: these name the
    sides of the last reply, which is one with the answers swapped.
    """
    first, second = pair
    count = tally(games)
    wins = {second: count["win"], first: count["lose"]}
    rows: list[Battle] = []
    for a, b in ((second, first), (first, second)):
        for score, weight in ((1.0, wins[a]), (0.0, wins[b]), (0.5, count[TIE])):
            battle = Battle(question="", first=a, second=b, score=score, weight=weight)
            rows += [battle] if weight else []
    return rows


def _medians(battles: Sequence[Battle]) -> dict[str, float]:
    """Median of each system's rating over the rounds in which it was drawn."""
    random, n = np.random.RandomState(SEED), len(battles)
    drawn: dict[str, list[float]] = {}
    for _ in range(ROUNDS if n else 0):
        chosen = random.choice(n, size=n, replace=True)
        for system, rating in online_elo([battles[i] for i in chosen], K).items():
            drawn.setdefault(system, []).append(rating)
    return {system: float(np.median(ratings)) for system, ratings in drawn.items()}


def _printed(rating: float | None, votes: int) -> Estimate:
    if rating is None:
        return Estimate(None, None, 0, "never drawn")
    return Estimate(float(int(rating + 0.5)), None, votes)


def corrected_elo(played: Played, baseline: str | None, draws: int) -> list[Row]:
    """Bradley-Terry ratings of merged results on the Elo scale, the anchor at 1000.

    Every question counts once; ties and everything undecided are half a win of either
    side. Without a baseline the first system by name is the anchor.
    """
    battles = [
        Battle(
            question=question, first=first, second=second, score=_SCORES.get(result, 0.5)
        )
        for (first, second), games in played.items()
        for question, result in results(games)
    ]
    names = sorted({name for pair in played for name in pair})
    if not names:
        return []
    anchor = baseline if baseline in names else names[0]
    rated = bradley_terry(battles, anchor, order=False, draws=draws).systems
    unplayed = Estimate(None, None, 0, "no game read")
    found = {name: rated.get(name, unplayed) for name in names}
    return [
        Row(system=name, values={"elo": found[name]})
        for name in sorted(names, key=lambda n: (-_value(found[n]), n))
    ]


_SCORES = {FIRST: 1.0, SECOND: 0.0}


def _value(estimate: Estimate) -> float:
    return float("-inf") if estimate.value is None else estimate.value
