"""IMUG-Bench's judge beside its program: letters, points, requests, sums."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contents import content
from imug_helpers import ROW, UPSTREAM, write_imug
from judging_helpers import chat_spec

from plait.benchmarks.tasks.task_set import load
from plait.cluster.walks import drive
from plait.generators.base import Job, NotApplicable, Outcome, Result, Unread, Unscored
from plait.generators.document import Document, Draft, Image, Query, Request, Text
from plait.generators.errors import PlaitError, UsageError
from plait.scorers.judging import imug
from plait.scorers.judging.imug import (
    IMUG,
    ImugJudge,
    determined_letters,
    letters_in,
    official_determined,
    official_letters,
    official_points,
    points_in,
)
from plait.scorers.judging.replies import Unreadable
from plait.scorers.judging.resolve import resolve_judge
from plait.scorers.judging.rewards import Wording
from plait.scorers.judging.sources import IMUG_PROMPTS, parse_rubric
from plait.scorers.judging.summaries import ImugValue, imug_summary

RELEASED = Wording.of({"image": "how to score", "dynamic": "how to determine"})
DRAWN = {1: Image.of(b"drawn 1"), 4: Image.of(b"drawn 4")}


@pytest.fixture
def session(tmp_path: Path) -> Query:
    place = write_imug(tmp_path / "data")
    (query,) = load(f"imug:{place}", cache=tmp_path / "cache").samples
    assert isinstance(query, Query)
    return query


def judge(mode: Any = "corrected", **changes: Any) -> ImugJudge:
    wording = RELEASED if mode == "official" else ImugJudge.own
    scale = ImugJudge.scale_of("imug:m", mode)
    made = {"stage": chat_spec(), "retries": 0, "mode": mode, "wording": wording}
    return ImugJudge(name="imug:m", scale=scale, **(made | changes))


def answer(drawn: Any = (1, 4), second: str = "A", fifth: str = "B") -> Document:
    parts = {2: second, 3: "A", 5: fifth} | {n: DRAWN[n] for n in drawn}
    turns = [content(parts[n]) if n in parts else () for n in range(1, 6)]
    return Document.of(turns)


def judged(
    query: Query, answered: Document, replies: Any, **about: Any
) -> tuple[Outcome[Any], list[Request]]:
    """The outcome where the judge replies to turns by number; what it was asked."""
    asked: list[Request] = []

    def stages(jobs: list[Job]) -> list[Outcome[Any]]:
        asked.extend(job.input for job in jobs)
        said = [replies[int(job.group.rpartition(" ")[2])] for job in jobs]
        return [Result(Draft((Text(text),))) for text in said]

    return drive(judge(**about).judge(query, answered), stages), asked


def replied(**changes: str) -> dict[int, str]:
    texts = {
        "turn1": '{"scores": [5, 3]}',
        "turn2": '{"determined_answer": "C"}',
        "turn4": '{"scores": [2]}',
        "turn5": '{"determined_answer": "B"}',
    }
    return {int(name[-1]): text for name, text in (texts | changes).items()}


@pytest.mark.parametrize(("right", "response", "value"), UPSTREAM["letters"])
def test_official_letters_are_worth_what_the_program_gives(right, response, value) -> None:
    assert official_letters(right, response) == value


@pytest.mark.parametrize(("reply", "percent"), UPSTREAM["images"])
def test_official_points_are_read_as_by_the_program(reply, percent) -> None:
    found = official_points(reply)
    if isinstance(found, Unreadable) or not found:
        assert percent is None
    else:
        assert sum(found) / len(found) * 20 == percent


@pytest.mark.parametrize(("raw", "reply", "letters"), UPSTREAM["determined"])
def test_official_answers_are_determined_as_by_the_program(raw, reply, letters) -> None:
    question = imug.Question("", (), ("dynamic", raw))
    found = judge("official")._read(question, reply)
    assert (None if isinstance(found, Unreadable) else found) == letters
    assert isinstance(official_determined(reply), Unreadable) == (letters is None)


@pytest.mark.parametrize("recorded", UPSTREAM["requests"])
def test_official_requests_are_those_of_the_program(session, recorded) -> None:
    answered = answer(recorded["drawn"])
    _, asked = judged(session, answered, dict.fromkeys(range(6), "no"), mode="official")
    names = {image.digest: f"drawn {n}" for n, image in DRAWN.items()}
    names[session.images[0].digest] = "plant"
    seen = []
    for request in asked:
        system, user = request.turns
        told = [
            {"text": s.text} if isinstance(s, Text) else names[s.digest]
            for s in user.content
        ]
        seen.append([system.content[0].text, told])
    wanted = [
        [RELEASED["image" if turn in "14" else "dynamic"], request]
        for turn, request in recorded["requests"].items()
    ]
    assert seen == wanted


def test_the_summary_is_what_the_program_prints() -> None:
    records, printed = UPSTREAM["summary"]["records"], UPSTREAM["summary"]["printed"]
    values = [ImugValue(g, f"turn {n} ({kind})", v) for g, n, kind, v in records]
    found = imug_summary([*values, ImugValue("Hybrid", "looks back", 1.0)])
    expected = dict(printed["overall"])
    for group, own in printed["by_class"].items():
        expected |= {f"{group}: {kind}": value for kind, value in own.items()}
    for number, own in printed["by_turn"].items():
        expected |= {f"turn {number}: {kind}": value for kind, value in own.items()}
    assert found == expected
    assert imug_summary([]) == dict.fromkeys(("all", "text", "image"))


def test_a_session_is_worth_the_mean_of_its_turns(session) -> None:
    outcome, asked = judged(session, answer(second="A, C"), replied())
    turns = [0.8, 0.75, 1.0, 0.4, 1.0]
    assert outcome.value.value == pytest.approx(20 * sum(turns))
    kinds = ("image", "text", "text", "image", "text")
    criteria = {
        f"turn {n} ({kind})": pytest.approx(value)
        for n, (kind, value) in enumerate(zip(kinds, turns, strict=True), 1)
    }
    criteria["looks back"] = pytest.approx((0.75 + 0.4 + 1) / 3)
    assert outcome.value.parts["criteria"] == criteria
    assert len(asked) == judge().jobs(session) == 4
    assert asked[2].images == (session.images[0], DRAWN[1], DRAWN[4])
    assert "1. It flowers." in asked[2].text
    assert asked[3].images == (DRAWN[1], DRAWN[4])


def test_letters_that_stand_together_count_in_corrected_mode(session) -> None:
    corrected, _ = judged(session, answer(second="AC"), replied())
    official = replied(
        turn1='{"evaluation_results": [{"score": 5}]}',
        turn4='{"evaluation_results": [{"score": 7}]}',
    )
    released, _ = judged(session, answer(second="AC"), official, mode="official")
    assert corrected.value.parts["criteria"]["turn 2 (text)"] == 1
    assert released.value.parts["criteria"]["turn 2 (text)"] == 0
    assert released.value.parts["criteria"]["turn 4 (image)"] == 1.4


def test_what_is_missing_or_unread_is_told(session) -> None:
    outcome, asked = judged(session, answer(drawn=[1]), replied())
    assert outcome.value.parts["criteria"]["turn 4 (image)"] == 0
    assert len(asked) == 3, "there is no image to ask about"
    outcome, _ = judged(session, answer(), replied(turn4="no"))
    assert isinstance(outcome, Unread)
    outcome, _ = judged(session, answer(), replied(turn4="no"), mode="official")
    assert outcome.value.parts["dropped"] == 2, "the first is in another form there"
    outcome, _ = judged(session, answer(fifth="none of them"), replied())
    assert isinstance(outcome, Unread)
    assert "turn 5" in outcome.reason
    outcome, _ = judged(session, Document.of([(), ()]), replied())
    assert isinstance(outcome, Unscored)
    grid = json.loads(session.metadata[IMUG])
    grid |= {"domain": "Geometric_Coloring", "subdomain": "cubes_coloring"}
    of_grid = replace(session, metadata=session.metadata | {IMUG: json.dumps(grid)})
    for query in (of_grid, replace(session, metadata={})):
        assert isinstance(judge().query_refusal(query), NotApplicable)


@pytest.mark.parametrize(
    ("reply", "letters"),
    [
        ('{"determined_answer": "BD", "reasoning": "x"}', {"B", "D"}),
        ('{"determined_answer": "B, D"}', {"B", "D"}),
        ('{"determined_answer": "The answer is B"}', {"B"}),
        ('{"determined_answer": null}', None),
        ('{"determined_answer": "None"}', None),
        ('{"determined_answer": "A"} or {"determined_answer": "B"}', None),
        ("B", None),
    ],
)
def test_corrected_answers_are_determined_by_letters_alone(reply, letters) -> None:
    found = determined_letters(reply)
    assert (None if isinstance(found, Unreadable) else found) == letters


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        ('{"scores": [5, 0]}', [5, 0]),
        ('```json\n{"scores": [3, 4]}\n```', [3, 4]),
        ('{"evaluation_results": [{"score": 3}, {"score": 4}]}', [3, 4]),
        ('{"scores": [5]}', None),
        ('{"scores": [5, 6]}', None),
        ('{"scores": [5, 2.5]}', None),
        ('{"scores": [5, null]}', None),
        ("fine", None),
    ],
)
def test_corrected_points_are_whole_and_complete(reply, scores) -> None:
    found = points_in(reply, 2)
    assert (None if isinstance(found, Unreadable) else found) == scores


@pytest.mark.parametrize(
    ("response", "letters"),
    [
        ("B", {"B"}),
        (" (B) ", {"B"}),
        ("A, C and D", {"A", "C", "D"}),
        ("ACD", {"A", "C", "D"}),
        ("The answer is B.", {"B"}),
        ("A cat is shown.", None),
        ("", None),
    ],
)
def test_letters_of_a_response(response, letters) -> None:
    found = letters_in(response)
    assert (None if isinstance(found, Unreadable) else found) == letters


def test_official_texts_are_read_from_a_checkout(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "scripts/auxiliary"
    file = folder / IMUG_PROMPTS["dynamic"]
    with pytest.raises(PlaitError, match="the checkout of IMUG-Bench"):
        ImugJudge.wording_in(file)
    folder.mkdir(parents=True)
    for name, inside in IMUG_PROMPTS.items():
        (folder / inside).write_text(RELEASED[name])
    with pytest.raises(UsageError, match="not the published prompt"):
        ImugJudge.wording_in(file)
    digests = {n: hashlib.sha256(RELEASED[n].encode()).hexdigest() for n in IMUG_PROMPTS}
    monkeypatch.setattr(imug, "RELEASED", {"imug": digests})
    assert dict(ImugJudge.wording_in(file).texts) == dict(RELEASED.texts)
    assert parse_rubric(f"official:{tmp_path}").file == file
    source = parse_rubric(f"official:{file}")
    source.keep(tmp_path / "run")
    shutil.rmtree(folder)
    copy = source.or_copy_in(tmp_path / "run")
    assert dict(ImugJudge.wording_in(copy.file).texts) == dict(RELEASED.texts)
    shutil.copytree(copy.file.parent, folder)
    settings = {"mode": "official", "rubric": f"official:{tmp_path}"}
    found = resolve_judge("imug:m", "tiny", settings, chat=lambda _: chat_spec())
    assert (found.released_summary, found.scale) == ("imug", "unbounded")
    with pytest.raises(UsageError, match="structured"):
        resolve_judge("imug:m", "tiny", {"structured": True}, chat=lambda _: chat_spec())


def test_the_crafted_row_is_in_the_published_form() -> None:
    assert {*ROW} == {"domain", "subdomain", "sample_id", "tasks"}
