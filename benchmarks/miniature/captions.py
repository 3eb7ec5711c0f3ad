"""Does CLIPScore tell right captions from wrong ones, and which wrongs does it not see?

A wrong caption is wrong by exactly one thing, of an image whose scene is known.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from plait.benchmarks.local import LocalScorer
from plait.benchmarks.miniature.measures import CLIP, Bar, BenchPart, BenchSettings, Say
from plait.benchmarks.miniature.scene_edits import SceneEdit, another, exchanging, repaint
from plait.benchmarks.results.board import score_value
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import ResultTable
from plait.cluster.walks import drive, together
from plait.generators.base import Outcome
from plait.generators.document import Document, Query, Score, Text, Turn
from plait.generators.images import encode
from plait.scorers.statistics.agreement import estimate_with_interval
from plait.scorers.statistics.estimate import Estimate, Floats, bootstrap_weights
from plait.scorers.statistics.means import SHARE, mean
from plait.scorers.truth.changes import ChangeKind, random_change
from plait.scorers.truth.drawing import draw
from plait.scorers.truth.language import sentence
from plait.scorers.truth.scene import SHAPES, Scene, SceneItem, random_scene

AIM = 0.97
_SHARE = NumberForm(3)
RIGHT = "nothing"
"""What is wrong with a right caption."""
TITLE = "CLIPScore of right and wrong captions"
_ABOUT_SHARES = (
    "right above wrong: images whose right caption scores above the wrong one; equal "
    "counts half. 0.5 is chance: the scorer does not see what is wrong."
)
Pair = tuple[Query, Document]
"""A query and an answer to it."""


def area(right: Floats, wrong: Floats, weights: Floats) -> Floats:
    """Area under the ROC curve: how often a right score is above a wrong one.

    Args:
        right: (scenes,) scores of right captions.
        wrong: (scenes,) scores of wrong captions.
        weights: (draws, scenes) how often a draw holds each scene.

    Returns:
        (draws,) over all pairs of a right and a wrong score; equal ones count half, NaN
        for a draw without scenes.
    """
    above = (right[:, None] > wrong) + 0.5 * (right[:, None] == wrong)
    with np.errstate(invalid="ignore"):
        areas: Floats = ((weights @ above) * weights).sum(1) / weights.sum(1) ** 2
    return areas


def measure_captions(settings: BenchSettings, say: Say) -> BenchPart:
    """The area for another scene's caption (a bar) and for captions wrong by one thing."""
    scenes = [caption(i, settings.seed) for i in range(settings.scenes)]
    scorer = settings.scorer(CLIP)
    say(f"{CLIP}: {len(scenes)} images, {1 + len(WRONG)} captions each")
    scores = _scores(scorer, scenes)
    areas = {}
    rows = []
    for name in WRONG:
        whole, share = _compare(scores[RIGHT], scores[name])
        areas[name] = whole
        texts = [_SHARE.estimate(whole), _SHARE.estimate(share)]
        rows.append([name, *texts, f"{share.n:,}"])
    bar = Bar.at_least("AUC, right caption against another scene's", areas[RANDOM], AIM)
    head = ["wrong by", "AUC", "right above wrong", "n"]
    table = ResultTable.of(
        "Which wrong captions CLIPScore sees", head, rows, [_ABOUT_SHARES]
    )
    return BenchPart(title=TITLE, bars=(bar,), tables=(table,))


def _compare(right: Floats, wrong: Floats) -> tuple[Estimate, Estimate]:
    """Return the area, and the share of images whose right caption scores higher."""
    known = np.flatnonzero(~(np.isnan(right) | np.isnan(wrong)))
    right = right[known]
    wrong = wrong[known]
    if not len(known):
        nothing = Estimate(None, None, 0, "nothing is scored")
        return nothing, nothing
    weights = bootstrap_weights([f"scene {i}" for i in known.tolist()])
    higher = np.where(right == wrong, 0.5, right > wrong)
    whole = estimate_with_interval(area, right, wrong, weights, len(known))
    return whole, mean(higher, SHARE)


class _AskedCaption(NamedTuple):
    """A caption that is scored beside an image."""

    wrong: str
    """By what; `RIGHT` where it is right."""
    scene: int
    """Number of the scene that the image is of."""
    text: str


