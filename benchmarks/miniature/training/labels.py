"""Scenes as rows of class numbers, which linear layers learn to read beside a model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scorers.truth.scene import BACKGROUNDS, COLOURS, PLACES, SHAPES, SIZES, Scene

UNSAID = -1
"""Label of what a text does not mention."""

Labels = npt.NDArray[np.int64]
"""(scenes, LABELS): colour, shape and size of each place, 0 where it is empty, and the
background; UNSAID where a text leaves it open."""

LOOKS = (tuple(COLOURS), SHAPES, tuple(SIZES))
"""The values of an item's colour, shape and size."""
CLASSES = (*(len(PLACES) * tuple(len(look) + 1 for look in LOOKS)), len(BACKGROUNDS))
"""How many values each label has."""


def labels_of(scene: Scene) -> list[int]:
    """The scene as one row of `Labels`."""
    row: list[int] = []
    for place in PLACES:
        if (item := scene.at(place)) is None:
            row += [0, 0, 0]
        else:
            own = (item.colour, item.shape, item.size)
            row += [look.index(o) + 1 for look, o in zip(LOOKS, own, strict=True)]
    return [*row, [*BACKGROUNDS].index(scene.background)]


def reading_loss(reader: nn.Linear, states: Tensor, labels: Labels) -> Tensor:
    """Mean cross entropy of what `reader` tells from states (scenes, width)."""
    columns = reader(states).split(CLASSES, dim=1)
    losses = [
        F.cross_entropy(logits, torch.from_numpy(column), ignore_index=UNSAID)
        for logits, column in zip(columns, labels.T, strict=True)
        if (column != UNSAID).any()
    ]
    return torch.stack(losses).mean()
