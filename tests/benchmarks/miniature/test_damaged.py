"""Damaged answers: their content is known, and the verdicts that are taught follow it."""

from __future__ import annotations

import functools
import random

import pytest
from scipy.stats import spearmanr

from plait.benchmarks.miniature.damaged import Damaged, document_of, draw_damaged, edit
from plait.benchmarks.miniature.training.mmie_score import (
    contents,
    counts,
    reply,
    topic,
    verdicts,
)
from plait.benchmarks.tasks.miniature.queries import queries
from plait.scorers.judging.replies import RubricVerdict, read_reply
from plait.scorers.judging.rubrics import OWN
from plait.scorers.truth.scene import Scene, SceneItem

pytestmark = pytest.mark.models


@functools.cache
def answers(n: int, split="train") -> list[Damaged]:
    rng = random.Random(7)
    return [draw_damaged(rng, split) for _ in range(n)]


def test_equal_seeds_give_equal_answers_and_documents() -> None:
    assert answers(30) == answers.__wrapped__(30)
    one, other = ([document_of(random.Random(1), a) for a in answers(30)] for _ in "ab")
    assert one == other


def truth(answer: Damaged) -> float:
    """F1 over all attributes of texts and images; of a reasoning answer 1 or 0."""
    if answer.query.category == "MSR":
        return float(answer.text == answer.query.answer[0])
    told, seen = contents(answer)
    return (counts(answer, told) + counts(answer, seen)).f1


@pytest.mark.parametrize("split", ["train", "test"])
def test_all_scenes_belong_to_the_split(split) -> None:
    for answer in answers(300, split):
        told = [p.told.scene for p in answer.parts if p.told and p.told.scene]
        shown = [p.shown.scene for p in answer.parts if p.shown]
        whole = [scene for scene in (*told, *shown) if scene.background]
        assert all(scene.split == split for scene in whole), answer.kind


def test_every_kind_is_made_and_only_the_right_one_is_always_right() -> None:
    by_kind: dict[str, list[float]] = {}
    for answer in answers(2000):
        by_kind.setdefault(answer.kind, []).append(truth(answer))
    assert len(by_kind) >= 16
    assert set(by_kind["right"]) == {1.0}
    assert {kind for kind, shares in by_kind.items() if min(shares) == 1} == {"right"}


def test_an_edited_scene_differs() -> None:
    scene = Scene.of("white", [SceneItem("top left", "small", "red", "star")])
    rng = random.Random(1)
    for edits in (1, 2, 3) * 100:
        assert edit(rng, scene, "train", edits) != scene


def test_replies_are_in_the_form_of_the_rubric() -> None:
    for answer in answers(300):
        verdict = read_reply(reply(answer), OWN[answer.query.category])
        assert isinstance(verdict, RubricVerdict)
        assert (verdict.consistent, verdict.source) == (True, "verdicts")
        assert [*verdict.criteria.values()] == verdicts(answer)


def test_the_sum_of_the_verdicts_follows_the_truth() -> None:
    every = answers(1000)
    drawn = [a for a in every if a.query.wants_images]
    agreement = spearmanr([truth(a) for a in drawn], [sum(verdicts(a)) for a in drawn])
    assert agreement.statistic > 0.93
    assert all((sum(verdicts(a)) == 6) == (truth(a) == 1) for a in every)


def test_topics_tell_apart_what_is_asked() -> None:
    problems = [q for q in queries(300, 3, "train") if q.category == "MSR"]
    assert all(topic(str(q.answer[0])) for q in problems)
    assert topic("There are two circles.") == topic("There is one circle.")
    assert topic("There are two circles.") != topic("There are two stars.")
    more = "There are two circles and one square, so yes."
    assert topic(more) == topic("There is one circle and zero squares, so no.")
    assert topic(more) != topic("There are two circles and one star, so yes.")
