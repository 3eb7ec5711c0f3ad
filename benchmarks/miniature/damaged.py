"""Answers to miniature queries, right ones and damaged ones, whose content is known.

The mini judge learns from them, and `plait bench miniature` measures judges by them.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow
from PIL import ImageFilter

from plait.benchmarks.miniature.scene_edits import (
    SceneEdit,
    another,
    exchange,
    free_places,
    move,
    one_fewer,
    one_more,
    recoloured,
    repaint,
    reshaped,
    resized,
)
from plait.benchmarks.tasks.miniature.queries import (
    Category,
    MiniatureQuery,
    query,
    random_problem,
)
from plait.generators.document import Document, Image, Text
from plait.generators.images import Drawing
from plait.scorers.truth.drawing import SIDE, draw
from plait.scorers.truth.language import (
    NUMBERS,
    count_answer,
    description,
    sentence,
    statement,
    step,
)
from plait.scorers.truth.scene import COLOURS, SHAPES, SIZES, Scene, Split

NO_BACKGROUND = ""
"""Background of a scene whose text breaks off before it tells one."""


@dataclass(frozen=True, slots=True)
class Told:
    """A text of an answer, and the scene it tells; None where it tells none."""

    text: str
    scene: Scene | None


@dataclass(frozen=True, slots=True)
class ShownScene:
    """An image of an answer; nothing can be made out where it is spoiled."""

    scene: Scene
    seed: int
    spoiled: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One step of an answer: a text and its image, each None where it is missing."""

    told: Told | None
    shown: ShownScene | None


Parts = list[Part]
Levels = npt.NDArray[np.floating[Any]]
"""Grey levels (side, side, 3) before they are rounded."""


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


_TWICE = 0.15
"""Share of damaged answers in which one attribute is wrong besides."""
_FREELY = 0.15
"""Share of texts worded otherwise than the ground truth's."""
_APART = 0.1
"""Share of whole answers whose images all follow their texts."""


def draw_damaged(rng: random.Random, split: Split, category: str | None = None) -> Damaged:
    """Draw a query of `split` and an answer to it."""
    name = category or rng.choice(("SA", "SA", "PBL", "PBL", "MSR"))
    asked = query(rng.randrange(2**31), 0, split, cast(Category, name))
    if name == "MSR":
        return _draw_reasoning(rng, asked, split)
    kind = rng.choices([*_KINDS], [*_KINDS.values()])[0]
    parts = _parts(kind, rng, asked, split)
    if kind != "right" and rng.random() < _TWICE:
        parts = _edit_part(rng, parts, split, text=rng.random() < 0.5)
    return Damaged(asked, kind, tuple(parts))


def edit(rng: random.Random, scene: Scene, split: Split, edits: int) -> Scene:
    """Draw another scene of `split`, `edits` random edits away from `scene`."""
    while True:
        wrong = scene
        for _ in range(edits):
            wrong = rng.choice(_EDITS)(wrong, rng) or wrong
        if wrong != scene and wrong.split == split:
            return wrong


def _move(scene: Scene, rng: random.Random) -> Scene | None:
    return move(scene, rng) if free_places(scene) else exchange(scene, rng)


_EDITS: tuple[SceneEdit, ...] = (
    *(recoloured, recoloured, reshaped, reshaped, resized, resized, _move, _move),
    *(exchange, one_more, one_fewer, repaint),
)
"""Each as often as it is listed."""


def _tell(rng: random.Random, scene: Scene, number: int, of: int) -> Told:
    """Return the text of part `number` (from 1) of an answer of `of` parts."""
    text = sentence(scene, rng) if rng.random() < _FREELY else statement(scene)
    return Told(step(number, text) if of > 1 else text, scene)


def _of_scenes(
    rng: random.Random, texts: Sequence[Scene], images: Sequence[Scene]
) -> Parts:
    return [
        Part(_tell(rng, text, k, len(texts)), ShownScene(image, rng.randrange(2**31)))
        for k, (text, image) in enumerate(zip(texts, images, strict=True), start=1)
    ]


