"""Questions and settings for which `minigpt5_upstream.npz` holds upstream's results.

The arrays were made by the original program
(eric-ai-lab/MiniGPT-5@915ab17, transformers 4.31.0, peft 0.10.0, diffusers 0.27.2) on the
files that `minigpt5_helpers` writes, in float32 on a CPU. Patched there: sizes of the ViT
and of the Q-Former, paths, cuda and bfloat16, the ids of `###`, and the random number of
each sampled id, which is the first whose cumulative probability exceeds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from picture_helpers import png
from PIL import Image as Pillow

from generators.document import Image, Request, Text, Turn

PICTURES = {"wide": (50, 31), "tall": (23, 60), "square": (28, 28), "odd": (37, 36)}
"""Name -> width and height."""

QUESTIONS: list[list[str]] = [
    ["the quiet old river", "wide", " grows under the house.", "tall", "\n"],
    ["Tell me of the garden, slowly"],
    ["square", "a bird  and\n### a boat", "odd", "wide", " then"],
]
"""Text, and names of pictures."""

RUNS: list[dict[str, Any]] = [
    {"seed": 3},
    {"seed": 4},
    {"seed": 15, "force_image": True},
    {"seed": 6, "max_new_tokens": 24},
    {"seed": 7, "finetuned": "mmdialog"},
    {"seed": 8, "finetuned": "none"},
]
"""Settings of the runs, each over all questions."""

STEPS = 12
NOISE_SEED = 77


def picture(name: str) -> Pillow.Image:
    """Smooth colours with some noise."""
    width, height = PICTURES[name]
    random = np.random.RandomState(sum(map(ord, name)))
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (3 + c) + c) * np.cos(y / (5 - c)) for c in range(3)]
    values = 128 + 90 * np.stack(waves, axis=-1) + random.normal(0, 12, (height, width, 3))
    return Pillow.fromarray(values.clip(0, 255).astype(np.uint8))


def encoded(name: str) -> Image:
    return png(picture(name))


def request(question: list[str], seed: int) -> Request:
    content = tuple(encoded(s) if s in PICTURES else Text(s) for s in question)
    return Request((Turn("user", content),), seed=seed)
