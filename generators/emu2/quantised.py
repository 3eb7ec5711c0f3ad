"""Decoder layers in 8 or 4 bits, by bitsandbytes, as their tensors arrive."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from generators.checkpoints import CheckpointError
from generators.emu2.settings import Quantization
from generators.loading.strict import Layout

_OUTLIERS = 6.0
"""Activations beyond it are multiplied in full precision (arXiv:2208.07339)."""


def require_bitsandbytes(kind: Quantization) -> None:
    """CheckpointError where quantisation is asked for and its package is missing."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise CheckpointError(
            f"quantization {kind!r} needs the package bitsandbytes: install "
            "plait[quantization], or leave quantization out"
        )


def quantising(
    stored: Iterable[tuple[str, Tensor]],
    network: nn.Module,
    layout: Layout,
    kind: Quantization,
) -> Iterator[tuple[str, Tensor]]:
    """`stored`, with each matrix of a decoder layer quantised once it is in its place.

    So a device never holds more than one such matrix in full. To be read by `strict.fill`
    on `network`, which asks for the next tensor when the last one is in place.
    """
    for key, tensor in stored:
        yield key, tensor
        if key in layout:
            quantise(network, layout[key].name, kind)


def quantise(network: nn.Module, name: str, kind: Quantization) -> None:
    """Replace the matrix of that parameter name if it is one of a decoder layer."""
    owner, _, leaf = name.rpartition(".")
    layer = network.get_submodule(owner)
    if not isinstance(layer, nn.Linear) or layer.weight.is_meta:
        return
    if name.startswith("lm.model.layers.") and leaf == "weight":
        parent, _, child = owner.rpartition(".")
        setattr(network.get_submodule(parent), child, _quantised(layer, kind))


def quantise_layer(network: nn.Module, place: str, kind: Quantization) -> None:
    """Replace all matrices of the decoder layer whose names begin with `place`."""
    names = [name for name, _ in network.named_parameters() if name.startswith(place)]
    for name in names:
        quantise(network, name, kind)


def _quantised(layer: nn.Linear, kind: Quantization) -> nn.Module:
    import bitsandbytes as bnb

    weight, sizes = layer.weight.data, (layer.in_features, layer.out_features)
    told: dict[str, Any] = {"bias": False, "device": "meta"}
    if kind == "int8":
        made = bnb.nn.Linear8bitLt(
            *sizes, has_fp16_weights=False, threshold=_OUTLIERS, **told
        )
        # Int8Params are quantised on their way from the host to a device, and only then.
        made.weight = bnb.nn.Int8Params(
            weight.cpu(), requires_grad=False, has_fp16_weights=False
        )
    else:
        told |= {"compute_dtype": weight.dtype, "quant_type": "fp4"}
        made = bnb.nn.Linear4bit(*sizes, **told)
        made.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="fp4")
    quantised: nn.Module = made.to(weight.device).eval()
    return quantised.requires_grad_(False)
