"""Answers compared with the known one: what both modes read, and what it is worth."""

from __future__ import annotations

import json
from typing import Any

import pytest
from contents import document, query_of
from paths import DATA

from plait.cluster.local import LocalStages
from plait.cluster.walks import drive
from plait.generators.base import NotApplicable, Outcome, Result, Unread, Unscored
from plait.generators.document import Query, Score
from plait.scorers import resolve_scorer
from plait.scorers.answers import CHOICE, KNOWN, LETTER, MOVES, choice, moves
from plait.scorers.judging.replies import Unreadable

UPSTREAM = json.loads((DATA / "known_answers_upstream.json").read_text())
"""What RealUnify's and Uni-MMMU's own functions made of texts."""
STYLES = json.loads((DATA / "letter_styles.json").read_text())
"""Answers to questions with four options, by the letter that they commit to."""
TRUTH = {LETTER: "B", CHOICE: 1, MOVES: UPSTREAM["truth"]}


def known(form: str, **about: Any) -> Query:
    about = {"form": form, "truth": TRUTH[form], "of": 4 if form == LETTER else 2} | about
    return query_of("Which?", metadata={KNOWN: json.dumps(about)})


def scored(query: Query, text: str, **settings: Any) -> Outcome[Score]:
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


def tagged(content: str, name: str = "ANSWER_JSON") -> str:
    return f"<{name}>{content}</{name}>"


def read_of(form: str, text: str, **about: Any) -> Any:
    """What the scorer reads in an answer; None where it is unscored."""
    outcome = scored(known(form, **about), text)
    return outcome.value.parts["read"] if isinstance(outcome, Result) else None


def test_no_style_of_answer_is_read_wrong_and_most_are_read() -> None:
    """Answers as models write them, by the letter that a person reads at a glance."""
    expected = {text: name for name, texts in STYLES.items() for text in texts}
    read = {text: read_of(LETTER, text) for text in expected}
    wrong = {
        text: found
        for text, found in read.items()
        if found is not None and found != expected[text]
    }
    assert wrong == {}
    readable = [text for text, name in expected.items() if name != "unread"]
    unread = [text for text in readable if read[text] is None]
    assert len(expected) > 150
    assert len(unread) < 0.05 * len(readable), unread


@pytest.mark.parametrize(
    ("text", "options", "read"),
    [
        ("The answer is E", 4, None),
        ("The answer is E", 5, "E"),
        ("**H**", 8, "H"),
        # A later correction counts, and a later statement that corrects nothing does not.
        ("The answer is A. No: the answer is B.", 4, "B"),
        ("The answer is A. The answer is B.", 4, None),
        ("A. cat\nB. dog\n\nThe answer is A. Wait, it's B.", 4, "B"),
        ("Answer: A or B. Final answer: B", 4, "B"),
        ("<think>The answer is A.", 4, None),
        ("<think>The answer is A.</think>B", 4, "B"),
    ],
)
def test_the_last_word_on_a_letter_counts(
    text: str, options: int, read: str | None
) -> None:
    assert read_of(LETTER, text, of=options) == read


def test_nested_json_is_unread() -> None:
    for text in (
        '{"choice":' * 20_000,
        tagged("[" * 20_000),
        tagged("[" * 900 + "]" * 900),
    ):
        assert isinstance(choice(text), Unreadable)
        assert isinstance(moves(text), Unreadable)


@pytest.mark.parametrize(
    "content",
    ['{"a":' * 20_000 + "1" + "}" * 20_000, '{"choice": %s}' % ("1" * 5000)],
    ids=["nested", "long number"],
)
def test_a_choice_that_python_cannot_load_is_wrong_officially(content: str) -> None:
    text = tagged(content, "FINAL_ANSWER_JSON")
    outcome = scored(known(CHOICE), text, mode="official")
    assert isinstance(outcome, Result)
    assert outcome.value.value == 0


FIRST = tagged('{"choice": 0}', "FINAL_ANSWER_JSON")
SECOND = tagged('{"choice": "1"}', "FINAL_ANSWER_JSON")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (SECOND, 1),
        (f"It fits.\n{SECOND}", 1),
        (tagged('```json\n{"choice": 1.0}\n```', "FINAL_ANSWER_JSON"), 1),
        ('<final_answer_json>{"choice": 1}', 1),
        ('```json\n{"choice": 0, "rationale": "1"}\n```', 0),
        (f"<think>{FIRST}</think>{SECOND}", 1),
        (f"<think>{FIRST}", None),
        (f"{FIRST} or {SECOND}", None),
        (f"{FIRST} Wait, that is wrong. {SECOND}", 1),
        (f"{SECOND} {SECOND}", 1),
        (tagged('{"choice": 0, "choice": 1}', "FINAL_ANSWER_JSON"), None),
        (tagged('{"choice": true}', "FINAL_ANSWER_JSON"), None),
        (tagged("1", "FINAL_ANSWER_JSON"), None),
        ('I would say {"choice": 1} is possible.', None),
    ],
)
def test_choices_are_read_between_tags_and_alone(text: str, read: int | None) -> None:
    assert read_of(CHOICE, text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (tagged('["Up", "left "]'), ["up", "left"]),
        (tagged("[]"), []),
        (tagged('```json\n["up"]\n```'), ["up"]),
        ('["up", "left"]', ["up", "left"]),
        (tagged('["up"]') + " Correction: " + tagged('["left"]'), ["left"]),
        (tagged('["up"]') + tagged('["left"]'), None),
        ('It moves among ["up", "down"] only.', None),
        *((tagged(content), None) for content in ('["east"]', "[up]", '[["up"]]', "[1]")),
    ],
)
def test_moves_are_directions(text: str, read: list[str] | None) -> None:
    assert read_of(MOVES, text) == read


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
