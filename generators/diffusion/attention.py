"""Which attention kernel a denoiser uses, checked to be the one in force.

diffusers has two mechanisms. Newer models dispatch (`set_attention_backend`); the UNets and
SD3's transformer have processors that fix the kernel, and on them `set_attention_backend`
changes nothing and says nothing (diffusers 0.42.1, models/modeling_utils.py).
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers.models.attention_dispatch import AttentionBackendName

from generators.errors import PlaitError

OWN = "own"
SDPA = "sdpa"
XFORMERS = "xformers"
NATIVE = "native"
"""diffusers' name of torch's scaled dot product attention."""


class AttentionError(PlaitError, ValueError):
    """The attention kernel a user named cannot run here, or not in this model."""

    exit_status = 2


def use_attention(
    denoiser: Any, name: str, device: torch.device, dtype: torch.dtype
) -> None:
    """Make `denoiser` use the kernel `name`; AttentionError says what it could use.

    `sdpa` is torch's, `own` whatever the model comes with, `xformers` is proved by running
    it once; other names are those of diffusers' `AttentionBackendName`, for models that
    dispatch. Kernels that would be downloaded from the Hub as code are refused.
    """
    choices = attention_choices(denoiser)
    if name not in choices:
        raise AttentionError(
            f"attention {name!r} cannot be had in {type(denoiser).__name__}; "
            f"choose one of {', '.join(choices)}"
        )
    if name == OWN:
        return
    if name == XFORMERS:
        _prove_xformers(choices, device, dtype)
    _switch(denoiser, name)
    used = attention_in_force(denoiser)
    if used - {name}:
        raise AttentionError(
            f"attention {name!r} is not in force in {type(denoiser).__name__}: it uses "
            f"{', '.join(sorted(used))}; choose one of {', '.join(choices)}"
        )


def attention_choices(denoiser: Any) -> list[str]:
    """Names that `use_attention` takes for this model, `sdpa` first."""
    processors = _processors(denoiser)
    if not processors or not all(map(_dispatches, processors)):
        return [SDPA, XFORMERS, OWN]
    known = [b.value for b in AttentionBackendName]
    return [SDPA, *(n for n in known if n != NATIVE and not n.endswith("hub")), OWN]


def attention_in_force(denoiser: Any) -> set[str]:
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
    return list(getattr(denoiser, "attn_processors", {}).values())


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
    return SDPA if name.endswith("2_0") else name


def _prove_xformers(choices: list[str], device: torch.device, dtype: torch.dtype) -> None:
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
