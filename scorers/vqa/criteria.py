"""Criteria of a query, each by how likely an LVLM says that it is met.

The criteria and what is shown with them are those of `criteria:NAME` (UEval), in our
wording. The value of a criterion is the probability of yes over that of yes or no, so that
no reply is read and none is unread; a document's is the mean of the means about its text
and about its images, in percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from plait.generators.base import Result, Unread, Walk
from plait.generators.document import Content, Document, Query, Score, Text
from plait.scorers.base import NoScore
from plait.scorers.judging.criteria import (
    CLOSED,
    WHOLE,
    criteria_of,
    without_criteria,
)
from plait.scorers.judging.pages import Pages
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.vqa.questions import (
    NO,
    YES,
    YES_NO,
    Question,
    QuestionScorer,
    WordedSettings,
)


class CriteriaSettings(WordedSettings):
    """The wording."""

    holes: ClassVar[tuple[str, ...]] = ("{criterion}",)
    question: str = (
        "Does the answer meet this criterion about its {about}, in full? {criterion}\n"
        "Please answer Yes or No."
    )
    """What is asked behind question and answer."""


@dataclass(frozen=True, kw_only=True)
class CriteriaScorer(QuestionScorer):
    """Scores documents by the probability that each criterion of the query is met."""

    settings_of = CriteriaSettings
    about = "0-100; percent of a query's criteria, by probability; higher is better"
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "probability", "0-1", "criterion"),
        PartScale("probabilities/*/*", "probability", "0-1"),
    )
    options: CriteriaSettings
    images_only: bool = False

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return how many criteria the query has."""
        return len(criteria_of(query))

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs criteria of the query."""
        return without_criteria(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask about all criteria at once."""
        criteria = criteria_of(query)
        asked = []
        for about, criterion in criteria:
            asked_about = self.options.question
            if about == WHOLE:
                asked_about = asked_about.replace(" about its {about}", "")
            worded = asked_about.replace("{about}", about)
            question = Question(worded.replace("{criterion}", criterion), YES_NO)
            closed = query.field == CLOSED and about == "image"
            shown = document.images if closed else document.segments
            asked.append((what_to_show(query, shown), question))
        records = yield from self.records(query, asked)
        if not isinstance(records, list):
            return records
        met: dict[str, list[float]] = {}
        for (about, _), record in zip(criteria, records, strict=True):
            yes = record.probability(YES)
            no = record.probability(NO)
            if yes + no == 0:
                return Unread("neither yes nor no has a probability above 0")
            met.setdefault(about, []).append(yes / (yes + no))
        rates = {about: fmean(values) for about, values in met.items()}
        parts = {"criteria": rates, "probabilities": met}
        return Result(Score(100 * fmean([*rates.values()]), parts))


def what_to_show(query: Query, answer: Content) -> Document:
    """Return a query's question and what is shown of an answer to it."""
    pages = Pages(None)
    asked = pages.write(query.question)
    shown = pages.write(answer)
    return Document(
        (Text("### Question\n"), *asked, Text("### Answer\n"), *shown, Text("\n"))
    )
