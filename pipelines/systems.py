"""From a system's name to its chain of stages. Imports no model code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from generators.base import Kind, StageSpec, Weights
from generators.custom import custom_spec, custom_system, is_custom
from generators.diffusion.settings import DiffusionSettings
from generators.names import UsageError, unknown, with_overrides
from generators.natives import NATIVE, native
from generators.settings import StageSettings
from generators.system import System
from pipelines.artists import T2IS
from pipelines.composition import composite, protocol
from pipelines.writers import LVLMS, ChatSettings, EndpointSettings


@dataclass(frozen=True, kw_only=True)
class Models:
    """What a run says about all its models."""

    weights: Weights
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by the model's name, from `[models.NAME]` of the config."""
    gpu_gib: float = 80.0
    """Memory of one GPU, to decide how many a model needs."""
    max_images: int = 4
    """Most pictures of one answer under the `outline` protocol."""

    def of(self, name: str) -> Mapping[str, Any]:
        """The user's settings for one model."""
        return self.overrides.get(name, {})


def resolve(name: str, models: Models) -> System:
    """The system a user named; UsageError says what would have been valid."""
    if name == "gt":
        return System(name="gt", draft=None)
    if name in NATIVE:
        return native(name, models.weights, models.of(name), models.gpu_gib)
    if "+" in name:
        return _composed(name, models)
    if is_custom(name):
        return custom_system(name, models.weights, models.of(name))
    if is_writer(name):
        raise UsageError(
            f"system {name!r} only writes text; give it a text-to-image model, as in "
            f"'{name}+sdxl-turbo', or use '{name}+sdxl-turbo@text' for text alone"
        )
    raise unknown("system", name, [*NATIVE, "gt", *(f"{w}+T2I" for w in LVLMS)])


def _composed(name: str, models: Models) -> System:
    pair, _, rule_name = name.partition("@")
    writer_name, _, artist_name = pair.partition("+")
    try:
        rule = protocol(rule_name or "mmie", models.max_images)
    except ValueError as error:
        raise UsageError(f"system {name!r}: {error}") from None
    written = pair if rule.name == "mmie" else f"{pair}@{rule.name}"
    return composite(
        written,
        writer_spec(writer_name, models),
        artist_spec(artist_name, models),
        rule,
        (
            f"{writer_name}@{rule.name}" if rule.name == "outline" else writer_name,
            artist_name,
        ),
    )


def is_writer(name: str) -> bool:
    """Whether `name` is a model that answers in text."""
    return name in LVLMS or name.startswith(("hf:", "openai:"))


def is_artist(name: str) -> bool:
    """Whether `name` is a model that draws from text."""
    return name in T2IS or name.startswith("diffusers:")


def writer_spec(name: str, models: Models) -> StageSpec:
    """The stage of an LVLM, `hf:ORG/NAME`, `openai:MODEL` or `module:Class`."""
    scheme, _, model = name.partition(":")
    if name in LVLMS:
        settings: StageSettings = LVLMS[name]
    elif scheme == "hf" and model:
        settings = ChatSettings(model=model)
    elif scheme == "openai" and model:
        settings = EndpointSettings(model=model)
    elif is_custom(name):
        return custom_spec(name, models.weights, models.of(name), [Kind.DRAFT])[0]
    else:
        raise unknown("LVLM", name, [*LVLMS, "hf:ORG/NAME", "openai:MODEL"])
    return _spec(name, settings, models)


def chat_spec(name: str, models: Models) -> StageSpec:
    """The stage of any model that answers in text, native ones included, as a judge."""
    if name not in NATIVE:
        if name not in LVLMS and ":" not in name:
            valid = [*NATIVE, *LVLMS, "hf:ORG/NAME", "openai:MODEL", "module:Class"]
            raise unknown("chat model", name, valid)
        return writer_spec(name, models)
    draft = native(name, models.weights, models.of(name), models.gpu_gib).draft
    assert draft is not None
    return draft


def artist_spec(name: str, models: Models) -> StageSpec:
    """The stage of a text-to-image model, `diffusers:ORG/NAME` or `module:Class`."""
    scheme, _, model = name.partition(":")
    if name in T2IS:
        settings = T2IS[name]
    elif scheme == "diffusers" and model:
        settings = DiffusionSettings(model=model)
    elif is_custom(name):
        return custom_spec(name, models.weights, models.of(name), [Kind.RENDER])[0]
    else:
        raise unknown("text-to-image model", name, [*T2IS, "diffusers:ORG/NAME"])
    return _spec(name, settings, models)


def _spec(name: str, settings: StageSettings, models: Models) -> StageSpec:
    told = with_overrides(settings, models.of(name), f"models.{name}")
    return told.spec(name, models.weights, models.gpu_gib)
