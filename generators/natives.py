"""The native interleaved models by name. Imports no model code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from plait.generators.base import StageSpec, Weights, WeightsName
from plait.generators.catalogue import Named, by_name
from plait.generators.errors import UsageError
from plait.generators.former import former_names
from plait.generators.mini.resolve import as_mini, mini_settings
from plait.generators.names import unknown, with_overrides
from plait.generators.rendering import Rendering
from plait.generators.rounds import Rounds, compose
from plait.generators.settings import ModelSettings, with_small_batch
from plait.generators.writing import NativeSystem

S = TypeVar("S", bound=BaseModel)


def native(
    name: str, weights: WeightsName, overrides: Mapping[str, Any], gpu_gib: float = 80.0
) -> NativeSystem:
    """Return the native system a user named; UsageError names the valid ones."""
    known = by_name(Named.NATIVE)
    if name not in known:
        raise unknown("native model", name, known)
    make: Callable[..., NativeSystem] = known[name].load()
    if weights != "mini":
        return make(weights, with_small_batch(overrides, weights), gpu_gib)
    with mini_settings(name, overrides) as settings:
        return make("pretrained", settings, gpu_gib).with_stages(as_mini)


def assemble(
    name: str,
    stages: Mapping[str, BaseModel],
    weights: Weights,
    overrides: Mapping[str, Any],
    gpu_gib: float,
    *,
    most_images: str = "",
    labels: Mapping[str, str] = {},
) -> NativeSystem:
    """Return the system of a model's stages; UsageError for unknown overrides.

    `most_images` is the draft's setting that limits the images of an answer; a model that
    does not interleave has `Rounds` instead, as `compose`. `labels` are names of stages
    where they are not the model's and their own.
    """
    parts = part_settings(stages, overrides, f"models.{name}")
    specs: dict[str, StageSpec] = {}
    own: dict[str, Any] = {}
    for part, settings in parts.items():
        if isinstance(settings, ModelSettings):
            label = labels.get(part, f"{name}-{part}")
            specs[part] = settings.spec(label, weights, gpu_gib)
        elif isinstance(settings, Rounds):
            own |= {"compose": partial(compose, settings), "rounds": settings.rounds}
    if most_images:
        own["max_images"] = getattr(parts["draft"], most_images)
    draft = specs.pop("draft")
    drawing = None
    if specs:
        drawing = Rendering(render=specs["render"], condition=specs.get("condition"))
    return NativeSystem(name=name, draft=draft, rendering=drawing, **own)


def part_settings(
    stages: Mapping[str, S], overrides: Mapping[str, Any], where: str
) -> dict[str, S]:
    """Return each stage's settings with the user's overrides of one model, as below."""
    overrides_of = part_overrides(stages, overrides, where)
    parts = {}
    for name, settings in stages.items():
        parts[name] = with_overrides(settings, overrides_of[name], f"{where}.{name}")
    return parts


def part_overrides(
    stages: Mapping[str, BaseModel], overrides: Mapping[str, Any], where: str
) -> dict[str, dict[str, Any]]:
    """Return the overrides of each stage among those of one model.

    A key that names a stage holds that stage's own settings; any other key goes to
    every stage that has such a field (`model` and `revision` to all). UsageError for a
    key that no stage has.
    """
    fields = {name: type(settings).model_fields for name, settings in stages.items()}
    valid = set(stages).union(*fields.values())
    for key in overrides:
        if key not in valid:
            raise unknown(f"key in {where}", key, valid)
    parts: dict[str, dict[str, Any]] = {}
    for name in stages:
        parts[name] = {}
        for key, value in overrides.items():
            if key not in stages and key in fields[name]:
                parts[name][key] = value
        own = overrides.get(name, {})
        if not isinstance(own, Mapping):
            raise UsageError(f"{where}.{name} must hold settings, not {own!r}")
        # What is set for the stage alone goes before what is set for all.
        parts[name] |= own
    return parts


__getattr__ = former_names(__name__, {"assembled": "assemble"})
