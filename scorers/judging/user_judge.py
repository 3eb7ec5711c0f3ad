"""A judge by a rubric of the user's own: what it makes of the verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from plait.generators.base import (
    Failure,
    Fault,
    NotApplicable,
    Outcome,
    Result,
    Unread,
    Walk,
)
from plait.generators.document import Document, Query, Score
from plait.scorers.base import NoScore
from plait.scorers.judging.judge import ChatJudge, Question, Readings
from plait.scorers.judging.pages import Pages
from plait.scorers.judging.user_examiner import UserExaminer, Verdicts
from plait.scorers.judging.user_rubric import (
    QUERY_CRITERIA,
    Criterion,
    ReadRubric,
    is_unnamed,
)
from plait.scorers.parts import KINDS, PartKind, PartScale, PartTable, ScorePart
from plait.scorers.weighted import WeightedPart, weighted_mean


@dataclass(frozen=True, kw_only=True)
class UserRubricJudge(ChatJudge):
    """Scores documents by the criteria of a user's own rubric."""

    examiner: UserExaminer

    @property
    def rubric(self) -> ReadRubric:
        """The rubric that it judges by."""
        return self.examiner.rubric

    @property
    def manner(self) -> str:
        """Which rubric: its name and the digest of its content."""
        return f"rubric {self.rubric.name} ({self.rubric.digest[:8]})"

    @property
    def texts(self) -> dict[str, str]:
        """Digest of the rubric, by its name."""
        return {self.rubric.name: self.rubric.digest}

    @property
    def criteria_are_shares(self) -> bool:
        """Each is on the scale that the rubric gives it."""
        return False

    @property
    def part_scales(self) -> PartTable:
        """The scales of the rubric's criteria."""
        return self._table(c.as_part_scale(c.name) for c in self.rubric.criteria)

    def parts_of(
        self, judged: Score | Unread, kinds: Collection[PartKind] = KINDS
    ) -> tuple[ScorePart, ...]:
        """Return the numbers that a score was made of, also by criteria of its query."""
        named: Mapping[str, str] = judged.parts.get("scales", {})
        rows = [c.as_part_scale(c.name) for c in self.rubric.criteria]
        for name, scale in named.items():
            rows.append(WeightedPart(scale=scale).as_part_scale(name))
        table = self._table(rows)
        return table.read(judged.parts, self.unit, self.scale, kinds)

    def _table(self, criteria: Iterable[PartScale]) -> PartTable:
        return PartTable.of(
            *criteria,
            PartScale(f"criteria/{QUERY_CRITERIA}", "share", "0-1", "criterion"),
            PartScale("of_query/*/value", "points"),
            PartScale("attempts", "replies"),
            PartScale("images", "images"),
            PartScale("images_left_out", "images"),
        )

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return how many requests one round asks about an answer to the query."""
        own = self.rubric.of(query)
        try:
            return 0 if own is None else len(self.examiner.group_criteria(own, query))
        except ValueError:
            return 0

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs criteria: the rubric's for the category, or the query's own."""
        if (own := self.rubric.of(query)) is None:
            valid = ", ".join(self.rubric.categories)
            return NotApplicable(f"the rubric is for {valid}, not {query.category!r}")
        try:
            asked = self.examiner.group_criteria(own, query)
        except ValueError:  # a failure of the query, with its reason
            return None
        if not asked:
            return NotApplicable("neither the rubric nor the query has criteria")
        return None

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask, read, and ask again where a reply cannot be read; then Unread."""
        own = self.rubric.of(query)
        assert own is not None
        try:
            asked = self.examiner.group_criteria(own, query)
        except ValueError as error:
            reason = f"the criteria of query {query.id} are not valid: {error}"
            return Failure(reason, Fault.BAD_INPUT)
        examiner = self.examiner
        pages = [Pages(examiner.max_images) for _ in asked]
        questions = [
            examiner.ask(own, one, query, document, shown)
            for one, shown in zip(asked, pages, strict=True)
        ]
        replies = yield from self.ask_all(
            query, questions, examiner.read, examiner.ask_for_form
        )
        if not isinstance(replies, Readings):
            return replies
        return self._score(questions, replies, pages)

    def _score(
        self, questions: Sequence[Question], replies: Readings[Verdicts], pages: list[Pages]
    ) -> Outcome[Score]:
        asked: dict[str, Criterion] = {}
        for question in questions:
            asked |= {c.name: c for c in question.criteria}
        own = [c.name for c in self.rubric.criteria]
        # In the order of the file, whatever is asked about together.
        criteria = [*(asked.pop(name) for name in own if name in asked), *asked.values()]
        values: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for verdicts in replies.values.values():
            values |= verdicts.values
            reasons |= {name: why for name, why in verdicts.reasons.items() if why}
        parts: dict[str, Any] = {
            "criteria": self._criteria(criteria, values),
            "scales": {
                c.name: c.scale for c in criteria if c.name not in own and not is_unnamed(c)
            },
            "of_query": [
                {"criterion": c.question, "value": values.get(c.name)}
                for c in criteria
                if is_unnamed(c)
            ],
            "reasons": reasons,
            "rubric": self.rubric.name,
            "rubric_digest": self.rubric.digest,
            "attempts": max(attempts for _, attempts in replies.last.values()),
            "images": sum(shown.shown for shown in pages),
            "images_left_out": sum(shown.left_out for shown in pages),
            "neutralised": [*chain.from_iterable(shown.neutralised for shown in pages)],
        }
        parts = {name: part for name, part in parts.items() if part not in ({}, [])}
        if replies.reasons:
            return Unread(replies.reason_of(next(iter(replies.reasons))), parts)
        named = {c.name: c for c in criteria}
        return Result(Score(weighted_mean(named, values, self.scale), parts))

    def _criteria(
        self, criteria: Sequence[Criterion], values: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the value of each criterion, those of a query without names as a share."""
        shown = {c.name: values[c.name] for c in criteria if c.name in values}
        unnamed = {c.name: c for c in criteria if is_unnamed(c)}
        if unnamed.keys() <= values.keys() and unnamed:
            shown[QUERY_CRITERIA] = weighted_mean(unnamed, values, "0-1")
        return {name: value for name, value in shown.items() if name not in unnamed}
