"""Replies read by hand: what counts as a verdict in either mode, and what never does."""

from __future__ import annotations

import pytest

from plait.generators.base import NotApplicable, Unscored
from plait.scorers.pairwise import readers
from plait.scorers.pairwise.games import FactualityScores, Verdict


@pytest.mark.parametrize(
    ("reply", "preference"),
    [
        ("Final Verdict is: [[A>>B]]", 2),
        ("**Final verdict:**\n\n[[ b > a ]]", -1),
        ("[[B=A]] in short", 0),
        ("[[A<<B]]", -2),
        ("[[B&lt;A]]", 1),
        ("[[A\u226bB]]", 2),
        ("[[Assistant B >> Assistant A]]", -2),
        ("first order [[A>B]], second [[A=B]]\nFinal Verdict is: [[A=B]]", 0),
        ("Final Verdict is: see below\nFinal Verdict is: [[B>A]]", -1),
        ("so [[A>B]] and again [[A>B]]", 1),
        ("Final Verdict is: [A>B]", 1),
        ("Final Verdict: **B \\>\\> A**, all in all", -2),
        ("I weigh [[A>B]]. Final Verdict is: B&lt;A.", 1),
        ("Final Verdict: Assistant A >> Assistant B", 2),
        ("[[A>B]]\nThat is my final verdict. A is better.", 1),
        ("Final verdict (A>>B, A>B, A=B, B>A or B>>A): [[B>A]]", -1),
        ("", None),
        ("A is better", None),
        ("[[C>B]]", None),
        ("[A>B]", None),
        ("I give A>B. Final Verdict is: unclear", None),
        ("Final Verdict is: A>B or A>>B", None),
        ("Final Verdict is: A>>B, A>B, A=B, B>A or B>>A", None),
        ("**Final verdict:** A>B / A=B", None),
        ("Final Verdict is: [A>B] or maybe [A>>B]", None),
        ("[[A>B]] or A>>B", None),
        ("[[A>B]] or [[B>A]]", None),
        ("At first glance [[A>B]]. Final Verdict is: B>A", None),
        ("Final Verdict is: B>A, not [[A>B]]", None),
    ],
)
def test_levels_are_read_however_dressed_and_never_made_of_several(
    reply: str, preference: int | None
) -> None:
    result = readers.level(reply)
    if preference is None:
        assert isinstance(result, Unscored)
    else:
        assert isinstance(result, Verdict)
        assert (result.preference, readers.LEVELS[result.word]) == (preference, preference)


ALL_FOUR = "\n".join(readers.VOTES)


@pytest.mark.parametrize(
    ("reply", "corrected", "official"),
    [
        ("thoughts\nAnswer1", "Answer1", "Answer1"),
        ("Answer1\nno, on second thoughts\nAnswer2", "Answer2", "Answer1"),
        ("ANSWER2", "Answer2", "Answer2"),
        ("**Answer2**", "Answer2", None),
        ("Answer 1.\n\n", "Answer1", None),
        ("Answer2\nThat is my vote.", "Answer2", "Answer2"),
        ("Unable to decide: Situation One", readers.SITUATION_ONE, readers.SITUATION_ONE),
        ("unable to decide: situation two", readers.SITUATION_TWO, readers.SITUATION_TWO),
        ("Answer1\nAnswer2\nboth are fine", None, "Answer1"),
        (ALL_FOUR, None, "Answer1"),
        (f"- {ALL_FOUR}".replace("\n", "\n- "), None, None),
        (f"I may choose\n{ALL_FOUR}\nand say\nAnswer2", "Answer2", "Answer1"),
        ("Answer2\nAnswer1", None, "Answer1"),
        ("Answer2\nAnswer2", "Answer2", "Answer2"),
        ("I prefer Answer1", None, None),
        ("", None, None),
    ],
)
def test_votes(reply: str, corrected: str | None, official: str | None) -> None:
    for read, expected in ((readers.vote, corrected), (readers.official_vote, official)):
        result = read(reply)
        assert (result.word if isinstance(result, Verdict) else None) == expected


NAME = "esponse {} Visual Factuality Score"


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (" (0-10): 3", 3),
        (" (out of 10): 3.", 3),
        (" (0-10)**: **3**/10", 3),
        (" (7/10)", 7),
        (": 7 out of 10, well done", 7),
        (" - [7/10].", 7),
        (" | 7 |", 7),
        (": 7/10 (1 of 4 pictures is wrong)", 7),
        (": 7.5/10\u201d", 7.5),
        (": 0\r", 0),
        (": 7\nThat score is right.", 7),
        (f": 7/10\nR{NAME.format('A')} is low for its two errors", 7),
        (":\n1. colours right\n2. count wrong 4/10", None),
        (": [1] + [2] = 3/10", None),
        (": 4 + 3 = 7/10", None),
        (": 4/10 + 3/10 = 7/10", None),
        (": 4/10 -> 7/10", None),
        (": 7,5/10", None),
        (": 7-8/10", None),
        (": 7/100", None),
        (": 10/10/10", None),
        (": 7 of its 9 facts hold", None),
        (" (0-10)", None),
    ],
)
def test_a_mark_is_a_number_out_of_10_in_the_line_of_its_name(
    said: str, value: float | None
) -> None:
    one, other = f"R{NAME.format('A')}{said}", f"R{NAME.format('B')}: 8/10"
    for reply in (f"{one}\n{other}", f"{other}\n{one}"):
        result = readers.marks(reply)
        if value is None:
            assert isinstance(result, Unscored)
        else:
            assert result == FactualityScores(value, 8)


def test_marks_of_both_in_one_line_and_empty_replies() -> None:
    a, b = (NAME.format(x) for x in "AB")
    for reply in (f"R{a}: 7, r{b}: 8.", f'{{"R{a}": 7, "R{b}": 8}}'):
        assert readers.marks(reply) == FactualityScores(7, 8)
    assert isinstance(readers.official_marks(""), NotApplicable)
    assert isinstance(readers.official_marks(" "), Unscored)


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ('{"reasoning": "he said "no", and left", "better_response": "A"}', "A"),
        ('```json\n{"better_response": "b",\n "confidence": 0.4}\n```', "B"),
        ("{'better_response': 'Response B.'}", "B"),
        ('{"better_response": "**A**"} and again {"better_response": "A"}', "A"),
        ('{"better_response": "A', "A"),
        ('{"better_response": "Tie"}', "tie"),
        ('{"better_response": "A" or "B"}', None),
        ('{"better_response": "A is better"}', None),
        ('{"better_response": "A"} no, {"better_response": "B"}', None),
        ('{"better_response": null}', None),
        ('{"better_response": ""}', None),
        ("Response A is better.", None),
        ("", None),
    ],
)
def test_a_choice_is_read_from_json_however_broken(reply: str, choice: str | None) -> None:
    result = readers.better(reply)
    if choice is None:
        assert isinstance(result, Unscored)
        assert ("several" in result.reason) == (reply.count("better_response") > 1)
    else:
        assert result == Verdict(choice, {"A": 1, "B": -1, "tie": 0}[choice])
