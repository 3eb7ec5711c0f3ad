"""The devices of a pipeline's modules, compilation of its denoiser, and its attention.

diffusers has two mechanisms for attention. Newer models dispatch
(`set_attention_backend`); the UNets and SD3's transformer have processors that fix the
kernel, and on them `set_attention_backend` silently changes nothing (diffusers 0.42.1,
models/modeling_utils.py). So the kernel in use is checked to be the requested one.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import torch
from accelerate import dispatch_model
from diffusers.models.attention_dispatch import AttentionBackendName

from generators.errors import PlaitError

Offload = Literal["model", "sequential"]
DeviceMap = Literal["balanced"]


def place(
    pipeline: Any,
    device: torch.device,
    offload: Offload | None = None,
    device_map: DeviceMap | None = None,
) -> None:
    """Move a pipeline to its device or devices; ValueError where that needs a GPU."""
    if (offload or device_map) and device.type == "cpu":
        setting = "offload" if offload else "device_map"
        raise ValueError(f"{setting} needs a GPU, and the device is the CPU")
    if offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif offload == "sequential":
        pipeline.enable_sequential_cpu_offload(device=device)
    elif device_map == "balanced" and torch.cuda.device_count() > 1:
        spread(
            pipeline, [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        )
    else:
        pipeline.to(device)


def spread(pipeline: Any, devices: Sequence[torch.device]) -> None:
    """Put the text encoders on the further devices, largest first; all else on the first.

    The autoencoder stays beside the denoiser because the Stable Diffusion pipelines hand
    it latents without moving them.
    """
    first, *further = devices
    modules = {
        k: m for k, m in pipeline.components.items() if isinstance(m, torch.nn.Module)
    }
    used = dict.fromkeys(further or [first], 0)
    for name, module in sorted(modules.items(), key=lambda item: -_bytes(item[1])):
        home = first
        if name.startswith("text_encoder"):
            home = min(used, key=lambda d: used[d])
            used[home] += _bytes(module)
        dispatch_model(module, {"": home}, force_hooks=True)


def _bytes(module: torch.nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in module.parameters())


def denoiser_of(pipeline: Any) -> Any:
    """The UNet or transformer of a pipeline; ValueError when it has neither."""
    for name in ("transformer", "unet"):
        module = pipeline.components.get(name)
        if module is not None:
            return module
    raise ValueError(
        f"{type(pipeline).__name__} has neither a transformer nor a unet to compile or to "
        "choose the attention of; set attention to 'own'"
    )


def compile_denoiser(denoiser: Any) -> None:
    """Compile the repeated blocks where the model declares them, otherwise the whole model.

    Compiling one block and reusing it costs a seventh of the time at the same speed
    (PyTorch's regional compilation); SD3's transformer declares none.
    """
    try:
        denoiser.compile_repeated_blocks()
    except ValueError:
        denoiser.compile()


OWN = "own"
SDPA = "sdpa"
XFORMERS = "xformers"
NATIVE = "native"
"""diffusers' name of torch's scaled dot product attention."""


class AttentionError(PlaitError, ValueError):
    """The attention kernel that a user named cannot run here, or in this model."""

    exit_status = 2


def use_attention(
    denoiser: Any, name: str, device: torch.device, dtype: torch.dtype
) -> None:
    """Make `denoiser` use the kernel `name`; AttentionError says what it could use.

    `sdpa` is torch's, `own` whatever the model comes with, `xformers` is tested by running
    it once; other names are those of diffusers' `AttentionBackendName`, for models that
    dispatch. Kernels that would be downloaded from the Hub as code are refused.
    """
    choices = attention_choices(denoiser)
    if name not in choices:
        raise AttentionError(
            f"attention {name!r} is not available in {type(denoiser).__name__}; "
            f"choose one of {', '.join(choices)}"
        )
    if name == OWN:
        return
    if name == XFORMERS:
        _check_xformers(choices, device, dtype)
    _switch(denoiser, name)
    used = attention_in_use(denoiser)
    if used - {name}:
        raise AttentionError(
            f"attention {name!r} is not in use in {type(denoiser).__name__}: it uses "
            f"{', '.join(sorted(used))}; choose one of {', '.join(choices)}"
        )


def attention_choices(denoiser: Any) -> list[str]:
    """Names that `use_attention` takes for this model, `sdpa` first."""
    processors = _processors(denoiser)
    if not processors or not all(map(_dispatches, processors)):
        names = {type(p).__name__ for p in processors}
        replaceable = names and all(n in _REPLACEABLE or "XFormers" in n for n in names)
        return [SDPA, *([XFORMERS] if replaceable else []), OWN]
    known = [b.value for b in AttentionBackendName]
    return [SDPA, *(n for n in known if n != NATIVE and not n.endswith("hub")), OWN]


_REPLACEABLE = {
    "AttnProcessor",
    "AttnProcessor2_0",
    "AttnAddedKVProcessor",
    "AttnAddedKVProcessor2_0",
    "JointAttnProcessor2_0",
}
"""Processors that have a twin for xformers. diffusers would put one in the place of any
other too, such as SANA's linear attention, and draw something else."""


def attention_in_use(denoiser: Any) -> set[str]:
    """The kernels that the model's attention processors use now."""
    return {_kernel(processor) for processor in _processors(denoiser)}


def _switch(denoiser: Any, name: str) -> None:
    try:
        if any(map(_dispatches, _processors(denoiser))):
            denoiser.set_attention_backend(NATIVE if name == SDPA else name)
        elif name == XFORMERS:
            denoiser.enable_xformers_memory_efficient_attention()
    except (ImportError, RuntimeError, ValueError) as error:
        choices = ", ".join(attention_choices(denoiser))
        raise AttentionError(
            f"attention {name!r} cannot run here: {error}; choose one of {choices}"
        ) from error


def _processors(denoiser: Any) -> list[Any]:
    """The attention processors; Z-Image's transformer lists none, but has them."""
    listed = getattr(denoiser, "attn_processors", None)
    if listed is not None:
        return list(listed.values())
    modules = denoiser.modules() if isinstance(denoiser, torch.nn.Module) else ()
    return [m.processor for m in modules if hasattr(m, "processor")]


def _dispatches(processor: Any) -> bool:
    return hasattr(processor, "_attention_backend")


def _kernel(processor: Any) -> str:
    if _dispatches(processor):
        backend = processor._attention_backend
        # None is whatever the process-wide default is, which others may change.
        value = "the process-wide default" if backend is None else str(backend.value)
        return SDPA if value == NATIVE else value
    name = type(processor).__name__
    if "XFormers" in name:
        return XFORMERS
    return SDPA if name.endswith("2_0") or _calls_torch(type(processor)) else name


def _calls_torch(processor: type[Any]) -> bool:
    """Whether a processor is written for torch's kernel alone (CogView4)."""
    try:
        return "scaled_dot_product_attention(" in inspect.getsource(processor)
    except (OSError, TypeError):
        return False


def _check_xformers(choices: list[str], device: torch.device, dtype: torch.dtype) -> None:
    """Run one operation: a wheel for another torch or CUDA imports, then fails to run."""
    others = ", ".join(c for c in choices if c != XFORMERS)
    try:
        from xformers.ops import memory_efficient_attention

        query = torch.zeros(1, 16, 1, 64, device=device, dtype=dtype)
        memory_efficient_attention(query, query, query)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise AttentionError(
            f"attention 'xformers' cannot run on {device.type} in {dtype}: {reason}; "
            f"choose one of {others}"
        ) from error