def _scores(scorer: LocalScorer, scenes: Sequence[CaptionedScene]) -> Mapping[str, Floats]:
    """By what is wrong, (scenes,) scores; NaN where there is no such caption or score."""
    asked = (Turn("user", (Text("What does the picture show?"),)),)
    query = Query(id="caption", category="captions", field="captions", turns=asked)
    images = [encode(draw(scene.scene, scene.seed)) for scene in scenes]
    captions = []
    for name in (RIGHT, *WRONG):
        for i, scene in enumerate(scenes):
            text = scene.right if name == RIGHT else scene.wrong.get(name)
            if text:
                captions.append(_AskedCaption(name, i, text))
    pairs = []
    for own in captions:
        pairs.append((query, Document((Text(own.text), images[own.scene]))))
    scores = {name: np.full(len(scenes), np.nan) for name in (RIGHT, *WRONG)}
    for own, outcome in zip(captions, outcomes_of(scorer, pairs), strict=True):
        value = score_value(outcome)
        if value is not None:
            scores[own.wrong][own.scene] = value
    return scores


def outcomes_of(scorer: LocalScorer, pairs: Sequence[Pair]) -> list[Outcome[Score]]:
    """Return the scores of many answers, in batches."""
    walks = [scorer.scorer.judge(query, document) for query, document in pairs]
    return drive(together(walks), scorer.stages.outcomes)


# ------------------------------------------------------------------- wrong captions


@dataclass(frozen=True, slots=True)
class CaptionedScene:
    """A scene, its right caption and wrong ones by what is wrong with them."""

    scene: Scene
    seed: int
    """Of the image's jitter."""
    right: str
    wrong: Mapping[str, str]


def caption(index: int, seed: int) -> CaptionedScene:
    """Return the `index`-th scene of the test split with its captions."""
    rng = random.Random(f"captions {seed} {index}")
    scene = random_scene(rng, "test")
    wording = rng.randrange(2**31)
    wrong = {}
    for name, make in WRONG.items():
        other = make(scene, rng)
        if other is not None:
            wrong[name] = _say(other, wording)
    # Drawn after all changes, which draw from it too.
    jitter = rng.randrange(2**31)
    return CaptionedScene(scene, jitter, _say(scene, wording), wrong)


def _say(scene: Scene, wording: int) -> str:
    # One wording for right and wrong, so that they differ in what they say alone.
    return sentence(scene, random.Random(wording))


def _change(kind: ChangeKind) -> SceneEdit:
    def change(scene: Scene, rng: random.Random) -> Scene | None:
        made = random_change(rng, scene, kind)
        return None if made is None else made.of(scene)

    return change


def _other_shape(scene: Scene, rng: random.Random) -> Scene | None:
    item = rng.choice(scene.items)
    taken = {other.shape for other in scene.items if other.colour == item.colour}
    shapes = [shape for shape in SHAPES if shape not in taken]
    if not shapes:
        return None
    return exchanging(scene, {item: replace(item, shape=rng.choice(shapes))})


def _exchange(attribute: str) -> SceneEdit:
    """Let two items exchange an attribute: all words are right, only their order is not."""

    def take_from(item: SceneItem, other: SceneItem) -> SceneItem:
        return replace(item, **{attribute: getattr(other, attribute)})

    def change(scene: Scene, rng: random.Random) -> Scene | None:
        items = [*scene.items]
        rng.shuffle(items)
        for a, b in combinations(items, 2):
            made = exchanging(scene, {a: take_from(a, b), b: take_from(b, a)})
            if {*made.items} != {*scene.items}:
                return made
        return None

    return change


RANDOM = "another scene"
WRONG: Mapping[str, SceneEdit] = {
    RANDOM: lambda scene, rng: another(scene, rng, "test"),
    "colour": _change("recolour"),
    "shape": _other_shape,
    "size": _change("resize"),
    "place": _change("move"),
    "one more": _change("add"),
    "one fewer": _change("remove"),
    "background": repaint,
    "places exchanged": _exchange("place"),
    "colours exchanged": _exchange("colour"),
}
