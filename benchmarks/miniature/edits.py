"""Does a T2I model that draws from an image make the right change to the right scene?

Scenes of the test split change. One artist is given the image before and words, another the
same words alone; the words tell what is new, or all that is there afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from plait.benchmarks.local import local_stage
from plait.benchmarks.miniature.drawings import images_of, read
from plait.benchmarks.miniature.measures import (
    BEST,
    EDITOR,
    Bar,
    BenchPart,
    BenchSettings,
    Say,
)
from plait.benchmarks.tasks.miniature.queries import MiniatureQuery, query
from plait.generators.document import Image, ImageRequest
from plait.generators.images import decode, encode
from plait.scorers.statistics.means import SHARE, mean, of_differences, paired_differences
from plait.scorers.truth.comparison import compare_scene
from plait.scorers.truth.drawing import SIDE, centre, draw
from plait.scorers.truth.language import sentence, state_change
from plait.scorers.truth.reading import ItemReading, Reading
from plait.scorers.truth.scene import PLACES, Scene

WORDS = ("what is new", "the whole scene")
GREY = (0.0, 255.0)
MEASURES = (
    ("exactly the scene that follows", SHARE, 1),
    ("F1 over attributes", SHARE, 1),
    ("grey levels off where nothing changes", GREY, -1),
)
"""Name, ends of the scale, and 1 where more is better, else -1."""
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Edit:
    """A scene, its image, the scene that follows, and the words that tell of it."""

    before: Scene
    image: Image
    after: Scene
    words: Mapping[str, str]
    """By WORDS."""

    @classmethod
    def of(cls, story: MiniatureQuery, rng: random.Random) -> Edit | None:
        """None for a change of which a sentence about one item does not tell."""
        (change,) = story.changes
        before, after = story.scenes
        if (new := state_change(change, rng)) is None:
            return None
        words = dict(zip(WORDS, (new, sentence(after, rng)), strict=True))
        return cls(before, encode(draw(before, rng.randrange(2**31))), after, words)

    def right(self, image: Image | None) -> tuple[float, float, float]:
        """Return one value for each of MEASURES."""
        truth = Reading.of(self.after.background, map(ItemReading.of, self.after.items))
        shown = read(image)
        f1 = compare_scene(shown or Reading(), truth).f1
        return float(shown == truth), f1, np.nan if image is None else self._move(image)

    def _move(self, image: Image) -> float:
        """Return how many grey levels an image is off where nothing changes."""
        distance = np.abs(_levels(self.image) - _levels(image))
        half = SIDE // 2
        quarters = []
        for place in PLACES:
            if self.before.at(place) == self.after.at(place):
                x, y = (int(end - half / 2) for end in centre(place))
                quarters.append(distance[y : y + half, x : x + half])
        return float(np.mean(quarters))


def _levels(image: Image) -> Values:
    return np.asarray(decode(image).resize((SIDE, SIDE)), np.float64)


def edits(settings: BenchSettings) -> list[Edit]:
    """As many as the settings have scenes."""
    rng = random.Random(f"edits {settings.seed}")
    found: list[Edit] = []
    for number in count():
        if len(found) >= settings.scenes:
            break
        # Of some changes no sentence about one item tells: the next are tried.
        edit = Edit.of(query(number, settings.seed, "test", "SA"), rng)
        if edit is not None:
            found.append(edit)
    return found


def measure_edits(settings: BenchSettings, say: Say) -> BenchPart:
    """The artist that sees an image against the one that reads the same words alone."""
    asked = edits(settings)
    bars = list[Bar]()
    for words in WORDS:
        with_sight = _draw_again(EDITOR, asked, words, settings, say)
        without = _draw_again(BEST, asked, words, settings, say)
        measured = zip(with_sight, without, MEASURES, strict=True)
        for seeing, blind, (title, ends, better) in measured:
            for name, own in ((EDITOR, seeing), (BEST, blind)):
                bar = Bar(name=f"{name}, told {words}: {title}", estimate=mean(own, ends))
                bars.append(bar)
            gain = better * paired_differences(seeing, blind)
            bars.append(_difference(words, title, ends, gain))
    note = (
        f"{EDITOR} is given the image before; {BEST} is not. An item comes, grows, "
        "shrinks or turns colour. Unreadable images are misses."
    )
    return BenchPart(title="Edits", bars=tuple(bars), notes=(note,))


def _draw_again(
    name: str, asked: Sequence[Edit], words: str, settings: BenchSettings, say: Say
) -> Values:
    """Return (measures, edits): what is drawn of the same words with the same seeds."""
    say(f"{name}: drawing {len(asked)} changes, told {words}")
    stage = local_stage(name, weights=settings.weights, models=settings.models)
    requests = []
    for number, edit in enumerate(asked):
        context = (edit.image,) if name == EDITOR else ()
        seed = 1000 * settings.seed + number
        requests.append(ImageRequest(edit.words[words], context=context, seed=seed))
    pairs = zip(asked, images_of(stage, requests), strict=True)
    return np.array([edit.right(image) for edit, image in pairs]).T


def _difference(words: str, title: str, ends: tuple[float, float], better: Values) -> Bar:
    """Return the gain by sight; where words tell the whole scene, nothing is aimed at."""
    name = f"{EDITOR} better than {BEST}, told {words}: {title}"
    estimate = mean(better, of_differences(ends))
    if words != WORDS[0]:
        return Bar(name=name, estimate=estimate)
    met = None if estimate.value is None else bool(estimate.ci95 and estimate.ci95[0] > 0)
    return Bar(name=name, estimate=estimate, aim="interval > 0", met=met)
