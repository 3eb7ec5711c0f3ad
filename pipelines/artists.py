"""Text-to-image models by name, with their published settings. Imports no model code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from generators.base import Kind, Weights
from generators.checkpoints import CheckpointError
from generators.settings import ModelSettings, unkeyed
from pipelines.diffusion.designs import DESIGNS, PUBLISHED, Architecture

OPENJOURNEY_TRIGGER = "mdjrny-v4 style "
"""The words that call up Openjourney's style, for `prompt_prefix` (its model card).

MMIE feeds the LVLM's text as it is to every text-to-image model (section 4.1), so the
default is to add nothing.
"""
TINY_SIDE = 64
"""Tiny weights draw at most this many pixels a side, in at most TINY_STEPS steps."""
TINY_STEPS = 2


class DiffusionSettings(ModelSettings):
    """A text-to-image pipeline of diffusers; None leaves a setting to the pipeline."""

    kind: ClassVar[Kind] = Kind.RENDER
    target: ClassVar[str] = "pipelines.text_to_image:TextToImage"
    seeded: ClassVar[bool] = True
    placed: ClassVar[frozenset[str]] = ModelSettings.placed - {"batch_size"}
    """The stage itself is told the batch size: compiled, it draws batches of no other."""

    architecture: Architecture | None = None
    """What `dummy` and `tiny` weights build; by default that of the published model."""
    steps: int | None = Field(default=None, ge=1)
    """Denoising steps."""
    guidance: float | None = Field(default=None, ge=0)
    """Scale of classifier-free guidance, or of FLUX.1-dev's distilled guidance."""
    height: int | None = Field(default=None, ge=16, multiple_of=16)
    """In pixels; 16 is the coarsest patch among the named models."""
    width: int | None = Field(default=None, ge=16, multiple_of=16)
    negative_prompt: str | None = None
    prompt_prefix: str = ""
    """Put before every prompt as it stands, such as OPENJOURNEY_TRIGGER."""
    max_sequence_length: int | None = Field(default=None, ge=8, le=512)
    """Tokens that T5 reads of a prompt (SD3, FLUX.1)."""
    scheduler: str | None = None
    """Class name in diffusers; None is the checkpoint's own."""
    attention: str = "sdpa"
    """`sdpa`, `xformers`, `own`, or a name of diffusers' AttentionBackendName."""
    compile: bool = False
    """Compile the denoiser; fused kernels round differently."""
    safety_checker: Literal["checkpoint", "off"] = "checkpoint"
    """`checkpoint` uses the checker where the checkpoint ships one."""
    variant: str | None = None
    """Which of several weight files of a checkpoint, such as `fp16`; "" for the plain."""

    device_map: Literal["balanced"] | None = unkeyed(None)
    """`balanced` puts the text encoders on further GPUs; the default where device is
    `auto` and several GPUs are visible."""
    offload: Literal["model", "sequential"] | None = unkeyed(None)
    """Keep idle modules (`model`) or all layers (`sequential`) in host memory; slow."""
    vae_slicing: bool = unkeyed(False)
    """Decode one picture at a time: less memory for large batches."""

    @model_validator(mode="after")
    def _effective(self) -> DiffusionSettings:
        """Refuse settings that would change the key and nothing else."""
        if self.offload and self.device_map:
            raise ValueError("device_map and offload exclude each other; set one of them")
        unguided = self.guidance is not None and self.guidance <= 1
        if unguided and self.negative_prompt is not None:
            raise ValueError(
                f"negative_prompt has no effect at guidance {self.guidance:g}; "
                "set guidance above 1 or no negative_prompt"
            )
        return self

    def keyed(self, weights: Weights) -> dict[str, Any]:
        """As for every model; tiny weights draw small pictures in few steps."""
        settings = super().keyed(weights)
        if weights != "tiny":
            return settings
        return settings | {
            "steps": min(self.steps or TINY_STEPS, TINY_STEPS),
            "height": min(self.height or TINY_SIDE, TINY_SIDE),
            "width": min(self.width or TINY_SIDE, TINY_SIDE),
        }

    def identity(self, weights: Weights) -> str:
        """As for every model; random weights need an architecture that is held here."""
        if weights != "pretrained":
            architecture_of(self)
        return super().identity(weights)

    def memory_estimate_gib(self, weights: Weights) -> float:
        """Weights, plus what decoding takes for the pictures that are decoded at once."""
        if weights == "tiny" or self.params_b is None:
            return 0.0
        together = 1 if self.vae_slicing else self.batch_size
        pixels = together * (self.height or 1024) * (self.width or 1024)
        held = self.params_b * 1e9 * (4 if self.dtype == "float32" else 2)
        return (held * 1.05 + pixels * DECODING_BYTES) / 2**30


DECODING_BYTES = 3900
"""Peak memory of a float32 autoencoder for one pixel of the picture it decodes (measured
with SDXL's at 256 and 512 pixels on a CPU: 3876 and 3849)."""


def architecture_of(settings: DiffusionSettings) -> Architecture:
    """What random weights build; CheckpointError when the model's is not held here."""
    found = settings.architecture or PUBLISHED.get(settings.model)
    if found is None:
        raise CheckpointError(
            f"no architecture is held for {settings.model!r}, so it has only pretrained "
            f"weights; or set architecture to one of {', '.join(DESIGNS)}"
        )
    return found


T2IS: Mapping[str, DiffusionSettings] = {
    # Model card; steps and guidance are StableDiffusionPipeline's defaults, which it uses.
    "openjourney": DiffusionSettings(
        model="prompthero/openjourney",
        steps=50,
        guidance=7.5,
        height=512,
        width=512,
        dtype="float16",
        params_b=1.370,
    ),
    # Model card of stable-diffusion-3-medium-diffusers.
    "sd3": DiffusionSettings(
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
    "sdxl": DiffusionSettings(
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
    "sdxl-turbo": DiffusionSettings(
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
    "flux": DiffusionSettings(
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
}
"""Settings of the named models: those of their model cards."""
