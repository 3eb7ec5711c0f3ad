"""Answers compared with the known one: what both modes read, and what it is worth."""

from __future__ import annotations

import json
from typing import Any

import pytest
from contents import document, query_of
from paths import DATA

from cluster.local import LocalStages
from cluster.walks import drive
from generators.base import NotApplicable, Outcome, Result, Unread, Unscored
from generators.document import Sample, Score
from scorers import resolve_scorer
from scorers.answers import CHOICE, KNOWN, LETTER, MOVES, choice, letter, moves
from scorers.judging.replies import Unreadable

UPSTREAM = json.loads((DATA / "known_answers_upstream.json").read_text())
"""What RealUnify's and Uni-MMMU's own functions made of texts."""
TRUTH = {LETTER: "B", CHOICE: 1, MOVES: UPSTREAM["truth"]}


def known(form: str, **about: Any) -> Sample:
    about = {"form": form, "truth": TRUTH[form], "of": 4 if form == LETTER else 2} | about
    return query_of("Which?", metadata={KNOWN: json.dumps(about)})


def scored(query: Sample, text: str, **settings: Any) -> Outcome[Score]:
    scorer = resolve_scorer("known-answer", "tiny", settings)
    return drive(scorer.judge(query, document(text)), LocalStages().outcomes)


@pytest.mark.parametrize("form", [LETTER, CHOICE, MOVES])
def test_official_mode_equals_the_released_functions(form: str) -> None:
    for text, made in UPSTREAM[form].items():
        outcome = scored(known(form), text, mode="official")
        assert isinstance(outcome, Result), text
        score = outcome.value
        read, steps = made if form == MOVES else (made, None)
        assert score.parts["read"] == read, text
        if steps is None:
            assert score.value == (read == TRUTH[form])
        else:
            assert score.value == steps["text_frame_acc"], text
            assert score.parts["criteria"]["exact"] == steps["text_exact"], text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        *((t, "B") for t in ("B", "**B**", "(B)", "B. a red ball", "B) Answer", " B\n")),
        *(
            (t, "B")
            for t in ("The answer is B", "The answer is B because it is", "\\boxed{B}")
        ),
        ("Based on the image, the answer is C.", "C"),
        ("A cat sits there.\n**Answer:** (C)", "C"),
        ("Option A is wrong; the correct option is B.", "B"),
        ("Let me see: C?\n<answer>B. a ball</answer>", "B"),
        ("The answer is B. So the answer is B.", "B"),
        *(
            (t, None)
            for t in ("b", "a cat", "A cat", "Answer: A cat", "E", "Based on this")
        ),
        *((t, None) for t in ("The answer is A. No: the answer is B.", "A or B")),
        ("The answer is E", None),
    ],
)
def test_letters_are_read_only_where_they_are_stated(text: str, read: str | None) -> None:
    found = letter(text, 4)
    assert (None if isinstance(found, Unreadable) else found) == read


def tagged(content: str, name: str = "ANSWER_JSON") -> str:
    return f"<{name}>{content}</{name}>"


@pytest.mark.parametrize(
    ("content", "read"),
    [('{"choice": 1}', 1), ('{"choice": "0"}', 0), ('{"choice": true}', None), ("1", None)],
)
def test_choices_are_the_last_between_tags(content: str, read: int | None) -> None:
    first = tagged('{"choice": 0}', "FINAL_ANSWER_JSON")
    found = choice(f"{first} or {tagged(content, 'FINAL_ANSWER_JSON')}")
    if content == "1":
        assert found == 0, "what is no object is not looked at"
    else:
        assert (None if isinstance(found, Unreadable) else found) == read


@pytest.mark.parametrize(
    ("content", "read"),
    [('["Up", "left "]', ["up", "left"]), ("[]", []), ('["east"]', None), ("[up]", None)],
)
def test_moves_are_directions(content: str, read: list[str] | None) -> None:
    found = moves(tagged(content))
    assert (None if isinstance(found, Unreadable) else found) == read


@pytest.mark.parametrize(
    ("given", "official", "corrected"),
    [
        (["right", "down", "left"], 1, 1),
        (["right", "down", "left", "up"], 1, 3 / 4),
        (["right"], 1 / 3, 1 / 3),
    ],
)
def test_moves_beyond_the_known_ones_count_only_in_corrected_mode(
    given: list[str], official: float, corrected: float
) -> None:
    text = tagged(json.dumps(given))
    for mode, value in (("official", official), ("corrected", corrected)):
        outcome = scored(known(MOVES), text, mode=mode)
        assert isinstance(outcome, Result)
        assert outcome.value.value == pytest.approx(value)
        assert outcome.value.parts["criteria"]["exact"] == (len(given) == 3)


def test_what_cannot_be_read_is_unscored_and_the_chance_is_told() -> None:
    for form in (LETTER, CHOICE, MOVES):
        assert isinstance(scored(known(form), "I cannot tell."), Unread)
        assert isinstance(scored(known(form), " "), Unscored)
        official = scored(known(form), "I cannot tell.", mode="official")
        assert isinstance(official, Result)
        assert official.value.value == 0
    for form, of, chance in ((LETTER, 4, 0.25), (LETTER, 5, 0.2), (CHOICE, 2, 0.5)):
        text = "B" if form == LETTER else tagged('{"choice": 1}', "FINAL_ANSWER_JSON")
        outcome = scored(known(form, of=of), text)
        assert isinstance(outcome, Result)
        assert outcome.value.value == 1
        assert outcome.value.parts["criteria"] == {"chance": chance}
    assert isinstance(scored(query_of("Why?"), "B"), NotApplicable)
