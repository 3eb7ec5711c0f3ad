"""From a name under `mini` weights to a pretrained folder and its settings.

The one place where the two meet: what loads a model is given `pretrained` and a folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from plait.generators.base import StageSpec, WeightsName
from plait.generators.checkpoints import pin, standing_for
from plait.generators.errors import UsageError
from plait.generators.mini.digests import verify
from plait.generators.mini.table import MINI, folder_of, is_mini_only, settings_of


@contextmanager
def mini_settings(name: str, overrides: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the settings of `name`'s mini weights, overridden by the user's `overrides`.

    Stages that are specified inside this context name their weights by what the folder
    holds, wherever it is on this machine. UsageError where there are no mini weights of
    that name, or `overrides` name other weights.
    """
    if name not in MINI:
        raise UsageError(
            f"{name!r} has no mini weights; these have: {', '.join(sorted(MINI))}. "
            "Otherwise choose other weights: pretrained, dummy or tiny"
        )
    parts = [overrides]
    # A model of several stages has the settings of each in a table of its own.
    for value in overrides.values():
        if isinstance(value, Mapping):
            parts.append(value)
    for key in ("model", "revision"):
        if any(key in values for values in parts):
            raise UsageError(
                f"models.{name}.{key} cannot be set with mini weights, which name their "
                "own folder; use --weights pretrained"
            )
    identity = pin(f"mini:{name}", lambda: verify(name))
    with standing_for(f"{folder_of(name)}@main", identity):
        yield settings_of(name) | dict(overrides)


def as_mini(spec: StageSpec) -> StageSpec:
    """Return `spec` of a mini folder, said to be of mini weights; any other unchanged."""
    return replace(spec, weights="mini") if spec.weights == "pretrained" else spec


def refuse_mini_only(name: str, weights: WeightsName) -> None:
    """Raise UsageError for a name that exists only as mini weights, under others."""
    if is_mini_only(name) and weights != "mini":
        raise UsageError(f"{name!r} has mini weights alone: give --weights mini")
