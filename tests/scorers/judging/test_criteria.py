"""A judge that rules on each criterion: what it asks, reads and makes of the rulings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contents import document, query_of
from judging_helpers import chat_spec, converse, picture, shown
from paths import DATA
from trial import plan_of, writer

from plait.benchmarks.tasks.task_set import load
from plait.cluster.counts import count
from plait.cluster.store import Store
from plait.generators.base import Failure, Fault, NotApplicable, Result, Unread
from plait.generators.document import Image, Query, Request
from plait.generators.given import GivenAnswers
from plait.scorers.judging.criteria import (
    ABOUTS,
    CriteriaJudge,
    CriteriaWording,
    official_ruling,
    ruling,
)
from plait.scorers.judging.replies import Unreadable

MET, NOT_MET, UNSURE = (json.dumps({"criteria_met": v}) for v in (True, False, "not sure"))
ANSWER = document("First, then.", picture("a0"), "Last.")
RELEASED = CriteriaWording(
    text="T <<question>> <<text_answer>>",
    image_open="O <<question>> <<text_answer>>",
    image_closed="C <<question>>",
    system="S",
)


def query(texts: int = 1, images: int = 0, **about: Any) -> Query:
    lists = {"text": texts, "image": images}
    metadata = {
        ABOUTS[about]: json.dumps([f"{about}-{i}" for i in range(n)])
        for about, n in lists.items()
    }
    made = query_of("Q <<text_answer>>", category="art", field="open")
    return replace(made, metadata=metadata, **about)


def judge_of(**about: Any) -> CriteriaJudge:
    return CriteriaJudge(name="criteria:chatty", stage=chat_spec(), **about)


@pytest.mark.parametrize(
    ("reply", "corrected", "official"),
    [
        (MET, True, True),
        (NOT_MET, False, False),
        (UNSURE, False, False),
        ('```json\n{"criteria_met": "No"}\n```', False, False),
        ('{"criteria_met": " YES "}', True, True),
        # Vectors of the released reader, run; corrected mode guesses nothing.
        ('{"criteria_met": 1}', True, False),
        ('{"criteria_met": null}', "unread", False),
        ('{"criteria_met": "Yes."}', True, False),
        ('{"met": true}', "unread", False),
        ('{"result": {"criteria_met": true}}', True, True),
        (f"{NOT_MET} or rather {MET}", "unread", False),
        ('A word {x}. {"criteria_met": "y"}', True, True),
        (r'{"explanation": "\d", "criteria_met": true}', True, True),
        ('{"a": {"b": 1}, "criteria_met": "1"', True, "unread"),
        ('{"a": {"b": 1}, "criteria_met": "1', "unread", "unread"),
        ("[]", "unread", "unread"),
        ("", "unread", "unread"),
    ],
)
def test_a_reply_is_read(reply: str, corrected: object, official: object) -> None:
    read = (ruling(reply), official_ruling(reply))
    assert tuple("unread" if isinstance(r, Unreadable) else r for r in read) == (
        corrected,
        official,
    )


@pytest.mark.parametrize(
    ("texts", "images", "replies", "rates", "counts", "value"),
    [
        (2, 0, [MET, NOT_MET], {"text": 0.5}, (1, 1, 0), 50),
        (2, 1, [MET, UNSURE, NOT_MET], {"text": 0.5, "image": 0}, (1, 2, 0), 25),
        (0, 3, [MET, MET, NOT_MET], {"image": 2 / 3}, (2, 1, 0), 200 / 3),
        # The second criterion is asked about again, alone.
        (1, 1, [MET, "hm", NOT_MET], {"text": 1, "image": 0}, (1, 1, 0), 50),
    ],
)
def test_a_score_is_the_mean_of_what_is_met_about_text_and_images(
    texts: int,
    images: int,
    replies: list[str],
    rates: dict[str, float],
    counts: tuple[int, ...],
    value: float,
) -> None:
    asked = query(texts, images)
    jobs, outcome = converse(judge_of(), asked, ANSWER, replies)
    assert isinstance(outcome, Result)
    parts = outcome.value.parts
    assert outcome.value.value == pytest.approx(value)
    assert parts["criteria"] == pytest.approx(rates)
    assert (parts["met"], parts["not_met"], parts["unscored"]) == counts
    assert [r["criterion"] for r in parts["rulings"]] == [
        *(f"text-{i}" for i in range(texts)),
        *(f"image-{i}" for i in range(images)),
    ]
    assert judge_of().jobs(asked) == texts + images
    assert len({job.key for job in jobs}) == len(replies)
    assert {job.group for job in jobs} == {f"{asked.id} {about}" for about in rates}


def test_a_plan_bounds_the_questions_about_answers_that_wait(tmp_path: Path) -> None:
    """Two systems wait; of the third's answer, which is there, the questions are known."""
    stage, asked = chat_spec(settings={"style": "strict"}), query(3, 1)
    judge = CriteriaJudge(name="criteria:chatty", stage=stage)
    there = GivenAnswers(name="there", answers={asked.id: ANSWER})
    plan = plan_of([asked], write=writer())
    plan = replace(plan, scorers=[judge], systems=[*plan.systems, there])
    counts = {c.spec.name: c for c in count(plan, Store(tmp_path))}
    questions = counts[judge.stage.name]
    assert (questions.distinct, questions.later) == (4, (2 * 2 + 1) * 4)


