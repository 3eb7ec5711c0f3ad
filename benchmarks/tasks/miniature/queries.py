"""Queries of the miniature world in MMIE's three categories, any number of them.

The i-th query depends on the seed, the split and i alone. All scenes of a query belong to
its split.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from plait.scorers.truth.changes import Change, ChangeKind, random_change
from plait.scorers.truth.language import (
    count_answer,
    description,
    event,
    instruction,
    list_words,
    more_answer,
    name,
    phrase,
    statement,
    step,
    what_answer,
    where_answer,
)
from plait.scorers.truth.scene import COLOURS, SHAPES, Scene, Split, random_scene

Category = Literal["SA", "PBL", "MSR"]
CATEGORIES: tuple[Category, ...] = ("SA", "PBL", "MSR")
"""Queries take turns in this order."""

STORIES: dict[ChangeKind, tuple[str, ...]] = {
    "move": ("The wind blows", "A child plays"),
    "resize": ("Time goes by", "A year later"),
    "recolour": ("A painter comes", "The light changes"),
    "add": ("A guest arrives", "The door opens"),
    "remove": ("The day ends", "Someone cleans up"),
}
"""How a story begins the change that follows."""
STORY_FIELDS: dict[ChangeKind, str] = {
    "move": "Moving",
    "resize": "Growing",
    "recolour": "Painting",
    "add": "Arriving",
    "remove": "Leaving",
}
STEPS: tuple[ChangeKind, ...] = ("add", "move", "recolour")
BUILDING = "Building"
ARRANGING = "Arranging"
"""Fields of projects that add something, and of those that do not."""
FIELDS = (
    BUILDING,
    ARRANGING,
    *STORY_FIELDS.values(),
    "Counting",
    "Comparing",
    "Locating",
    "Naming",
)
"""In the order of tables: project-based, situational, reasoning, as in the paper's."""


@dataclass(frozen=True, slots=True)
class SceneImage:
    """An image of a scene; `seed` moves its items a little."""

    scene: Scene
    seed: int


Parts = tuple[str | SceneImage, ...]
"""Ordered texts and images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniatureQuery:
    """A question about scenes, and its one right answer."""

    id: str
    category: Category
    field: str
    question: Parts
    """An image, then text."""
    answer: Parts
    """SA: text, image. PBL: text, image, text, image. MSR: text."""
    criteria: str
    """What a judge should look for."""
    changes: tuple[Change, ...] = ()
    """From the question's scene to those of the answer, in order; none in MSR."""

    @property
    def wants_images(self) -> bool:
        """Whether the answer holds images."""
        return self.category != "MSR"

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """The question's scene, then those of the answer."""
        parts = (*self.question, *self.answer)
        return tuple(part.scene for part in parts if isinstance(part, SceneImage))


def queries(n: int, seed: int, split: Split) -> list[MiniatureQuery]:
    """Return the first `n` queries of `seed`: more of them begin with the same."""
    return [query(i, seed, split) for i in range(n)]


def query(
    index: int, seed: int, split: Split, category: Category | None = None
) -> MiniatureQuery:
    """Return the query at `index` (from 0); by default the categories take turns."""
    category = category or CATEGORIES[index % len(CATEGORIES)]
    rng = random.Random(f"miniature {seed} {split} {index} {category}")
    return _MAKERS[category](f"{category}-{index + 1:04}", rng, split)


def _situation(id: str, rng: random.Random, split: Split) -> MiniatureQuery:
    kind = rng.choice([*STORIES])
    scene, (change,), (after,) = _project(rng, split, (kind,), most=3)
    story = f"There is {description(scene)}. {rng.choice(STORIES[kind])}: {event(change)}."
    return MiniatureQuery(
        id=id,
        category="SA",
        field=STORY_FIELDS[kind],
        question=(_image(rng, scene), story),
        answer=(statement(after), _image(rng, after)),
        criteria=f"Text and picture show {_show(after)}.",
        changes=(change,),
    )


def _steps(id: str, rng: random.Random, split: Split) -> MiniatureQuery:
    kinds = (rng.choice(STEPS), rng.choice(STEPS))
    scene, changes, after = _project(rng, split, kinds, most=2)
    asked = [step(k, f"{instruction(c)}.") for k, c in enumerate(changes, start=1)]
    answer: list[str | SceneImage] = []
    for k, result in enumerate(after, start=1):
        answer += [step(k, statement(result)), _image(rng, result)]
    goals = [step(k, _show(s)) for k, s in enumerate(after, start=1)]
    return MiniatureQuery(
        id=id,
        category="PBL",
        field=BUILDING if "add" in kinds else ARRANGING,
        question=(_image(rng, scene), " ".join(asked)),
        answer=tuple(answer),
        criteria=f"Texts and pictures show {'; '.join(goals)}.",
        changes=changes,
    )


