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

from plait.generators.buckets import AnyPath
from plait.generators.content import fill, join_texts
from plait.generators.document import Document, Query, Turn
from plait.scorers.judging.sources import Mode, file_in, read_published
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
    def published(cls, path: AnyPath) -> CreationWording:
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
        return counts | {
            f"factuality_{n}": replies[n] for n in ("read", "unread", "failed")
        }


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


def official_rewards(games: Sequence[Game]) -> dict[str, Estimate]:
    """Return means over judgements, as `merge_dual` of creation.py pools the two orders.

    Failed replies count as unread ones. A share of nothing, where the program raises
    ZeroDivisionError, has no value.
    """
    verdicts = _all_preferences(games)
    own, other = ([pair[i] for g in games for pair in _marks(g)] for i in (0, 1))
    replies = count_games(games, "factuality")
    replies_expected = sum(2 for g in games if g.judgement is not None)
    missing = replies["unread"] + replies["failed"] + replies["skipped"]
    values: dict[str, Sequence[float]] = {
        "reward": [POINTS * p for p in verdicts],
        "win_rate": [100 * (p > 0) for p in verdicts],
        "preference_parse_ok": [i < len(verdicts) for i in range(replies_expected)],
        "visual_factuality": own,
        "visual_factuality_of_opponent": other,
        "visual_factuality_parse_ok": [1] * len(own) + [0] * missing,
    }
    return {name: plain_mean(each, "no judgement read") for name, each in values.items()}


def _all_preferences(games: Sequence[Game]) -> list[int]:
    return [p for g in games if g.judgement is not None for p in preferences(g.judgement)]


def _marks(game: Game) -> list[tuple[float, float]]:
    """Return (second's, first's) scores of every reply that was read."""
    if game.judgement is None:
        return []
    forward = game.judgement.marks(False)
    backward = game.judgement.marks(True)
    pairs = [(forward.second, forward.first)] if forward else []
    return pairs + ([(backward.first, backward.second)] if backward else [])


def corrected_rewards(games: Sequence[Game]) -> dict[str, Estimate]:
    """Return means over questions read in both orders, with intervals by drawing questions.

    Where every reply can be read the values equal the official ones.
    """
    both = in_both_orders(games)
    questions = [question for question, _ in both]
    rewards = [POINTS * sum(values) / 2 for _, values in both]
    wins = [100 * sum(v > 0 for v in values) / 2 for _, values in both]
    marked = [(g.question, pairs) for g in games if len(pairs := _marks(g)) == 2]
    own = [sum(own for own, _ in pairs) / 2 for _, pairs in marked]
    gaps = [sum(own - other for own, other in pairs) / 2 for _, pairs in marked]
    of = [question for question, _ in marked]
    return {
        "reward": mean_by_question(questions, rewards, of_differences(PERCENT)),
        "win_rate": mean_by_question(questions, wins, PERCENT),
        "visual_factuality": mean_by_question(of, own),
        "visual_factuality_gap": mean_by_question(of, gaps),
    }
