"""Judges of documents. Of `generators` they see values and contracts only."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from generators.base import Weights
from generators.custom import is_custom
from generators.names import unknown
from scorers.base import Scorer
from scorers.custom import custom_scorer
from scorers.judging.resolve import PREFIX as JUDGE
from scorers.judging.resolve import Chat, resolve_judge

SCORERS: dict[str, str] = {
    "bleu": "scorers.bleu:bleu",
    "clipscore": "scorers.clipscore:clipscore",
    "consistency": "scorers.consistency:consistency",
}
"""Name -> `module:function`; the function takes (weights, overrides, gpu_gib)."""


def resolve_scorer(
    name: str,
    weights: Weights,
    overrides: Mapping[str, Any],
    gpu_gib: float = 80.0,
    chat: Chat | None = None,
) -> Scorer:
    """The scorer a user named; UsageError names the valid ones.

    `chat` gives the stage of a chat model by name, for `judge:NAME`.
    """
    if name.startswith(JUDGE):
        return resolve_judge(name, weights, overrides, gpu_gib, chat)
    if name not in SCORERS and is_custom(name):
        return custom_scorer(name, weights, overrides)
    if name not in SCORERS:
        raise unknown("scorer", name, [*SCORERS, f"{JUDGE}NAME", "module:Class"])
    module, _, function = SCORERS[name].partition(":")
    make = getattr(importlib.import_module(module), function)
    return make(weights, overrides, gpu_gib)  # type: ignore[no-any-return]