def _problem(id: str, rng: random.Random, split: Split) -> MiniatureQuery:
    problem = random_problem(rng, split)
    return MiniatureQuery(
        id=id,
        category="MSR",
        field=problem.field,
        question=(_image(rng, problem.scene), problem.question),
        answer=(problem.answer,),
        criteria=f"The right answer is: {problem.answer}",
    )


_MAKERS: dict[Category, Callable[[str, random.Random, Split], MiniatureQuery]] = {
    "SA": _situation,
    "PBL": _steps,
    "MSR": _problem,
}
_TRIES = 20


def _project(
    rng: random.Random, split: Split, kinds: tuple[ChangeKind, ...], most: int
) -> tuple[Scene, tuple[Change, ...], tuple[Scene, ...]]:
    """A scene, changes of these kinds in turn, and the scene after each; all of `split`."""
    while True:
        scenes = [random_scene(rng, split, most=most)]
        changes: list[Change] = []
        for kind in kinds:
            change = _change_within(rng, split, scenes[-1], kind)
            if change is None:
                break
            changes.append(change)
            scenes.append(change.of(scenes[-1]))
        if len(set(scenes)) == len(kinds) + 1:
            return scenes[0], tuple(changes), tuple(scenes[1:])


def _change_within(
    rng: random.Random, split: Split, scene: Scene, kind: ChangeKind
) -> Change | None:
    for _ in range(_TRIES):
        change = random_change(rng, scene, kind)
        if change is not None and change.of(scene).split == split:
            return change
    return None


def _image(rng: random.Random, scene: Scene) -> SceneImage:
    return SceneImage(scene, rng.randrange(2**31))


def _show(scene: Scene) -> str:
    return list_words([phrase(item) for item in scene.items])


# ------------------------------------------------------- problems about one scene


class Problem(NamedTuple):
    """A question about a scene and its answer."""

    field: str
    scene: Scene
    question: str
    answer: str


_PROBLEMS = (
    "count shape",
    "count colour",
    "count all",
    "compare",
    "compare",
    "where",
    "where",
    "what",
    "what",
)
"""Each as often as it is listed."""


def random_problem(rng: random.Random, split: Split) -> Problem:
    """Return a problem about a scene of `split`."""
    kind = rng.choice(_PROBLEMS)
    match kind:
        case "count shape":
            shape = rng.choice(SHAPES)
            number = rng.choice(_NUMBERS)
            scene = _scene_where(rng, split, lambda scene: _number(scene, shape) == number)
            return _counting(scene, number, shape)
        case "count colour":
            colour = rng.choice([*COLOURS])
            number = rng.choice(_NUMBERS)
            scene = _scene_where(rng, split, lambda scene: _number(scene, colour) == number)
            return _counting(scene, number, f"{colour} shape")
        case "count all":
            scene = random_scene(rng, split)
            return _counting(scene, len(scene.items), "shape")
        case "compare":
            return _compare(rng, split)
    scene = random_scene(rng, split)
    item = rng.choice(scene.items)
    if kind == "where":
        asked = f"Where is the {name(item)}?"
        return Problem("Locating", scene, asked, where_answer(item))
    return Problem("Naming", scene, f"What is at the {item.place}?", what_answer(item))


def _counting(scene: Scene, number: int, thing: str) -> Problem:
    question = f"How many {thing}s are there?"
    return Problem("Counting", scene, question, count_answer(number, thing))


def _compare(rng: random.Random, split: Split) -> Problem:
    shape, other = rng.sample(SHAPES, 2)
    more = rng.random() < 0.5

    def fits(scene: Scene) -> bool:
        first = _number(scene, shape)
        second = _number(scene, other)
        return (first > second) == more and first + second > 0

    scene = _scene_where(rng, split, fits)
    answer = more_answer(_number(scene, shape), shape, _number(scene, other), other)
    question = f"Are there more {shape}s than {other}s?"
    return Problem("Comparing", scene, question, answer)


_NUMBERS = (0, 1, 1, 2, 2, 3)
"""Answers of counting problems, by how often they are asked for."""


def _scene_where(rng: random.Random, split: Split, fits: Callable[[Scene], bool]) -> Scene:
    while True:
        scene = random_scene(rng, split)
        if fits(scene):
            return scene


def _number(scene: Scene, look: str) -> int:
    """Return how many items have this shape or colour."""
    return sum(look in (item.shape, item.colour) for item in scene.items)
