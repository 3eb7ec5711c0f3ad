"""Named LVLMs and T2I models with their published settings. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from plait.generators.base import Kind, StageSpec, Weights
from plait.generators.diffusion.designs import DESIGNS, PUBLISHED
from plait.generators.diffusion.settings import TINY_SIDE, DiffusionSettings, refuse_unsized
from plait.generators.facts import ModelFacts
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.work import PROMPT_TOKENS, FigureRange, Work
from plait.pipelines.chat.settings import OPENAI_URL, ChatSettings, EndpointSettings
from plait.pipelines.endpoints.settings import KitSettings
from plait.pipelines.servers.settings import ENGINE_FIELDS, EngineModelSettings

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai"

LVLMS: dict[str, ChatSettings | EndpointSettings] = {
    "qwen2-vl-72b": ChatSettings(model="Qwen/Qwen2-VL-72B-Instruct", params_b=73.4),
    "qwen2-vl-7b": ChatSettings(model="Qwen/Qwen2-VL-7B-Instruct", params_b=8.29),
    # The MMIE paper (Table 4) skips all multi-image queries for LLaVA.
    "llava-34b": ChatSettings(
        model="llava-hf/llava-v1.6-34b-hf", params_b=34.75, max_images=1
    ),
    # One checkpoint reads and, under the same name, draws.
    "cosmos3-nano": ChatSettings(model="nvidia/Cosmos3-Nano", params_b=8.767),
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


_CHATML = ("<|im_start|>", "<|im_end|>")

KITS: Mapping[str, KitSettings] = {
    # OpenSenseNova/SenseNova-U1 (Apache-2.0): sampling and, but for PNG, image_config of
    # its OpenING client for LightLLM (evaluation/interleave/OpenING). The system message of
    # that client is not here: give it as `system`.
    "sensenova-u1": KitSettings(
        model="sensenova/SenseNova-U1-8B-MoT-Interleaved",
        temperature=0.8,
        top_p=0.95,
        max_tokens=4096,
        modalities=("text", "image"),
        seed_fields=("seed", "image_config.seed"),
        control_tokens=(*_CHATML, "<img>", "</img>", "<IMG_CONTEXT>", "<image>"),
        extra_body={
            "chat_template_kwargs": {"enable_thinking": True},
            "image_config": {
                "aspect_ratio": "16:9",
                "image_size": "1K",
                "image_type": "png",
                "width": 1920,
                "height": 1088,
                "resolution": "1920x1088",
            },
        },
    ),
    # vllm-project/vllm-omni, examples/online_serving/bagel; deploy/bagel.yaml has room for
    # four images. One request gives an image or text: the model interleaves by hand alone.
    "bagel": KitSettings(
        model="ByteDance-Seed/BAGEL-7B-MoT",
        max_images=4,
        modalities=("image",),
        image_form="<|im_start|>{text}<|im_end|>",
        text_form="<|im_start|>user\n{images}{text}<|im_end|>\n<|im_start|>assistant\n",
        image_mark="<|image_pad|>\n",
        control_tokens=(*_CHATML, "<|image_pad|>"),
        extra_body={"height": 512, "width": 512, "num_inference_steps": 50},
    ),
    # vllm-project/vllm-omni, examples/online_serving/hunyuan_image3. Its chat template
    # makes the model think about an image, so that text alone is not asked for. The model's
    # own system prompt is not here: give it as `system`.
    "hunyuan-image-3": KitSettings(
        model="tencent/HunyuanImage-3.0-Instruct",
        modalities=("image",),
        text_form=None,
        extra_body={
            "height": 1024,
            "width": 1024,
            "num_inference_steps": 50,
            "guidance_scale": 5.0,
        },
    ),
}
"""Models that draw behind a chat server, each asked as its published kit asks it."""

WRITES = ModelFacts(interleaves=False, images="0")
"""Of LVLMs; licences are those of their model cards."""
SERVED = WRITES._replace(licence="weights not published")
"""Of LVLMs that only their provider serves."""
DRAWS = ModelFacts(
    interleaves=False,
    images="1, or as marked",
    compared="diffusers (tests/pipelines/test_text_to_image.py)",
)
"""Of text-to-image models; their licences stand in `designs.toml`."""
_GENERATE = "transformers (tests/pipelines/vlm/test_writing.py)"
FACTS: Mapping[str, ModelFacts] = {
    "qwen2-vl-72b": WRITES._replace(
        licence="Tongyi Qianwen License Agreement", compared=_GENERATE
    ),
    "qwen2-vl-7b": WRITES._replace(licence="Apache-2.0", compared=_GENERATE),
    # Its card names the licence of its language model.
    "llava-34b": WRITES._replace(
        licence="that of Nous-Hermes-2-Yi-34B (Apache-2.0)", compared=_GENERATE
    ),
    "cosmos3-nano": WRITES._replace(licence=DESIGNS["cosmos3"].licence, compared=_GENERATE),
    **dict.fromkeys(("gpt-4o", "gemini-1.5", "gpt-6.1-sol", "gemini-3.8-flash"), SERVED),
    # OpenSenseNova/SenseNova-U1, docs/inference_infra.md: 8 B that read, 8 B that draw.
    "sensenova-u1": ModelFacts(
        "Apache-2.0", interleaves=True, images="any number", params_b=16.0
    ),
    # Its own interleaving is a loop of the caller's (ByteDance-Seed/Bagel, issues 17, 99).
    # Model card: 7 B active of 14 B.
    "bagel": ModelFacts("Apache-2.0", interleaves=False, images="1", params_b=14.0),
    # Tencent-Hunyuan/HunyuanImage-3.0, README (13 B active) and system_prompt.py.
    "hunyuan-image-3": ModelFacts(
        "Tencent Hunyuan Community License",
        interleaves=False,
        images="1",
        params_b=80.0,
    ),
}
"""Of LVLMs and of models behind a server, by name."""


def facts_of(model: str) -> ModelFacts:
    """Return what is known of a model by its name; nothing of one that is no preset."""
    if model in T2IS:
        design = DESIGNS[PUBLISHED[T2IS[model].model]]
        return DRAWS._replace(licence=design.licence)
    return FACTS.get(model, ModelFacts())


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
    target: ClassVar[str] = "plait.pipelines.text_to_image:TextToImage"
    index: ClassVar[str | None] = "model_index.json"
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


class GlmImageSettings(TextToImageSettings):
    """GLM-Image's second stage: it draws the codes of the first."""

    stage: ClassVar[str] = "glm-image-decoder"
    target: ClassVar[str] = "plait.pipelines.glm_image:GlmImageDecoder"
    elsewhere: ClassVar[tuple[str, ...]] = DESIGNS["glm-image"].prior

    height: int | None = Field(default=1024, ge=32, multiple_of=32)
    """In pixels; that of both stages."""
    width: int | None = Field(default=1024, ge=32, multiple_of=32)


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

    def keyed(self, weights: Weights) -> dict[str, Any]:
        """Return the fields that enter the key; tiny weights write small images."""
        settings = super().keyed(weights)
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


_KINDS: Mapping[str, type[TextToImageSettings]] = {"glm-image": GlmImageSettings}
"""Settings of text-to-image models that are not one stage alone."""
T2IS: Mapping[str, TextToImageSettings] = {
    design.preset: _KINDS.get(design.preset, TextToImageSettings)(
        model=design.checkpoints[0], **design.settings
    )
    for design in DESIGNS.values()
    if design.preset is not None
}
"""The named text-to-image models, each a table of `generators/diffusion/designs.toml`."""
PRIORS: Mapping[str, ModelSettings] = {"glm-image": GlmImagePriorSettings()}
"""Of those whose images begin in a stage before: its settings."""
