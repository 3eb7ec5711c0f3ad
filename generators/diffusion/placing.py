"""The devices of a pipeline's modules, compilation of its denoiser, and its attention.

diffusers has two mechanisms for attention. Newer models dispatch
(`set_attention_backend`); the UNets and SD3's transformer have processors that fix the
kernel, and on them `set_attention_backend` silently changes nothing (diffusers 0.42.1,
models/modeling_utils.py). So only kernels that a model can switch to are accepted.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import dispatch_model
from diffusers.models.attention_dispatch import (
    AttentionBackendName,
    attention_backend,
    dispatch_attention_fn,
)
from torch.nn.functional import scaled_dot_product_attention

from plait.generators.checkpoints import first_line
from plait.generators.diffusion.settings import DiffusionSettings
from plait.generators.errors import PlaitError, UsageError


def place(pipeline: Any, settings: DiffusionSettings, device: torch.device) -> None:
    """Move a pipeline to its device or devices; UsageError where that needs a GPU."""
    offload = settings.offload
    device_map = settings.device_map
    if (offload or device_map) and device.type == "cpu":
        setting = "offload" if offload else "device_map"
        raise UsageError(f"{setting} needs a GPU, and the device is the CPU")
    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    if offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif offload == "sequential":
        pipeline.enable_sequential_cpu_offload(device=device)
    elif len(gpus) > 1 and (device_map or settings.device == "auto"):
        spread(pipeline, gpus)
    else:
        pipeline.to(device)


def spread(pipeline: Any, devices: Sequence[torch.device]) -> None:
    """Put the text encoders on the further devices, largest first; all else on the first.

    The autoencoder stays beside the denoiser because the Stable Diffusion pipelines hand
    it latents without moving them.
    """
    first, *further = devices
    used = dict.fromkeys(further, 0)  # bytes on each
    sizes: dict[str, int] = {}
    for name, module in pipeline.components.items():
        if isinstance(module, torch.nn.Module):
            sizes[name] = _size_of(module)
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        home = first
        if name.startswith("text_encoder"):
            home = min(used, key=lambda device: used[device])
            used[home] += sizes[name]
        dispatch_model(pipeline.components[name], {"": home}, force_hooks=True)


def _size_of(module: torch.nn.Module) -> int:
    """Return the bytes of a module's parameters."""
    return sum(p.numel() * p.element_size() for p in module.parameters())


def denoiser_of(pipeline: Any) -> Any:
    """Return the UNet or transformer of a pipeline; UsageError when it has neither."""
    for name in ("transformer", "unet"):
        module = pipeline.components.get(name)
        if module is not None:
            return module
    raise UsageError(
        f"{type(pipeline).__name__} has neither a transformer nor a unet to compile or to "
        "choose the attention of; set attention to 'own'"
    )


def keep_timesteps_on_host(pipeline: Any) -> None:
    """Let a UNet's scheduler hold its timesteps on the host, where it looks them up.

    With PNDM and DDIM each step would read several numbers from the GPU, and the host
    wait for all kernels before it launches the next. UNets move a timestep to their
    device themselves, transformers do not.
    """
    if pipeline.components.get("unet") is None:
        return
    scheduler = pipeline.scheduler
    inner = scheduler.set_timesteps

    # Pipelines look for `timesteps` and `sigmas` among its parameters.
    @functools.wraps(inner)
    def set_timesteps(*given: Any, device: Any = None, **named: Any) -> None:
        inner(*given, **named)

    scheduler.set_timesteps = set_timesteps


def compile_denoiser(denoiser: Any) -> None:
    """Compile the repeated blocks where the model declares them, otherwise the whole model.

    Compiling one block and reusing it costs a seventh of the time at the same speed
    (PyTorch's regional compilation); SD3's transformer declares none.
    """
    try:
        denoiser.compile_repeated_blocks()
    except ValueError:
        denoiser.compile()


_FUSED = ("UNet2DConditionModel", "SD3Transformer2DModel", "FluxTransformer2DModel")
"""Denoisers that compute the same with fused projections (`test_placing.py`). diffusers
would fuse others, such as SANA's, and have them attend in another way."""


def fuse_projections(pipeline: Any) -> None:
    """Let one product give queries, keys and values; UsageError where that is not exact."""
    denoiser = denoiser_of(pipeline)
    kind = type(denoiser).__name__
    if kind not in _FUSED:
        raise UsageError(
            f"fuse_qkv is not known to be exact for {kind}; it is for {', '.join(_FUSED)}"
        )
    denoiser.fuse_qkv_projections()


def hold_channels_last(pipeline: Any) -> None:
    """Hold the autoencoder's weights channels last; UsageError where it has none such."""
    vae = pipeline.components.get("vae")
    if vae is None or any(weight.dim() > 4 for weight in vae.parameters()):
        kind = type(pipeline if vae is None else vae).__name__
        raise UsageError(
            f"channels_last is for autoencoders of single images, and not for {kind}; "
            "leave it out"
        )
    vae.to(memory_format=torch.channels_last)


