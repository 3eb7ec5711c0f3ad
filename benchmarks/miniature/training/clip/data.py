"""What the mini CLIP learns from: scenes that differ in one attribute, and their texts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from benchmarks.miniature.training.labels import UNSAID, Labels, labels_of
from benchmarks.miniature.variants import ATTRIBUTES, variant
from scorers.clip.text import ClipText, TokenIds
from scorers.clipscore import ClipSettings
from scorers.truth.drawing import SIDE, draw
from scorers.truth.language import LEADS, description, listed, phrase
from scorers.truth.scene import PLACES, Scene, Split, random_scene

GROUP = 4
"""Scenes of a group: one, and others that differ from it in one attribute each."""
PARTIAL = 0.25
"""Share of texts that mention some of the items, or no background."""


def group_of(rng: random.Random, split: Split) -> list[Scene]:
    """A random scene of `split` and GROUP - 1 variants of it in the same split."""
    scene = random_scene(rng, split)
    group = [scene]
    while len(group) < GROUP:
        changed = variant(scene, rng.choice(ATTRIBUTES), rng)
        if changed is not None and changed.split == split and changed not in group:
            group.append(changed)
    return group


@dataclass(frozen=True)
class Said:
    """A text and the labels that it fixes."""

    text: str
    labels: list[int]


def full_text(scene: Scene, rng: random.Random) -> Said:
    """All of the scene, as a caption, a sentence, or a step of instructions."""
    text = description(scene, rng)
    if rng.random() < 0.8:
        text = f"{rng.choice(LEADS)} {text}."
    if rng.random() < 0.2:
        text = f"Step {rng.randint(1, 3)}: {text}"
    return Said(text, labels_of(scene))


def partial_text(scene: Scene, rng: random.Random) -> Said:
    """Some items of the scene, with or without its background."""
    items = rng.sample(scene.items, rng.randint(1, len(scene.items)))
    labels = labels_of(scene)
    said = [UNSAID] * len(labels)
    for item in items:
        first = 3 * PLACES.index(item.place)
        said[first : first + 3] = labels[first : first + 3]
    text = listed([phrase(item) for item in items])
    if rng.random() < 0.3:
        text, said[-1] = f"{text} on a {scene.background} background", labels[-1]
    if rng.random() < 0.7:
        text = f"{rng.choice(LEADS)} {text}."
    return Said(text, said)


class CaptionTokens:
    """Texts of scenes as CLIPScore gives them to CLIP, most of them with its prefix."""

    def __init__(self) -> None:
        self._with = ClipText(ClipSettings().prefix)
        self._without = ClipText()

    def __call__(self, scene: Scene, rng: random.Random) -> tuple[TokenIds, list[int]]:
        """Token ids and labels of one random text."""
        write = partial_text if rng.random() < PARTIAL else full_text
        said = write(scene, rng)
        return self.tokens(said.text, with_prefix=rng.random() < 0.85), said.labels

    def tokens(self, text: str, with_prefix: bool = True) -> TokenIds:
        """The window that CLIPScore reads of `text`."""
        reader = self._with if with_prefix else self._without
        return reader.read(text).windows[0]


@dataclass(frozen=True)
class ScenePool:
    """Groups of scenes with their pictures, drawn once."""

    groups: int
    seed: int
    split: Split = "train"
    writer: CaptionTokens = field(default_factory=CaptionTokens)

    @cached_property
    def scenes(self) -> list[Scene]:
        """All scenes, group by group."""
        rng = random.Random(self.seed)
        groups = (group_of(rng, self.split) for _ in range(self.groups))
        return [scene for group in groups for scene in group]

    @cached_property
    def pictures(self) -> npt.NDArray[np.uint8]:
        """(scenes, side, side, 3)."""
        drawn = np.empty((len(self.scenes), SIDE, SIDE, 3), np.uint8)
        for i, scene in enumerate(self.scenes):
            drawn[i] = np.asarray(draw(scene, self.seed * 1_000_003 + i))
        return drawn

    def batch(self, seed: int, groups: int) -> "ClipBatch":
        """`groups` random groups, with new texts."""
        rng = random.Random(seed)
        firsts = [GROUP * g for g in rng.sample(range(self.groups), groups)]
        rows = [first + k for first in firsts for k in range(GROUP)]
        texts = [self.writer(self.scenes[row], rng) for row in rows]
        return ClipBatch(
            self.pictures[rows],
            padded([tokens for tokens, _ in texts]),
            np.array([labels_of(self.scenes[row]) for row in rows]),
            np.array([said for _, said in texts]),
        )


@dataclass(frozen=True)
class ClipBatch:
    """Pictures and one text each."""

    pictures: npt.NDArray[np.uint8]
    tokens: npt.NDArray[np.int64]
    shown: Labels
    said: Labels

    def true(self) -> npt.NDArray[np.bool_]:
        """(texts, pictures): whether the picture shows all that the text says."""
        said, shown = self.said[:, None], self.shown[None]
        fits: npt.NDArray[np.bool_] = ((said == shown) | (said == UNSAID)).all(-1)
        return fits


def padded(windows: list[TokenIds]) -> npt.NDArray[np.int64]:
    """(texts, longest), zeros after the end of a text."""
    rows = np.zeros((len(windows), max(map(len, windows))), np.int64)
    for row, window in zip(rows, windows, strict=True):
        row[: len(window)] = window
    return rows
