"""MLLM-Bench: votes by criteria of each query, merged over both orders, and Elo ratings.

Constants after scripts/{prompts,arrange_data_for_eval,evaluate,cal_clo}.py of
FreedomIntelligence/MLLM-Bench@403f82c9; the published tables count wins, ties and losses
against an anchor on each level of capability, with every undecided class among the ties
(paper section 5.1, Table 5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np

from plait.generators.buckets import AnyPath
from plait.generators.content import fill, join_texts
from plait.generators.document import Document, Query, Turn
from plait.generators.released import file_in, read_published
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise.games import (
    Aspect,
    Game,
    GamesByPair,
    Judgement,
    PairStanding,
    ParsedReply,
    plain_mean,
    rank,
)
from plait.scorers.pairwise.prompts import OWN, as_content, whole
from plait.scorers.pairwise.protocol import Pairwise
from plait.scorers.pairwise.readers import SITUATION_ONE, SITUATION_TWO, official_vote, vote
from plait.scorers.statistics.estimate import DRAWS, Estimate
from plait.scorers.statistics.means import PERCENT, mean_by_question
from plait.scorers.statistics.ratings import Battle, bradley_terry, online_elo

QUESTION_TYPE = "question_type"
"""Metadata of a query: `open-ended`, `close-ended` or `compound`."""

_DIGESTS = OWN["released"]["mllm-bench"]


@dataclass(frozen=True, slots=True)
class MllmBenchWording:
    """The prompt, and what is added to it for a query with criteria."""

    vote: str
    criteria: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MllmBench(Pairwise):
    """The protocol. Official mode counts merged votes; corrected mode fits ratings."""

    mode: Mode = "corrected"
    wording: MllmBenchWording = MllmBenchWording(**OWN["mllm-bench"])
    draws: int = DRAWS
    name: str = "mllm-bench"
    FORM: ClassVar[str] = "vote"
    OFFICIAL_ATTEMPTS: ClassVar[int] = 3
    """Rounds: `--max_retry` of scripts/evaluate.py."""

    @classmethod
    def wording_in(cls, path: AnyPath) -> MllmBenchWording:
        """The prompts of the user's copy of `prompts.py`; UsageError unless published."""
        file = file_in(path, "scripts/prompts.py")
        role, template, reference = read_published(file, _DIGESTS).values()
        # As the program: the role is not a template, and no line break precedes criteria.
        escaped = role.replace("{", "{{").replace("}", "}}")
        return MllmBenchWording(escaped + template + "{criteria}", reference)

    def turns(
        self, aspect: Aspect, query: Query, first: Document, second: Document
    ) -> tuple[Turn, ...]:
        """Images come after all text officially, else where the question has them."""
        question, after = self.question(query)
        reference = {"reference": as_content(query.criteria or "")}
        criteria = fill(self.wording.criteria, reference) if query.criteria else ()
        kind = as_content(query.metadata.get(QUESTION_TYPE, "open-ended"))
        one = whole(first)
        other = whole(second)
        fields = {"question": question, "criteria": criteria}
        # The user's copy of the released prompt names the last three otherwise than ours.
        fields |= {"type": kind, "first": one, "second": other}
        fields |= {"question_type": kind, "answer1": one, "answer2": other}
        return (Turn("user", join_texts((*fill(self.wording.vote, fields), *after))),)

    def repeats_after(self, reply: str) -> bool:
        """Always: the question is asked again until the reply is a vote."""
        return True

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """Return one of the four votes."""
        return official_vote(reply) if self.mode == "official" else vote(reply)

    def values(self, games: Sequence[Game]) -> dict[str, Estimate]:
        """Return shares of wins, ties with all that is undecided, and losses, in percent.

        In corrected mode with intervals, and `score`: wins and half of the ties.
        """
        questions = []
        wins = []
        ties = []
        losses = []
        scores = []
        for question, result in results(games):
            won = 100.0 * (result == SECOND)
            tied = 100.0 * (result in NEITHER)
            questions.append(question)
            wins.append(won)
            ties.append(tied)
            losses.append(100.0 * (result == FIRST))
            scores.append(won + tied / 2)
        shares = {"win_rate": wins, "tie_rate": ties, "lose_rate": losses}
        values = {}
        if self.mode == "official":
            for name, own in shares.items():
                values[name] = plain_mean(own, "no two votes read")
            return values
        for name, own in (shares | {"score": scores}).items():
            values[name] = mean_by_question(questions, own, PERCENT)
        return values

    def counts(self, games: Sequence[Game]) -> dict[str, int]:
        """Return results by class: for the second system, the first, and the others."""
        return tally(games)

    def rate_systems(self, pairs: GamesByPair, baseline: str | None) -> list[PairStanding]:
        """Return all ratings."""
        if self.mode == "official":
            return official_elo(pairs)
        return corrected_elo(pairs, baseline, self.draws)


FIRST = "first"
SECOND = "second"
TIE = "tie"
UNDECIDED = "unable to decide"
NEITHER = (SITUATION_ONE, SITUATION_TWO, UNDECIDED, TIE)
"""Results for neither system."""


