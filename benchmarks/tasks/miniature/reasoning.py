"""Problems about one scene: how many, are there more, where, what."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from scorers.truth.language import (
    count_answer,
    more_answer,
    name,
    what_answer,
    where_answer,
)
from scorers.truth.scene import COLOURS, SHAPES, Scene, Split, random_scene


@dataclass(frozen=True, slots=True)
class Problem:
    """A question about a scene and its answer."""

    field: str
    scene: Scene
    question: str
    answer: str


def random_problem(rng: random.Random, split: Split) -> Problem:
    """A problem about a scene of `split`."""
    return rng.choice(_PROBLEMS)(rng, split)


def _count_shape(rng: random.Random, split: Split) -> Problem:
    shape, number = rng.choice(SHAPES), rng.choice(_NUMBERS)
    scene = _scene_where(rng, split, lambda scene: _shapes(scene, shape) == number)
    return _counting(scene, number, shape)


def _count_colour(rng: random.Random, split: Split) -> Problem:
    colour, number = rng.choice([*COLOURS]), rng.choice(_NUMBERS)
    scene = _scene_where(rng, split, lambda scene: _colours(scene, colour) == number)
    return _counting(scene, number, f"{colour} shape")


def _count_all(rng: random.Random, split: Split) -> Problem:
    scene = random_scene(rng, split)
    return _counting(scene, len(scene.items), "shape")


def _counting(scene: Scene, number: int, thing: str) -> Problem:
    question = f"How many {thing}s are there?"
    return Problem("Counting", scene, question, count_answer(number, thing))


def _compare(rng: random.Random, split: Split) -> Problem:
    shape, other = rng.sample(SHAPES, 2)
    more = rng.random() < 0.5

    def fits(scene: Scene) -> bool:
        first, second = _shapes(scene, shape), _shapes(scene, other)
        return (first > second) == more and first + second > 0

    scene = _scene_where(rng, split, fits)
    answer = more_answer(_shapes(scene, shape), shape, _shapes(scene, other), other)
    question = f"Are there more {shape}s than {other}s?"
    return Problem("Comparing", scene, question, answer)


def _where(rng: random.Random, split: Split) -> Problem:
    scene = random_scene(rng, split)
    item = rng.choice(scene.items)
    return Problem("Locating", scene, f"Where is the {name(item)}?", where_answer(item))


def _what(rng: random.Random, split: Split) -> Problem:
    scene = random_scene(rng, split)
    item = rng.choice(scene.items)
    return Problem("Naming", scene, f"What is at the {item.place}?", what_answer(item))


_PROBLEMS: tuple[Callable[[random.Random, Split], Problem], ...] = (
    *(_count_shape, _count_colour, _count_all),
    *(_compare, _compare, _where, _where, _what, _what),
)
_NUMBERS = (0, 1, 1, 2, 2, 3)
"""Answers of counting problems, by how often they are asked for."""


def _scene_where(rng: random.Random, split: Split, fits: Callable[[Scene], bool]) -> Scene:
    while not fits(scene := random_scene(rng, split)):
        pass
    return scene


def _shapes(scene: Scene, shape: str) -> int:
    return sum(item.shape == shape for item in scene.items)


def _colours(scene: Scene, colour: str) -> int:
    return sum(item.colour == colour for item in scene.items)
