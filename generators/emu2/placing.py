"""Where Emu2's parameters lie, and in how many bits.

Decoder layers are spread over the GPUs of one node; everything else is on the first.
Quantisation is of matrices of decoder layers alone, each as soon as it is filled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from accelerate import dispatch_model
from torch import Tensor, nn

from plait.generators.emu2.settings import Quantization
from plait.generators.extras import import_extra
from plait.generators.loading.strict import Layout, device_of

_LAYER = re.compile(r"lm\.model\.layers\.(\d+)\.")


def devices_of(name: str) -> list[torch.device]:
    """Return the devices a setting means: for `auto`, every visible GPU."""
    if name == "auto" and torch.cuda.device_count() > 1:
        numbers = range(torch.cuda.device_count())
        return [torch.device("cuda", number) for number in numbers]
    return [device_of(name)]


def layer_devices(layers: int, layer_size: int, rest: int, devices: int) -> list[int]:
    """Return the index of each layer's device, so that all hold about the same.

    The first device also holds `rest`; layers stay in order.
    """
    share = (layers * layer_size + rest) / devices
    indices = []
    load = float(rest)
    device = 0
    for _ in range(layers):
        # A layer goes where more than half of it still has room.
        if load + layer_size / 2 > share and device < devices - 1:
            device = device + 1
            load = 0.0
        indices.append(device)
        load += layer_size
    return indices


def device_map(
    network: Any, devices: Sequence[torch.device]
) -> Callable[[str], torch.device]:
    """Return the device of each parameter of the network, by name."""
    layers = network.lm.config.num_hidden_layers
    inside = 0
    outside = 0
    for name, value in network.named_parameters():
        if _LAYER.match(name):
            inside += value.numel()
        else:
            outside += value.numel()
    of_layers = layer_devices(layers, inside // layers, outside, len(devices))

    def home(name: str) -> torch.device:
        layer = _LAYER.match(name)
        return devices[of_layers[int(layer[1])] if layer else 0]

    return home


def connect(lm: Any, home: Callable[[str], torch.device]) -> None:
    """Make states follow the layers of a language model from device to device."""
    first = home("lm.lm_head.weight")
    places = {
        "model.embed_tokens": first,
        "model.norm": first,
        "model.rotary_emb": first,
        "lm_head": first,
    }
    for number in range(lm.config.num_hidden_layers):
        places[f"model.layers.{number}"] = home(f"lm.model.layers.{number}.")
    dispatch_model(lm, places, force_hooks=True)


_OUTLIERS = 6.0
"""Larger activations are multiplied in full precision (arXiv:2208.07339)."""


def quantising(
    stored: Iterable[tuple[str, Tensor]],
    network: nn.Module,
    layout: Layout,
    kind: Quantization,
) -> Iterator[tuple[str, Tensor]]:
    """Return `stored`, with each matrix of a decoder layer quantised once it is in place.

    So a device never holds more than one such matrix in full. For `strict.fill` on
    `network`, which takes the next tensor when the last one is in place.
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
        setattr(network.get_submodule(parent), child, _quantise(layer, kind))


def import_bitsandbytes() -> Any:
    """Return the library that quantises; UsageError where it is not installed."""
    return import_extra("bitsandbytes", "the setting quantization")


def _quantise(layer: nn.Linear, kind: Quantization) -> nn.Module:
    bnb = import_bitsandbytes()
    weight = layer.weight.data
    sizes = (layer.in_features, layer.out_features)
    options: dict[str, Any] = {"bias": False, "device": "meta"}
    if kind == "int8":
        quantised = bnb.nn.Linear8bitLt(
            *sizes, has_fp16_weights=False, threshold=_OUTLIERS, **options
        )
        # Int8Params are quantised on their way from the host to a device, and only then.
        quantised.weight = bnb.nn.Int8Params(
            weight.cpu(), requires_grad=False, has_fp16_weights=False
        )
    else:
        options |= {"compute_dtype": weight.dtype, "quant_type": "fp4"}
        quantised = bnb.nn.Linear4bit(*sizes, **options)
        quantised.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="fp4")
    module: nn.Module = quantised.to(weight.device).eval()
    return module.requires_grad_(False)
