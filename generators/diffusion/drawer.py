"""A pipeline according to its settings, and batches of pictures drawn with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import diffusers
import numpy as np
import numpy.typing as npt
import torch

from generators.base import Failure, Fault, Outcome, Result, Weights
from generators.diffusion.builds import build_pipeline
from generators.diffusion.loading import load_published, quiet
from generators.diffusion.placing import (
    OWN,
    DeviceMap,
    compile_denoiser,
    denoiser_of,
    place,
    use_attention,
)
from generators.diffusion.settings import DiffusionSettings, architecture_of
from generators.loading.strict import device_of
from generators.pictures import Drawing

PipelineReader = Callable[[DiffusionSettings, torch.dtype], Any]
"""Loads the published pipeline that the settings name, onto the CPU."""


def load_pipeline(
    settings: DiffusionSettings, weights: Weights, read: PipelineReader | None = None
) -> Any:
    """The pipeline on its device; CheckpointError or ValueError say why there is none.

    The ValueErrors (AttentionError among them) name the valid choices. `read` is for
    checkpoints that are more than a pipeline of diffusers.
    """
    device, dtype = device_of(settings.device), getattr(torch, settings.dtype)
    with quiet():
        if weights == "pretrained":
            pipeline = (read or _published)(settings, dtype)
        else:
            pipeline = _random(settings, weights, device, dtype)
        _set_scheduler(pipeline, settings.scheduler)
        # Whether SDXL marks its pictures would depend on another package being installed.
        pipeline.watermark = None
        pipeline.set_progress_bar_config(disable=True)
        if settings.vae_slicing:
            _autoencoder(pipeline).enable_slicing()
        if settings.attention != OWN:
            use_attention(denoiser_of(pipeline), settings.attention, device, dtype)
        device_map = settings.device_map or _device_map(settings)
        place(pipeline, device, settings.offload, device_map)
        if settings.compile:
            compile_denoiser(denoiser_of(pipeline))
    return pipeline


def _published(settings: DiffusionSettings, dtype: torch.dtype) -> Any:
    """A pipeline as diffusers stores it."""
    where = (settings.model, settings.revision)
    return load_published(*where, dtype, settings.variant, settings.safety_checker)


def _random(
    settings: DiffusionSettings,
    weights: Literal["dummy", "tiny"],
    device: torch.device,
    dtype: torch.dtype,
) -> Any:
    """The pipeline with random weights."""
    pipeline = build_pipeline(architecture_of(settings), weights, device, dtype)
    if settings.safety_checker == "off" and "safety_checker" in pipeline.components:
        pipeline.safety_checker = None
    return pipeline


def _device_map(settings: DiffusionSettings) -> DeviceMap | None:
    """All GPUs allocated to a replica, where the user names none."""
    if settings.device != "auto" or settings.offload or torch.cuda.device_count() < 2:
        return None
    return "balanced"


def _autoencoder(pipeline: Any) -> Any:
    vae = pipeline.components.get("vae")
    if vae is None:
        raise ValueError(f"{type(pipeline).__name__} has no vae for vae_slicing")
    return vae


def _set_scheduler(pipeline: Any, name: str | None) -> None:
    """Use a compatible scheduler with the checkpoint's own schedule."""
    current = pipeline.scheduler
    if name is not None:
        choices = {kind.__name__: kind for kind in current.compatibles}
        if name not in choices:
            raise ValueError(
                f"scheduler {name!r} is not compatible with {type(pipeline).__name__}; "
                f"choose one of {', '.join(sorted(choices))}"
            )
        pipeline.scheduler = choices[name].from_config(current.config)
    if pipeline.scheduler.config.get("stochastic_sampling"):
        raise ValueError(
            f"{type(pipeline.scheduler).__name__} with stochastic_sampling samples noise "
            "for the whole batch at once, so pictures would depend on their batch"
        )


