"""Named LVLMs and T2I models with their published settings. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from plait.generators.base import Kind, StageSpec, Weights
from plait.generators.catalogue import Named, by_name, planners
from plait.generators.diffusion.designs import DESIGNS, PUBLISHED
from plait.generators.diffusion.settings import (
    TINY_SIDE,
    DiffusionSettings,
    FastSettings,
    refuse_unsized,
)
from plait.generators.facts import NO_FACTS, ModelFacts
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.work import PROMPT_TOKENS, FigureRange, Work
from plait.pipelines.chat.settings import OPENAI_URL, ChatSettings, EndpointSettings
from plait.pipelines.servers.settings import ENGINE_FIELDS, EngineModelSettings

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai"


class Retirement(NamedTuple):
    """When a provider turns a model off, and a preset to use in its place."""

    url: str
    """The provider's endpoint; the same model behind another server is not affected."""
    day: date
    instead: str


RETIRED: Mapping[str, Retirement] = {
    # developers.openai.com/api/docs/deprecations: notices of 2026-04-22 and 2026-10-14.
    # The provider names gpt-6-luna, its cheapest, and later gpt-6.1-sol for these.
    "gpt-4o-2024-08-06": Retirement(OPENAI_URL, date(2027, 1, 14), "gpt-6.1-sol"),
    "gpt-4o-2024-11-20": Retirement(OPENAI_URL, date(2027, 1, 14), "gpt-6.1-sol"),
    "gpt-4.1-2025-04-14": Retirement(OPENAI_URL, date(2027, 1, 14), "gpt-6.1-sol"),
    "gpt-4o-2024-05-13": Retirement(OPENAI_URL, date(2026, 10, 23), "gpt-6.1-sol"),
    # The openai package's own notes on models, version 3.54.
    "gpt-image-1": Retirement(OPENAI_URL, date(2026, 10, 23), "images:gpt-image-2.5-flare"),
    "dall-e-3": Retirement(OPENAI_URL, date(2026, 5, 12), "images:gpt-image-2.5-flare"),
    "dall-e-2": Retirement(OPENAI_URL, date(2026, 5, 12), "images:gpt-image-2.5-flare"),
    # Google's mail to developers, quoted in rxliuli/llm-api-proxy #12.
    "gemini-1.5-pro": Retirement(GEMINI_URL, date(2025, 9, 24), "gemini-3.8-flash"),
    # ai.google.dev/gemini-api/docs/deprecations, as of 2026-11-10.
    "gemini-2.5-pro": Retirement(GEMINI_URL, date(2026, 12, 1), "gemini-3.8-flash"),
}
"""Models of the presets and near ones that are or will be turned off, by model id."""


def retirements(stages: Iterable[StageSpec], today: date) -> list[str]:
    """Return a line for each stage whose provider turns its model off: what to use."""
    lines = []
    for stage in stages:
        model = str(stage.settings.get("model"))
        retired = RETIRED.get(model)
        if retired is None or stage.placement.endpoint != retired.url:
            continue
        when = "was turned off" if retired.day <= today else "will be turned off"
        lines.append(
            f"{stage.name}: its provider's model {model!r} {when} on {retired.day}; "
            f"a current alternative is {retired.instead}"
        )
    return lines


class TextToImageSettings(EngineModelSettings, FastSettings):
    """Any text-to-image pipeline of diffusers, drawing from prompts, and some from images.

    It is run by plait's own stage, or by an `engine` behind a server that plait starts.
    """

    stage: ClassVar[str] = "text-to-image"
    target: ClassVar[str] = "plait.pipelines.text_to_image:TextToImage"
    index: ClassVar[str | None] = "model_index.json"
    placed: ClassVar[frozenset[str]] = DiffusionSettings.placed | ENGINE_FIELDS
    prior: ClassVar[type[ModelSettings] | None] = None
    """Of the stage in which images begin, where there is one before."""

    input_images: int | None = unkeyed(None, ge=1)
    """From how many of the last images each image is drawn under the protocol
    `outline-edit` and `edit`, by default one; keys hold the images themselves."""
    engine: Literal["vllm-omni", "sglang"] | None = unkeyed(None)
    """Program that runs the model; None for plait's own stage."""

    @property
    def pipeline(self) -> str | None:
        """The pipeline's class in diffusers, where the model is a known one."""
        architecture = self.architecture or PUBLISHED.get(self.model)
        return None if architecture is None else DESIGNS[architecture].pipeline


