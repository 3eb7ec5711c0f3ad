"""From a name under `mini` weights to a pretrained folder and its settings.

The one place where the two meet: what loads a model is given `pretrained` and a folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from generators.base import StageSpec, Weights, WeightsName
from generators.checkpoints import pinned, pinning
from generators.errors import UsageError
from generators.mini.digests import verified
from generators.mini.table import MINI, folder_of, is_mini_only, settings_of

_FIXED = ("model", "revision")


@contextmanager
def mini_settings(name: str, overrides: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings of `name`'s mini weights, overridden by the user's `overrides`.

    Stages that are specified inside this context name their weights by what the folder
    holds, wherever it is on this machine. UsageError where there are no mini weights of
    that name, or `overrides` name other weights.
    """
    if name not in MINI:
        raise UsageError(
            f"{name!r} has no mini weights; these have: {', '.join(sorted(MINI))}. "
            "Otherwise choose other weights: pretrained, dummy or tiny"
        )
    _refuse_other_weights(name, overrides)
    identity = pinned(f"mini:{name}", lambda: verified(name))
    with pinning({f"{folder_of(name)}@main": identity}):
        yield settings_of(name) | dict(overrides)


def _refuse_other_weights(name: str, overrides: Mapping[str, Any]) -> None:
    parts = [value for value in overrides.values() if isinstance(value, Mapping)]
    for key in _FIXED:
        if any(key in values for values in (overrides, *parts)):
            raise UsageError(
                f"models.{name}.{key} cannot be set with mini weights, which name their "
                "own folder; use --weights pretrained"
            )


def as_mini(spec: StageSpec) -> StageSpec:
    """`spec` of a mini folder, said to be of mini weights; any other unchanged."""
    return replace(spec, weights="mini") if spec.weights == "pretrained" else spec


def loadable(weights: WeightsName) -> Weights:
    """What a user's own class is given: under `mini` it loads what it always loads."""
    return "pretrained" if weights == "mini" else weights


def refuse_mini_only(name: str, weights: WeightsName) -> None:
    """UsageError for a name that exists only as mini weights, under others."""
    if is_mini_only(name) and weights != "mini":
        raise UsageError(f"{name!r} has mini weights alone: give --weights mini")
