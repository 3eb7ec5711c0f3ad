"""Scores of the single turns of a conversation, by any scorer of single answers.

`turns:SCORER` judges each turn of a session by itself, `looking-back:SCORER` those alone
that look back: that ask about what the system itself said or drew before. The score of a
session is the mean over its turns, so that intervals and paired differences are over
sessions, whose turns depend on each other.

What a judge sees of a turn is what the system saw: the conversation before it with the
system's own answers, or with those that the data give where the system was shown these.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import ClassVar

from plait.generators.base import (
    Failure,
    NotApplicable,
    Outcome,
    Result,
    StageSpec,
    Unread,
    Unscored,
    Walk,
)
from plait.generators.content import history, join_texts
from plait.generators.document import Content, Document, Query, Score, Text, Turn
from plait.generators.errors import UsageError
from plait.generators.walks import together
from plait.scorers.base import NoScore, Scorer, with_stage
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.turn_names import LOOKING_BACK

TURNS = "turns"
"""Metadata of a query that is a session: a JSON list, one `AskedTurn` for each turn of the
user. Its reference has one answer for each, an empty one where the data give none."""
_SAYS_NOTHING = "the data do not say which turns of the query look back"


@dataclass(frozen=True, kw_only=True)
class AskedTurn:
    """What the data say of one turn of the user."""

    looks_back: bool = False
    """Whether it asks about what the system itself said or drew before."""
    wants_images: bool = True
    """Whether its answer is expected to hold images."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What scorers may know of the turn, such as its known answer and its criteria."""


def turns_text(turns: Iterable[AskedTurn]) -> str:
    """Return turns as a query's metadata hold them."""
    return json.dumps([asdict(turn) for turn in turns], ensure_ascii=False)


def session_turns(query: Query) -> tuple[AskedTurn, ...]:
    """Return what the data say of each turn; nothing of a query that is no session."""
    rows = json.loads(query.metadata.get(TURNS, "[]"))
    return tuple(AskedTurn(**row) for row in rows)