def call_arguments(pipeline: Any, settings: DiffusionSettings) -> dict[str, Any]:
    """Keyword arguments of every call; ValueError for one the pipeline does not take."""
    requested = {
        "num_inference_steps": settings.steps,
        "guidance_scale": settings.guidance,
        "height": settings.height,
        "width": settings.width,
        "max_sequence_length": settings.max_sequence_length,
    }
    parameters = inspect.signature(pipeline.__call__).parameters
    arguments = {k: v for k, v in requested.items() if v is not None}
    unsupported = [k for k in arguments if k not in parameters]
    if settings.negative_prompt is not None and (
        "negative_prompt" not in parameters or isinstance(pipeline, diffusers.FluxPipeline)
    ):
        unsupported.append("negative_prompt")
    if unsupported:
        raise ValueError(
            f"{type(pipeline).__name__} does not take {', '.join(unsupported)}"
        )
    if "num_inference_steps" in parameters:
        default = parameters["num_inference_steps"].default
        arguments.setdefault("num_inference_steps", default)
    return arguments | {"output_type": "np"}


class Drawer:
    """A loaded pipeline that takes, per picture, its conditions and its seed.

    Each picture's noise comes from its own CPU generator, so the other pictures of a
    batch, their order and the device change a picture by no more than rounding. The
    pipeline samples the noise in its own dtype: two models whose latents have the same
    shape and dtype start from the same noise for the same seed, before each scheduler
    scales it.
    """

    def __init__(
        self,
        settings: DiffusionSettings,
        weights: Weights,
        read: PipelineReader | None = None,
    ) -> None:
        self.settings = settings
        self.pipeline = load_pipeline(settings, weights, read)
        self.arguments = call_arguments(self.pipeline, settings)
        self.batch = settings.batch_size
        """Pictures in one compiled batch; halved when the device runs out of memory."""

    def __call__(
        self, conditions: Mapping[str, Sequence[Any]], seeds: Sequence[int]
    ) -> list[Outcome[Drawing]]:
        """One outcome per seed.

        `conditions` are arguments of the pipeline with one entry per picture: prompts, or
        tensors (pictures, ...) such as `prompt_embeds`.
        """
        size = self.batch if self.settings.compile else max(len(seeds), 1)
        outcomes: list[Outcome[Drawing]] = []
        for first in range(0, len(seeds), size):
            part = slice(first, first + size)
            batch = {name: values[part] for name, values in conditions.items()}
            pictures, unsafe = self._sampled(batch, seeds[part])
            outcomes += map(self._outcome, pictures, unsafe)
        return outcomes

    def _sampled(
        self, conditions: Mapping[str, Sequence[Any]], seeds: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], list[bool]]:
        """Pictures as (n, height, width, 3) in [0, 1], and which the checker blocked."""
        count = len(seeds)
        padding = self.batch - count if self.settings.compile else 0
        generators = [
            torch.Generator("cpu").manual_seed(s) for s in [*seeds, *[seeds[0]] * padding]
        ]
        arguments = {k: _padded(v, padding) for k, v in conditions.items()} | self.arguments
        if self.settings.negative_prompt is not None:
            negatives = [self.settings.negative_prompt] * len(generators)
            arguments["negative_prompt"] = negatives
        try:
            with quiet():
                output = self.pipeline(generator=generators, **arguments)
        except torch.OutOfMemoryError:
            self.batch = max(1, self.batch // 2)
            raise
        blocked = getattr(output, "nsfw_content_detected", None)
        blocked = blocked or [False] * len(generators)
        return np.asarray(output.images)[:count], blocked[:count]

    def _outcome(self, picture: npt.NDArray[np.float32], unsafe: bool) -> Outcome[Drawing]:
        """A drawing, or the reason why these values are not a valid picture."""
        usage = {"images": 1, "steps": self.arguments["num_inference_steps"]}
        height, width = picture.shape[:2]
        notes = {"size": [width, height]}
        if unsafe:
            reason = "the checkpoint's safety checker blocked the picture"
            return Failure(reason, Fault.UNSAFE, usage, notes)
        if not np.isfinite(picture).all():
            reason = (
                f"the picture overflowed in {self.settings.dtype}; set dtype to bfloat16"
            )
            return Failure(reason, Fault.ERROR, usage, notes)
        pixels = np.rint(picture * 255).astype(np.uint8)
        if not pixels.any():
            return Failure("the picture is wholly black", Fault.ERROR, usage, notes)
        return Result(Drawing(pixels), usage, notes)


def _padded(values: Sequence[Any], padding: int) -> Any:
    """`values` with the first repeated `padding` times at the end."""
    if isinstance(values, torch.Tensor):
        return torch.cat([values, values[:1].expand(padding, *values.shape[1:])])
    return [*values, *list(values[:1]) * padding]
