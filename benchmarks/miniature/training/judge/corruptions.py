"""Answers to miniature queries, right ones and damaged ones, whose content is known.

The mini judge learns from these alone: never from a system's answer, and never from what
the truth scorers read.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.miniature.scene_edits import another
from benchmarks.miniature.training.judge.edits import edited
from benchmarks.tasks.miniature.queries import MiniatureQuery, query
from benchmarks.tasks.miniature.reasoning import random_problem
from scorers.truth.language import (
    NUMBERS,
    count_answer,
    description,
    sentence,
    statement,
    step,
)
from scorers.truth.scene import COLOURS, SHAPES, SIZES, Scene, Split

NO_BACKGROUND = ""
"""Background of a scene whose text breaks off before it tells one."""


@dataclass(frozen=True, slots=True)
class Told:
    """A text of an answer, and the scene it tells; None where it tells none."""

    text: str
    scene: Scene | None


@dataclass(frozen=True, slots=True)
class ShownScene:
    """A picture of an answer: its scene, and whether it can still be made out."""

    scene: Scene
    seed: int
    spoiled: bool = False
    """Whether blur and noise hide what it shows."""


@dataclass(frozen=True, slots=True)
class Part:
    """One step of an answer: a text and its picture, where they are there."""

    told: Told | None
    shown: ShownScene | None


@dataclass(frozen=True, slots=True)
class Damaged:
    """A query and an answer to it."""

    query: MiniatureQuery
    kind: str
    """Name of the corruption; `right` for the ground truth."""
    parts: tuple[Part, ...] = ()
    """Of situational and project-based answers."""
    text: str = ""
    """Of reasoning answers."""

    @property
    def expected(self) -> tuple[Scene, ...]:
        """The scene that each part should tell and show."""
        return self.query.scenes[1:]


def damaged(rng: random.Random, split: Split, category: str | None = None) -> Damaged:
    """A random query of `split` with a random answer."""
    name = category or rng.choice(("SA", "SA", "PBL", "PBL", "MSR"))
    asked = query(rng.randrange(2**31), 0, split, name)  # type: ignore[arg-type]
    if name == "MSR":
        return _reasoned(rng, asked, split)
    kind = rng.choices([*_KINDS], [weight for weight, _ in _KINDS.values()])[0]
    parts = _KINDS[kind][1](rng, asked, split)
    if kind != "right" and rng.random() < _TWICE:
        parts = _attributes(rng, parts, split, text=rng.random() < 0.5)
    return Damaged(asked, kind, tuple(parts))


_TWICE = 0.15
"""Share of damaged answers in which one attribute is wrong besides."""
_FREELY = 0.15
"""Share of texts worded otherwise than the ground truth's."""

Parts = list[Part]


def told(rng: random.Random, scene: Scene, number: int, of: int) -> Told:
    """A text that tells `scene` as part `number` (from 1) of an answer of `of` parts."""
    text = sentence(scene, rng) if rng.random() < _FREELY else statement(scene)
    return Told(step(number, text) if of > 1 else text, scene)


def shown(rng: random.Random, scene: Scene) -> ShownScene:
    """A picture of `scene`."""
    return ShownScene(scene, rng.randrange(2**31))


def _of_scenes(rng: random.Random, texts: list[Scene], pictures: list[Scene]) -> Parts:
    pairs = zip(texts, pictures, strict=True)
    return [
        Part(told(rng, text, k, len(texts)), shown(rng, picture))
        for k, (text, picture) in enumerate(pairs, start=1)
    ]


