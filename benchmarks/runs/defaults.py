"""What `plait run` does where little or nothing is named."""

from __future__ import annotations

from dataclasses import dataclass

from plait.generators.base import WeightsName


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultRun:
    """Data, systems and scorers that a command left out."""

    data: str
    systems: tuple[str, ...]
    scorers: tuple[str, ...]
    weights: WeightsName


QUICKSTART = DefaultRun(
    data="miniature",
    systems=(
        "anole",
        "qwen2-vl-7b+openjourney@outline",
        "qwen2-vl-7b+openjourney-early@outline",
        "qwen2-vl-7b+openjourney",
        "gt",
    ),
    scorers=("clipscore", "judge:mmie-score", "truth:match", "truth:answer"),
    weights="mini",
)
"""Of `plait run` alone. Only names whose mini weights are there: a test checks it."""

SAMPLE = DefaultRun(
    data="sample",
    systems=("anole", "qwen2-vl-72b+sdxl-turbo"),
    scorers=("clipscore",),
    weights="tiny",
)
"""Where data is named and no system; random weights take any data."""
