"""Unison's judge: its program's figures, replies in both modes, boxes and mismatches."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from contents import document, query_of
from judging_helpers import chat_spec
from unison_helpers import KINDS, UPSTREAM, WORDING, answer_to, reply_to, write

from plait.benchmarks.tasks.task_set import TaskSet, load
from plait.cluster.walks import drive
from plait.generators.base import Job, NotApplicable, Outcome, Result, Unread, Unscored
from plait.generators.document import Document, Draft, Query, Text
from plait.generators.errors import MissingInput, UsageError
from plait.scorers.boxes import Box, Size, box_of, first_numbers, listed_numbers, overlap
from plait.scorers.judging.imgedit import ASPECTS
from plait.scorers.judging.mismatches import count_matches, different_mismatches
from plait.scorers.judging.replies import Unreadable
from plait.scorers.judging.resolve import UnisonSettings
from plait.scorers.judging.sources import Mode
from plait.scorers.judging.summaries import UNISON_MEASURES, UnisonValue, unison_summary
from plait.scorers.judging.unison import (
    TASKS,
    UnisonJudge,
    edit_in,
    match_in,
    official_edit,
    official_option,
    official_yes_or_no,
    operations_of,
    yes_or_no,
)

# --------------------------------------------------------------- the program's own figures


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> TaskSet:
    place = write(tmp_path_factory.mktemp("unison") / "data")
    return load(f"unison:{place}", cache=place / "cache")


@pytest.fixture(scope="module")
def queries(task: TaskSet) -> dict[str, Query]:
    return {query.id: query for query in task.samples if isinstance(query, Query)}


def judge_of(mode: Mode = "official", **about: Any) -> UnisonJudge:
    retries = 0 if mode == "official" else 1
    usual = {"name": "unison:chatty", "stage": chat_spec(), "wording": WORDING}
    return UnisonJudge(**({**usual, "mode": mode, "retries": retries} | about))


def judged(
    judge: UnisonJudge, query: Query, answer: Document, reply: Callable[[str, str], str]
) -> tuple[list[Job], Outcome[Any]]:
    """The jobs and the outcome; a reply is made of the kind of question and its text."""
    jobs: list[Job] = []

    def said(job: Job) -> Outcome[Any]:
        segments = (s for turn in job.input.turns for s in turn.content)
        asked = " ".join(s.text for s in segments if isinstance(s, Text))
        (kind,) = (name for name, head in KINDS.items() if asked.startswith(head))
        return Result(Draft((Text(reply(kind, asked)),)))

    def replied(pending: Sequence[Job]) -> list[Outcome[Any]]:
        jobs.extend(pending)
        return [said(job) for job in pending]

    return jobs, drive(judge.judge(query, answer), replied)


@pytest.mark.contract
def test_official_mode_counts_as_the_released_program(queries: dict[str, Query]) -> None:
    """All values of all crafted answers, and their summary: the largest difference is 0."""
    values: dict[str, list[float]] = {}
    rulings: list[UnisonValue] = []
    for query in queries.values():
        judge, answer = judge_of(), answer_to(query.id)
        jobs, outcome = judged(judge, query, answer, reply_to)
        assert len(jobs) <= judge.jobs(query, len(answer.images))
        assert isinstance(outcome, Result), outcome
        criteria = outcome.value.parts["criteria"]
        assert [*criteria] == [*UNISON_MEASURES]
        assert outcome.value.value == 100 * criteria["Uni."]
        values[query.id] = [*criteria.values()]
        rulings += [UnisonValue(query.category, *one) for one in criteria.items()]
    assert values == UPSTREAM["values"]
    assert unison_summary(TASKS, rulings) == UPSTREAM["as_released"]


def best(kind: str, asked: str) -> str:
    """The reply that is best, in the form of both modes."""
    if kind == "edit":
        names = ASPECTS[asked.split()[1]]
        return "\n".join(f"{name}: 5" for name in names)
    return {"check": "yes", "match": "5"}[kind]


@pytest.mark.contract
@pytest.mark.parametrize(
    ("id", "official", "corrected"),
    [
        # The edit from the given box is none, that from the own box is one.
        ("ugg-2", 0, 1),
        ("ugg-1", 1, 0),
        # Another row asks the same, whose two questions expect a yes; of the own three one
        # expects a no.
        ("ggu-2d_spatial-1", 1, 2 / 3),
    ],
)
def test_corrected_mode_judges_what_belongs_to_the_answer(
    queries: dict[str, Query], id: str, official: float, corrected: float
) -> None:
    found = []
    modes: Sequence[Mode] = ("official", "corrected")
    for mode in modes:
        _, outcome = judged(judge_of(mode), queries[id], answer_to(id), best)
        assert isinstance(outcome, Result), outcome
        found.append(outcome.value.parts["criteria"]["Gen."])
    assert found == [official, corrected]


@pytest.mark.contract
def test_a_yes_with_a_mark_behind_it_tells_no_mismatch(queries: dict[str, Query]) -> None:
    answers = [document()] * 20
    answers[10] = document("Yes.")
    answer = Document.of([one.segments for one in answers])
    official, _ = judged(judge_of(), queries["me-1"], answer, best)
    corrected, outcome = judged(judge_of("corrected"), queries["me-1"], answer, best)
    assert (len(official), len(corrected)) == (2, 0)
    assert isinstance(outcome, Result)
    assert outcome.value.parts["details"]["told"] == 0
    assert outcome.value.parts["details"]["missed"] == 2


@pytest.mark.contract
def test_a_reply_that_cannot_be_read_is_asked_for_again_and_never_a_number(
    queries: dict[str, Query],
) -> None:
    def vague(kind: str, asked: str) -> str:
        return "As you like."

    jobs, outcome = judged(judge_of("corrected"), queries["ic-1"], answer_to("ic-1"), vague)
    assert len(jobs) == 2
    assert isinstance(outcome, Unread)
    _, outcome = judged(judge_of(), queries["ic-1"], answer_to("ic-1"), vague)
    assert isinstance(outcome, Result)
    assert outcome.value.parts["criteria"]["Gen."] == 0


@pytest.mark.contract
def test_an_answer_without_an_image_is_worth_nothing_and_asks_nothing(
    queries: dict[str, Query],
) -> None:
    jobs, outcome = judged(judge_of(), queries["ic-3"], answer_to("ic-3"), best)
    assert not jobs
    assert isinstance(outcome, Result)
    assert outcome.value.parts["criteria"] == {"Und.": 2 / 3, "Gen.": 0, "Uni.": 0}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("id", "most"),
    [("ic-4", 4), ("ugg-1", 1), ("ugg-6", 2), ("ggu-2d_spatial-2", 3), ("me-1", 2 + 60)],
)
def test_a_plan_counts_all_questions_that_may_be_asked(
    queries: dict[str, Query], id: str, most: int
) -> None:
    judge = judge_of("corrected")
    assert judge.jobs(queries[id], 1) == most
    assert judge.jobs(queries[id], 0) == (60 if id == "me-1" else 0)


@pytest.mark.contract
def test_other_queries_and_answers_are_not_judged(queries: dict[str, Query]) -> None:
    _, outcome = judged(judge_of(), query_of("Draw."), document("x"), best)
    assert isinstance(outcome, NotApplicable)
    _, outcome = judged(judge_of(), queries["ugg-1"], document("x"), best)
    assert isinstance(outcome, Unscored)


@pytest.mark.contract
def test_boxes_may_be_pixels_of_the_image(queries: dict[str, Query]) -> None:
    """The given box is the polygon around (10, 10) and (60, 60.5), of 120 x 80 pixels."""
    told = [(Text("[10, 10, 60, 60.5]"),), (), ()]
    shares = []
    for pixel_boxes in (True, False):
        judge = judge_of("corrected", pixel_boxes=pixel_boxes)
        _, outcome = judged(judge, queries["ugg-2"], Document.of(told), best)
        assert isinstance(outcome, Result)
        shares.append(outcome.value.parts["criteria"]["Und."])
    assert shares[0] == pytest.approx(1)
    assert shares[1] < 0.01


def test_our_own_words_show_the_images_and_what_is_asked(
    queries: dict[str, Query],
) -> None:
    judge = judge_of("corrected", wording=UnisonJudge.own)
    asked = []

    def replied(jobs: Sequence[Job]) -> list[Outcome[Any]]:
        asked.extend(jobs)
        return [Result(Draft((Text('{"answer": "Yes"}'),))) for _ in jobs]

    outcome = drive(judge.judge(queries["ic-2"], answer_to("ic-2")), replied)
    assert isinstance(outcome, Result)
    assert len(asked) == 2
    for job, number in zip(asked, (1, 2), strict=True):
        text = "".join(s.text for s in job.input.turns[0].content if isinstance(s, Text))
        assert f"Is zz{number} there?" in text
        assert len(job.input.images) == 1


# ------------------------------------------------------------------------- the user's copy


def test_official_mode_needs_the_users_copy(tmp_path: Any) -> None:
    file = tmp_path / "Evaluation_Pipeline" / "common" / "judge.py"
    rubric = f"official:{tmp_path}"
    with pytest.raises(MissingInput):
        UnisonSettings(rubric=rubric, mode="official").judge("unison:x", chat_spec())
    file.parent.mkdir(parents=True)
    file.write_text("CHECK = 'mine'")
    with pytest.raises(UsageError, match=r"judge\.py"):
        UnisonSettings(rubric=rubric, mode="official").judge("unison:x", chat_spec())
    with pytest.raises(ValueError, match="official:PATH"):
        UnisonSettings(mode="official")
    with pytest.raises(ValueError, match="structured"):
        UnisonSettings(structured=True)


# -------------------------------------------------------------------------------- replies


@pytest.mark.parametrize(
    ("text", "official", "corrected"),
    [
        ("Yes.", "yes", "yes"),
        ("no, it is not", "no", "no"),
        ("There is no doubt: yes", "no", "unknown"),
        ("nothing", "unknown", "unknown"),
    ],
)
def test_yes_and_no(text: str, official: str, corrected: str) -> None:
    assert official_yes_or_no(text) == official
    assert yes_or_no(text) == corrected


def test_official_marks_and_options() -> None:
    assert official_edit("A: 3\nB: 5\nC: 1") == ((3 + 3 + 1) / 3 - 1) / 4
    assert official_edit("rating 5") == 1
    assert official_edit("ERROR: no reply") == 0
    assert official_option("A cube", {"A": "x", "B": "y"}) == "A"
    assert official_option("I think B", {"A": "x", "B": "y"}) == "unknown"
    # Only an answer that is these letters and nothing else is none.
    assert official_option("nan\n", {"A": "x", "D": "A"}) == "D"
    assert official_option("nan", {"A": "x", "D": "A"}) == "unknown"


def test_boxes() -> None:
    assert box_of(first_numbers("[0.1, 0.2, 0.5, 0.9]")) == Box(100, 200, 500, 900)
    assert box_of([12, 8, 60, 40], Size(120, 80)) == Box(100, 100, 500, 500)
    assert listed_numbers("1. The box is [50, 9, 10, 20].") == [10, 9, 50, 20]
    assert overlap(Box(0, 0, 2, 1), Box(1, 0, 3, 1)) == pytest.approx(1 / 3)


def test_operations_and_mismatches() -> None:
    first, second = operations_of("1: Add, a hat, [1, 2, 3, 4]; 2: Change, it")
    assert first == ("add", "a hat", (1, 2, 3, 4))
    assert second == ("adjust", "it", ())
    told = different_mismatches([["the hat is red"], ["image shows the hat is red"]])
    assert told == ["the hat is red"]
    found = count_matches([[1.0, 0.25], [0.25, 0.0]])
    assert (found.precision, found.recall, found.extra, found.missed) == (0.5, 0.5, 1, 1)


def test_the_summary_is_the_mean_of_the_tasks_that_were_run() -> None:
    values = [UnisonValue("a", "Uni.", 0.5), UnisonValue("a", "Uni.", 1.0)]
    summary = unison_summary(["a", "b"], values)
    assert summary["a: Uni."] == summary["Overall"] == 0.75
    assert summary["b: Uni."] is None


@pytest.mark.parametrize(
    ("reply", "read"),
    [("4", 0.75), ('{"score": 1}', 0), ("4.5", 0.875), ("0", None), ("2 or 3", None)],
)
def test_a_match_is_one_mark_or_unread(reply: str, read: float | None) -> None:
    found = match_in(reply)
    assert isinstance(found, Unreadable) if read is None else found == read


def test_no_mark_of_an_edit_counts_for_more_than_the_first() -> None:
    names = tuple(ASPECTS["add"])
    reply = json.dumps(dict(zip(names, (3, 5, 1), strict=True)))
    assert edit_in(reply, names) == ((3 + 3 + 1) / 3 - 1) / 4
    assert isinstance(edit_in(json.dumps({names[0]: 3}), names), Unreadable)
