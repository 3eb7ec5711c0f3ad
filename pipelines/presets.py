"""Named models with their published settings: LVLMs and text-to-image models.

Imports neither torch nor any SDK, so that the command line can plan without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import ClassVar, Literal, NamedTuple

from generators.base import StageSpec, Weights
from generators.diffusion.settings import DiffusionSettings
from generators.settings import unkeyed
from pipelines.chat.settings import OPENAI_URL, ChatSettings, EndpointSettings
from pipelines.servers.fields import EngineModelSettings

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
    """One line for each stage whose provider turns its model off, with an alternative."""
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
    """Any text-to-image pipeline of diffusers, drawing from prompts alone.

    It is run by plait's own stage, or by an `engine` behind a server that plait starts.
    """

    stage: ClassVar[str] = "text-to-image"
    target: ClassVar[str] = "pipelines.text_to_image:TextToImage"
    placed: ClassVar[frozenset[str]] = (
        DiffusionSettings.placed | EngineModelSettings.engine_fields
    )

    engine: Literal["vllm-omni", "sglang"] | None = unkeyed(None)
    """Program that runs the model; None for plait's own stage."""

    def spec(self, name: str, weights: Weights, gpu_gib: float = 80.0) -> StageSpec:
        """The model's stage; with an engine, the one that asks the engine's server."""
        if self.engine is None:
            return super().spec(name, weights, gpu_gib)
        from pipelines.servers.image_engines import image_engine_spec

        return image_engine_spec(self, name, weights, gpu_gib)


OPENJOURNEY_TRIGGER = "mdjrny-v4 style "
"""The words that call up Openjourney's style, for `prompt_prefix` (its model card).

MMIE feeds the LVLM's text as it is to every text-to-image model (section 4.1), so the
default is to add nothing.
"""

T2IS: Mapping[str, TextToImageSettings] = {
    # Model card; steps and guidance are StableDiffusionPipeline's defaults, which it uses.
    "openjourney": TextToImageSettings(
        model="prompthero/openjourney",
        steps=50,
        guidance=7.5,
        height=512,
        width=512,
        dtype="float16",
        params_b=1.370,
    ),
    # Model card of stable-diffusion-3-medium-diffusers.
    "sd3": TextToImageSettings(
        model="stabilityai/stable-diffusion-3-medium-diffusers",
        steps=28,
        guidance=7.0,
        height=1024,
        width=1024,
        max_sequence_length=256,
        dtype="float16",
        params_b=7.693,
        batch_size=4,
        vae_slicing=True,
    ),
    # Model card; steps and guidance are StableDiffusionXLPipeline's defaults.
    "sdxl": TextToImageSettings(
        model="stabilityai/stable-diffusion-xl-base-1.0",
        steps=50,
        guidance=5.0,
        height=1024,
        width=1024,
        dtype="float16",
        variant="fp16",
        params_b=3.469,
        batch_size=4,
        vae_slicing=True,
    ),
    # Model card: one step, trained without guidance, 512 x 512.
    "sdxl-turbo": TextToImageSettings(
        model="stabilityai/sdxl-turbo",
        steps=1,
        guidance=0.0,
        height=512,
        width=512,
        dtype="float16",
        variant="fp16",
        params_b=3.469,
    ),
    # Model card; no more than two at once, since larger batches gain under a tenth.
    "flux": TextToImageSettings(
        model="black-forest-labs/FLUX.1-dev",
        steps=50,
        guidance=3.5,
        height=1024,
        width=1024,
        max_sequence_length=512,
        dtype="bfloat16",
        params_b=16.870,
        batch_size=2,
        vae_slicing=True,
    ),
    # Model card (Apache-2.0): its square size of several, and a blank negative prompt,
    # without which the pipeline does not guide.
    "qwen-image": TextToImageSettings(
        model="Qwen/Qwen-Image",
        steps=50,
        guidance=4.0,
        negative_prompt=" ",
        height=1328,
        width=1328,
        max_sequence_length=512,
        dtype="bfloat16",
        params_b=28.849,
        batch_size=2,
        vae_slicing=True,
    ),
    # Model card (Apache-2.0): distilled to four steps without guidance.
    "flux2-klein": TextToImageSettings(
        model="black-forest-labs/FLUX.2-klein-4B",
        steps=4,
        guidance=1.0,
        height=1024,
        width=1024,
        max_sequence_length=512,
        dtype="bfloat16",
        params_b=7.982,
        batch_size=4,
        vae_slicing=True,
    ),
    # Model card (Apache-2.0) and documentation of ZImagePipeline: the model is evaluated
    # eight times, which were nine steps of an older schedule whose last did nothing.
    "z-image-turbo": TextToImageSettings(
        model="Tongyi-MAI/Z-Image-Turbo",
        steps=8,
        guidance=0.0,
        height=1024,
        width=1024,
        max_sequence_length=512,
        dtype="bfloat16",
        params_b=10.261,
        batch_size=4,
        vae_slicing=True,
    ),
    # Model card (Stability AI Community License).
    "sd3.5-medium": TextToImageSettings(
        model="stabilityai/stable-diffusion-3.5-medium",
        steps=40,
        guidance=4.5,
        height=1024,
        width=1024,
        max_sequence_length=256,
        dtype="bfloat16",
        params_b=7.908,
        batch_size=4,
        vae_slicing=True,
    ),
    # Model card (Stability AI Community License).
    "sd3.5-large": TextToImageSettings(
        model="stabilityai/stable-diffusion-3.5-large",
        steps=28,
        guidance=3.5,
        height=1024,
        width=1024,
        max_sequence_length=256,
        dtype="bfloat16",
        params_b=13.721,
        batch_size=4,
        vae_slicing=True,
    ),
    # Model card (CreativeML Open RAIL++-M); steps and guidance are PixArtSigmaPipeline's
    # defaults, which it uses.
    "pixart-sigma": TextToImageSettings(
        model="PixArt-alpha/PixArt-Sigma-XL-2-1024-MS",
        steps=20,
        guidance=4.5,
        height=1024,
        width=1024,
        max_sequence_length=300,
        dtype="float16",
        params_b=5.457,
        vae_slicing=True,
    ),
    # Model card (NVIDIA's license for non-commercial use, and the Gemma Terms of Use).
    "sana": TextToImageSettings(
        model="Efficient-Large-Model/Sana_1600M_1024px_BF16_diffusers",
        steps=20,
        guidance=4.5,
        height=1024,
        width=1024,
        max_sequence_length=300,
        dtype="bfloat16",
        variant="bf16",
        params_b=4.531,
        vae_slicing=True,
    ),
}
"""Settings of the named models: those of their model cards."""
