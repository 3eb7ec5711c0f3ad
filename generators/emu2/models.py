"""Loads a language model of Emu2 with pretrained, dummy or tiny weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from generators.base import Weights
from generators.emu2.native import FILES, NativeEmu2, native_file
from generators.emu2.network import Emu2, empty_network
from generators.emu2.placing import (
    connect,
    device_map,
    devices_of,
    quantise_layer,
    quantising,
    require_bitsandbytes,
)
from generators.emu2.published import ComponentFiles, Emu2Checkpoint, HuggingFaceEmu2
from generators.emu2.settings import Emu2Settings, Quantization
from generators.emu2.sizes import FULL_CHAT, Emu2Size, isolate_channels, steer, toy_tokens
from generators.emu2.tokens import USER, Emu2Tokens
from generators.errors import CheckpointError
from generators.loading.files import Files, configured, read_json
from generators.loading.strict import fill, randomised, revived

_SEED = 20_231_220
"""Seed of random weights: the day Emu2 was published."""
_LLAMA_PIECES = 32_000


def open_checkpoint(model: str, revision: str | None = None) -> Emu2Checkpoint:
    """The checkpoint in a folder or on the Hub; CheckpointError if it is not Emu2."""
    files = Files(model, revision)
    path = files.find("config.json")
    config = {} if path is None else read_json(path)
    if "vision_config" in config and native_file(files) is None:
        return HuggingFaceEmu2(files, files, config)
    encoder = ComponentFiles(model, revision, "multimodal_encoder", "bf16")
    if (path := encoder.find("config.json")) is not None:
        tokenizer = ComponentFiles(model, revision, "tokenizer")
        return HuggingFaceEmu2(encoder, tokenizer, read_json(path))
    if (path := native_file(files)) is not None:
        return NativeEmu2(files, path)
    raise CheckpointError(
        f"{files.describe()} holds no Emu2: neither a config.json with a vision_config "
        "(the layout of BAAI/Emu2-Chat), nor multimodal_encoder/config.json "
        f"(BAAI/Emu2-Gen), nor one of {', '.join(FILES)}"
    )


def load(
    settings: Emu2Settings,
    weights: Weights,
    tiny: Emu2Size,
    full: Emu2Size,
    added: Sequence[str],
    strip: bool,
) -> Emu2:
    """The model of `settings`.

    `tiny` and `full` are the sizes of random weights; `added` are the special tokens they
    have, which a published vocabulary must have too. Raises CheckpointError when a
    checkpoint does not fit.
    """
    if settings.quantization is not None:
        require_bitsandbytes(settings.quantization)
    devices = devices_of(settings.device)
    dtype = torch.float32 if weights == "tiny" else getattr(torch, settings.dtype)
    if weights == "pretrained":
        checkpoint = open_checkpoint(settings.model, settings.revision)
        tokens = _vocabulary(checkpoint, added, strip)
        where = (devices, dtype, settings.quantization)
        return published_model(checkpoint, tokens, *where)
    size = tiny if weights == "tiny" else full
    first = _LLAMA_PIECES if size.language == FULL_CHAT.language else None
    tokens = toy_tokens(added, first, strip)
    return random_model(size, tokens, devices, dtype, settings.quantization)


def _vocabulary(
    checkpoint: Emu2Checkpoint, added: Sequence[str], strip: bool
) -> Emu2Tokens:
    """The checkpoint's tokens.

    CheckpointError where it lacks one of `added`, or has the marks of a conversation that
    `added` lacks: then it is Emu2-Chat, which was tuned to write text only.
    """
    tokens = checkpoint.tokens(strip)
    if USER in tokens.added and USER not in added:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary has {USER}, so it is Emu2-Chat; drafting "
            "takes Emu2-Chat, conditioning Emu2-Gen"
        )
    lacking = [name for name in added if name not in tokens.added]
    if lacking:
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary lacks {', '.join(lacking[:5])}{more}; "
            "drafting takes Emu2-Chat, conditioning Emu2-Gen"
        )
    return tokens


def published_model(
    checkpoint: Emu2Checkpoint,
    tokens: Emu2Tokens,
    devices: Sequence[torch.device],
    dtype: torch.dtype,
    quantization: Quantization | None,
) -> Emu2:
    """A published checkpoint, streamed onto `devices` tensor by tensor."""
    from transformers import LlamaConfig

    source = f"config.json of {checkpoint.source}"
    config = configured(LlamaConfig, checkpoint.language(), source)
    if tokens.rows > config.vocab_size:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary numbers {tokens.rows} tokens, the "
            f"embedding has {config.vocab_size} rows"
        )
    network = empty_network(checkpoint.vision(), config)
    layout = checkpoint.layout(network.state_dict())
    stored = checkpoint.tensors()
    if quantization is not None:
        stored = quantising(stored, network, layout, quantization)
    home = device_map(network, devices)
    fill(
        network,
        stored,
        layout,
        source=checkpoint.source,
        device=home,
        dtype=dtype,
        tolerated=checkpoint.stray(config.num_hidden_layers),
    )
    return _ready(network, tokens, config, devices, home)


def random_model(
    size: Emu2Size,
    tokens: Emu2Tokens,
    devices: Sequence[torch.device],
    dtype: torch.dtype,
    quantization: Quantization | None = None,
) -> Emu2:
    """A seeded random model of `size` that writes sentences."""
    config = size.config(tokens.rows)
    network = empty_network(size.vision, config)
    home = device_map(network, devices)
    layers = network.lm.model.layers
    network.lm.model.layers = nn.ModuleList()
    randomised(network, device=home, dtype=dtype, seed=_SEED)
    with torch.no_grad():
        # `randomised` takes a name with `embed` for an embedding, which has one input.
        patches = network.visual.patch_embed.proj.weight
        patches *= patches[0].numel() ** -0.5
    network.lm.model.layers = layers
    for i, layer in enumerate(layers):
        place = f"lm.model.layers.{i}."
        randomised(layer, device=home(place), dtype=dtype, seed=_SEED + i)
        isolate_channels(layer, size.attention)
        if quantization is not None:
            quantise_layer(network, place, quantization)
    model = _ready(network, tokens, config, devices, home)
    steer(network.lm, tokens)
    return model


def _ready(
    network: Any,
    tokens: Emu2Tokens,
    config: Any,
    devices: Sequence[torch.device],
    home: Any,
) -> Emu2:
    revived(network.lm, config, devices[0])
    if len(devices) > 1:
        connect(network.lm, home)
    return Emu2(network, tokens, config.max_position_embeddings)