def merge_votes(judgement: Judgement) -> str | None:
    """Merge two votes (`parse_output` of scripts/evaluate.py); None without both.

    Equal votes count as they are; one for a system and one undecided are for the system;
    one for each system is a tie; the two undecided situations are plainly undecided.
    """
    votes = {_vote_of(judgement, swapped) for swapped in (False, True)}
    if None in votes:
        return None
    if votes == {FIRST, SECOND}:
        return TIE
    results = votes & {FIRST, SECOND} or votes
    return results.pop() if len(results) == 1 else UNDECIDED


def _vote_of(judgement: Judgement, swapped: bool) -> str | None:
    """Return for which system one order votes, or why for neither; None without a vote."""
    verdict = judgement.verdict(swapped)
    if verdict is None:
        return None
    if verdict.preference == 0:
        return SITUATION_ONE if verdict.word == SITUATION_ONE else SITUATION_TWO
    return SECOND if (verdict.preference > 0) == swapped else FIRST


def results(games: Sequence[Game]) -> list[tuple[str, str]]:
    """Return (question, result) of the games with two votes."""
    merged = []
    for game in games:
        result = None if game.judgement is None else merge_votes(game.judgement)
        if result is not None:
            merged.append((game.question, result))
    return merged


def tally(games: Sequence[Game]) -> dict[str, int]:
    """Return results by class: for the second system, for the first, and the others."""
    counted = Counter(result for _, result in results(games))
    counts = {"win": counted[SECOND], "lose": counted[FIRST]}
    return counts | {name: counted[name] for name in NEITHER}


K = 4
ROUNDS = 1000
SEED = 42


def official_elo(pairs: GamesByPair) -> list[PairStanding]:
    """Online Elo over counts of merged votes, and the median of 1000 resamplings.

    The pairs are taken in the order given, where the program takes files in the order of
    the folder's listing: the ratings depend on it. Every count enters twice, once from
    either side, and undecided votes enter not at all. Resampled are the counts, not the
    votes. Both numbers are rounded half up as printed.
    """
    battles: list[Battle] = []
    for pair, games in pairs.items():
        battles += battles_by_count(pair, games)
    online = online_elo(battles, K)
    medians = _medians(battles)
    rows = []
    for system, rating in sorted(online.items(), key=lambda item: -item[1]):
        weight = 0.0
        for battle in battles:
            if system in (battle.first, battle.second):
                weight += battle.weight
        # Every vote is in two battles.
        votes = round(weight / 2)
        values = {
            "elo": _as_printed(rating, votes),
            "elo_median": _as_printed(medians.get(system), votes),
        }
        rows.append(PairStanding(system=system, values=values))
    return rows


def battles_by_count(pair: tuple[str, str], games: Sequence[Game]) -> list[Battle]:
    """Return the rows that `parse_json_files` makes of one pair's counts, in its order.

    The second system comes first, as in the program's files of counts: these name the
    sides of the last reply, which is one with the answers swapped.
    """
    first, second = pair
    count = tally(games)
    wins = {second: count["win"], first: count["lose"]}
    rows: list[Battle] = []
    for a, b in ((second, first), (first, second)):
        for score, weight in ((1.0, wins[a]), (0.0, wins[b]), (0.5, count[TIE])):
            if weight:
                rows.append(
                    Battle(question="", first=a, second=b, score=score, weight=weight)
                )
    return rows


def _medians(battles: Sequence[Battle]) -> dict[str, float]:
    """Median of each system's rating over the resamplings that contain it."""
    random = np.random.RandomState(SEED)
    n = len(battles)
    samples: dict[str, list[float]] = {}
    for _ in range(ROUNDS if n else 0):
        rows = random.choice(n, size=n, replace=True)
        for system, rating in online_elo([battles[i] for i in rows], K).items():
            samples.setdefault(system, []).append(rating)
    return {system: float(np.median(ratings)) for system, ratings in samples.items()}


def _as_printed(rating: float | None, votes: int) -> Estimate:
    """Return a rating rounded half up, as `int(rating + 0.5)` does there."""
    if rating is None:
        return Estimate(None, None, 0, "never drawn")
    return Estimate(float(int(rating + 0.5)), None, votes)


def corrected_elo(
    pairs: GamesByPair, baseline: str | None, draws: int
) -> list[PairStanding]:
    """Bradley-Terry ratings of merged results on the Elo scale, the anchor at 1000.

    Every question counts once; ties and everything undecided are half a win of either
    side. Without a baseline the first system by name is the anchor.
    """
    scores = {FIRST: 1.0, SECOND: 0.0}
    battles = []
    for (first, second), games in pairs.items():
        for question, result in results(games):
            score = scores.get(result, 0.5)
            battles.append(
                Battle(question=question, first=first, second=second, score=score)
            )
    names = sorted(set(chain.from_iterable(pairs)))
    if not names:
        return []
    anchor = baseline if baseline in names else names[0]
    ratings = dict.fromkeys(names, Estimate(None, None, 0, "no game read"))
    ratings |= bradley_terry(battles, anchor, order=False, draws=draws).systems
    names.sort(key=lambda name: (rank(ratings[name]), name))
    return [PairStanding(system=name, values={"elo": ratings[name]}) for name in names]
