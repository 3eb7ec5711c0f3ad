"""A pipeline as its settings want it: loaded, scheduled, placed, ready to be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

import diffusers
import torch

from generators.base import Weights
from generators.diffusion.builds import built
from generators.diffusion.loading import published, quiet
from generators.diffusion.placing import (
    OWN,
    DeviceMap,
    compile_denoiser,
    denoiser_of,
    place,
    use_attention,
)
from generators.diffusion.settings import DiffusionSettings, architecture_of
from generators.loading.devices import device_of

Reader = Callable[[DiffusionSettings, torch.dtype], Any]
"""Reads the published pipeline that settings name, onto the CPU."""


def loaded(
    settings: DiffusionSettings, weights: Weights, read: Reader | None = None
) -> Any:
    """The pipeline on its device; CheckpointError or ValueError say why it cannot be.

    The ValueErrors (AttentionError among them) name the choices that are left. `read` is
    for checkpoints that are more than a pipeline of diffusers.
    """
    device, dtype = device_of(settings.device), getattr(torch, settings.dtype)
    with quiet():
        if weights == "pretrained":
            pipeline = (read or _published)(settings, dtype)
        else:
            pipeline = _random(settings, weights, device, dtype)
        _set_scheduler(pipeline, settings.scheduler)
        # Whether SDXL marks its pictures would hang on another package being installed.
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
    return published(*where, dtype, settings.variant, settings.safety_checker)


def _random(
    settings: DiffusionSettings,
    weights: Literal["dummy", "tiny"],
    device: torch.device,
    dtype: torch.dtype,
) -> Any:
    """The pipeline with weights made up."""
    pipeline = built(architecture_of(settings), weights, device, dtype)
    if settings.safety_checker == "off" and "safety_checker" in pipeline.components:
        pipeline.safety_checker = None
    return pipeline


def _device_map(settings: DiffusionSettings) -> DeviceMap | None:
    """All GPUs that a replica was given, where the user names none."""
    if settings.device != "auto" or settings.offload or torch.cuda.device_count() < 2:
        return None
    return "balanced"


def _autoencoder(pipeline: Any) -> Any:
    found = pipeline.components.get("vae")
    if found is None:
        raise ValueError(f"{type(pipeline).__name__} has no vae for vae_slicing")
    return found


def _set_scheduler(pipeline: Any, name: str | None) -> None:
    """Replace the scheduler by a compatible one with the checkpoint's own schedule."""
    current = pipeline.scheduler
    if name is not None:
        choices = {kind.__name__: kind for kind in current.compatibles}
        if name not in choices:
            raise ValueError(
                f"scheduler {name!r} does not fit {type(pipeline).__name__}; "
                f"choose one of {', '.join(sorted(choices))}"
            )
        pipeline.scheduler = choices[name].from_config(current.config)
    if pipeline.scheduler.config.get("stochastic_sampling"):
        raise ValueError(
            f"{type(pipeline.scheduler).__name__} with stochastic_sampling draws noise for "
            "the whole batch at once, so pictures would depend on their neighbours"
        )


def call_arguments(pipeline: Any, settings: DiffusionSettings) -> dict[str, Any]:
    """Keyword arguments of every call; ValueError for one the pipeline does not take."""
    told = {
        "num_inference_steps": settings.steps,
        "guidance_scale": settings.guidance,
        "height": settings.height,
        "width": settings.width,
        "max_sequence_length": settings.max_sequence_length,
    }
    taken = inspect.signature(pipeline.__call__).parameters
    given = {k: v for k, v in told.items() if v is not None}
    foreign = [k for k in given if k not in taken]
    if settings.negative_prompt is not None and (
        "negative_prompt" not in taken or isinstance(pipeline, diffusers.FluxPipeline)
    ):
        foreign.append("negative_prompt")
    if foreign:
        raise ValueError(f"{type(pipeline).__name__} takes no {', '.join(foreign)}")
    if "num_inference_steps" in taken:
        given.setdefault("num_inference_steps", taken["num_inference_steps"].default)
    return given | {"output_type": "np"}
