"""From a system's name to its chain of stages. Imports no model code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from generators.base import Kind, StageSpec, Weights, WeightsName
from generators.custom import custom_spec, custom_system
from generators.errors import UsageError
from generators.mini.resolve import as_mini, mini_settings, refuse_mini_only
from generators.mini.table import MINI, is_mini_only
from generators.names import unknown, with_overrides
from generators.natives import NATIVE, native
from generators.registry import (
    CUSTOM,
    PREFIXES,
    Named,
    forms,
    has_prefix,
    is_custom,
    prefix_of,
)
from generators.settings import ModelSettings, StageSettings, with_small_batch
from generators.system import System
from pipelines.chat.settings import ChatSettings, EndpointSettings, ServerSettings
from pipelines.composition import PROTOCOLS, composite, protocol, text_alone
from pipelines.endpoints.settings import (
    ChatImagesSettings,
    GeminiSettings,
    ImagesSettings,
    ResponsesSettings,
    omni_settings,
)
from pipelines.presets import LVLMS, T2IS, TextToImageSettings
from pipelines.servers.engines import engine_spec
from pipelines.servers.settings import EngineModelSettings, ServerTable
from pipelines.servers.start import with_server

WRITERS: Mapping[str, Callable[[str], StageSettings]] = {
    "hf": lambda model: ChatSettings(model=model),
    "openai": lambda model: EndpointSettings(model=model),
}
"""Prefix of an LVLM -> the settings of the model named after it."""

ARTISTS: Mapping[str, Callable[[str], StageSettings]] = {
    "diffusers": lambda model: TextToImageSettings(model=model),
    "images": lambda model: ImagesSettings(model=model),
}
"""Prefix of a text-to-image model, likewise."""

INTERLEAVED: Mapping[str, Callable[[str], StageSettings]] = {
    "gemini": lambda model: GeminiSettings(model=model),
    "responses": lambda model: ResponsesSettings(model=model),
    "omni": omni_settings,
    "chat-images": lambda model: ChatImagesSettings(model=model),
}
"""Prefix of a model behind a server that answers with text and pictures, likewise."""


@dataclass(frozen=True, kw_only=True)
class Models:
    """Settings of a run that concern all its models."""

    weights: WeightsName
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by the model's name, from `[models.NAME]` of the config."""
    servers: Mapping[str, ServerTable] = field(default_factory=dict)
    """Servers that plait starts, from `[servers.NAME]` of the config."""
    gpu_gib: float = 80.0
    """Memory of one GPU, to decide how many a model needs."""
    max_images: int = 4
    """Most pictures of one answer under the `outline` protocol."""

    def of(self, name: str) -> Mapping[str, Any]:
        """The user's settings for one model."""
        return self.overrides.get(name, {})


class SystemName(NamedTuple):
    """The parts of `LVLM[+T2I][@PROTOCOL]`; of any other name, all of it as `writer`."""

    writer: str
    artist: str | None = None
    protocol: str | None = None

    @property
    def models(self) -> tuple[str, ...]:
        """The models it names."""
        return (self.writer,) if self.artist is None else (self.writer, self.artist)


def parts_of(name: str) -> SystemName:
    """The parts of a system's name, split from the right.

    Model names may contain `@` and `+`: only a known protocol ends a name, and only what
    may be a text-to-image model follows a `+`.
    """
    pair, at, tail = name.rpartition("@")
    pair, rule = (pair, tail) if at and tail in PROTOCOLS else (name, None)
    for writer, artist in _splits(pair):
        if _may_draw(artist):
            return SystemName(writer, artist, rule)
    writer, plus, artist = pair.rpartition("+")
    if plus and not any(has_prefix(pair, kind) for kind in (Named.LVLM, Named.SYSTEM)):
        return SystemName(writer, artist, rule)
    return SystemName(pair, None, rule)


def _splits(pair: str) -> Iterator[tuple[str, str]]:
    """The text left and right of each `+`, the last one first."""
    places = [i for i, character in enumerate(pair) if character == "+"]
    return ((pair[:i], pair[i + 1 :]) for i in reversed(places))


def _may_draw(name: str) -> bool:
    """Whether `name` is meant as a text-to-image model, `@` and anything after it aside."""
    bare = name.partition("@")[0]
    return is_artist(bare) or is_artist(name) or is_custom(bare)


def resolve(name: str, models: Models) -> System:
    """The system a user named; UsageError says what would have been valid."""
    if name == "gt":
        return System(name="gt", draft=None)
    if name in NATIVE:
        return native(name, models.weights, models.of(name), models.gpu_gib)
    parts = parts_of(name)
    if parts.writer.partition(":")[0] in INTERLEAVED and ":" in name:
        return _interleaved(name, parts, models)
    if parts.artist is not None or parts.protocol is not None:
        return _composed(name, parts, models)
    if is_custom(name):
        return custom_system(name, models.weights, models.of(name))
    if is_writer(name):
        raise UsageError(
            f"system {name!r} only writes text; give it a text-to-image model, as in "
            f"'{name}+sdxl-turbo', or use '{name}@text' for text alone"
        )
    prefix_of(name, "system", Named.SYSTEM, Named.LVLM)
    _refuse_unknown_protocol(name, models)
    valid = [*NATIVE, "gt", *(f"{w}+T2I" for w in LVLMS), *forms(Named.SYSTEM), CUSTOM]
    raise unknown("system", name, valid)


