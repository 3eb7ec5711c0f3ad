"""Settings of a diffusers pipeline that draws. Imports no model code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    field_validator,
    model_validator,
)

from plait.generators.base import Kind, StageSpec, Weights
from plait.generators.checkpoints import (
    file_identity,
    identity,
    looks_like_path,
    with_revision,
)
from plait.generators.diffusion.designs import (
    DESIGNS,
    PUBLISHED,
    Architecture,
    PipelineDesign,
)
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
    """`sdpa`, `xformers`, `own`, or a name of diffusers' AttentionBackendName; `auto` is
    the fastest of these that the GPU and the installed packages have, which is noted."""
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

    fuse_qkv: bool = unkeyed(False)
    """Compute queries, keys and values of the denoiser by one product, as exactly as by
    three; the weights of these are held twice."""
    channels_last: bool = unkeyed(False)
    """Hold what the autoencoder convolves with channels last, which is as exact."""
    cuda_graphs: bool = unkeyed(False)
    """Launch all kernels of an evaluation of the denoiser at once, on a GPU; they are the
    same ones. For each shape of its inputs, the working memory of one is kept."""

    @field_validator("arguments")
    @classmethod
    def _check_arguments(cls, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Refuse what has a setting of its own, or none."""
        for name in arguments:
            if name in PLAIT_SETS:
                raise ValueError(f"{name} is not a valid argument: {PLAIT_SETS[name]}")
        return arguments

    @model_validator(mode="after")
    def _check_together(self) -> DiffusionSettings:
        """Refuse settings that exclude each other, or would change only the key."""
        if self.offload and self.device_map:
            raise ValueError("device_map and offload exclude each other; set one of them")
        others = {"compile": self.compile, "offload": self.offload is not None}
        for name, is_set in others.items():
            if self.cuda_graphs and is_set:
                raise ValueError(
                    f"cuda_graphs and {name} exclude each other; set one of them"
                )
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
            # The kernels of a graph are launched at once.
            blocks=0 if self.cuda_graphs else block_count(design),
            cpu_s=DRAWN_S,
            compiled=self.compile,
            compile_s=_REGIONAL_S if has_repeated_blocks(design) else _WHOLE_S,
            usage=usage_of_drawing(pixels),
        )


GGUF = ".gguf"
ONE_FILE = (".safetensors", GGUF)
"""Endings of files that hold the weights of a model, or of a part of it."""
LORA_FILE = "pytorch_lora_weights.safetensors"
"""The name under which diffusers saves an adapter."""


class Adapter(BaseModel):
    """A LoRA that changes a text-to-image model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    """A file of safetensors, a folder that holds one, or a Hub id (`ORG/NAME`, or
    `ORG/NAME@REVISION`)."""
    weight: FiniteFloat = 1.0
    """By which its change is multiplied; 0 is none."""
    file: str | None = None
    """Name of the file in the folder or repository, by default `LORA_FILE`."""

    def path(self) -> Path:
        """Return the local file; CheckpointError where there is none."""
        path = Path(self.model).expanduser()
        if not path.is_dir():
            return path
        file = path / (self.file or LORA_FILE)
        if not file.is_file():
            there = ", ".join(sorted(p.name for p in path.glob("*.safetensors")))
            raise CheckpointError(
                f"lora {self.model!r} holds no {file.name}; set file to one of: "
                f"{there or 'none is there'}"
            )
        return file

    def identity(self) -> str:
        """Return which adapter exactly: a file's digest, or a Hub id with its commit."""
        if looks_like_path(self.model):
            return file_identity(str(self.path()))
        own = identity(*with_revision(self.model))
        return f"{own}/{self.file}" if self.file else own


_NO_ADAPTERS: Mapping[str, Any] = {"loras": [], "fuse_loras": False}