@pytest.mark.parametrize("mode", ["corrected", "official"])
def test_what_cannot_be_read_has_no_score(mode: Any) -> None:
    judge = judge_of(mode=mode, retries=0, wording=RELEASED)
    _, outcome = converse(judge, query(2, 1), ANSWER, [MET, MET, "hm"])
    assert isinstance(outcome, Unread)
    assert "1 of 1 criteria about the image" in outcome.reason
    assert [r["met"] for r in outcome.parts["rulings"]] == [True, True, None]
    assert outcome.parts["rulings"][2]["reason"]
    assert (outcome.parts["met"], outcome.parts["unscored"]) == (2, 1)
    # The share of the others is not the answer's.
    _, outcome = converse(judge, query(2), ANSWER, [MET, "hm"])
    assert isinstance(outcome, Unread)


def test_a_failure_is_the_outcome_and_a_query_without_criteria_is_not_judged() -> None:
    down = Failure("HTTP 500", Fault.ENDPOINT)
    assert converse(judge_of(), query(2), ANSWER, [MET, down])[1] == down
    assert isinstance(converse(judge_of(), query(0), ANSWER, [])[1], NotApplicable)


def test_a_closed_question_shows_the_judge_of_images_no_text_of_the_answer() -> None:
    jobs, _ = converse(judge_of(), query(1, 1, field="closed"), ANSWER, [MET, MET])
    about_text, about_image = (job.input for job in jobs)
    assert "Last." in shown(about_text)
    assert "Last." not in shown(about_image)
    assert about_image.images == ANSWER.images
    start = shown(about_image).partition("image-0")[0]
    other = converse(judge_of(), query(0, 2, field="closed"), ANSWER, [MET, MET])[0][1]
    assert shown(other.input).startswith(start), "criteria come last"


def told_in(request: Request) -> str:
    """As the recording writes what a call was given."""
    parts = (
        ("<image>" if isinstance(s, Image) else f"<{KINDS[turn.role]}>{s.text}")
        for turn in request.turns
        for s in turn.content
    )
    return "".join(parts)


KINDS = {"system": "system", "user": "text"}
UPSTREAM = json.loads((DATA / "criteria_upstream.json").read_text())
"""What the released program asked and made of the replies, with `RELEASED` as its texts."""


@pytest.mark.parametrize("item", UPSTREAM["items"])
def test_official_mode_asks_and_counts_as_the_released_program(
    item: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "data.json").write_text(json.dumps([item["row"]]))
    (asked,) = load(f"ueval:{tmp_path}", cache=tmp_path / "cache").samples
    assert isinstance(asked, Query)
    answer = document(item["text"], *(picture(f"a{i}") for i in range(item["images"])))
    judge = judge_of(mode="official", retries=0, wording=RELEASED, cached=item["cached"])
    questions, replies = zip(*item["asked"], strict=True) if item["asked"] else ((), ())
    jobs, outcome = converse(judge, asked, answer, replies)
    assert [told_in(job.input) for job in jobs] == list(questions)
    if not questions:
        assert isinstance(outcome, NotApplicable)
        return
    assert isinstance(outcome, Result)
    rates = {about: rate for about, rate in item["rates"].items() if rate is not None}
    assert outcome.value.parts["criteria"] == rates


@pytest.mark.parametrize(("reply", "met"), UPSTREAM["replies"].items())
def test_official_mode_reads_as_the_released_program(reply: str, met: bool | None) -> None:
    read = official_ruling(reply)
    assert (None if isinstance(read, Unreadable) else read) is met
