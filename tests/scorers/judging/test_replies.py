"""What is read from a judge's reply, and what is not."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging_helpers import reply_of

from plait.scorers.judging.replies import RubricVerdict, Unreadable, read_reply
from plait.scorers.judging.rubrics import OWN, Rubric

SA, MSR = OWN["SA"], OWN["MSR"]
NAMES = [*SA.criteria, "Emotional Impact (penalty)"]
SCORE_ALONE = Rubric("official:SA", "", "")


def read(reply: str, rubric: Rubric = SA) -> RubricVerdict:
    result = read_reply(reply, rubric)
    assert isinstance(result, RubricVerdict), result
    return result


def reason(reply: str, rubric: Rubric = SA) -> str:
    result = read_reply(reply, rubric)
    assert isinstance(result, Unreadable), result
    return result.reason


def test_the_sum_less_the_penalty_is_the_score():
    for *met, harm in itertools.product((0, 1), repeat=7):
        expected = max(0, sum(met) - harm)
        result = read(reply_of(NAMES, [*met, harm], expected))
        assert (result.raw, result.stated, result.summed) == (expected, expected, expected)
        assert (result.source, result.consistent) == ("verdicts", True)
        assert [*result.criteria.values(), result.penalty] == [*met, harm]


def test_the_verdicts_win_over_another_score_and_both_are_kept():
    result = read(reply_of(NAMES, [1, 1, 0, 0, 0, 0, 0], 5))
    assert (result.raw, result.source) == (2, "verdicts")
    assert (result.stated, result.summed, result.consistent) == (5, 2, False)


def test_a_score_alone_is_read_where_a_verdict_is_missing():
    result = read(reply_of(NAMES[:5], [1, 1, 1, 0, 0], 4))
    assert (result.raw, result.source, result.summed) == (4, "score", None)
    assert result.consistent is None
    assert result.criteria["Innovation"] == 0
    assert result.criteria["Stylistic Consistency and Correspondence"] is None
    assert result.penalty is None


@pytest.mark.parametrize(
    "line",
    [
        "Text Quality: 1",
        "1. Text Quality: 1",
        "1) **Text Quality**: 1",
        "- **Text Quality:** 1",
        "**1. Text Quality (clarity):** 1/1",
        "text quality = 1",
        "| Text Quality | 1 | it is clear |",
        "Text Quality - 1",
        "Text Quality: 1 - the story is clear",
        "Text Quality: 1 (clear)",
        "Text Quality: 1, since it is clear.",
        "Text Quality: `1`",
        "Text Quality: <1>",
        "### Text Quality: 1 point",
        "Text Quality score: 1.",
    ],
)
def test_a_verdict_may_be_dressed(line):
    reply = "\n".join(
        [line, reply_of(NAMES[1:], [0, 0, 0, 0, 0, 0]).split("Verdicts\n")[1]]
    )
    result = read(reply)
    assert (result.criteria["Text Quality"], result.raw) == (1, 1)


@pytest.mark.parametrize(
    "line",
    [
        "Text Quality: 2",
        "Text Quality: -1",
        "Text Quality: 0.5",
        "Text Quality: <0 or 1>",
        "Text Quality: 0 or 1",
        "Text Quality: yes",
        "Text Quality: 10",
        "Text Quality",
        "the Text Quality: 1",
        "Text Quality: 1\nText Quality: 0",
        "Text Quality and Image Quality: 1",
        "Text Quality: 1 out of 6 points",
    ],
)
def test_what_is_neither_0_nor_1_is_no_verdict(line):
    reply = "\n".join(
        [line, reply_of(NAMES[1:], [0, 0, 0, 0, 0, 0]).split("Verdicts\n")[1]]
    )
    assert reason(reply) == "there is no score; no verdict of 0 or 1 on Text Quality"


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("### Score\n5", 5),
        ("### Feedback\nGood.\n\n### Score\n5\n", 5),
        ("### Score\nScore: 5/6", 5),
        ("### Score: 5", 5),
        ("**Score:** 5", 5),
        ("**Final Score: 5/6**", 5),
        ("### Final Score\n**5**", 5),
        ("Overall score = 5 out of 6.", 5),
        ("### Score (0-6)\n5", 5),
        ("Score: 0", 0),
        ("Score: 6 points", 6),
        ("### Score\n<5>", 5),
        ("### Score\n5 (of six)", 5),
        ("### Score\n5.0", 5),
        ("Score: 2\nOn reflection:\nScore: 3", 3),
    ],
)
def test_score(reply, score):
    assert read(reply, SCORE_ALONE) == RubricVerdict(score, "score", stated=score)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "there is no score"),
        ("5", "there is no score"),
        ("### Score\nfive", "there is no score"),
        ("### Score\nI assign 0-6 scale: 4", "there is no score"),
        ("### Score 1) text: good 5", "there is no score"),
        ("### Score\n5 - 1 = 4", "there is no score"),
        ("### Score\n<an integer from 0 to 6>", "there is no score"),
        ("The score is between 3 and 5", "there is no score"),
        ("### Score\n\u0665", "there is no score"),
        ("### Score\n" + "9" * 400, "there is no score"),
        ("### Score\n4.5", "the score '4.5' is no integer from 0 to 6"),
        ("### Score\n-1", "the score '-1' is no integer from 0 to 6"),
        ("### Score\n7", "the score '7' is no integer from 0 to 6"),
        ("Score: 4/5", "the score '4/5' is no integer from 0 to 6"),
        ("Score: 50/100", "the score '50/100' is no integer from 0 to 6"),
        ("Score: 3\nScore: 8", "the score '8' is no integer from 0 to 6"),
    ],
)
def test_no_score_is_guessed(reply, why):
    assert reason(reply, SCORE_ALONE) == why


@pytest.mark.parametrize("category", OWN)
def test_the_form_we_ask_for_is_what_is_read(category):
    rubric = OWN[category]
    assert reason(rubric.form, rubric).endswith("there are no verdicts")
    filled = rubric.form.replace("<0 or 1>", "1")
    head, _, _ = filled.rpartition("\n")
    result = read(f"{head}\n5", rubric)
    assert (result.raw, result.stated) == (5 if rubric.penalty else 6, 5)
    assert set(result.criteria.values()) == {1}


@given(st.text(st.sampled_from("0123456789/-. \n#*|:<>()Score")), st.sampled_from([*OWN]))
def test_whatever_is_read_is_on_the_scale(reply, category):
    for rubric in (OWN[category], SCORE_ALONE):
        result = read_reply(reply, rubric)
        assert isinstance(result, Unreadable) or result.raw in range(7)


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('{"score": 4}', 4),
        ("{'score': 4,}", 4),
        ('My judgement: {"Score": "4"} That is all.', 4),
        ('```JSON\n{"final_score": 4}\n```', 4),
        ('{"score": 4}\n\n{"score": 4}', 4),
        ('{"score": 4}\n\n{"score": 5}', None),
        ('{"score": 4, "score": 5}', None),
        ('The answer says: {"score": 6}\n\nScore: 2', 2),
    ],
)
def test_objects_are_read_as_those_of_all_judges(reply, score):
    read_again = read_reply(reply, SA)
    assert getattr(read_again, "raw", None) == score
