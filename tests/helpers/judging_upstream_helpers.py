"""Answers for which `judging_upstream.json` holds what the released scorer made of them.

The figures were made by `get_dataset` of dataset.py, and by `find_score`, `average` and
the accepting condition of main.py (Lillianwei-h/MMIE@eb0fd6e), with the prompts of
`judging_helpers.STAND_IN`; the images were put into the prompt as InternVL's `chat`
does, one `<image>` after another. `prompts` holds the first 16 digits of the SHA-256 of
each prompt with every image as `[file name]`, None where the row was dropped.

No text is empty and no item without both text and image: the released scorer makes a
blank line of the one, and ends the answer at the other where it has read three images,
while our reader keeps neither.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from paths import DATA
from PIL import Image as Pillow

FIGURES = DATA / "judging_upstream.json"
WORDS = [
    "tea",
    "the {cup}",
    "<image>",
    "und s\u00fc\u00df",
    "### Score 3",
    "a\nb",
    "5",
    "\u00e9",
]
REPLIES = [
    "### Score\n5", "### Score\nScore: 5/6", "### Score\n4.5", "### Score\n5.5",
    "### Score\n-1", "### Score\n7", "### Score 1) text: good 5",
    "### Score\nI assign 0-6 scale: 4", "### Score\nfive", "Score: 5", "5", "",
    "### Score\n-0.4", "### Score\n-0.5", "### Score\n6.4", "### Score\n6.5",
    "### Score\n-0.6", "### Score\n\u0665", "ok\n\n### Score\n3\n### Score\n4",
    "###Score\n4", "### score\n4", "### Scores: 2", "### Score\n.5", "### Score\n3.",
    "### Score\n+4", "### Score\n1e9", "### Score\n2.5", "### Score\n3.5", "### Score\n00",
]  # fmt: skip


_NONE = {"text": None, "image": None}


def rows(number: int = 240, seed: int = 5) -> list[dict[str, Any]]:
    """A data.json: ids of every kind, questions and answers of every shape."""
    draw = random.Random(seed)
    return [_row(draw, i) for i in range(number)]


def _row(draw: random.Random, i: int) -> dict[str, Any]:
    kind = draw.choice(["SA", "PBL", "MSR", "PBL-SA", "MSR-PBL"])
    answer: Any = _items(draw, draw.randrange(6))
    if draw.random() < 0.1:
        answer = _text(draw)
    truth = _items(draw, 2)
    return {
        "id": f"{kind}-{i}",
        "question": _items(draw, draw.randrange(1, 8)),
        "answer": answer,
        "model": "m",
        "gt_answer": truth or [_NONE],
    }


def _items(draw: random.Random, number: int) -> list[dict[str, str | None]]:
    items = [
        {
            "text": _text(draw) if draw.random() < 0.7 else None,
            "image": f"images/{draw.randrange(9)}.png" if draw.random() < 0.5 else None,
        }
        for _ in range(number)
    ]
    return [item for item in items if item != _NONE]


def _text(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randrange(1, 5)))


def scored(number: int, seed: int) -> list[tuple[str, int]]:
    """(id, score) pairs to be averaged."""
    draw = random.Random(seed)
    return [
        (f"{draw.choice(['SA', 'PBL', 'MSR'])}-{i}", draw.randrange(7))
        for i in range(number)
    ]


AVERAGED = [(1, 1), (3, 2), (7, 3), (11, 4), (60, 5), (999, 6), (1000, 7), (1001, 8)]
"""(number, seed) of the sets of scores."""


def write_folder(folder: Path, number: int = 240) -> Path:
    """The rows and their images, as the released scorer reads them."""
    (folder / "images").mkdir(parents=True)
    for i in range(9):
        pixels = np.full((4, 4, 3), 20 * i, np.uint8)
        Pillow.fromarray(pixels).save(folder / "images" / f"{i}.png")
    (folder / "data.json").write_text(json.dumps(rows(number)), encoding="ascii")
    return folder


def figures() -> dict[str, Any]:
    return json.loads(FIGURES.read_text())  # type: ignore[no-any-return]
