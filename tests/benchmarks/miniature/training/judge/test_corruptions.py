"""Damaged answers: their content is known, and only of their split."""

from __future__ import annotations

import random

import pytest

from benchmarks.miniature.training.judge.corruptions import Damaged, damaged
from benchmarks.miniature.training.judge.edits import edited
from benchmarks.miniature.training.judge.shares import Share, share, truth
from benchmarks.miniature.training.judge.verdicts import reply, topic, verdicts
from benchmarks.tasks.miniature.queries import queries
from scorers.judging.replies import RubricVerdict, read_reply
from scorers.judging.rubrics import OWN
from scorers.truth.scene import Scene, SceneItem


def answers(n: int, split="train") -> list[Damaged]:
    rng = random.Random(7)
    return [damaged(rng, split) for _ in range(n)]


def test_equal_seeds_give_equal_answers():
    assert answers(30) == answers(30)


@pytest.mark.parametrize("split", ["train", "test"])
def test_all_scenes_belong_to_the_split(split):
    for answer in answers(300, split):
        told = [p.told.scene for p in answer.parts if p.told and p.told.scene]
        shown = [p.shown.scene for p in answer.parts if p.shown]
        whole = [scene for scene in (*told, *shown) if scene.background]
        assert all(scene.split == split for scene in whole), answer.kind


def test_every_kind_is_made_and_only_the_right_one_is_always_right():
    by_kind: dict[str, list[float]] = {}
    for answer in answers(2000):
        by_kind.setdefault(answer.kind, []).append(truth(answer))
    assert len(by_kind) >= 16
    assert set(by_kind["right"]) == {1.0}
    for kind, shares in by_kind.items():
        assert kind == "right" or min(shares) < 1, kind


def test_an_edited_scene_differs():
    scene = Scene.of("white", [SceneItem("top left", "small", "red", "star")])
    rng = random.Random(1)
    for edits in (1, 2, 3):
        for _ in range(100):
            assert edited(rng, scene, "train", edits) != scene


LEFT = SceneItem("top left", "small", "red", "star")
RIGHT = SceneItem("top right", "large", "blue", "circle")


@pytest.mark.parametrize(
    ("got", "right", "there"),
    [
        (Scene.of("white", [LEFT, RIGHT]), 9, 9),
        (Scene.of("grey", [LEFT, RIGHT]), 8, 9),
        (Scene.of("white", [LEFT]), 5, 5),
        (
            Scene.of("white", [SceneItem("bottom left", "small", "red", "star"), RIGHT]),
            8,
            9,
        ),
        (Scene.of("white", [SceneItem("top left", "large", "red", "circle"), RIGHT]), 7, 9),
        (None, 0, 0),
    ],
)
def test_share_of_right_attributes(got, right, there):
    assert share(Scene.of("white", [LEFT, RIGHT]), got) == Share(right, 9, there)


def test_f1_counts_what_is_missing_and_what_is_too_much():
    assert Share(5, 9, 5).f1 == pytest.approx(10 / 14)
    assert Share(9, 9, 9).f1 == 1
    assert Share(0, 9, 0).f1 == 0


def test_the_reply_is_in_the_form_of_the_rubric():
    for answer in answers(300):
        rubric = OWN[answer.query.category]
        verdict = read_reply(reply(answer), rubric)
        assert isinstance(verdict, RubricVerdict)
        assert verdict.consistent
        assert verdict.source == "verdicts"
        assert [*verdict.criteria.values()] == verdicts(answer)


def test_the_sum_of_the_verdicts_follows_the_truth():
    from scipy.stats import spearmanr

    every = answers(1000)
    drawn = [a for a in every if a.query.wants_images]
    agreement = spearmanr([truth(a) for a in drawn], [sum(verdicts(a)) for a in drawn])
    assert agreement.statistic > 0.93
    best = [sum(verdicts(a)) == 6 for a in every]
    assert best == [truth(a) == 1 and a.text == _right(a) for a in every]


def _right(answer: Damaged) -> str:
    return "" if answer.query.wants_images else str(answer.query.answer[0])


def test_topics_tell_apart_what_is_asked():
    problems = [q for q in queries(300, 3, "train") if q.category == "MSR"]
    for query in problems:
        assert topic(str(query.answer[0])), query.answer
    assert topic("There are two circles.") == topic("There is one circle.")
    assert topic("There are two circles.") != topic("There are two stars.")
    assert topic("The red star is at the top left.") == topic(
        "The red star is at the bottom right."
    )
    more = "There are two circles and one square, so yes."
    assert topic(more) == topic("There is one circle and zero squares, so no.")
    assert topic(more) != topic("There are two circles and one star, so yes.")
