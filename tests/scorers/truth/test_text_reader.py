"""Sentences of scenes read back, and those beyond the grammar refused."""

from __future__ import annotations

import random

import pytest

from plait.benchmarks.tasks.miniature.queries import MiniatureQuery, SceneImage, queries
from plait.scorers.truth.language import sentence
from plait.scorers.truth.reading import Illegible, ItemReading, Reading
from plait.scorers.truth.scene import random_scene
from plait.scorers.truth.text_reader import (
    Count,
    Fact,
    Location,
    TextReading,
    YesOrNo,
    read_text,
)


def read(text: str) -> TextReading:
    found = read_text(text)
    assert isinstance(found, TextReading), found
    return found


def test_sentences_are_read() -> None:
    for seed in range(600):
        rng = random.Random(seed)
        scene = random_scene(rng, "test" if seed % 2 else "train")
        assert [found.scene for found in read(sentence(scene, rng)).scenes] == [scene]


def text_of(parts: tuple[object, ...]) -> str:
    return "\n".join(part for part in parts if isinstance(part, str))


def scenes_of(query: MiniatureQuery) -> list[object]:
    return [part.scene for part in query.answer if isinstance(part, SceneImage)]


def test_answers_of_queries_are_read_and_their_stories_are_no_scenes() -> None:
    for query in queries(100, 5, "train"):
        answer = read(text_of(query.answer))
        if query.wants_images:
            assert [found.scene for found in answer.scenes] == scenes_of(query)
            assert answer.facts == ()
            asked = read(text_of(query.question)).scenes
            told = [query.scenes[0]] if query.category == "SA" else []
            assert [found.scene for found in asked] == told
        else:
            assert bool(answer.facts) != bool(answer.scenes)


CIRCLE = ItemReading("top left", "large", "red", "circle")


@pytest.mark.parametrize(
    "text",
    [
        "There is a large red circle at the top left.",
        "the picture shows a Large Red Circle in the upper-left corner",
        "Step 2: Now there is one big red circle at the top left!",
        "Here is a large red circle at the top left.",
        "Sure, here you go.\nThere is a large red circle at the top left.",
        "The picture now shows a large red circle at the top left. Nice, is it not?",
    ],
)
def test_small_variation_is_understood(text: str) -> None:
    assert read(text) == TextReading((Reading(None, (CIRCLE,)),))


@pytest.mark.parametrize(
    ("text", "scene"),
    [
        (
            "There is a red circle.",
            Reading(items=(ItemReading(colour="red", shape="circle"),)),
        ),
        ("A star. The background is grey.", Reading("grey", (ItemReading(shape="star"),))),
        (
            "On a gray background there is now a star.",
            Reading("grey", (ItemReading(shape="star"),)),
        ),
        (
            "Now there is a blue shape at the bottom right and a large red circle at the "
            "top left, on a pink background.",
            Reading("pink", (CIRCLE, ItemReading("bottom right", colour="blue"))),
        ),
    ],
)
def test_what_is_not_stated_is_none(text: str, scene: Reading) -> None:
    assert read(text) == TextReading((scene,))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("There are two circles.", (Count(2, "circle"),)),
        ("There is one red shape.", (Count(1, "red shape"),)),
        ("There are no stars.", (Count(0, "star"),)),
        ("3", (Count(3),)),
        ("So the answer is: four.", (Count(4),)),
        ("Yes.", (YesOrNo(True),)),
        ("No, there are not more circles than stars.", (YesOrNo(False),)),
        (
            "There is one circle and two stars, so no.",
            (Count(1, "circle"), Count(2, "star"), YesOrNo(False)),
        ),
        ("The red circle is at the top left.", (Location("top left", "red circle"),)),
        ("It is in the lower right corner.", (Location("bottom right"),)),
        ("Top left", (Location("top left"),)),
    ],
)
def test_short_answers_are_facts(text: str, facts: tuple[Fact, ...]) -> None:
    assert read(text) == TextReading(facts=facts)


@pytest.mark.parametrize(
    "text",
    [
        "Now there is a large red at the top left.",
        "There is a large circle red at the top left.",
        "There is a red circle at the top.",
        "There is a red circle at the top left and.",
        "a red circle on a purple background",
        "There is a red red circle at the top left.",
        "The star is not at the top left.",
        "Yes, there are not more circles than stars.",
        "There are two red circles at the top left.",
        "There is a star at the top left. The circle is big and round.",
    ],
)
def test_what_the_grammar_does_not_cover_is_unreadable(text: str) -> None:
    found = read_text(text)
    assert isinstance(found, Illegible), found
    assert "is not in the grammar" in found.reason
    assert read("I like to swim. Hello!") == TextReading()