def _parts(kind: str, rng: random.Random, asked: MiniatureQuery, split: Split) -> Parts:
    """Return an answer with the corruption `kind`."""
    before = asked.scenes[:-1]
    goals = asked.scenes[1:]
    match kind:
        case "wrong in both":  # text and image agree with each other and not with the query
            k = rng.randrange(len(goals))
            edits = rng.choice((1, 1, 2, 3))
            wrong = edit(rng, goals[k], split, edits)
            goals = (*goals[:k], wrong, *goals[k + 1 :])
        case "other text":
            others = [another(scene, rng, split) for scene in goals]
            return _of_scenes(rng, others, goals)
        case "other picture":
            others = [another(scene, rng, split) for scene in goals]
            return _of_scenes(rng, goals, others)
        case "swapped pictures" if len(goals) < 2:
            return _parts("other picture", rng, asked, split)
        case "swapped pictures":
            return _of_scenes(rng, goals, goals[::-1])
        case "unchanged":  # the scene before each step, in the text, the images or both
            where = rng.choice(("text", "image", "both"))
            texts = goals if where == "image" else before
            return _of_scenes(rng, texts, goals if where == "text" else before)
        case "other answer":
            other = query(rng.randrange(2**31), 0, split, asked.category)
            return _parts("right", rng, other, split)
    parts = _of_scenes(rng, goals, goals)
    match kind:
        case "wrong text" | "wrong picture":
            return _edit_part(rng, parts, split, text=kind == "wrong text")
        case "missing pictures":
            return _without_images(rng, parts)
        case "no text":
            return [replace(part, told=None) for part in parts]
        case "repeated text" if len(parts) < 2:
            return _parts("unchanged", rng, asked, split)
        case "repeated text":  # every text replaced by the first one
            return [replace(part, told=parts[0].told) for part in parts]
        case "cut text":
            return _cut(rng, goals, parts)
        case "spoiled pictures":
            return [_spoil(part) for part in parts]
    return parts


def _without_images(rng: random.Random, parts: Parts) -> Parts:
    """Leave out all images, or all but the last."""
    bare = [replace(part, shown=None) for part in parts]
    if rng.random() < 0.3 and len(parts) > 1:
        return [*bare[:-1], parts[-1]]
    return bare


def _spoil(part: Part) -> Part:
    if part.shown is None:
        return part
    return replace(part, shown=replace(part.shown, spoiled=True))


def _edit_part(rng: random.Random, parts: Parts, split: Split, text: bool) -> Parts:
    """Make one to three edits of the text, or the image, of one part."""
    k = rng.randrange(len(parts))
    edits = rng.choice((1, 1, 1, 2, 3))
    told = parts[k].told
    shown = parts[k].shown
    if text and told is not None and told.scene is not None:
        if told.scene.background == NO_BACKGROUND:
            return parts
        told = _tell(rng, edit(rng, told.scene, split, edits), k + 1, len(parts))
    elif not text and shown is not None:
        shown = replace(shown, scene=edit(rng, shown.scene, split, edits))
    return [*parts[:k], Part(told, shown), *parts[k + 1 :]]


def _cut(rng: random.Random, goals: Sequence[Scene], parts: Parts) -> Parts:
    """Return a text that breaks off after some of its items."""
    k = rng.randrange(len(parts))
    left = goals[k].items[: rng.randrange(len(goals[k].items) + 1)]
    first = description(replace(goals[k], items=left)).partition(" on a ")[0]
    text = f"Now there is {first} and" if left else "Now there is a"
    told = Scene(NO_BACKGROUND, left) if left else None
    new = Told(step(k + 1, text) if len(parts) > 1 else text, told)
    return [*parts[:k], replace(parts[k], told=new), *parts[k + 1 :]]


_KINDS = {
    "right": 0.17,
    "wrong text": 0.14,
    "wrong picture": 0.17,
    "wrong in both": 0.10,
    "other picture": 0.07,
    "other text": 0.05,
    "unchanged": 0.08,
    "missing pictures": 0.05,
    "no text": 0.02,
    "swapped pictures": 0.05,
    "other answer": 0.03,
    "repeated text": 0.03,
    "cut text": 0.02,
    "spoiled pictures": 0.02,
}
"""How often each corruption is chosen."""


def _draw_reasoning(rng: random.Random, asked: MiniatureQuery, split: Split) -> Damaged:
    """Return a reasoning answer: right, with another fact, to another question, or none."""
    right = str(asked.answer[0])
    kind, make = rng.choices([*_REASONED.items()], (4, 5, 1, 0.3))[0]
    text = make(rng, right, split)
    while kind not in ("right", "no text") and text == right:
        text = make(rng, right, split)
    return Damaged(asked, kind, text=text)


