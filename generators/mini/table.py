"""The mini models: which folder stands in for which name, and with which settings.

    python -m plait.generators.mini.digests       pins the weights that are there

A name of this table becomes a pretrained folder before any loader sees it
(`plait.generators.mini.resolve`). What the weights are and are not: `CARD.md`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plait.generators.settings import SMALL_BATCH

ROOT = "PLAIT_MINI_WEIGHTS"
"""Environment variable with another folder of weights, such as one being trained."""
SHIPPED = Path(__file__).parent / "weights"

ABOUT = (
    "trained on a miniature world of coloured shapes: the numbers show that the whole "
    "chain works and say nothing about the published models of these names"
)
"""What readers must know before any number."""
ABOUT_JUDGE = (
    "the mini judge takes each criterion of the rubric for a question about shapes: "
    "whether the text is right, the pictures are right, each picture shows what its text "
    "says, and most, nearly all or all of the answer is right"
)
"""What they must know before a score of the mini judge
(`benchmarks/miniature/training/mmie_score.py`)."""


@dataclass(frozen=True, slots=True)
class MiniModel:
    """A mini checkpoint under the name of the published model it stands in for."""

    folder: str
    """Under the root of the weights; several names may share one."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the published model's settings; those of users override it. For a
    model of several stages only keys that are shared by its stages."""
    preset: str | None = None
    """The named model whose settings it starts from, for a name that has only mini
    weights; by default its own."""


# In Python, unlike other tables of models: TOML has no null, by which a setting of the
# published model is taken back, and models of one design share their settings here.
_EVERY: Mapping[str, Any] = {"dtype": "float32", "num_gpus": 0.0, "params_b": None}
"""Small enough for a CPU; stored in half precision, computed in full."""
_BATCH: dict[str, Any] = {"batch_size": SMALL_BATCH}
_DRAWING = {"steps": 10, "guidance": 1.5, "height": 64, "width": 64} | _BATCH
_EDITING = {**_DRAWING, "scheduler": None}
"""By the image too: guidance by both at once (arXiv:2211.09800, section 3.2.1)."""
_JUDGE = {"max_new_tokens": 200, "context": 2048, "max_tiles": 1} | _BATCH
_ANOLE: Mapping[str, Any] = {
    "context": 512,
    "max_text_tokens": 80,
    "max_images": 2,
    "text_greedy": True,
    "repetition_penalty": 1.0,
    "guidance_text": 1.0,
    "guidance_image": 1.0,
    **_BATCH,
}
_WRITER = MiniModel("qwen2-vl", {"max_new_tokens": 160})
_CLIP = MiniModel("clip", {"prefix": ""})

MINI: Mapping[str, MiniModel] = {
    "anole": MiniModel("anole", _ANOLE),
    "clipscore": _CLIP,
    "clipscore-prompt": _CLIP,
    "consistency": MiniModel("clip"),
    "instruct-pix2pix": MiniModel("instruct-pix2pix", _EDITING),
    "judge:mmie-score": MiniModel("mmie-score", _JUDGE),
    "openjourney": MiniModel("openjourney", _DRAWING),
    # Weaker by construction: an earlier checkpoint of the same training.
    "openjourney-early": MiniModel("openjourney-early", _DRAWING, preset="openjourney"),
    "qwen2-vl-72b": _WRITER,
    "qwen2-vl-7b": _WRITER,
    "sdxl": MiniModel("sdxl", {**_DRAWING, "variant": ""}),
}
"""By the name that users give."""


def root() -> Path:
    """Return the folder that holds the mini weights on this machine."""
    return Path(os.environ.get(ROOT) or SHIPPED).expanduser().resolve()


def folder_of(name: str) -> Path:
    """Return the folder of the mini model `name`, whether or not it is there."""
    return root() / MINI[name].folder


def settings_of(name: str) -> dict[str, Any]:
    """Return the settings of the mini model `name`, its folder included."""
    return {**_EVERY, **MINI[name].settings, "model": str(folder_of(name))}


def is_mini_only(name: str) -> bool:
    """Return whether `name` has no weights but its mini ones."""
    return name in MINI and MINI[name].preset is not None
