"""Creation-MMBench: a five-level verdict by criteria of each query, and visual factuality.

Every pair is judged in both orders (Dual Evaluation); the values -2 to 2 of the system
against the other give its Reward, times 50, and its win rate. Constants after
vlmeval/dataset/creation.py of open-compass/VLMEvalKit@e8e78f05 (`build_prompt`,
`get_dimension_rating`, `merge_dual`) and sections 3.3, B and C of the paper, whose A is
the evaluated model where the program's is the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from plait.generators.buckets import AnyPath
from plait.generators.content import fill, join_texts
from plait.generators.document import Document, Query, Turn
from plait.generators.released import file_in, read_published
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise.games import (
    Aspect,
    Game,
    ParsedReply,
    count_games,
    in_both_orders,
    plain_mean,
    preferences,
)
from plait.scorers.pairwise.prompts import OWN, as_content, texts, whole
from plait.scorers.pairwise.protocol import Pairwise
from plait.scorers.pairwise.readers import level, marks, official_creation, official_marks
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import PERCENT, mean_by_question, of_differences

FACTUALITY = "visual_factuality"
"""Metadata of a query: its criteria of visual factuality; `Query.criteria` are those of
preference."""
TRUTH = "ground_truth"
"""Metadata of a query: what the images in truth show, for the judge alone."""

_DIGESTS = OWN["released"]["creation"]


@dataclass(frozen=True, slots=True)
class CreationWording:
    """The three prompts."""

    preference: str
    factuality: str
    factuality_with_truth: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation(Pairwise):
    """The protocol. Official mode counts judgements, corrected mode counts questions."""

    mode: Mode = "corrected"
    wording: CreationWording = CreationWording(**OWN["creation"])
    name: str = "creation"

    @classmethod
    def wording_in(cls, path: AnyPath) -> CreationWording:
        """The prompts of the user's copy of `creation.py`; UsageError unless published."""
        file = file_in(path, "vlmeval/dataset/creation.py")
        return CreationWording(*read_published(file, _DIGESTS).values())

    def aspects(self, query: Query) -> tuple[Aspect, ...]:
        """Preference, and visual factuality where it has criteria."""
        facts = query.metadata.get(FACTUALITY)
        return ("preference", "factuality") if facts else ("preference",)

    def turns(
        self, aspect: Aspect, query: Query, first: Document, second: Document
    ) -> tuple[Turn, ...]:
        """Images of the question go with the preference alone.

        Officially before all text, in corrected mode where the question has them.
        """
        wording = self.wording
        truth = query.metadata.get(TRUTH, "")
        question, before = self.question(query)
        template = wording.preference
        criteria = query.criteria or OWN["no_criteria"]
        if aspect == "factuality":
            template = wording.factuality_with_truth if truth else wording.factuality
            criteria = query.metadata[FACTUALITY]
            question = texts(query.question)
            before = ()
        fields = {
            "question": question,
            "criteria": as_content(criteria),
            "first": whole(first),
            "second": whole(second),
            "truth": as_content(truth),
        }
        # The user's copy of the released prompts names them otherwise.
        fields |= {released: fields[ours] for released, ours in _RELEASED.items()}
        return (Turn("user", join_texts((*before, *fill(template, fields)))),)

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """Return a five-level verdict, or two marks out of 10."""
        if aspect == "preference":
            return official_creation(reply) if self.mode == "official" else level(reply)
        return official_marks(reply) if self.mode == "official" else marks(reply)

    def values(self, games: Sequence[Game]) -> dict[str, Estimate]:
        """Return reward, win rate and visual factuality."""
        official = self.mode == "official"
        return official_rewards(games) if official else corrected_rewards(games)

    def counts(self, games: Sequence[Game]) -> dict[str, int]:
        """Return verdicts by level, for the second system, and replies on factuality."""
        levels = Counter(_all_preferences(games))
        replies = count_games(games, "factuality")
        counts = {name: levels[level] for name, level in LEVELS.items()}
        for outcome in ("read", "unread", "failed"):
            counts[f"factuality_{outcome}"] = replies[outcome]
        return counts


