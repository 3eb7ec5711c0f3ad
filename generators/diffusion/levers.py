"""What makes a denoiser faster and changes its images: 8 bits, and caches of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import diffusers
import torch

from plait.generators.checkpoints import first_line
from plait.generators.diffusion.placing import denoiser_of
from plait.generators.diffusion.settings import FastSettings
from plait.generators.errors import UsageError
from plait.generators.extras import import_extra

_CACHES: Mapping[str, str] = {
    "first-block-cache": "FirstBlockCacheConfig",
    "taylorseer-cache": "TaylorSeerCacheConfig",
    "magcache": "MagCacheConfig",
}
"""Kind of cache -> its configuration in diffusers."""
_BLOCK = 128
"""Of FP8 by blocks: 1 x 128 values of an input and 128 x 128 of a weight share a scale."""
_HOPPER = (9, 0)
"""Compute capability of the first GPUs that multiply FP8 by blocks."""


class StepCounter:
    """Counts the denoiser's evaluations, and those in which its last block computed.

    A cache skips the projection to queries of the last attention where it skips a step:
    First Block Cache and MagCache skip all blocks but the first, or all; TaylorSeer the
    inside of attention, but not what surrounds it.
    """

    def __init__(self, denoiser: torch.nn.Module) -> None:
        last = None
        for name, module in denoiser.named_modules():
            if name.endswith(".to_q"):
                last = module
        if last is None:
            raise UsageError(f"{type(denoiser).__name__} has no attention to be cached")
        self.evaluations = 0
        self.computed = 0
        denoiser.register_forward_pre_hook(self._evaluate)
        last.register_forward_pre_hook(self._compute)

    def _evaluate(self, *_: Any) -> None:
        self.evaluations += 1

    def _compute(self, *_: Any) -> None:
        self.computed += 1

    def take_share_skipped(self) -> float:
        """Return the share of evaluations that were skipped since the last call."""
        share = 1 - self.computed / self.evaluations if self.evaluations else 0.0
        self.evaluations = 0
        self.computed = 0
        return share


def speed_up(
    pipeline: Any, settings: FastSettings, device: torch.device, dtype: torch.dtype
) -> StepCounter | None:
    """Apply the setting `speed`; with a cache, return what counts the steps it skips.

    UsageError names what this model, device or installation lacks.
    """
    if settings.speed is None:
        return None
    denoiser = denoiser_of(pipeline)
    if settings.speed == "fp8":
        _multiply_in_fp8(denoiser, device, dtype)
        return None
    counter = StepCounter(denoiser)
    _cache(denoiser, settings, dtype)
    return counter


def _cache(denoiser: Any, settings: FastSettings, dtype: torch.dtype) -> None:
    assert settings.speed is not None
    what = f"speed {settings.speed!r}"
    if not isinstance(denoiser, diffusers.CacheMixin):
        raise UsageError(
            f"{what}: diffusers {diffusers.__version__} has no caches for "
            f"{type(denoiser).__name__}; they are for transformers such as flux's"
        )
    parameters = settings.cache_parameters()
    if settings.speed == "magcache":
        parameters["num_inference_steps"] = settings.steps
    if settings.speed == "taylorseer-cache":
        # diffusers would keep them in bfloat16, whatever the model computes in.
        parameters.setdefault("taylor_factors_dtype", "float32")
        name = parameters["taylor_factors_dtype"]
        parameters["taylor_factors_dtype"] = getattr(torch, str(name))
    try:
        denoiser.enable_cache(getattr(diffusers, _CACHES[settings.speed])(**parameters))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what}: {first_line(error)}") from error


def _multiply_in_fp8(denoiser: Any, device: torch.device, dtype: torch.dtype) -> None:
    """Quantise the denoiser's linear layers to FP8 by blocks (torchao)."""
    quantization = import_extra("torchao", "speed 'fp8'").quantization
    _refuse_quantised(denoiser)
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    if capability is None or capability < _HOPPER or dtype != torch.bfloat16:
        where = torch.cuda.get_device_name(device) if capability else "a CPU"
        raise UsageError(
            f"speed 'fp8' needs a GPU of compute capability 9.0 (H100) and dtype bfloat16, "
            f"and this is {where} with {str(dtype).removeprefix('torch.')}; leave speed out"
        )
    blocks = [quantization.PerBlock([1, _BLOCK]), quantization.PerBlock([_BLOCK, _BLOCK])]
    own = quantization.Float8DynamicActivationFloat8WeightConfig(granularity=blocks)
    quantization.quantize_(denoiser, own, filter_fn=_is_in_blocks)


def _refuse_quantised(denoiser: Any) -> None:
    """Raise UsageError for weights of GGUF or bitsandbytes, which are packed already."""
    for name, module in denoiser.named_modules():
        if _is_in_blocks(module, name) and not module.weight.is_floating_point():
            raise UsageError(
                f"speed 'fp8' quantises plain weights, and those of {name} in "
                f"{type(denoiser).__name__} are quantised already; leave speed out, or "
                "name the plain checkpoint"
            )


def _is_in_blocks(module: torch.nn.Module, name: str) -> bool:
    """Return whether a layer can be cut into blocks; others keep their precision."""
    if not isinstance(module, torch.nn.Linear):
        return False
    return module.in_features % _BLOCK == 0 and module.out_features % _BLOCK == 0