class FurtherFilesSettings(DiffusionSettings):
    """A pipeline whose weights may come from single files, and be changed by adapters."""

    base: str | None = unkeyed(None)
    """With a `model` that is one file: folder or Hub id of the model that it is a version
    of, whose class, configurations and tokenizers are read."""
    denoiser: str | None = unkeyed(None)
    """A file (.safetensors or .gguf) with the transformer or UNet alone, which takes the
    place of the one that `model` has."""
    loras: tuple[Adapter, ...] = unkeyed(())
    """Adapters, as `[{ model = "style.safetensors", weight = 0.8 }]`."""
    fuse_loras: bool = unkeyed(False)
    """Add the adapters to the weights once, instead of computing them in every step."""

    companions: ClassVar[tuple[str, ...]] = ("base",)

    @model_validator(mode="after")
    def _check_files(self) -> FurtherFilesSettings:
        if self.denoiser is not None and not self.denoiser.endswith(ONE_FILE):
            raise ValueError(
                f"denoiser {self.denoiser!r} is not a file of safetensors or GGUF"
            )
        if self.fuse_loras and not self.loras:
            raise ValueError("fuse_loras has no effect without loras")
        return self

    @property
    def is_one_file(self) -> bool:
        """Whether `model` names one file that holds the whole pipeline."""
        return looks_like_path(self.model) and self.model.endswith(ONE_FILE)

    def checkpoint_identity(self) -> str:
        """Return the pinned folder, or the digest of the one file."""
        if not self.is_one_file:
            if self.base is not None:
                raise CheckpointError(
                    f"base {self.base!r} has no effect: {self.model!r} is no single file"
                )
            return super().checkpoint_identity()
        if self.base is None:
            raise CheckpointError(
                f"checkpoint {self.model!r} is one file: set base to the folder or Hub id "
                "of the model that it is a version of, such as "
                '"stabilityai/stable-diffusion-xl-base-1.0"; a file of the transformer or '
                "UNet alone is named by denoiser instead"
            )
        if self.model.endswith(GGUF) or self.denoiser is not None:
            raise CheckpointError(
                f"checkpoint {self.model!r}: a file of GGUF holds the denoiser alone, and "
                "denoiser stands beside a model in a folder or on the Hub"
            )
        return file_identity(self.model)

    def _companions(self) -> dict[str, str]:
        known = super()._companions()
        if self.denoiser is not None:
            known["denoiser"] = f"denoiser:{file_identity(self.denoiser)}"
        if self.loras:
            own = [f"{lora.identity()}*{lora.weight:g}" for lora in self.loras]
            known["loras"] = f"{'fused-' if self.fuse_loras else ''}loras:{','.join(own)}"
        return known

    def options(self, weights: Weights) -> dict[str, Any]:
        """Return the options, with the revisions of adapters pinned too.

        Random weights have no adapters and no files: there is nothing that they change.
        """
        options = super().options(weights)
        if weights != "pretrained":
            return {**options, "base": None, "denoiser": None, **_NO_ADAPTERS}
        for lora, given in zip(self.loras, options["loras"], strict=True):
            if not looks_like_path(lora.model):
                own = identity(*with_revision(lora.model))
                given["model"] = own.removeprefix("hub:")
        return options


Speed = Literal["fp8", "first-block-cache", "taylorseer-cache", "magcache"]


class FastSettings(FurtherFilesSettings):
    """A pipeline that may be made faster by what changes its images, by name."""

    speed: Speed | None = None
    """Of the denoiser: `fp8` multiplies in 8 bits, the caches reuse in a step what an
    earlier one computed. All of them change the images."""
    speed_parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Of a cache: the fields of its configuration in diffusers, such as `threshold`; by
    default those that were published for the model."""

    @model_validator(mode="after")
    def _check_fused(self) -> FastSettings:
        """Refuse what finds queries, keys and values in layers of their own."""
        others = {
            "speed": self.speed is not None,
            "denoiser": self.denoiser is not None,
            "loras": bool(self.loras) and not self.fuse_loras,
        }
        for name, is_set in others.items():
            if self.fuse_qkv and is_set:
                raise ValueError(f"fuse_qkv and {name} exclude each other; set one of them")
        return self

    @model_validator(mode="after")
    def _check_speed(self) -> FastSettings:
        """Refuse parameters without a cache, and a cache without parameters."""
        if self.speed in (None, "fp8"):
            if self.speed_parameters:
                raise ValueError("speed_parameters are those of a cache; set speed to one")
            return self
        for name in ("compile", "cuda_graphs"):
            if getattr(self, name):
                raise ValueError(f"speed {self.speed!r} and {name} exclude each other")
        if not self.cache_parameters():
            others: list[str] = []
            for name, design in DESIGNS.items():
                if self.speed in design.caches:
                    others.append(name)
            raise ValueError(
                f"speed {self.speed!r} was published without parameters for this model; "
                "give them in speed_parameters "
                f"(published are those of {', '.join(others)})"
            )
        return self

    def cache_parameters(self) -> dict[str, Any]:
        """Return the parameters of the cache: the published ones, and over them the given.

        Empty where nothing is published for the model and nothing was given.
        """
        architecture = self.architecture or PUBLISHED.get(self.model)
        published: Mapping[str, Any] = {}
        if architecture is not None and self.speed is not None:
            published = DESIGNS[architecture].caches.get(self.speed, {})
        return {**published, **self.speed_parameters}

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """Return the fields that enter the key; those of speed where there is one.

        Parameters enter as they are used, so that a later publication changes no key.
        """
        fields = super().key_fields(weights)
        if self.speed is None:
            del fields["speed"], fields["speed_parameters"]
        else:
            fields["speed_parameters"] = self.cache_parameters()
        return fields

    def spec(self, name: str, weights: Weights, gpu_gib: float = 80.0) -> StageSpec:
        """Return the stage, whose name says what made it faster."""
        shown = name if self.speed is None else f"{name} {self.speed}"
        return super().spec(shown, weights, gpu_gib)


_REGIONAL_S = 9.6
_WHOLE_S = 67.4
"""Seconds of compiling one block of FLUX.1-dev for all of its kind, or all of it, on an
H100 (docs.pytorch.org, note of 2026-05-11)."""
_WITHOUT_REPEATED = {
    "SD3Transformer2DModel",
    "PixArtTransformer2DModel",
    "SanaTransformer2DModel",
}
"""Denoisers that diffusers 0.42.1 cannot compile block by block."""


def has_repeated_blocks(design: PipelineDesign) -> bool:
    """Return whether one block of a denoiser is compiled for all of its kind."""
    return all(kind not in _WITHOUT_REPEATED for kind, _ in design.modules.values())


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
