"""The network over the GPUs of one node: decoder layers shared, all else on the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate import dispatch_model

from generators.loading.devices import device_of

_LAYER = re.compile(r"lm\.model\.layers\.(\d+)\.")


def devices_of(name: str) -> list[torch.device]:
    """The devices a setting means: for `auto`, every visible GPU."""
    if name == "auto" and torch.cuda.device_count() > 1:
        return [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    return [device_of(name)]


def shares(layers: int, layer_size: int, rest: int, devices: int) -> list[int]:
    """For each layer the number of its device, so that all hold about the same.

    The first device also holds `rest`; layers stay in order.
    """
    share = (layers * layer_size + rest) / devices
    placed, held, device = [], float(rest), 0
    for _ in range(layers):
        if held + layer_size / 2 > share and device < devices - 1:
            device, held = device + 1, 0.0
        placed.append(device)
        held += layer_size
    return placed


def homes(network: Any, devices: Sequence[torch.device]) -> Callable[[str], torch.device]:
    """The device of each parameter of the network, by name."""
    sizes = {name: value.numel() for name, value in network.named_parameters()}
    inside = sum(size for name, size in sizes.items() if _LAYER.match(name))
    layers = network.lm.config.num_hidden_layers
    total = sum(sizes.values())
    placed = shares(layers, inside // layers, total - inside, len(devices))

    def home(name: str) -> torch.device:
        layer = _LAYER.match(name)
        return devices[placed[int(layer[1])] if layer else 0]

    return home


def connect(lm: Any, home: Callable[[str], torch.device]) -> None:
    """Let states follow the layers of a language model from device to device."""
    places = {f"model.layers.{i}": home(f"lm.model.layers.{i}.") for i in _layers(lm)}
    first = home("lm.lm_head.weight")
    rest = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head")
    dispatch_model(lm, {**dict.fromkeys(rest, first), **places}, force_hooks=True)


def _layers(lm: Any) -> range:
    return range(lm.config.num_hidden_layers)