def _interleaved(name: str, parts: SystemName, models: Models) -> System:
    """A model behind a server that draws its own pictures: one drafting stage."""
    if parts != SystemName(name):
        raise UsageError(
            f"system {name!r}: {parts.writer!r} answers with pictures of its own; it takes "
            "neither a text-to-image model nor a protocol"
        )
    prefix, _, model = name.partition(":")
    if not model:
        form = PREFIXES[Named.SYSTEM][prefix].form
        raise UsageError(f"system {name!r} names no model; write {form}")
    draft = _spec(name, INTERLEAVED[prefix](model), models)
    return System(name=name, draft=draft, max_images=0, tells_modality=True)


def _composed(name: str, parts: SystemName, models: Models) -> System:
    writer, artist = parts.writer, parts.artist
    rule = protocol(parts.protocol or "mmie", models.max_images)
    if rule.name == "text":
        if artist is not None:
            artist_settings(artist)
        return text_alone(name, writer_spec(writer, models), rule, writer)
    if artist is None:
        raise UsageError(
            f"system {name!r}: protocol {rule.name!r} draws pictures; name a text-to-image "
            f"model, as in '{writer}+sdxl-turbo@{rule.name}'"
        )
    _refuse_unknown_protocol(artist, models)
    pair = f"{writer}+{artist}"
    return composite(
        pair if rule.name == "mmie" else f"{pair}@{rule.name}",
        writer_spec(writer, models),
        artist_spec(artist, models),
        rule,
        (f"{writer}@{rule.name}" if rule.name == "outline" else writer, artist),
    )


def _refuse_unknown_protocol(name: str, models: Models) -> None:
    """UsageError for `MODEL@X` with a model that is known and a protocol that is not."""
    model, at, rule = name.partition("@")
    if at and (model in T2IS or model in LVLMS):
        protocol(rule, models.max_images)


def is_writer(name: str) -> bool:
    """Whether `name` is a model that answers in text, not a composition with one."""
    whole = parts_of(name) == SystemName(name)
    return name in LVLMS or (has_prefix(name, Named.LVLM) and whole)


def is_artist(name: str) -> bool:
    """Whether `name` is a model that draws from text."""
    return name in T2IS or is_mini_only(name) or has_prefix(name, Named.ARTIST)


def writer_spec(name: str, models: Models) -> StageSpec:
    """The stage of an LVLM, `hf:ORG/NAME`, `openai:MODEL` or `module:Class`."""
    if is_custom(name):
        return custom_spec(name, models.weights, models.of(name), [Kind.DRAFT])[0]
    return _spec(name, _settings(name, LVLMS, WRITERS, Named.LVLM), models)


def chat_spec(name: str, models: Models) -> StageSpec:
    """The stage of any model that answers in text, native ones included, as a judge."""
    if name in NATIVE:
        draft = native(name, models.weights, models.of(name), models.gpu_gib).draft
        assert draft is not None
        return draft
    if name not in LVLMS and not is_custom(name) and not has_prefix(name, Named.LVLM):
        prefix_of(name, "chat model", Named.LVLM)
        raise unknown("chat model", name, [*LVLMS, *NATIVE, *forms(Named.LVLM), CUSTOM])
    return writer_spec(name, models)


def artist_spec(name: str, models: Models) -> StageSpec:
    """The stage of a text-to-image model, `diffusers:ORG/NAME` or `module:Class`."""
    settings = artist_settings(name)
    if settings is None:
        return custom_spec(name, models.weights, models.of(name), [Kind.RENDER])[0]
    return _spec(name, settings, models)


def artist_settings(name: str) -> StageSettings | None:
    """The settings of a text-to-image model, None for a user's class; no weights are asked.

    UsageError for a name that is neither.
    """
    preset = MINI[name].preset if is_mini_only(name) else None
    return (
        None if is_custom(name) else _settings(preset or name, T2IS, ARTISTS, Named.ARTIST)
    )


def _settings(
    name: str,
    presets: Mapping[str, StageSettings],
    makers: Mapping[str, Callable[[str], StageSettings]],
    kind: Named,
) -> StageSettings:
    if name in presets:
        return presets[name]
    prefix = prefix_of(name, kind, kind)
    model = name.partition(":")[2]
    if prefix is None or not model:
        raise unknown(kind, name, [*presets, *forms(kind), CUSTOM])
    return makers[prefix](model)


def _spec(name: str, settings: StageSettings, models: Models) -> StageSpec:
    refuse_mini_only(name, models.weights)
    if models.weights == "mini":
        return _mini_spec(name, settings, models)
    overrides = models.of(name)
    if isinstance(settings, ModelSettings):
        overrides = with_small_batch(overrides, models.weights)
    settings = with_overrides(settings, overrides, f"models.{name}")
    spec = _stage(settings, name, models.weights, models.gpu_gib)
    if isinstance(settings, ServerSettings):
        return with_server(spec, settings, models.servers)
    return spec


def _mini_spec(name: str, settings: StageSettings, models: Models) -> StageSpec:
    """The stage of a model under `mini` weights, which servers of models ignore."""
    if not isinstance(settings, ModelSettings):
        return _spec(name, settings, replace(models, weights="pretrained"))
    with mini_settings(name, models.of(name)) as values:
        settings = with_overrides(settings, values, f"models.{name}")
        return as_mini(_stage(settings, name, "pretrained", models.gpu_gib))


def _stage(
    settings: StageSettings, name: str, weights: Weights, gpu_gib: float
) -> StageSpec:
    """The model's own stage, or the one that asks the engine which runs the model."""
    if isinstance(settings, EngineModelSettings) and settings.engine is not None:
        return engine_spec(settings, name, weights, gpu_gib)
    return settings.spec(name, weights, gpu_gib)
