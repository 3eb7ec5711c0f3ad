"""The story of a run tells what its scores say, on answers that are wrong on purpose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from report_helpers import Judge

from benchmarks.results.board import Board
from benchmarks.results.story.answers import StoryScorers, story_answers, wrong_order
from benchmarks.results.story.chapters import StoryChapter, chapters_of
from benchmarks.results.story.page import write_story
from benchmarks.tasks.miniature.queries import query
from benchmarks.tasks.miniature.samples import sample_of
from cluster.plan import Evaluation
from generators.base import Result, Unscored
from generators.document import Blob, Score
from generators.errors import UsageError
from generators.system import System

TRUTH, CLIP = Judge("truth:answer", "0-100"), Judge("clipscore", "0-2.5")
JUDGE = Judge("judge:mmie-score", "0-100")
SAMPLES = [sample_of(query(i, 0, "test", "PBL")) for i in range(4)]
Marks = Mapping[tuple[str, int], tuple[float | None, float, float]]
"""(truth, clip, judge) of a system's answer to a query."""

RIGHT = {("gt", i): (100.0, 0.8, 100.0) for i in range(4)}
GOOD = {("good", i): (95.0 - i, 0.7, 90.0) for i in range(4)}
BAD = {("bad", i): (50.0 + i, 0.6, 40.0) for i in range(4)}


def parts(truth: float) -> dict[str, object]:
    return {"attributes": {"colour": [1, 2, 2], "place": [2, 2, 2]}, "recall": truth}


def evaluation(
    system: str, index: int, marks: tuple[float | None, float, float]
) -> Evaluation:
    sample = SAMPLES[index]
    truth, clip, judge = marks
    verdicts = {"Text Quality": 1, "Image Quality": 0}
    scores = {
        "truth:answer": Unscored("unreadable")
        if truth is None
        else Result(Score(truth, parts(truth))),
        "clipscore": Result(Score(clip, {})),
        "judge:mmie-score": Result(Score(judge, {"criteria": verdicts})),
    }
    assert sample.reference is not None
    return Evaluation(system, sample, 0, Result(sample.reference), scores)


def board(marks: Marks, scorers: tuple[Judge, ...] = (TRUTH, CLIP, JUDGE)) -> Board:
    names = dict.fromkeys(system for system, _ in marks)
    return Board(
        systems=[System(name=name, draft=None) for name in names],
        scorers=scorers,
        evaluations=[evaluation(s, i, values) for (s, i), values in marks.items()],
        categories={},
        fields=(),
        weights="mini",
    )


def titled(chapters: list[StoryChapter], word: str) -> StoryChapter:
    return next(c for c in chapters if word in c.title)


def test_the_story_begins_with_the_best_answer_and_its_query() -> None:
    chapters = chapters_of(board({**RIGHT, **GOOD, **BAD}))
    assert [c.title for c in chapters] == [
        "A query",
        "A good answer",
        "What truth sees",
        "Where CLIPScore is fooled",
        "What the judge says, and where it errs",
    ]
    asked, right = chapters[0].panels
    assert asked.content == SAMPLES[0].question
    assert right.content == SAMPLES[0].reference.segments  # type: ignore[union-attr]
    (good,) = chapters[1].panels
    assert good.heading == "good"
    assert ("truth:answer", "95.00 of 100") in good.marks
    seen = chapters[2].panels[0]
    assert seen.heading == "bad"
    assert ("colour right", "1 of 2") in seen.facts


def test_the_pair_that_clipscore_orders_wrongly_is_told() -> None:
    fooled = {("bad", 2): (52.0, 0.79, 40.0)}
    chapters = chapters_of(board({**RIGHT, **GOOD, **BAD, **fooled}))
    chapter = titled(chapters, "CLIPScore")
    assert [p.heading for p in chapter.panels] == ["What was asked", "good", "bad"]
    assert "prefers the second" in chapter.words[1]
    assert ("clipscore", "0.790 of 2.5") in chapter.panels[2].marks


def test_the_ground_truth_may_be_the_better_of_the_pair() -> None:
    fooled = {("bad", 1): (51.0, 1.5, 40.0)}
    chapters = chapters_of(board({**RIGHT, **BAD, **fooled}))
    chapter = titled(chapters, "CLIPScore")
    assert [p.heading for p in chapter.panels[1:]] == ["The ground truth", "bad"]


def test_without_a_wrong_order_the_widest_difference_is_told() -> None:
    marks = {**RIGHT, **GOOD, **BAD, ("bad", 3): (53.0, 0.6, 1.0)}
    chapter = titled(chapters_of(board(marks)), "judge")
    assert "puts no two answers" in chapter.words[1]
    assert chapter.panels[0].content == SAMPLES[3].question
    assert ("Image Quality", "not met") in chapter.panels[1].facts


def test_the_widest_wrong_order_counts() -> None:
    marks = {**GOOD, **BAD, ("bad", 0): (94.0, 0.75, 0.0), ("bad", 3): (2.0, 0.71, 0.0)}
    scorers = StoryScorers(truth=TRUTH, clip=CLIP, judge=None)
    answers = story_answers(board(marks), scorers)
    pair = wrong_order(answers, TRUTH, CLIP)
    assert pair is not None
    assert pair.preferred.sample.id == SAMPLES[3].id


def test_what_truth_cannot_read_is_not_told_as_wrong() -> None:
    marks = {**GOOD, ("bad", 0): (None, 2.0, 0.0)}
    chapters = chapters_of(board(marks))
    assert all(p.heading != "bad" for c in chapters for p in c.panels)


def test_a_run_without_truth_or_answers_is_refused() -> None:
    with pytest.raises(UsageError, match="truth:answer"):
        chapters_of(board(GOOD, (CLIP, JUDGE)))
    with pytest.raises(UsageError, match="nothing to tell"):
        chapters_of(board(RIGHT))


def test_a_run_without_judge_and_clip_has_three_chapters() -> None:
    assert len(chapters_of(board({**RIGHT, **GOOD, **BAD}, (TRUTH,)))) == 3


def test_controls_play_no_part() -> None:
    marks = {**GOOD, ("gt:no-images", 0): (10.0, 2.0, 99.0)}
    chapters = chapters_of(board(marks))
    assert all(not p.heading.startswith("gt:") for c in chapters for p in c.panels)


def test_the_page_holds_its_pictures_and_escapes_text(tmp_path: Path) -> None:
    marks = {**RIGHT, **GOOD, **BAD}
    made = board(marks)
    hostile = replace(made.evaluations[4].sample, field="<script>alert(1)</script>")
    changed = [
        replace(e, sample=hostile) if e.sample.id == hostile.id else e
        for e in made.evaluations
    ]
    page = write_story(replace(made, evaluations=changed), tmp_path, Blob.read)
    text = page.read_text()
    assert page.name == "story.html"
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    # Of the query one picture, of the right answer and every panel with an answer two.
    assert text.count("data:image/png;base64,") >= 5
    assert not re.search(r'(src|href)="(?!data:|#|report\.html)', text)


def test_a_picture_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    def read(blob: Blob) -> bytes:
        raise OSError("the disk is gone")

    text = write_story(board({**RIGHT, **GOOD}), tmp_path, read).read_text()
    assert "the picture cannot be read: the disk is gone" in text
