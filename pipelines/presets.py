"""Named LVLMs and T2I models with their published settings. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import ClassVar, Literal, NamedTuple

from generators.base import StageSpec
from generators.diffusion.designs import DESIGNS, PUBLISHED
from generators.diffusion.settings import DiffusionSettings
from generators.settings import unkeyed
from pipelines.chat.settings import OPENAI_URL, ChatSettings, EndpointSettings
from pipelines.servers.settings import ENGINE_FIELDS, EngineModelSettings

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai"

LVLMS: dict[str, ChatSettings | EndpointSettings] = {
    "qwen2-vl-72b": ChatSettings(model="Qwen/Qwen2-VL-72B-Instruct", params_b=73.4),
    "qwen2-vl-7b": ChatSettings(model="Qwen/Qwen2-VL-7B-Instruct", params_b=8.29),
    # The MMIE paper (Table 4) skips all multi-image queries for LLaVA.
    "llava-34b": ChatSettings(
        model="llava-hf/llava-v1.6-34b-hf", params_b=34.75, max_images=1
    ),
    # The paper's endpoints; see RETIRED for how long they answer.
    "gpt-4o": EndpointSettings(model="gpt-4o-2024-08-06"),
    "gemini-1.5": EndpointSettings(
        model="gemini-1.5-pro", base_url=GEMINI_URL, api_key_env="GEMINI_API_KEY"
    ),
    # Reasoning models: they refuse or ignore a temperature, and what they think counts
    # towards the limit on tokens.
    "gpt-6.1-sol": EndpointSettings(
        model="gpt-6.1-sol",
        temperature=None,
        max_tokens=8192,
        max_tokens_field="max_completion_tokens",
    ),
    "gemini-3.8-flash": EndpointSettings(
        model="gemini-3.8-flash",
        temperature=None,
        max_tokens=8192,
        base_url=GEMINI_URL,
        api_key_env="GEMINI_API_KEY",
    ),
}
"""LVLMs by name; `hf:ORG/NAME` and `openai:MODEL` name any other."""


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


class TextToImageSettings(EngineModelSettings, DiffusionSettings):
    """Any text-to-image pipeline of diffusers, drawing from prompts, and some from images.

    It is run by plait's own stage, or by an `engine` behind a server that plait starts.
    """

    stage: ClassVar[str] = "text-to-image"
    target: ClassVar[str] = "pipelines.text_to_image:TextToImage"
    placed: ClassVar[frozenset[str]] = DiffusionSettings.placed | ENGINE_FIELDS

    input_images: int | None = unkeyed(None, ge=1)
    """From how many of the last images each image is drawn under the protocol
    `outline-edit`, by default one; keys hold the images themselves."""
    engine: Literal["vllm-omni", "sglang"] | None = unkeyed(None)
    """Program that runs the model; None for plait's own stage."""

    @property
    def pipeline(self) -> str | None:
        """The pipeline's class in diffusers, where the model is a known one."""
        architecture = self.architecture or PUBLISHED.get(self.model)
        return None if architecture is None else DESIGNS[architecture].pipeline


T2IS: Mapping[str, TextToImageSettings] = {
    design.preset: TextToImageSettings(model=design.checkpoints[0], **design.settings)
    for design in DESIGNS.values()
    if design.preset is not None
}
"""The named text-to-image models, each a table of `generators/diffusion/designs.toml`."""