_GLM_LAYERS = 40
"""Of GLM-4-9B, which `generate` of transformers runs layer by layer."""


class GlmImagePriorSettings(ModelSettings):
    """GLM-Image's first stage: it writes the codes of an image."""

    kind: ClassVar[Kind] = Kind.CONDITION
    stage: ClassVar[str] = "glm-image-prior"
    target: ClassVar[str] = "plait.pipelines.glm_image:GlmImagePrior"
    seeded: ClassVar[bool] = True

    model: str = unkeyed(DESIGNS["glm-image"].checkpoints[0])
    params_b: float | None = unkeyed(9.0, gt=0)
    batch_size: int = unkeyed(8, ge=1)
    height: int = Field(default=1024, ge=32, multiple_of=32)
    """In pixels; that of both stages."""
    width: int = Field(default=1024, ge=32, multiple_of=32)
    prompt_prefix: str = ""
    """Put before every prompt, verbatim."""

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """Return the fields that enter the key; tiny weights write small images."""
        settings = super().key_fields(weights)
        if weights != "tiny":
            return settings
        sides = {n: min(settings[n], TINY_SIDE) for n in ("height", "width")}
        return settings | sides

    def identity(self, weights: Weights) -> str:
        """Return which model exactly."""
        refuse_unsized("glm-image", weights)
        return super().identity(weights)

    def _work(self) -> Work:
        """A code is a step, of a preview of about 256 codes too."""
        steps = FigureRange.exact(256 + self.height * self.width / 1024)
        payload_bytes = 8 * self.height * self.width / 256
        sizes: Any = {"blocks": _GLM_LAYERS, "payload_bytes": payload_bytes}
        return self._decoding(PROMPT_TOKENS, steps, **sizes)


class GlmImageSettings(TextToImageSettings):
    """GLM-Image's second stage: it draws the codes of the first."""

    stage: ClassVar[str] = "glm-image-decoder"
    target: ClassVar[str] = "plait.pipelines.glm_image:GlmImageDecoder"
    elsewhere: ClassVar[tuple[str, ...]] = DESIGNS["glm-image"].prior
    prior: ClassVar[type[ModelSettings] | None] = GlmImagePriorSettings

    height: int | None = Field(default=1024, ge=32, multiple_of=32)
    """In pixels; that of both stages."""
    width: int | None = Field(default=1024, ge=32, multiple_of=32)


@cache
def preset(kind: Named, name: str) -> Any:
    """Return the settings of a named model; None for a name that the kind does not have."""
    entry = by_name(kind).get(name)
    return None if entry is None else entry.make()


def lvlm(name: str) -> ChatSettings | EndpointSettings:
    """Return the settings of a named LVLM; KeyError."""
    settings: ChatSettings | EndpointSettings = _preset_or_error(Named.LVLM, name)
    return settings


def t2i(name: str) -> TextToImageSettings:
    """Return the settings of a named text-to-image model; KeyError."""
    settings: TextToImageSettings = _preset_or_error(Named.T2I, name)
    return settings


def _preset_or_error(kind: Named, name: str) -> Any:
    if (settings := preset(kind, name)) is None:
        raise KeyError(f"{name!r} is no {kind}")
    return settings


def facts_of(model: str) -> ModelFacts:
    """Return what is known of a model by its name; nothing of one that has none."""
    for kind in (Named.NATIVE, Named.T2I, Named.LVLM, Named.SERVED):
        if (entry := by_name(kind).get(model)) is not None:
            return entry.facts
    planner = planners().get(model)
    return NO_FACTS if planner is None else planner.facts


@cache
def prior_of(name: str) -> ModelSettings | None:
    """Return the settings of the stage before a named T2I model's; None without one."""
    settings = preset(Named.T2I, name)
    return None if settings is None or settings.prior is None else settings.prior()