def _other_fact(rng: random.Random, right: str, split: Split) -> str:
    """Replace one word that states a fact by another of its kind."""
    counted = re.fullmatch(r"There (?:is|are) (\w+) ([a-z ]+?)s?\.", right)
    if counted is not None and counted[1] in NUMBERS:
        return count_answer(rng.randrange(len(NUMBERS)), counted[2])
    words = right.split(" ")
    facts = []
    for group in _FACTS:
        for place, word in enumerate(words):
            if word in group:
                facts.append((place, group))
    place, group = rng.choice(facts)
    words[place] = rng.choice(group)
    return " ".join(words)


_REASONED: dict[str, Callable[[random.Random, str, Split], str]] = {
    "right": lambda rng, right, split: right,
    "wrong answer": _other_fact,
    "other question": lambda rng, right, split: random_problem(rng, split).answer,
    "no text": lambda rng, right, split: "",
}
_FACTS: tuple[tuple[str, ...], ...] = (
    *(tuple(COLOURS), SHAPES, tuple(SIZES), NUMBERS, ("top", "bottom")),
    *(("left.", "right."), ("yes.", "no.")),
)
"""Words of reasoning answers that state a fact, with those they are mistaken for."""


def document_of(rng: random.Random, answer: Damaged) -> Document:
    """Return the answer with worn images: each after its text, or all after all texts."""
    if answer.query.category == "MSR":
        return Document((Text(answer.text),) if answer.text else ())
    texts = [None if part.told is None else Text(part.told.text) for part in answer.parts]
    images = [_image_of(rng, part.shown) for part in answer.parts]
    order: list[Text | Image | None]
    # Chance is asked only where it can matter: answers depend on the order of draws.
    if None not in images and rng.random() < _APART:
        order = [*texts, *images]
    else:
        order = [*chain.from_iterable(zip(texts, images, strict=True))]
    return Document(tuple(segment for segment in order if segment is not None))


def _image_of(rng: random.Random, shown: ShownScene | None) -> Image | None:
    if shown is None:
        return None
    return wear(rng, draw(shown.scene, shown.seed), shown.spoiled)


def wear(rng: random.Random, image: Pillow.Image, spoiled: bool = False) -> Image:
    """Return the image as models, decoders and files leave it, or spoiled."""
    levels = _beyond_recognition(rng, image) if spoiled else _wear(rng, image)
    return Drawing(levels.clip(0, 255).astype(np.uint8)).encoded()


def _wear(rng: random.Random, image: Pillow.Image) -> Levels:
    """Grey levels of an image that is not quite in place, soft or noisy."""
    if rng.random() < 0.4:
        image = _displace(rng, image)
    if rng.random() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.1)))
    levels: Levels = np.asarray(image, dtype=np.float32)
    if rng.random() < 0.5:
        noise = np.random.default_rng(rng.randrange(2**31))
        # Noise of each pixel, then tints that differ from place to place.
        levels = levels + noise.normal(0, rng.uniform(1, 10), levels.shape)
        tints = noise.normal(0, 5, (4, 4, 3)).repeat(SIDE // 4, 0).repeat(SIDE // 4, 1)
        levels = levels + tints
    return levels


def _displace(rng: random.Random, image: Pillow.Image) -> Pillow.Image:
    """Turned, scaled and moved by a little around its centre, as a whole."""
    angle = rng.uniform(-0.08, 0.08)
    scale = rng.uniform(0.93, 1.07)
    cosine = scale * math.cos(angle)
    sine = scale * math.sin(angle)
    middle = SIDE / 2
    x = middle - middle * (cosine + sine) + rng.uniform(-1.5, 1.5)
    y = middle - middle * (cosine - sine) + rng.uniform(-1.5, 1.5)
    return image.transform(
        image.size,
        Pillow.Transform.AFFINE,
        (cosine, sine, x, -sine, cosine, y),
        Pillow.Resampling.BILINEAR,
        fillcolor=image.getpixel((0, 0)),
    )


def _beyond_recognition(rng: random.Random, image: Pillow.Image) -> Levels:
    """Grey levels of an image blurred beyond its shapes, or drowned in noise."""
    noise = np.random.default_rng(rng.randrange(2**31))
    radius, deviation = rng.choice(((14.0, 4.0), (10.0, 30.0), (3.0, 110.0)))
    blurred = image.filter(ImageFilter.GaussianBlur(radius))
    levels: Levels = np.asarray(blurred, dtype=np.float32)
    return levels + noise.normal(0, deviation, levels.shape)
