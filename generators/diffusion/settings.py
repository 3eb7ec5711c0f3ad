"""Settings of a diffusers pipeline that draws. Imports no model code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from plait.generators.base import Kind, Weights
from plait.generators.diffusion.designs import DESIGNS, PUBLISHED, Architecture
from plait.generators.diffusion.flops import (
    DECODER_FLOPS_PER_PIXEL,
    block_count,
    evaluation_flops,
    is_guided,
)
from plait.generators.errors import CheckpointError
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.work import DRAWN_S, FigureRange, Work, usage_of_drawing

TINY_SIDE = 64
"""Tiny weights draw at most this many pixels a side, in at most TINY_STEPS steps."""
TINY_STEPS = 2

PLAIT_SETS: Mapping[str, str] = {
    "num_inference_steps": "set steps",
    "guidance_scale": "set guidance",
    "height": "set height",
    "width": "set width",
    "negative_prompt": "set negative_prompt",
    "max_sequence_length": "set max_sequence_length",
    "prompt": "it is the request's",
    "generator": "it is made from the request's seed",
    "num_images_per_prompt": "a request is for one image",
    "output_type": "images are read as arrays",
    "return_dict": "images are read by name",
}
"""Arguments of a pipeline that `arguments` may not hold, and what to do instead."""


class DiffusionSettings(ModelSettings):
    """A text-to-image pipeline of diffusers; None leaves a setting to the pipeline."""

    kind: ClassVar[Kind] = Kind.RENDER
    seeded: ClassVar[bool] = True
    placed: ClassVar[frozenset[str]] = ModelSettings.placed - {"batch_size"}
    """The stage itself takes the batch size: when compiled, it draws no other size."""
    elsewhere: ClassVar[tuple[str, ...]] = ()
    """Components of the checkpoint that are run by another stage."""

    architecture: Architecture | None = None
    """What `dummy` and `tiny` weights build; by default that of the published model."""
    steps: int | None = Field(default=None, ge=1)
    """Denoising steps."""
    guidance: float | None = Field(default=None, ge=0)
    """Scale of classifier-free guidance, or of FLUX.1-dev's distilled guidance. It sets the
    argument that the pipeline guides by (`plait.generators.diffusion.calls`), which is
    `true_cfg_scale` for Qwen-Image."""
    height: int | None = Field(default=None, ge=16, multiple_of=16)
    """In pixels; 16 is the coarsest patch among the named models."""
    width: int | None = Field(default=None, ge=16, multiple_of=16)
    negative_prompt: str | None = None
    prompt_prefix: str = ""
    """Put before every prompt, verbatim, such as Openjourney's "mdjrny-v4 style "."""
    max_sequence_length: int | None = Field(default=None, ge=8, le=512)
    """Tokens that T5 or a language model reads of a prompt, its template included."""
    scheduler: str | None = None
    """Class name in diffusers; None is the checkpoint's own."""
    attention: str = "sdpa"
    """`sdpa`, `xformers`, `own`, or a name of diffusers' AttentionBackendName."""
    compile: bool = False
    """Compile the denoiser; fused kernels round differently."""
    safety_checker: Literal["checkpoint", "off"] = "checkpoint"
    """`checkpoint` uses the checker where the checkpoint ships one."""
    variant: str | None = None
    """Which of several weight files of a checkpoint, such as `fp16`; "" for the plain. None
    for the plain ones, or the only variant that a folder has; images note it then."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """Further arguments of the pipeline's call, such as `true_cfg_scale = 4.0`. They are
    checked against its signature when it is loaded."""

    device_map: Literal["balanced"] | None = unkeyed(None)
    """`balanced` puts the text encoders on further GPUs; the default where device is
    `auto` and several GPUs are visible."""
    offload: Literal["model", "sequential"] | None = unkeyed(None)
    """Keep idle modules (`model`) or all layers (`sequential`) in host memory; slow."""
    vae_slicing: bool = unkeyed(False)
    """Decode one image at a time: less memory for large batches."""

    @field_validator("arguments")
    @classmethod
    def _further(cls, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Refuse what has a setting of its own, or none."""
        for name in arguments:
            if name in PLAIT_SETS:
                raise ValueError(f"{name} is not a valid argument: {PLAIT_SETS[name]}")
        return arguments

    @model_validator(mode="after")
    def _effective(self) -> DiffusionSettings:
        """Refuse settings that would change only the key."""
        if self.offload and self.device_map:
            raise ValueError("device_map and offload exclude each other; set one of them")
        # With true_cfg_scale, guidance is another input of the model.
        apart = "true_cfg_scale" in self.arguments
        unguided = self.guidance is not None and self.guidance <= 1 and not apart
        if unguided and self.negative_prompt is not None:
            raise ValueError(
                f"negative_prompt has no effect at guidance {self.guidance:g}; "
                "set guidance above 1 or no negative_prompt"
            )
        return self

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """Return the fields that enter the key; tiny weights draw small images, quickly.

        `arguments` enter where there are any: keys are older than that setting.
        """
        settings = super().key_fields(weights)
        if not self.arguments:
            del settings["arguments"]
        if weights != "tiny":
            return settings
        return settings | {
            "steps": min(self.steps or TINY_STEPS, TINY_STEPS),
            "height": min(self.height or TINY_SIDE, TINY_SIDE),
            "width": min(self.width or TINY_SIDE, TINY_SIDE),
        }

    def identity(self, weights: Weights) -> str:
        """Return which model exactly; random weights need a known architecture."""
        if weights != "pretrained":
            refuse_unsized(architecture_of(self), weights)
        return super().identity(weights)

    def memory_estimate_gib(self, weights: Weights) -> float:
        """Return the weights, plus the memory for decoding one batch of images."""
        if weights == "tiny" or self.params_b is None:
            return 0.0
        together = 1 if self.vae_slicing else self.batch_size
        pixels = together * (self.height or 1024) * (self.width or 1024)
        return (self.weight_bytes * 1.05 + pixels * DECODING_BYTES) / 2**30

    def _work(self) -> Work | None:
        """Return the denoiser's evaluations, the decoding, and one pass of all the rest."""
        architecture = self.architecture or PUBLISHED.get(self.model)
        if architecture is None or not (self.steps and self.height and self.width):
            return None
        design = DESIGNS[architecture]
        pixels = self.height * self.width
        read = self.max_sequence_length or _CLIP_TOKENS
        evaluations = self.steps * (2 if is_guided(design, self.guidance) else 1)
        flops = evaluations * evaluation_flops(design, pixels, read)
        # Autoencoders decode in float32, which GPUs multiply at half the rate.
        flops += 2 * pixels * DECODER_FLOPS_PER_PIXEL + 2e9 * (self.params_b or 0.0) * read
        return Work(
            weight_bytes=self.weight_bytes,
            flops=FigureRange.exact(flops),
            passes=self.steps,
            blocks=block_count(design),
            cpu_s=DRAWN_S,
            compiled=self.compile,
            usage=usage_of_drawing(pixels),
        )


_CLIP_TOKENS = 77
DECODING_BYTES = 3900
"""Peak memory of a float32 autoencoder for one pixel of the image it decodes (measured
with SDXL's at 256 and 512 pixels on a CPU: 3876 and 3849)."""


def refuse_unsized(architecture: Architecture, weights: Weights) -> None:
    """Raise CheckpointError for `dummy` weights where not all sizes are known."""
    unsized = DESIGNS[architecture].unsized
    if weights == "dummy" and unsized:
        raise CheckpointError(
            f"the published sizes of {' and '.join(unsized)} of {architecture} are not "
            "known here, so it has no dummy weights; use tiny or pretrained"
        )


def architecture_of(settings: DiffusionSettings) -> Architecture:
    """Return the architecture of random weights; CheckpointError when it is unknown."""
    architecture = settings.architecture or PUBLISHED.get(settings.model)
    if architecture is None:
        raise CheckpointError(
            f"the architecture of {settings.model!r} is unknown, so it has only pretrained "
            f"weights; otherwise set architecture to one of {', '.join(DESIGNS)}"
        )
    return architecture
