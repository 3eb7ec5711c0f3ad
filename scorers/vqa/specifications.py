"""Specifications of a query, each by how likely an LVLM gives the expected answer.

The specifications are those of `specifications:NAME` (SpecV), each asked by itself behind
question and answer, in our wording. The value of one is the probability of the expected
answer over that of yes or no, so that no reply is read and none is unread; an answer's is
the mean over all of them, in percent. The released program has no such score.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from plait.generators.base import Result, Unread, Walk
from plait.generators.document import Document, Query, Score
from plait.scorers.base import NoScore
from plait.scorers.judging.specifications import (
    TRACK,
    specifications_of,
    without_specifications,
)
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.vqa.criteria import what_to_show
from plait.scorers.vqa.questions import (
    NO,
    YES,
    YES_NO,
    Question,
    QuestionScorer,
    WordedSettings,
)


class SpecificationsProbabilitySettings(WordedSettings):
    """The wording."""

    holes: ClassVar[tuple[str, ...]] = ("{specification}",)
    question: str = (
        "A question about this answer alone: {specification}\nPlease answer Yes or No."
    )
    """What is asked behind question and answer."""


@dataclass(frozen=True, kw_only=True)
class SpecificationsScorer(QuestionScorer):
    """Scores documents by the probability that each specification of the query is met."""

    settings_of = SpecificationsProbabilitySettings
    about = "0-100; percent of a query's specifications, by probability; higher is better"
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "probability", "0-1", "criterion"),
        PartScale("probabilities/*", "probability", "0-1"),
    )
    options: SpecificationsProbabilitySettings
    images_only: bool = False

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return how many specifications the query has."""
        return len(specifications_of(query))

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs specifications of the query."""
        return without_specifications(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask about all specifications at once, each by itself."""
        listed = specifications_of(query)
        shown = what_to_show(query, document.segments)
        asked = []
        for one in listed:
            text = self.options.question.replace("{specification}", one.question)
            asked.append((shown, Question(text, YES_NO)))
        records = yield from self.records(query, asked)
        if not isinstance(records, list):
            return records
        track = query.metadata.get(TRACK, "")
        met: list[float] = []
        by_group: dict[str, list[float]] = {}
        for one, record in zip(listed, records, strict=True):
            yes = record.probability(YES)
            no = record.probability(NO)
            if yes + no == 0:
                return Unread("neither yes nor no has a probability above 0")
            expected = yes if one.expected == "Yes" else no
            met.append(expected / (yes + no))
            if group := one.group(track):
                by_group.setdefault(group, []).append(met[-1])
        shares = {group: fmean(values) for group, values in by_group.items()}
        return Result(Score(100 * fmean(met), {"criteria": shares, "probabilities": met}))
