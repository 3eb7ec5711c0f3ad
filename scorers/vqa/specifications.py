"""Specifications of a query, each by how likely an LVLM gives the expected answer.

The specifications are those of `specifications:NAME` (SpecV), in our wording. An answer's
value is the mean over all of them, in percent. The released program has no such score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from plait.generators.document import Query
from plait.scorers.base import NoScore
from plait.scorers.judging.specifications import (
    TRACK,
    specifications_of,
    without_specifications,
)
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.vqa.checklist import ChecklistItem, ChecklistScorer
from plait.scorers.vqa.questions import WordedSettings


class SpecificationsProbabilitySettings(WordedSettings):
    """The wording."""

    holes: ClassVar[tuple[str, ...]] = ("{specification}",)
    question: str = (
        "A question about this answer alone: {specification}\nPlease answer Yes or No."
    )
    """What is asked behind question and answer."""


@dataclass(frozen=True, kw_only=True)
class SpecificationsScorer(ChecklistScorer):
    """Scores documents by the probability that each specification of the query is met."""

    settings_of = SpecificationsProbabilitySettings
    about = "0-100; percent of a query's specifications, by probability; higher is better"
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "probability", "0-1", "criterion"),
        PartScale("probabilities/*", "probability", "0-1"),
    )
    groups_weigh_alike = False
    options: SpecificationsProbabilitySettings

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs specifications of the query."""
        return without_specifications(query)

    def items(self, query: Query) -> Sequence[ChecklistItem]:
        """Return the specifications, by what the query's track groups them by."""
        track = query.metadata.get(TRACK, "")
        items = []
        for one in specifications_of(query):
            text = self.options.question.replace("{specification}", one.question)
            items.append(ChecklistItem(text, one.expected, one.group(track)))
        return items
