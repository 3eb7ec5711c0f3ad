"""Checklists of a query: questions of yes and no, by how likely the expected answers are.

Each is asked by itself behind question and answer. Its value is the probability of the
expected answer over that of yes or no, so that no reply is read and none is unread.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, NamedTuple

from plait.generators.base import Result, Unread, Walk
from plait.generators.document import Content, Document, Query, Score, Text
from plait.scorers.judging.pages import Pages
from plait.scorers.vqa.questions import NO, YES, YES_NO, Question, QuestionScorer


class ChecklistItem(NamedTuple):
    """One question of a checklist."""

    text: str
    """As the LVLM is asked."""
    expected: str = "Yes"
    """`Yes` or `No`."""
    group: str = ""
    """Whose mean is a criterion of the score; none where it is empty."""
    of_images: bool = False
    """Whether only the images of the answer are shown."""


@dataclass(frozen=True, kw_only=True)
class ChecklistScorer(QuestionScorer):
    """Scores documents by the probability that each item of the query's list holds."""

    groups_weigh_alike: ClassVar[bool]
    """Whether the score is the mean of the groups' means; else it is that of all items."""
    images_only: bool = False

    @abstractmethod
    def items(self, query: Query) -> Sequence[ChecklistItem]:
        """Return the query's checklist."""

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return how many items the query has."""
        return len(self.items(query))

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask about all items at once, each by itself."""
        items = self.items(query)
        asked = []
        for item in items:
            content = document.images if item.of_images else document.segments
            shown = _question_and_answer(query, content)
            asked.append((shown, Question(item.text, YES_NO)))
        records = yield from self.records(query, asked)
        if not isinstance(records, list):
            return records
        met: list[float] = []
        by_group: dict[str, list[float]] = {}
        for item, record in zip(items, records, strict=True):
            yes = record.probability(YES)
            no = record.probability(NO)
            if yes + no == 0:
                return Unread("neither yes nor no has a probability above 0")
            expected = yes if item.expected == "Yes" else no
            met.append(expected / (yes + no))
            if item.group:
                by_group.setdefault(item.group, []).append(met[-1])
        rates = {group: fmean(values) for group, values in by_group.items()}
        if self.groups_weigh_alike:
            parts = {"criteria": rates, "probabilities": by_group}
            return Result(Score(100 * fmean([*rates.values()]), parts))
        return Result(Score(100 * fmean(met), {"criteria": rates, "probabilities": met}))


def _question_and_answer(query: Query, answer: Content) -> Document:
    """Return a query's question and what is shown of an answer to it."""
    pages = Pages(None)
    asked = pages.write(query.question)
    shown = pages.write(answer)
    return Document(
        (Text("### Question\n"), *asked, Text("### Answer\n"), *shown, Text("\n"))
    )
