"""Prompts and settings for which `gill_upstream.npz` holds upstream's results.

The arrays were made by the original program (kohjingyu/gill@4600b71) with transformers
4.30.2 and diffusers 0.17.1 on the files that `checkpoint` writes, in float32 on a CPU.
Patched there: cuda, bfloat16 and float16; the repository of Stable Diffusion; the widths
of the mapper and of its output, which it fixes at 512 and 768 (32 here); no decision
model; and the random number of each sampled token, which is the first id whose cumulative
probability exceeds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gill_upstream_checkpoint import OUT, VOKENS
from picture_helpers import png
from PIL import Image as Pillow

from generators.document import Image, Request, Text, Turn

__all__ = ["OUT", "VOKENS"]

RUNS: list[dict[str, Any]] = [
    {"num_words": 32, "max_num_rets": 1, "ret_scale_factor": 1.0},
    {"num_words": 32, "max_num_rets": 1},
    {},
    {"num_words": 50, "min_word_tokens": 9, "gen_scale_factor": 1.1},
    {"num_words": 24, "newline": "upstream", "truncate_caption": True, "max_num_rets": 2},
    {"num_words": 2, "max_num_rets": 1, "ret_scale_factor": 1.0, "gen_scale_factor": 1e5},
    {"temperature": 0.6, "top_p": 0.95, "ret_scale_factor": 1.0},
    {"temperature": 0.6, "top_p": 0.95, "ret_scale_factor": 1.3, "num_words": 40},
    {"temperature": 1.0, "num_words": 40},
]
"""Settings that differ from `BASE`, the settings of all runs."""

BASE: dict[str, Any] = {
    "num_words": 64,
    "max_num_rets": 4,
    "min_word_tokens": 0,
    "ret_scale_factor": 1.4,
    "gen_scale_factor": 1.0,
    "temperature": 0.0,
    "top_p": 1.0,
    "show_vokens": True,
    "history_images": "vokens",
}
STEPS, GUIDANCE = 4, 7.5

PICTURES = {"wide": (100, 66), "tall": (53, 131), "even": (28, 28), "small": (9, 20)}


def image(name: str) -> Image:
    """Smooth random colours."""
    width, height = PICTURES[name]
    random = np.random.RandomState(width * height)
    small = Pillow.fromarray(random.randint(0, 256, (7, 5, 3)).astype(np.uint8))
    return png(small.resize((width, height), Pillow.Resampling.BICUBIC))


def conversations() -> list[tuple[Turn, ...]]:
    """One question; with a picture before it; around two; a dialogue with an image."""
    around = (Text("First"), image("tall"), Text(" and then"), image("small"))
    around += (Text("go on"),)
    drawn = (Text(" a red bird. "), image("even"), Text(" then"))
    return [
        (Turn("user", (Text("the bird in the house"),)),),
        (Turn("user", (image("wide"), Text("What is this?"))),),
        (Turn("user", around),),
        (
            Turn("system", (Text("Be quiet. "),)),
            Turn("user", (Text("show the river"),)),
            Turn("assistant", drawn),
            Turn("user", (Text("and the boat"),)),
        ),
    ]


def request(index: int, seed: int) -> Request:
    return Request(conversations()[index], seed)


def seed_of(conversation: int, run: int) -> int:
    """Seed of a run's sampling, and of its pictures' noise."""
    return 100 * run + conversation
