"""Scenes of the training split with their pictures, drawn ahead: drawing costs no step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from scorers.truth.drawing import draw
from scorers.truth.scene import MOST_ITEMS, Scene, Split, random_scene


@dataclass(frozen=True)
class DrawnScenes:
    """Scenes and, in the same order, their pictures."""

    scenes: tuple[Scene, ...]
    pixels: torch.Tensor
    """uint8 (scenes, 3, side, side)."""

    @classmethod
    def of(
        cls, count: int, seed: int, split: Split = "train", most: int = MOST_ITEMS
    ) -> DrawnScenes:
        """`count` random scenes of `split`; the same ones for the same seed."""
        rng = random.Random(seed)
        scenes = tuple(random_scene(rng, split, most=most) for _ in range(count))
        pictures = [np.asarray(draw(s, rng.getrandbits(32))) for s in scenes]
        pixels = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
        return cls(scenes, pixels)

    def batch(self, places: Sequence[int] | torch.Tensor) -> torch.Tensor:
        """Pictures (batch, 3, side, side) with values from -1 to 1."""
        return self.pixels[places].float() / 127.5 - 1