@dataclass(frozen=True, kw_only=True)
class TurnsScorer(Scorer):
    """The mean of a scorer's values of single turns: of each, or of those looking back."""

    scorer: Scorer
    """Judges one turn as a query of its own."""
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", kind="criterion"), PartScale("looks_back")
    )

    @classmethod
    def around(cls, name: str, scorer: Scorer) -> TurnsScorer:
        """Return the scorer `name` that asks `scorer`.

        UsageError for one that has no value of a single answer.
        """
        if scorer.of_sets or scorer.opponent:
            what = "a set of images" if scorer.of_sets else "a pair of answers"
            raise UsageError(
                f"scorer {name!r}: {scorer.name} judges {what}; name a scorer of single "
                f"answers, such as {name.partition(':')[0]}:known-answer"
            )
        return cls(
            name=name,
            stage=scorer.stage,
            scale=scorer.scale,
            direction=scorer.direction,
            unit=scorer.unit,
            licence=scorer.licence,
            scorer=scorer,
        )

    @cached_property
    def judge_of_turn(self) -> Scorer:
        """The scorer of one turn, with this one's stage: that of a shard or of a run."""
        return with_stage(self.scorer, lambda _: self.stage)

    @property
    def only_looking_back(self) -> bool:
        """Whether turns that do not look back are left out."""
        return self.name.startswith(f"{LOOKING_BACK}:")

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """Those of the scorer that it asks."""
        return self.judge_of_turn.stages

    @property
    def rounds(self) -> int:
        """As many as of one turn: all are judged side by side."""
        return self.judge_of_turn.rounds

    @property
    def criteria_are_shares(self) -> bool:
        """They are values of the scorer, on its scale."""
        return False

    @property
    def manner(self) -> str:
        """Which turns, and how each is judged."""
        which = "the turns that look back" if self.only_looking_back else "each turn"
        return ", ".join(filter(None, (f"of {which}", self.judge_of_turn.manner)))

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return the most jobs of one round: those of all its turns."""
        judge = self.judge_of_turn
        views = self._queries(query, Document())
        return sum(judge.jobs(view, images) for view in views.values()) or 1

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs a session, with a turn that the scorer applies to."""
        if not (turns := session_turns(query)):
            return NotApplicable(_SAYS_NOTHING)
        if self.only_looking_back and not any(turn.looks_back for turn in turns):
            return NotApplicable("no turn of the query looks back")
        reasons = []
        for view in self._queries(query, Document()).values():
            if (refused := self.judge_of_turn.query_refusal(view)) is None:
                return None
            reasons.append(refused)
        return reasons[0]

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to the values of all turns side by side, and to their mean.

        A turn that the scorer does not apply to is left out. Where one has no value, the
        session has none.
        """
        answers = document.answers
        turns = session_turns(query)
        if len(answers) != len(turns):
            return Unscored(f"the answer has {len(answers)} turns, not {len(turns)}")
        views = self._queries(query, document)
        judging = []
        for number, view in views.items():
            judging.append(self.judge_of_turn.judge(view, answers[number]))
        outcomes: list[Outcome[Score]] = yield from together(judging)
        values: dict[int, float] = {}
        for number, outcome in zip(views, outcomes, strict=True):
            if isinstance(outcome, Result):
                values[number] = outcome.value.value
            elif not isinstance(outcome, NotApplicable):
                return _of_turn(outcome, number)
        if not values:
            return outcomes[0]
        criteria: dict[str, float] = {}
        looks_back: dict[str, bool] = {}
        of_looking_back: list[float] = []
        for number, value in values.items():
            name = f"turn {number + 1}"
            criteria[name] = value
            looks_back[name] = turns[number].looks_back
            if turns[number].looks_back:
                of_looking_back.append(value)
        # Where only these are judged, their mean is the value itself.
        if of_looking_back and not self.only_looking_back:
            criteria["looks back"] = fmean(of_looking_back)
        parts = {"criteria": criteria, "looks_back": looks_back}
        return Result(Score(fmean(values.values()), parts))

    def _queries(self, query: Query, document: Document) -> dict[int, Query]:
        """Return each turn that is judged as a query of its own, by its place."""
        own = [answer.segments for answer in document.answers]
        before = query.given_answers if document.history == "given" else own
        truths = query.reference.answers if query.reference else ()
        queries: dict[int, Query] = {}
        conversation: tuple[Turn, ...] = ()
        openings = query.openings
        for number, turn in enumerate(session_turns(query)):
            conversation += openings[number]
            if turn.looks_back or not self.only_looking_back:
                truth = truths[number] if truths else Document()
                queries[number] = replace(
                    query,
                    turns=(Turn("user", question_of(conversation)),),
                    reference=truth if truth.segments else None,
                    criteria=None,
                    wants_images=turn.wants_images,
                    metadata=turn.metadata,
                )
            said = before[number] if number < len(before) else ()
            conversation += (Turn("assistant", said),)
        return queries


def scorer_of_turn(scorer: Scorer) -> Scorer:
    """Return what judges the answers: of turns the scorer that each is judged by."""
    return scorer.judge_of_turn if isinstance(scorer, TurnsScorer) else scorer


def question_of(conversation: tuple[Turn, ...]) -> Content:
    """Return the last turn behind all that was said before it, as one question.

    Where nothing was said, it is the turn as it stands.
    """
    *_, last = conversation
    if len(conversation) == 1:
        return last.content
    # Only the turns before the last one are read of it.
    talk = Query(id="", category="", field="", turns=conversation)
    return join_texts((*history(talk), Text("User:\n"), *last.content))


def _of_turn(outcome: Outcome[Score], number: int) -> Outcome[Score]:
    """Return why a turn has no value, as the reason of the whole session."""
    assert isinstance(outcome, Failure | Unread | Unscored)
    return replace(outcome, reason=f"turn {number + 1}: {outcome.reason}")
