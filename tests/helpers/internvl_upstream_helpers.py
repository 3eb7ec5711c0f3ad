"""What `internvl_upstream.npz` holds upstream's results for.

The arrays were made by the original programs, `chat` of OpenGVLab/InternVL@2410d1d and
`load_image` of Lillianwei-h/MMIE@eb0fd6e, with transformers 4.37.2 and its slow tokenizer,
on the files that `checkpoint` writes, in float32 on a CPU. Patched there: no
flash-attention, no cuda; recorded on the way: tiles, features, ids and first logits. The
tokenizer's pieces are kept with the arrays, so that they outlive changes of our toys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from contents import turn_of
from internvl_helpers import picture, save, tokenizer_config
from paths import DATA

from plait.generators.document import Image, Request

ARRAYS = DATA / "internvl_upstream.npz"
NEW_TOKENS = 60
SIZES = [(40, 30), (90, 20), (28, 28), (33, 70)]
"""Of the images, in pixels."""

TOKENIZERS: dict[str, dict[str, Any]] = {
    "published": {},
    "without-bos": {"add_bos_token": False},
    "legacy": {"legacy": True},
    "roles-special": {
        "additional_special_tokens": ["<img>", "</img>", "<IMG_CONTEXT>", "<|system|>"]
    },
    "nothing-stripped": {"stripped": False},
}
"""What the tokenizer's configuration may say otherwise."""
TEXTS = [
    "What does this picture show",
    "  spaces  before,\tbetween \nand after  ",
    "### Feedback\nclear\n\n### Score\n5\n",
    "\u00e9t\u00e9 \u4f60\u597d \u2581 under \U0001f600",
    "a",
    "x = 3.14 -> [1, 2]; {y}",
]
"""Read as a question, in each tokenizer."""


def pieces() -> bytes:
    return bytes(np.load(ARRAYS)["pieces"])


def checkpoint(folder: Path, model: bytes, stripped: bool = True, **settings: Any) -> Path:
    if stripped:
        return save(folder, pieces=model, **settings)
    added = tokenizer_config(model)["added_tokens_decoder"]
    for token in added.values():
        token["rstrip"] = False
    return save(folder, pieces=model, added_tokens_decoder=added, **settings)


def pictures() -> list[Image]:
    return [picture(i, *size) for i, size in enumerate(SIZES)]


def requests() -> list[Request]:
    """Below, across and above the length at which the rotary frequencies change."""
    p = pictures()
    short = turn_of("be clear", role="system")
    filler = "the picture shows a good story and each step follows the last one. " * 12
    return [
        Request((turn_of("question: Image-0: ", p[0], "\nanswer: Image-1: ", p[1], "\n"),)),
        Request((turn_of("is this text correct, and does the", " story follow?" * 7),)),
        Request((short, turn_of("does ", p[2], " match ", p[3], " overall?"))),
        Request((turn_of(filler, p[1], " feedback"),)),
        Request(
            (
                turn_of(p[0], "\nfirst question"),
                turn_of("partly correct", role="assistant"),
                turn_of("and the second one"),
            )
        ),
        Request((short, turn_of("score"))),
        Request((turn_of("text ", p[3], p[2], p[1], p[0]),)),
    ]
