"""A judge of seven aspects: what it asks, reads and sums up, and what was released."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contents import document, query_of
from judging_helpers import chat_spec, converse, picture, shown
from opening_helpers import UPSTREAM, read, released, told
from picture_helpers import NOISE, saved
from PIL import Image as Pillow

from plait.cluster.walks import drive
from plait.generators.base import Failure, Fault, Job, Outcome, Result, Skip, Unread
from plait.generators.document import Document, Draft, Image, Query, Text, TransformRequest
from plait.scorers.judging import aspects
from plait.scorers.judging.aspects import (
    ASPECTS,
    SQUEEZED,
    AspectsJudge,
    Squeezed,
    official_aspects,
)
from plait.scorers.judging.replies import Unreadable
from plait.scorers.judging.summaries import official_summary

ANSWER = document("First, then.", picture("a0"), "Last.")


def judge_of(**about: Any) -> AspectsJudge:
    return AspectsJudge(name="aspects:chatty", stage=chat_spec(), **about)


def reply(*scores: Any, **more: Any) -> dict[str, Any]:
    given = zip(ASPECTS, scores or range(1, 8), strict=False)
    return {name: {"Score": score, "Justification": "so"} for name, score in given} | more


GOOD = reply()


@pytest.mark.parametrize(
    ("said", "mean"),
    [
        (GOOD, 4),
        ({"scores": GOOD}, 4),
        ({"scores": dict.fromkeys(ASPECTS, 7)}, 7),
        (f"```json\n{json.dumps(GOOD)}\n```", 4),
        (reply(0, 10, 0, 10, 0, 10, 5), 5),
        (reply(7.5, 7.5, 7.5, 7.5, 7.5, 7.5, 7.5), 7.5),
        (GOOD | {"Overall": {"Score": 9}}, 4),
        (reply(1, 2, 3), None),
        (reply(1, 2, 3, 4, 5, 6, 11), None),
        (reply(1, 2, 3, 4, 5, 6, -1), None),
        (reply(1, 2, 3, 4, 5, 6, True), None),
        (reply(1, 2, 3, 4, 5, 6, "7"), 4),
        (f"Here: {json.dumps(GOOD)}\n", 4),
        (json.dumps(GOOD) + json.dumps(GOOD | {"Correctness": 10}), None),
        (reply(1, 2, 3, 4, 5, 6, None), None),
        ({"scores": [1, 2, 3, 4, 5, 6, 7]}, None),
        ("All good: 10 of 10.", None),
        ("[]", None),
        ("", None),
    ],
)
def test_a_reply_needs_all_seven_scores_in_either_form(said: Any, mean: Any) -> None:
    scores = aspects.aspects(said if isinstance(said, str) else json.dumps(said))
    if mean is None:
        assert isinstance(scores, Unreadable)
    else:
        assert isinstance(scores, dict)
        assert list(scores) == list(ASPECTS)
        assert sum(scores.values()) / 7 == mean


def test_the_whole_answer_is_shown_and_what_cannot_be_read_is_asked_for_again() -> None:
    judge, query = judge_of(), query_of("Draw.", picture("q0"))
    jobs, outcome = converse(judge, query, ANSWER, ["Fine.", json.dumps(GOOD)])
    first, again = (job.input for job in jobs)
    assert first.images == (*query.question[1:], *ANSWER.images)
    assert shown(first).index("Last.") < shown(first).index("Please only output")
    assert [turn.role for turn in again.turns] == ["system", "user", "assistant", "user"]
    assert all(name in shown(again.turns[-1].content) for name in ASPECTS)
    assert isinstance(outcome, Result)
    assert outcome.value.value == 40
    shares = [i / 10 for i in range(1, 8)]
    assert list(outcome.value.parts["criteria"].values()) == shares
    limited, _ = converse(judge_of(max_images=1), query, ANSWER, [json.dumps(GOOD)])
    assert limited[0].input.images == (query.question[1],)


def test_what_stays_unread_is_unscored_and_a_failure_is_a_failure() -> None:
    _, outcome = converse(judge_of(), query_of("Draw."), ANSWER, ["Fine.", "Still fine."])
    assert isinstance(outcome, Unread)
    down = Failure("HTTP 500", Fault.ENDPOINT)
    assert converse(judge_of(), query_of("Draw."), ANSWER, [down])[1] == down


# --------------------------------------------------------------------- as released


def official(query: Query, answer: Document, said: str) -> tuple[list[Job], Any]:
    """The jobs of the chat stage, images being squeezed, and the outcome."""
    judge = judge_of(mode="official", wording="T", retries=0)
    asked: list[Job] = []

    def answering(jobs: Any) -> list[Outcome[Any]]:
        if jobs[0].spec is SQUEEZED:
            return [done for job in jobs for done in Squeezed(512)([with_data(job.input)])]
        asked.extend(jobs)
        return [Result(Draft((Text(said),))) for _ in jobs]

    return asked, drive(judge.judge(query, answer), answering)


def with_data(request: TransformRequest) -> TransformRequest:
    """As a worker is given it."""
    image = request.image
    return TransformRequest(replace(image, data=Path(image.place or "").read_bytes()))


def test_official_mode_asks_as_the_released_program(tmp_path: Path) -> None:
    task = read(released(tmp_path))
    queries = {q.id: q for q in task.samples if isinstance(q, Query)}
    asked = dict[str, str]()
    for model, own in task.answers.items():
        for id, given in own.items():
            assert isinstance(given, Document)
            (job,), outcome = official(queries[id], given, json.dumps(GOOD))
            asked[f"{model} {id}"] = told(job.input.turns)
            assert outcome.value.value == 40
    assert len(asked) == 6
    expected = {k: q.replace(" JPEG 512x512", "") for k, q in UPSTREAM["asked"].items()}
    assert asked == expected


@pytest.mark.parametrize(
    ("mode", "kept"),
    [("RGB", True), ("L", True), ("CMYK", True), ("RGBA", False), ("P", False)],
)
def test_images_are_squeezed_and_those_that_are_no_jpeg_left_out(
    mode: str, kept: bool
) -> None:
    form = "TIFF" if mode == "CMYK" else "PNG"
    image = Image.of(saved(Pillow.fromarray(NOISE).convert(mode), form))
    (outcome,) = Squeezed(512)([TransformRequest(image)])
    assert isinstance(outcome, Result if kept else Skip)
    if isinstance(outcome, Result):
        with Pillow.open(io.BytesIO(outcome.value.read())) as picture:
            assert (picture.format, picture.size) == ("JPEG", (512, 512))


@pytest.mark.parametrize(("said", "made"), UPSTREAM["replies"])
def test_official_mode_reads_as_the_released_program(said: str, made: Any) -> None:
    """`made` is the summary of that reply alone, or that none comes of it."""
    scores = official_aspects(said)
    if isinstance(scores, Unreadable):
        assert not isinstance(made, dict) or not made
        return
    assert official_summary(scores.items()) == made


def test_official_summaries_equal_the_released_ones() -> None:
    for case in UPSTREAM["summaries"]:
        for model, replies in case["replies"].items():
            read = [s for r in replies if isinstance(s := official_aspects(r), dict)]
            summary = official_summary(pair for scores in read for pair in scores.items())
            assert summary == case["summary"][model]
