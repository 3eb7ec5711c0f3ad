"""A judge by a rubric of the user's own: what it makes of the verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
        return self._table(self._criterion_scales())

    def parts_of(
        self, judged: Score | Unread, kinds: Collection[PartKind] = KINDS
    ) -> tuple[ScorePart, ...]:
        """Return the numbers that a score was made of, also by criteria of its query."""
        # Those of its query's own criteria, which only the score knows.
        scales_of_query: Mapping[str, str] = judged.parts.get("scales", {})
        scales = self._criterion_scales()
        for name, scale in scales_of_query.items():
            scales.append(WeightedPart(scale=scale).as_part_scale(name))
        table = self._table(scales)
        return table.read(judged.parts, self.unit, self.scale, kinds)

    def _criterion_scales(self) -> list[PartScale]:
        criteria = self.rubric.criteria
        return [criterion.as_part_scale(criterion.name) for criterion in criteria]

    def _table(self, criteria: Iterable[PartScale]) -> PartTable:
        """Return the scales of all parts, with those of these criteria."""
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
        pages = []
        questions = []
        for criteria in asked:
            shown = Pages(examiner.max_images)
            pages.append(shown)
            questions.append(examiner.ask(own, criteria, query, document, shown))
        replies = yield from self.ask_all(
            query, questions, examiner.read, examiner.ask_for_form
        )
        if not isinstance(replies, Readings):
            return replies
        return self._score(questions, replies, pages)

    def _score(
        self, questions: Sequence[Question], replies: Readings[Verdicts], pages: list[Pages]
    ) -> Outcome[Score]:
        """Return the weighted mean; Unread where a reply could not be read."""
        criteria = self._criteria_of(questions)
        values: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for verdicts in replies.values.values():
            values |= verdicts.values
            for name, why in verdicts.reasons.items():
                if why:
                    reasons[name] = why
        parts = _criterion_parts(criteria, values, self.rubric)
        parts |= {
            "reasons": reasons,
            "rubric": self.rubric.name,
            "rubric_digest": self.rubric.digest,
            "attempts": max(attempts for _, attempts in replies.last.values()),
            **_page_parts(pages),
        }
        # An empty part says nothing, where a 0 does.
        parts = {name: part for name, part in parts.items() if part not in ({}, [])}
        if replies.reasons:
            return Unread(replies.reason_of(next(iter(replies.reasons))), parts)
        named = {criterion.name: criterion for criterion in criteria}
        return Result(Score(weighted_mean(named, values, self.scale), parts))

    def _criteria_of(self, questions: Sequence[Question]) -> list[Criterion]:
        """Return what is asked in the order of the file, then the query's own criteria."""
        asked: dict[str, Criterion] = {}
        for question in questions:
            asked |= {criterion.name: criterion for criterion in question.criteria}
        criteria = []
        for criterion in self.rubric.criteria:
            if criterion.name in asked:
                criteria.append(asked.pop(criterion.name))
        return [*criteria, *asked.values()]


def _criterion_parts(
    criteria: Sequence[Criterion], values: Mapping[str, float], rubric: ReadRubric
) -> dict[str, Any]:
    """Return what a score keeps of each criterion.

    Those of a query without names are a share in `criteria`, and by themselves in
    `of_query`; of those with names the rubric does not tell the scale.
    """
    of_rubric = {criterion.name for criterion in rubric.criteria}
    named: dict[str, float] = {}
    scales: dict[str, str] = {}
    of_query = []
    unnamed = {}
    for criterion in criteria:
        name = criterion.name
        if is_unnamed(criterion):
            unnamed[name] = criterion
            of_query.append({"criterion": criterion.question, "value": values.get(name)})
            continue
        if name not in of_rubric:
            scales[name] = criterion.scale
        if name in values:
            named[name] = values[name]
    if unnamed and unnamed.keys() <= values.keys():
        named[QUERY_CRITERIA] = weighted_mean(unnamed, values, "0-1")
    return {"criteria": named, "scales": scales, "of_query": of_query}


def _page_parts(pages: Sequence[Pages]) -> dict[str, Any]:
    """Return how many images were shown and left out, and what texts were made neutral."""
    shown = 0
    left_out = 0
    neutralised: list[str] = []
    for of_question in pages:
        shown += of_question.shown
        left_out += of_question.left_out
        neutralised += of_question.neutralised
    return {"images": shown, "images_left_out": left_out, "neutralised": neutralised}
