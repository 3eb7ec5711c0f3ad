"""Turns of sessions: which are judged, after which conversation, and what they come to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from contents import content, document, turn_of

from plait.cluster.walks import drive
from plait.generators.base import (
    Job,
    Kind,
    NotApplicable,
    Outcome,
    Result,
    StageSpec,
    Unread,
    Unscored,
)
from plait.generators.document import Document, Draft, Image, Query, Request, Text
from plait.generators.errors import UsageError
from plait.scorers import resolve_scorer, takes
from plait.scorers.answers import KNOWN
from plait.scorers.judging.criteria import QUERY_CRITERIA
from plait.scorers.judging.resolve import chat_model, is_judge, takes_run_rubric
from plait.scorers.turns import TURNS, AskedTurn, session_turns, turns_text

GIVEN, OWN = Image.of(b"given"), Image.of(b"own")
B_OF_TWO = '{"form": "letter", "truth": "B", "of": 2}'
LOOKING = {KNOWN: B_OF_TWO, QUERY_CRITERIA: '["It is right."]'}
ASKED = (
    AskedTurn(),
    AskedTurn(looks_back=True, wants_images=False, metadata=LOOKING),
    AskedTurn(wants_images=False, metadata={KNOWN: B_OF_TWO}),
)
SESSION = Query(
    id="s",
    category="c",
    field="f",
    turns=(
        turn_of("Draw two cats."),
        turn_of("Here.", GIVEN, role="assistant"),
        turn_of("How many cats?"),
        turn_of("B", role="assistant"),
        turn_of("And paws?"),
    ),
    reference=Document.of([content("Here.", GIVEN), content("B"), content("B")]),
    metadata={TURNS: turns_text(ASKED)},
)
CHAT = StageSpec(name="judge", kind=Kind.DRAFT, target="m:C", stage="chat")


def answer(*turns: Any) -> Document:
    return Document.of([content(*parts) for parts in turns])


def scorer(name: str) -> Any:
    return resolve_scorer(name, "tiny", {}, chat=lambda _: CHAT)


def judged(name: str, answered: Document, query: Query = SESSION) -> tuple[Any, list[Job]]:
    """The outcome, and all that was asked for."""
    from plait.scorers.answers import AnswerReader

    asked: list[Job] = []

    def stages(jobs: list[Job]) -> list[Outcome[Any]]:
        asked.extend(jobs)
        met = Result(Draft((Text('{"criteria_met": true}'),)))
        return [
            met if isinstance(job.input, Request) else AnswerReader()([job.input])[0]
            for job in jobs
        ]

    return drive(scorer(name).judge(query, answered), stages), asked


def test_metadata_hold_what_is_said_of_each_turn() -> None:
    assert session_turns(SESSION) == ASKED
    assert session_turns(replace(SESSION, metadata={})) == ()


@pytest.mark.parametrize(
    ("second", "third", "of_all", "of_looking_back"),
    [("B", "B", 1.0, 1.0), ("A", "B", 0.5, 0.0), ("B", "A", 0.5, 1.0)],
)
def test_a_session_is_worth_the_mean_of_its_turns(
    second: str, third: str, of_all: float, of_looking_back: float
) -> None:
    answered = answer([OWN], [second], [third])
    outcome, asked = judged("turns:known-answer", answered)
    assert outcome.value.value == of_all
    assert outcome.value.parts["criteria"] == {
        "turn 2": float(second == "B"),
        "turn 3": float(third == "B"),
        "looks back": of_looking_back,
    }
    outcome, looking = judged("looking-back:known-answer", answered)
    assert outcome.value.value == of_looking_back
    assert {job.key for job in looking} <= {job.key for job in asked}, "once for both"
    parts = scorer("turns:known-answer").parts_of(outcome.value, ["criterion"])
    assert [(part.name, part.scale) for part in parts] == [("turn 2", "0-1")]


def test_a_judge_sees_the_conversation_that_the_system_saw() -> None:
    answered = answer([OWN], ["One."], ["B"])
    outcome, (own,) = judged("looking-back:criteria:m", answered)
    assert outcome.value.value == 100
    assert own.input.images == (OWN,)
    assert "How many cats?" in own.input.text
    assert "paws" not in own.input.text
    _, (given,) = judged("looking-back:criteria:m", replace(answered, history="given"))
    assert given.input.images == (GIVEN,)
    assert "Here." in given.input.text
    assert own.key != given.key


def test_a_turn_is_judged_by_its_own_truth() -> None:
    same = answer(["Here."], ["B"], ["no"])
    stage = resolve_scorer("turns:rougeL", "tiny", {})
    walk = stage.judge(SESSION, same)
    references = [job.input.reference for job in next(walk)]
    assert [reference.text for reference in references] == ["Here.", "B", "B"]


def test_what_cannot_be_judged_is_no_value() -> None:
    plain = replace(SESSION, metadata={})
    outcome, _ = judged("turns:known-answer", answer([OWN], ["B"], ["B"]), plain)
    assert isinstance(outcome, NotApplicable)
    none_back = replace(SESSION, metadata={TURNS: turns_text([AskedTurn()] * 3)})
    refused = scorer("looking-back:known-answer").query_refusal(none_back)
    assert refused == NotApplicable("no turn of the query looks back")
    assert isinstance(scorer("turns:known-answer").query_refusal(none_back), NotApplicable)
    outcome, _ = judged("turns:known-answer", answer([OWN], ["B"]))
    assert outcome == Unscored("the answer has 2 turns, not 3")
    outcome, _ = judged("turns:known-answer", answer([OWN], ["B"], ["neither"]))
    assert isinstance(outcome, Unread)
    assert outcome.reason.startswith("turn 3: ")
    outcome, _ = judged("looking-back:known-answer", answer([OWN], ["B"], ["neither"]))
    assert outcome.value.value == 1


def test_settings_are_those_of_the_scorer_that_is_asked() -> None:
    assert takes("turns:criteria:m", "mode")
    assert not takes("turns:bleu", "mode")
    assert chat_model("looking-back:criteria:m") == "m"
    assert is_judge("turns:criteria:m")
    assert not is_judge("turns:bleu")
    assert takes_run_rubric("turns:judge:m")
    whole = scorer("turns:criteria:m")
    assert (whole.scale, whole.jobs(SESSION), whole.rounds) == ("0-100", 1, 2)


@pytest.mark.parametrize("name", ["turns:fid", "looking-back:nothing", "turns:"])
def test_other_scorers_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        resolve_scorer(name, "tiny", {})


def test_an_answer_of_one_turn_is_a_document_as_ever() -> None:
    assert document("B") == Document.of([content("B")])
    assert document("B").history is None
