"""Pipelines without a checkpoint: full size with random values, or toy size and seeded.

They read text with small tokenizers, because published vocabularies are not available
without a download.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import diffusers
import torch
import transformers
from accelerate import init_empty_weights
from diffusers.pipelines.stable_diffusion.safety_checker import (
    StableDiffusionSafetyChecker,
)

from generators.diffusion.designs import DESIGNS, Architecture, PipelineDesign
from generators.diffusion.tokenizers import CLIP_IDS, small_tokenizer

SEED = 20241014

_FLOAT32 = {"T5EncoderModel": ("wo",)}
"""Submodules that transformers keeps in float32 beside float16 ones."""


def build_pipeline(
    architecture: Architecture,
    weights: Literal["dummy", "tiny"],
    device: torch.device,
    dtype: torch.dtype,
) -> Any:
    """The pipeline of an architecture with `dummy` or `tiny` weights, on `device`.

    Dummy values are sampled on the device in `dtype`, tensor by tensor, so the device
    holds no second copy. Tiny values are sampled on the CPU in float32, so they are the
    same everywhere.
    """
    design = DESIGNS[architecture]
    if weights == "tiny":
        modules = {k: m.to(device) for k, m in tiny_modules(design).items()}
    else:
        empty = {k: empty_module(design, k) for k in design.modules}
        modules = {k: materialise(m, device, dtype) for k, m in empty.items()}
    return _assembled(design, modules)


def tiny_modules(design: PipelineDesign) -> dict[str, torch.nn.Module]:
    """The modules of a design at toy size, float32 on the CPU, always the same values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return {name: _instance(design, name, tiny=True).eval() for name in design.modules}


def empty_module(design: PipelineDesign, name: str) -> torch.nn.Module:
    """A full-size module with its parameters on the meta device and real buffers."""
    with init_empty_weights(include_buffers=False):
        module = _instance(design, name, tiny=False)
    if isinstance(module, transformers.PreTrainedModel):
        module.tie_weights()
    return module


def materialise(
    module: torch.nn.Module, device: torch.device, dtype: torch.dtype
) -> torch.nn.Module:
    """`module` with random values on `device` instead of meta parameters, in place."""
    generator = torch.Generator(device).manual_seed(SEED)
    exact = _FLOAT32.get(type(module).__name__, ()) if dtype == torch.float16 else ()
    parameters: dict[int, torch.nn.Parameter] = {}
    for path, child in module.named_modules():
        precise = any(part in exact for part in path.split("."))
        precision = torch.float32 if precise else dtype
        own = {"recurse": False, "remove_duplicate": False}
        for name, meta in list(child.named_parameters(**own)):
            if id(meta) not in parameters:
                value = torch.empty(meta.shape, device=device, dtype=precision)
                _fill(name, value, generator)
                parameters[id(meta)] = torch.nn.Parameter(value, requires_grad=False)
            setattr(child, name, parameters[id(meta)])
        for name, buffer in list(child.named_buffers(**own)):
            target = dtype if buffer.is_floating_point() else buffer.dtype
            setattr(child, name, buffer.to(device, target))
    return module.eval()


def _fill(name: str, value: torch.Tensor, generator: torch.Generator) -> None:
    """Unit gain for matrices and convolutions, identity for norms, no bias.

    `*_weights` are the safety checker's thresholds on a cosine: at 1 it blocks nothing.
    """
    if value.ndim >= 2:
        fan_in = math.prod(value.shape[1:])
        value.normal_(0.0, fan_in**-0.5, generator=generator)
    else:
        value.fill_(1.0 if name.endswith(("weight", "weights")) else 0.0)


def _instance(design: PipelineDesign, name: str, tiny: bool) -> torch.nn.Module:
    kind = module_class(design.modules[name][0])
    config = dict(design.config(name, tiny))
    if not issubclass(kind, transformers.PreTrainedModel):
        return kind(**config)  # type: ignore[no-any-return]
    if kind.config_class is transformers.CLIPTextConfig:
        config |= CLIP_IDS
    return kind(kind.config_class(**config))  # type: ignore[no-any-return]


def module_class(name: str) -> Any:
    """The class of that name in diffusers or transformers."""
    if name == "StableDiffusionSafetyChecker":
        return StableDiffusionSafetyChecker
    return getattr(diffusers if hasattr(diffusers, name) else transformers, name)


def _assembled(design: PipelineDesign, modules: Mapping[str, torch.nn.Module]) -> Any:
    parts: dict[str, Any] = {**modules, **design.arguments}
    parts["scheduler"] = scheduler_of(design.scheduler)
    for name, kind in design.tokenizers.items():
        parts[name] = small_tokenizer(kind)
    if "safety_checker" in modules:
        parts["feature_extractor"] = _image_processor(modules["safety_checker"])
    return getattr(diffusers, design.pipeline)(**parts)


def scheduler_of(config: Mapping[str, Any]) -> Any:
    """The scheduler whose class `config` names as `_class_name`."""
    settings = {name: value for name, value in config.items() if name != "_class_name"}
    return getattr(diffusers, config["_class_name"])(**settings)


def _image_processor(checker: Any) -> Any:
    side = checker.config.vision_config.image_size
    return transformers.CLIPImageProcessor(size={"shortest_edge": side}, crop_size=side)