def _right(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    goals = [*asked.scenes[1:]]
    return _of_scenes(rng, goals, goals)


def _attributes(rng: random.Random, parts: Parts, split: Split, text: bool) -> Parts:
    """One to three edits of the text, or the picture, of one part."""
    k, edits = rng.randrange(len(parts)), rng.choice((1, 1, 1, 2, 3))
    part = parts[k]
    if text and part.told is not None and part.told.scene is not None:
        scene = part.told.scene
        if scene.background == NO_BACKGROUND:
            return parts
        new = told(rng, edited(rng, scene, split, edits), k + 1, len(parts))
        return [*parts[:k], replace(part, told=new), *parts[k + 1 :]]
    if not text and part.shown is not None:
        wrong = edited(rng, part.shown.scene, split, edits)
        new_picture = replace(part.shown, scene=wrong)
        return [*parts[:k], replace(part, shown=new_picture), *parts[k + 1 :]]
    return parts


def _wrong_text(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    return _attributes(rng, _right(rng, asked, split), split, text=True)


def _wrong_picture(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    return _attributes(rng, _right(rng, asked, split), split, text=False)


def _wrong_both(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    """Text and picture agree with each other and not with the query."""
    goals = [*asked.scenes[1:]]
    k = rng.randrange(len(goals))
    goals[k] = edited(rng, goals[k], split, rng.choice((1, 1, 2, 3)))
    return _of_scenes(rng, goals, goals)


def _other_picture(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    goals = [*asked.scenes[1:]]
    return _of_scenes(rng, goals, [another(s, rng, split) for s in goals])


def _other_text(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    goals = [*asked.scenes[1:]]
    return _of_scenes(rng, [another(s, rng, split) for s in goals], goals)


def _unchanged(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    """The scene before each step, in the text, the pictures or both."""
    before, goals = [*asked.scenes[:-1]], [*asked.scenes[1:]]
    where = rng.choice(("text", "picture", "both"))
    texts = goals if where == "picture" else before
    return _of_scenes(rng, texts, goals if where == "text" else before)


def _missing(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    """Without pictures, or without some."""
    parts = _right(rng, asked, split)
    last = rng.random() < 0.3 and len(parts) > 1
    kept = len(parts) - 1 if last else -1
    return [p if k == kept else replace(p, shown=None) for k, p in enumerate(parts)]


def _textless(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    return [replace(p, told=None) for p in _right(rng, asked, split)]


def _swapped(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    goals = [*asked.scenes[1:]]
    if len(goals) < 2:
        return _other_picture(rng, asked, split)
    return _of_scenes(rng, goals, goals[::-1])


def _other_answer(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    other = query(rng.randrange(2**31), 0, split, asked.category)
    return _right(rng, other, split)


def _repeated(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    """Every text replaced by the first one."""
    parts = _right(rng, asked, split)
    if len(parts) < 2:
        return _unchanged(rng, asked, split)
    return [replace(p, told=parts[0].told) for p in parts]


def _cut(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    """A text that breaks off after some of its items."""
    parts = _right(rng, asked, split)
    k = rng.randrange(len(parts))
    scene = asked.scenes[1 + k]
    left = Scene(NO_BACKGROUND, scene.items[: rng.randrange(len(scene.items) + 1)])
    text = _broken_off(scene, len(left.items))
    new = Told(step(k + 1, text) if len(parts) > 1 else text, left if left.items else None)
    parts[k] = replace(parts[k], told=new)
    return parts


def _broken_off(scene: Scene, items: int) -> str:
    if not items:
        return "Now there is a"
    first = description(Scene(scene.background, scene.items[:items]))
    return f"Now there is {first.partition(' on a ')[0]} and"


def _spoiled(rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    return [
        replace(p, shown=replace(p.shown, spoiled=True)) if p.shown else p
        for p in _right(rng, asked, split)
    ]


_KINDS: dict[str, tuple[float, Callable[[random.Random, MiniatureQuery, Split], Parts]]] = {
    "right": (0.17, _right),
    "wrong text": (0.14, _wrong_text),
    "wrong picture": (0.17, _wrong_picture),
    "wrong in both": (0.10, _wrong_both),
    "other picture": (0.07, _other_picture),
    "other text": (0.05, _other_text),
    "unchanged": (0.08, _unchanged),
    "missing pictures": (0.05, _missing),
    "no text": (0.02, _textless),
    "swapped pictures": (0.05, _swapped),
    "other answer": (0.03, _other_answer),
    "repeated text": (0.03, _repeated),
    "cut text": (0.02, _cut),
    "spoiled pictures": (0.02, _spoiled),
}
"""How often each corruption is chosen, and how it is made."""


def _reasoned(rng: random.Random, asked: MiniatureQuery, split: Split) -> Damaged:
    """A reasoning answer: right, with another fact, to another question, or none."""
    right = str(asked.answer[0])
    kind, make = rng.choices([*_REASONED.items()], (4, 5, 1, 0.3))[0]
    text = make(rng, right, split)
    while kind not in ("right", "no text") and text == right:
        text = make(rng, right, split)
    return Damaged(asked, kind, text=text)


def _other_fact(rng: random.Random, right: str, split: Split) -> str:
    """The answer with one word that states a fact replaced by another of its kind."""
    counted = re.fullmatch(r"There (?:is|are) (\w+) ([a-z ]+?)s?\.", right)
    if counted is not None and counted[1] in NUMBERS:
        return count_answer(rng.randrange(len(NUMBERS)), counted[2])
    words = right.split(" ")
    facts = [(k, group) for group in _FACTS for k in range(len(words)) if words[k] in group]
    k, group = rng.choice(facts)
    words[k] = rng.choice(group)
    return " ".join(words)


def _other_question(rng: random.Random, right: str, split: Split) -> str:
    return random_problem(rng, split).answer


_REASONED: dict[str, Callable[[random.Random, str, Split], str]] = {
    "right": lambda rng, right, split: right,
    "wrong answer": _other_fact,
    "other question": _other_question,
    "no text": lambda rng, right, split: "",
}
_FACTS: tuple[tuple[str, ...], ...] = (
    *(tuple(COLOURS), SHAPES, tuple(SIZES), NUMBERS, ("top", "bottom")),
    *(("left.", "right."), ("yes.", "no.")),
)
"""Words of reasoning answers that state a fact, with those they are mistaken for."""
