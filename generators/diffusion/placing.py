"""Where a pipeline's modules live, and how its denoiser is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from accelerate import dispatch_model

Offload = Literal["model", "sequential"]
DeviceMap = Literal["balanced"]


def place(
    pipeline: Any,
    device: torch.device,
    offload: Offload | None = None,
    device_map: DeviceMap | None = None,
) -> None:
    """Bring a pipeline to its device or devices; ValueError where that needs a GPU."""
    if (offload or device_map) and device.type == "cpu":
        told = "offload" if offload else "device_map"
        raise ValueError(f"{told} needs a GPU, and the device is the CPU")
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
    """Text encoders on the further devices, largest first; all else on the first.

    The autoencoder stays beside the denoiser because the Stable Diffusion pipelines hand
    it latents without moving them.
    """
    first, *further = devices
    modules = {
        k: m for k, m in pipeline.components.items() if isinstance(m, torch.nn.Module)
    }
    taken = dict.fromkeys(further or [first], 0)
    for name, module in sorted(modules.items(), key=lambda item: -_bytes(item[1])):
        home = first
        if name.startswith("text_encoder"):
            home = min(taken, key=lambda d: taken[d])
            taken[home] += _bytes(module)
        dispatch_model(module, {"": home}, force_hooks=True)


def _bytes(module: torch.nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in module.parameters())


def denoiser_of(pipeline: Any) -> Any:
    """The UNet or transformer of a pipeline; ValueError when it has neither."""
    for name in ("transformer", "unet"):
        found = pipeline.components.get(name)
        if found is not None:
            return found
    raise ValueError(
        f"{type(pipeline).__name__} has neither a transformer nor a unet whose attention "
        "could be chosen or which could be compiled; set attention to 'own'"
    )


def compile_denoiser(denoiser: Any) -> None:
    """Compile the repeated blocks where the model declares them, else all of it.

    Compiling one block and reusing it costs a seventh of the time at the same speed
    (PyTorch's regional compilation); SD3's transformer declares none.
    """
    if getattr(denoiser, "_repeated_blocks", None):
        denoiser.compile_repeated_blocks()
    else:
        denoiser.compile()