_RELEASED = {
    "instructions": "question",
    "reference_answer_by_gpt4o": "first",
    "prediction": "second",
    "groundtruth": "truth",
}
"""The fields of the released prompts by ours."""
POINTS = 50
"""Reward of one level of preference."""
LEVELS = {"much_better": 2, "better": 1, "tie": 0, "worse": -1, "much_worse": -2}


class _Factuality(NamedTuple):
    """The scores of visual factuality that one reply gives, out of 10."""

    second: float
    """Of the pair's second system."""
    first: float


def official_rewards(games: Sequence[Game]) -> dict[str, Estimate]:
    """Return means over judgements, as `merge_dual` of creation.py pools the two orders.

    Failed replies count as unread ones. A share of nothing, where the program raises
    ZeroDivisionError, has no value.
    """
    verdicts = _all_preferences(games)
    own: list[float] = []
    other: list[float] = []
    for game in games:
        for scores in _factuality(game):
            own.append(scores.second)
            other.append(scores.first)
    # Each judged pair is asked about in both orders.
    asked = 2 * sum(game.judgement is not None for game in games)
    replies = count_games(games, "factuality")
    missing = replies["unread"] + replies["failed"] + replies["skipped"]
    values: dict[str, Sequence[float]] = {
        "reward": [POINTS * preference for preference in verdicts],
        "win_rate": [100 * (preference > 0) for preference in verdicts],
        "preference_parse_ok": [1] * len(verdicts) + [0] * (asked - len(verdicts)),
        "visual_factuality": own,
        "visual_factuality_of_opponent": other,
        "visual_factuality_parse_ok": [1] * len(own) + [0] * missing,
    }
    return {name: plain_mean(each, "no judgement read") for name, each in values.items()}


def _all_preferences(games: Sequence[Game]) -> list[int]:
    """Return preferences for the second system, of every reply that was read."""
    verdicts: list[int] = []
    for game in games:
        if game.judgement is not None:
            verdicts += preferences(game.judgement)
    return verdicts


def _factuality(game: Game) -> list[_Factuality]:
    """Return the scores in every reply that was read, at most one of each order."""
    if game.judgement is None:
        return []
    replies = []
    if forward := game.judgement.marks(False):
        replies.append(_Factuality(second=forward.second, first=forward.first))
    if backward := game.judgement.marks(True):
        # Marks name answers as they were shown: here the pair's second came first.
        replies.append(_Factuality(second=backward.first, first=backward.second))
    return replies


def corrected_rewards(games: Sequence[Game]) -> dict[str, Estimate]:
    """Return means over questions read in both orders, with intervals by drawing questions.

    Where every reply can be read the values equal the official ones.
    """
    return _preference_means(games) | _factuality_means(games)


def _preference_means(games: Sequence[Game]) -> dict[str, Estimate]:
    questions = []
    rewards = []
    wins = []
    for question, verdicts in in_both_orders(games):
        questions.append(question)
        won = sum(preference > 0 for preference in verdicts)
        # Of the two orders.
        rewards.append(POINTS * sum(verdicts) / 2)
        wins.append(100 * won / 2)
    return {
        "reward": mean_by_question(questions, rewards, of_differences(PERCENT)),
        "win_rate": mean_by_question(questions, wins, PERCENT),
    }


def _factuality_means(games: Sequence[Game]) -> dict[str, Estimate]:
    questions = []
    own = []
    gaps = []
    for game in games:
        replies = _factuality(game)
        # One order alone would let the judge's position bias into the mean.
        if len(replies) == 2:
            one, other = replies
            questions.append(game.question)
            own.append((one.second + other.second) / 2)
            gaps.append(((one.second - one.first) + (other.second - other.first)) / 2)
    return {
        "visual_factuality": mean_by_question(questions, own),
        "visual_factuality_gap": mean_by_question(questions, gaps),
    }
