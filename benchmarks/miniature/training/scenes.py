"""Scenes of the train split with their images and labels, which all mini models see."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plait.scorers.truth import scene as world
from plait.scorers.truth.drawing import draw
from plait.scorers.truth.scene import BACKGROUNDS, PLACES, Scene, random_scene

SQUARES = 4.0
"""Weight of squared differences of pixels."""
EDGES = 0.5
"""Weight of differences of edges."""
LOOKS = (tuple(world.COLOURS), world.SHAPES, tuple(world.SIZES))
"""The values of an item's colour, shape and size."""
ITEM_CLASSES = tuple(len(look) + 1 for look in LOOKS)
CLASSES = (*(len(PLACES) * ITEM_CLASSES), len(BACKGROUNDS))
"""How many values each label of a scene has."""
UNSAID = -1
"""Label of what a text does not mention."""


def random_scenes(count: int, seed: int) -> list[Scene]:
    """Draw scenes of the train split."""
    rng = random.Random(seed)
    return [random_scene(rng, "train") for _ in range(count)]


def images_of(scenes: Sequence[Scene], seeds: Iterable[int] | None = None) -> Tensor:
    """Return images (scenes, 3, side, side) as uint8.

    Their seeds are by default their numbers.
    """
    drawn = []
    for scene, seed in zip(scenes, seeds or range(len(scenes)), strict=True):
        drawn.append(np.asarray(draw(scene, seed)))
    return torch.from_numpy(np.stack(drawn)).permute(0, 3, 1, 2).contiguous()


def centre(images: Tensor) -> Tensor:
    """Return uint8 images as floats in [-1, 1]."""
    return images.float() / 127.5 - 1


def image_loss(decoded: Tensor, images: Tensor) -> Tensor:
    """Return how far decoded images (batch, 3, side, side) are from those meant.

    Squares find the colours first; absolute differences of pixels and of the steps between
    neighbours keep corners sharp.
    """
    wrong = decoded.float() - images
    edges = wrong.diff(dim=2).abs().mean() + wrong.diff(dim=3).abs().mean()
    return wrong.abs().mean() + SQUARES * wrong.square().mean() + EDGES * edges


def labels_of(*scenes: Scene) -> Tensor:
    """Return (scenes, labels): colour, shape and size at each place, then the background.

    0 stands for an empty place.
    """
    return torch.tensor([_labels(scene) for scene in scenes])


def _labels(scene: Scene) -> list[int]:
    """Return the labels of one scene, as `labels_of` has them."""
    labels: list[int] = []
    for place in PLACES:
        item = scene.at(place)
        if item is None:
            labels += [0] * len(LOOKS)
            continue
        own_looks = (item.colour, item.shape, item.size)
        for values, own in zip(LOOKS, own_looks, strict=True):
            labels.append(values.index(own) + 1)
    return [*labels, [*BACKGROUNDS].index(scene.background)]


def reading_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy of what an auxiliary layer reads of scenes.

    Args:
        logits: (scenes, sum of CLASSES), or without the last label's classes.
        labels: int64 (scenes, labels); UNSAID ones do not count.
    """
    classes = [*CLASSES][: labels.shape[1]]
    scores = torch.split(logits.float(), classes, dim=1)
    losses = []
    for own, column in zip(scores, labels.unbind(1), strict=True):
        # The mean over no label at all would be NaN.
        if (column != UNSAID).any():
            losses.append(F.cross_entropy(own, column, ignore_index=UNSAID))
    return torch.stack(losses).mean()
