"""Do T2I models draw what they are told: the right colour in the right place, and all?"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from plait.benchmarks.local import local_stage
from plait.benchmarks.miniature.measures import (
    BEST,
    NATIVE,
    T2IS,
    WEAKER,
    Bar,
    BenchPart,
    BenchSettings,
    Say,
)
from plait.benchmarks.tasks.miniature.queries import query
from plait.benchmarks.tasks.miniature.reader import sample_of
from plait.generators.base import Outcome, Result
from plait.generators.document import Document, Image, ImageRequest
from plait.generators.errors import PlaitError
from plait.generators.images import Drawing, decode
from plait.scorers.clipscore import pairs_of
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import SHARE, mean, pooled_mean
from plait.scorers.truth.image_reader import read_image
from plait.scorers.truth.language import description
from plait.scorers.truth.reading import ItemReading, Reading
from plait.scorers.truth.scene import Scene, SceneItem, random_scene
from plait.scorers.truth.text_reader import TextReading, read_text

OBJECTS = (2, 1, 2, 3, 2, 4)
"""Objects of scenes, in turn: half of the scenes hold two."""
TWO = 2
BATCH = 16
Aims = tuple[float | None, float | None]
"""Least share of items of the right colour, and of whole scenes of two objects."""
T2I_AIMS = (0.97, 0.85)
NATIVE_AIMS = (0.80, 0.50)
NO_AIMS = None, None


@dataclass(frozen=True, slots=True)
class DrawnScene:
    """What should have been drawn, and what was read of the image."""

    name: str
    wanted: tuple[SceneItem, ...]
    read: Reading | None
    """None where nothing was drawn or the image is unreadable: a miss."""

    @property
    def colours(self) -> list[float]:
        """By item: whether its colour is at its place."""
        read = self.read or Reading()
        shares = []
        for item in self.wanted:
            seen = read.at(item.place)
            shares.append(float(seen is not None and seen.colour == item.colour))
        return shares

    @property
    def whole(self) -> float:
        """Whether exactly the wanted items are there, in every attribute."""
        wanted = tuple(map(ItemReading.of, self.wanted))
        return float(self.read is not None and self.read.items == wanted)


def measure_t2is(settings: BenchSettings, say: Say) -> BenchPart:
    """Text-to-image models, each asked for the same scenes with the same seeds."""
    asked = [_ask(i, settings.seed) for i in range(settings.scenes)]
    bars: list[Bar] = []
    for name in (*T2IS, WEAKER):
        aims = T2I_AIMS if name != WEAKER else NO_AIMS
        bars += _t2i_bars(name, asked, settings, aims, say)
    note = f"{WEAKER} is an earlier checkpoint of {BEST}. Unreadable images are misses."
    return BenchPart(title="Artists", bars=tuple(bars), notes=(note,))


class _AskedScene(NamedTuple):
    """A scene that T2I models are asked for."""

    scene: Scene
    request: ImageRequest


def _ask(number: int, seed: int) -> _AskedScene:
    """Draw a scene, and ask for it in words."""
    objects = OBJECTS[number % len(OBJECTS)]
    name = f"artists {seed} {number}"
    scene = random_scene(random.Random(name), "test", objects, objects)
    words = description(scene, random.Random(name))
    return _AskedScene(scene, ImageRequest(prompt=words, seed=1000 * seed + number))


def _t2i_bars(
    name: str,
    asked: Sequence[_AskedScene],
    settings: BenchSettings,
    aims: Aims,
    say: Say,
) -> list[Bar]:
    """Return the bars of one T2I model, which may not be to be had."""
    try:
        stage = local_stage(name, weights=settings.weights, models=settings.models)
    except PlaitError as error:
        return [Bar.not_there(name, str(error))]
    say(f"{name}: drawing {len(asked)} scenes")
    images = images_of(stage, [one.request for one in asked])
    drawn = []
    for i, (one, image) in enumerate(zip(asked, images, strict=True)):
        drawn.append(DrawnScene(f"scene {i}", one.scene.items, read(image)))
    return bars_of(name, drawn, aims)


def images_of(
    stage: Callable[[Sequence[ImageRequest]], Sequence[Outcome[Any]]],
    asked: Sequence[ImageRequest],
) -> list[Image | None]:
    """Return what a T2I model draws; None where it draws nothing."""
    images: list[Image | None] = []
    for start in range(0, len(asked), BATCH):
        images += map(_image_of, stage(asked[start : start + BATCH]))
    return images


def _image_of(outcome: Outcome[Any]) -> Image | None:
    """Return the image of an outcome; stages give pixels, servers an encoded image."""
    value = outcome.value if isinstance(outcome, Result) else None
    return value.encoded() if isinstance(value, Drawing) else value


def read(image: Image | None) -> Reading | None:
    """Return what an image shows; None where there is none, or nothing can be read."""
    if image is None:
        return None
    reading = read_image(decode(image.read()))
    return reading if isinstance(reading, Reading) else None


def bars_of(name: str, drawn: Sequence[DrawnScene], aims: Aims) -> list[Bar]:
    """Colours at their places over all scenes; whole scenes by the number of objects."""
    lost = 0
    # The unit is the scene; `n` is the number of items.
    scenes: list[str] = []
    shares: list[float] = []
    by_size: dict[int, list[float]] = {}
    for scene in drawn:
        lost += scene.read is None
        scenes += [scene.name] * len(scene.wanted)
        shares += scene.colours
        by_size.setdefault(len(scene.wanted), []).append(scene.whole)
    remark = f"{lost:,} of {len(drawn):,} unreadable: misses" if lost else ""
    colours = replace(pooled_mean(scenes, shares, SHARE), n=len(shares))
    two = Estimate(None, reason="no scene of two objects")
    others = []
    title = f"{name}: whole scenes of"
    for size, whole in sorted(by_size.items()):
        estimate = mean(whole, SHARE)
        if size == TWO:
            two = estimate
        else:
            others.append(Bar(name=f"{title} {size}", estimate=estimate))
    least_colours, least_whole = aims
    return [
        Bar.at_least(
            f"{name}: right colour at the right place", colours, least_colours, remark
        ),
        Bar.at_least(f"{title} two objects", two, least_whole, remark),
        *others,
    ]


# ---------------------------------------------------------------------------- native


def measure_native(settings: BenchSettings, say: Say) -> BenchPart:
    """Return the native model's images against its own sentence, and the ground truth's."""
    system = settings.system(NATIVE)
    truths = {}
    samples = []
    for i in range(settings.scenes):
        asked = query(i, settings.seed, "test", "SA")
        truths[asked.id] = asked.scenes[-1]
        samples.append(sample_of(asked))
    say(f"{NATIVE}: answering {len(samples)} queries")
    documents = {}
    for answer in system.answers(samples):
        documents[answer.query.id] = answer.document
    own, missing = _pair_with_texts(documents, truths)
    bars = bars_of(f"{NATIVE}, against its own text", own, NATIVE_AIMS)
    against = []
    for id, truth in truths.items():
        document = documents.get(id)
        image = document.images[0] if document and document.images else None
        against.append(DrawnScene(id, truth.items, read(image)))
    whole = bars_of(f"{NATIVE}, against the ground truth", against, NO_AIMS)
    note = f"{missing:,} answers hold no image or no sentence that can be read: misses."
    return BenchPart(title="Native model", bars=(*bars, *whole), notes=(note,))


Documents = Mapping[str, Document | None]


def _pair_with_texts(
    documents: Documents, truths: Mapping[str, Scene]
) -> tuple[list[DrawnScene], int]:
    """Each image and what its text says; without either, a miss of the ground truth."""
    drawn = []
    missing = 0
    for id, document in documents.items():
        pairs = [] if document is None else pairs_of(document)
        told = _items_told(pairs[0].text) if pairs else None
        if told is None:
            missing += 1
            drawn.append(DrawnScene(id, truths[id].items, None))
        else:
            drawn.append(DrawnScene(id, told, read(pairs[0].image)))
    return drawn, missing


def _items_told(text: str) -> tuple[SceneItem, ...] | None:
    """The items of the last scene that a text describes; None where they are not clear."""
    reading = read_text(text)
    if not isinstance(reading, TextReading) or not reading.scenes:
        return None
    items = []
    for told in reading.scenes[-1].items:
        if told.item is None:
            return None
        items.append(told.item)
    return tuple(items)
