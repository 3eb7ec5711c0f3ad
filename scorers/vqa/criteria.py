"""Criteria of a query, each by how likely an LVLM says that it is met.

The criteria and what is shown with them are those of `criteria:NAME` (UEval), in our
wording. A document's value is the mean of the means about its text and about its images, in
percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from plait.generators.document import Query
from plait.scorers.base import NoScore
from plait.scorers.judging.criteria import (
    CLOSED,
    WHOLE,
    criteria_of,
    without_criteria,
)
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.vqa.checklist import ChecklistItem, ChecklistScorer
from plait.scorers.vqa.questions import WordedSettings


class CriteriaSettings(WordedSettings):
    """The wording."""

    holes: ClassVar[tuple[str, ...]] = ("{criterion}",)
    question: str = (
        "Does the answer meet this criterion about its {about}, in full? {criterion}\n"
        "Please answer Yes or No."
    )
    """What is asked behind question and answer."""


@dataclass(frozen=True, kw_only=True)
class CriteriaScorer(ChecklistScorer):
    """Scores documents by the probability that each criterion of the query is met."""

    settings_of = CriteriaSettings
    about = "0-100; percent of a query's criteria, by probability; higher is better"
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "probability", "0-1", "criterion"),
        PartScale("probabilities/*/*", "probability", "0-1"),
    )
    groups_weigh_alike = True
    options: CriteriaSettings

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs criteria of the query."""
        return without_criteria(query)

    def items(self, query: Query) -> Sequence[ChecklistItem]:
        """Return the criteria; those about an image of a closed question are of images."""
        items = []
        for about, criterion in criteria_of(query):
            wording = self.options.question
            if about == WHOLE:
                wording = wording.replace(" about its {about}", "")
            text = wording.replace("{about}", about).replace("{criterion}", criterion)
            closed = query.field == CLOSED and about == "image"
            items.append(ChecklistItem(text, group=about, of_images=closed))
        return items
