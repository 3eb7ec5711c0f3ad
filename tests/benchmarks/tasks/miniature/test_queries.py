"""Queries of the miniature world: seeded, of one split, and their answers follow."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict

import pytest
from miniature_simulator import answers, things

from plait.benchmarks.tasks.miniature.queries import (
    CATEGORIES,
    FIELDS,
    SceneImage,
    queries,
)

MANY = 600


@pytest.fixture(scope="module")
def some():
    return {split: queries(MANY, 0, split) for split in ("train", "test")}


def texts(parts):
    return [p for p in parts if isinstance(p, str)]


def pictures(parts):
    return [p for p in parts if isinstance(p, SceneImage)]


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_answer_follows_from_its_question(some, split):
    for q in some[split]:
        (shown,), (asked,) = pictures(q.question), texts(q.question)
        expected = list(answers(q.category, shown.scene, asked))
        assert texts(q.answer) == [text for text, _ in expected], q
        drawn = [things(p.scene) for p in pictures(q.answer)]
        assert drawn == [now for _, now in expected if now], q
        assert {p.scene.background for p in pictures(q.answer)} <= {shown.scene.background}


def test_the_forms_of_questions_and_answers(some):
    forms = {"SA": "tp", "PBL": "tptp", "MSR": "t"}
    for q in [*some["train"], *some["test"]]:
        letters = ["t" if isinstance(p, str) else "p" for p in q.answer]
        assert "".join(letters) == forms[q.category]
        assert [type(p) for p in q.question] == [SceneImage, str]
        assert q.wants_images == (q.category != "MSR")
        assert q.scenes == tuple(p.scene for p in pictures((*q.question, *q.answer)))
        assert len(set(q.scenes)) == len(q.scenes)
        words = len(" ".join(texts((*q.question, *q.answer))).split())
        assert words <= 115


def test_the_splits_share_no_scene(some):
    scenes = {split: {s for q in qs for s in q.scenes} for split, qs in some.items()}
    assert len(scenes["train"]) > 500
    assert len(scenes["test"]) > 500
    assert not scenes["train"] & scenes["test"]
    for split, seen in scenes.items():
        assert {scene.split for scene in seen} == {split}


def test_first_queries_never_change(some):
    """Other queries would be other data under the same name."""
    (asked,) = texts(some["test"][0].question)
    assert asked == FIRST_QUESTION
    contents = [(*q.question, *q.answer) for q in some["test"][:60]]
    told = [(texts(c), [p.seed for p in pictures(c)]) for c in contents]
    assert hashlib.sha256(repr(told).encode()).hexdigest() == FIRST_SIXTY


FIRST_QUESTION = (
    "There is a large blue star at the top left, a small green square at the bottom left "
    "and a large red circle at the bottom right on a pink background. The door opens: "
    "a large black star at the top right appears."
)
FIRST_SIXTY = "6e196fa43e00891cfbe2b1652a2a3e5b39cd41c516816b905f0598d089388311"


def test_names_fields_and_categories(some):
    test = some["test"]
    assert len({q.id for q in test}) == MANY
    assert all(re.fullmatch(rf"{q.category}-\d{{4}}", q.id) for q in test)
    assert Counter(q.category for q in test) == dict.fromkeys(CATEGORIES, MANY // 3)
    assert {q.field for q in test} == set(FIELDS)
    assert all(q.criteria.endswith(".") for q in test)


def test_no_count_and_no_verdict_is_nearly_always_right(some):
    counts = defaultdict(Counter)
    for q in some["test"] + some["train"]:
        if q.field in ("Counting", "Comparing"):
            words = q.answer[0].rstrip(".").split()
            counts[q.field][words[2 if q.field == "Counting" else -1]] += 1
    assert set(counts["Counting"]) == {"zero", "one", "two", "three", "four"}
    assert set(counts["Comparing"]) == {"yes", "no"}
    for field, answered in counts.items():
        assert max(answered.values()) / answered.total() < 0.65, field