_AUTO = "auto"
_OWN = "own"
_SDPA = "sdpa"
_XFORMERS = "xformers"
_HOPPER = 9
"""Compute capability of H100 and H200."""
_ATTENTION_ERROR = 2e-2
"""Of values around 1 in 16 bits: kernels sum in other orders."""
_NATIVE = "native"
"""diffusers' name of torch's scaled dot product attention."""
_REPLACEABLE = {
    "AttnProcessor",
    "AttnProcessor2_0",
    "AttnAddedKVProcessor",
    "AttnAddedKVProcessor2_0",
    "JointAttnProcessor2_0",
}
"""Processors that have a twin for xformers. diffusers would put one in the place of any
other too, such as SANA's linear attention, and draw something else."""


class AttentionError(PlaitError, ValueError):
    """The attention kernel that a user named cannot run here, or in this model."""

    exit_status = 2


def use_attention(
    pipeline: Any, name: str, device: torch.device, dtype: torch.dtype
) -> None:
    """Make the denoiser use the kernel `name`; AttentionError says what it could use.

    `sdpa` is torch's, which models that do not dispatch use anyway, `own` whatever the
    model comes with; other names are those of diffusers' `AttentionBackendName`, for models
    that dispatch. Kernels that would be downloaded from the Hub as code are refused. `auto`
    is the fastest one that works, which `pipeline.chosen_attention` then names.
    """
    if name == _OWN:
        return
    denoiser = denoiser_of(pipeline)
    if name == _AUTO:
        pipeline.chosen_attention = _choose_attention(denoiser, device, dtype)
        return
    choices = attention_choices(denoiser)
    reason = f"attention {name!r} is not available in {type(denoiser).__name__}"
    if name in choices:
        try:
            _switch(denoiser, name, device, dtype)
            return
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            place = f"{device.type} in {dtype}"
            reason = f"attention {name!r} cannot run on {place}: {first_line(error)}"
    if name in choices:
        choices.remove(name)
    raise AttentionError(f"{reason}; choose one of {', '.join(choices)}")


def _fastest(device: torch.device) -> Sequence[str]:
    """Return the kernels to try on a GPU, by its generation; none on a CPU.

    FlashAttention 3 is written for Hopper; on Blackwell cuDNN's is the newest.
    """
    if device.type != "cuda":
        return ()
    major, _ = torch.cuda.get_device_capability(device)
    if major == _HOPPER:
        return ("_flash_3", "_native_cudnn", "flash")
    return ("_native_cudnn", "flash") if major > _HOPPER else ("flash",)


def _choose_attention(
    denoiser: Any, device: torch.device, dtype: torch.dtype
) -> str | None:
    """Switch to the first kernel that is there and right; None with nothing to try."""
    names = _fastest(device)
    if not names or not _dispatches(_processors(denoiser)):
        return None
    choices = attention_choices(denoiser)
    for name in names:
        if name in choices and _is_right(name, device, dtype):
            try:
                denoiser.set_attention_backend(name)
                return name
            except (ImportError, OSError, RuntimeError, ValueError):
                continue
    denoiser.set_attention_backend(_NATIVE)
    return _SDPA


def _is_right(name: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a kernel runs here, and computes what torch's does.

    A package for another torch or GPU can be imported, and then fails, or is wrong.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    shape = (3, 1, 64, 2, 64)
    query, key, value = torch.randn(shape, generator=generator).to(device, dtype)
    try:
        with torch.no_grad(), attention_backend(name):
            made = dispatch_attention_fn(query, key, value)
        # torch's kernel has the heads before the positions.
        expected = scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        ).transpose(1, 2)
    except (ImportError, OSError, RuntimeError, ValueError):
        return False
    return bool(torch.allclose(made.float(), expected.float(), atol=_ATTENTION_ERROR))


def attention_choices(denoiser: Any) -> list[str]:
    """Return the names that `use_attention` takes for this model, `sdpa` first."""
    processors = _processors(denoiser)
    choices = [_SDPA]
    if _dispatches(processors):
        for backend in AttentionBackendName:
            # `sdpa` is the native one; those of the Hub are downloaded code.
            if backend.value != _NATIVE and not backend.value.endswith("hub"):
                choices.append(backend.value)
    elif processors and {type(one).__name__ for one in processors} <= _REPLACEABLE:
        choices.append(_XFORMERS)
    return [*choices, _OWN]


def _processors(denoiser: Any) -> list[Any]:
    """Return the attention processors; Z-Image's transformer lists none, but has them."""
    if not isinstance(denoiser, torch.nn.Module):
        return []
    found: list[Any] = []
    for module in denoiser.modules():
        processor = getattr(module, "processor", None)
        if processor is not None:
            found.append(processor)
    return found


def _dispatches(processors: Sequence[Any]) -> bool:
    """Return whether all of them ask diffusers' dispatcher for a kernel."""
    for processor in processors:
        # A processor does not say so: the names that its code calls by do.
        if "dispatch_attention_fn" not in type(processor).__call__.__code__.co_names:
            return False
    return bool(processors)


def _switch(denoiser: Any, name: str, device: torch.device, dtype: torch.dtype) -> None:
    if name == _XFORMERS:
        from xformers.ops import memory_efficient_attention

        # A wheel for another torch or CUDA can be imported, and then fails to run.
        query = torch.zeros(1, 16, 1, 64, device=device, dtype=dtype)
        memory_efficient_attention(query, query, query)
    if _dispatches(_processors(denoiser)):
        denoiser.set_attention_backend(_NATIVE if name == _SDPA else name)
    elif name == _XFORMERS:
        denoiser.enable_xformers_memory_efficient_attention()
