"""Loads a language model of Emu2 with pretrained, dummy or tiny weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from generators.architectures import config_of
from generators.base import Weights
from generators.decoding.steering import isolate
from generators.emu2.network import Emu2, VisionSize, empty_network
from generators.emu2.placing import (
    connect,
    device_map,
    devices_of,
    quantise_layer,
    quantising,
    require_bitsandbytes,
)
from generators.emu2.published import Emu2Checkpoint, open_checkpoint
from generators.emu2.settings import Emu2Settings, Quantization
from generators.emu2.tokens import ADDED, ADDED_CHAT, USER, Emu2Tokens
from generators.errors import CheckpointError
from generators.loading.files import configured
from generators.loading.pieces import trained_pieces
from generators.loading.strict import fill, listed, randomised, revived
from generators.toys import WORDS

Part = Literal["chat", "gen"]
"""Emu2-Chat, or Emu2-Gen's multimodal encoder."""
SPECIAL: Mapping[Part, tuple[str, ...]] = {"chat": ADDED_CHAT, "gen": ADDED}
"""Special tokens of each beyond LLaMA's pieces."""

_SEED = 20_231_220
"""Seed of random weights: the day Emu2 was published."""


def load(settings: Emu2Settings, weights: Weights, part: Part) -> Emu2:
    """Return the model of `settings`; CheckpointError when a checkpoint does not fit."""
    if settings.quantization is not None:
        require_bitsandbytes(settings.quantization)
    devices = devices_of(settings.device)
    dtype = torch.float32 if weights == "tiny" else getattr(torch, settings.dtype)
    where = (devices, dtype, settings.quantization)
    if weights == "pretrained":
        checkpoint = open_checkpoint(settings.model, settings.revision)
        tokens = _vocabulary(checkpoint, part, settings.strip_text)
        return _published(checkpoint, tokens, *where)
    return random_model(part, weights, *where, settings.strip_text)


def _vocabulary(checkpoint: Emu2Checkpoint, part: Part, strip: bool) -> Emu2Tokens:
    """Return the checkpoint's tokens.

    CheckpointError where it lacks one of the part's special tokens, or is asked to
    condition and has the marks of a conversation: Emu2-Chat was tuned to write text only.
    """
    tokens = checkpoint.tokens(strip)
    if part == "gen" and USER in tokens.added:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary has {USER}, so it is Emu2-Chat; drafting "
            "takes Emu2-Chat, conditioning Emu2-Gen"
        )
    if lacking := [name for name in SPECIAL[part] if name not in tokens.added]:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary lacks {listed(lacking)}; drafting takes "
            "Emu2-Chat, conditioning Emu2-Gen"
        )
    return tokens


def _published(
    checkpoint: Emu2Checkpoint,
    tokens: Emu2Tokens,
    devices: Sequence[torch.device],
    dtype: torch.dtype,
    quantization: Quantization | None,
) -> Emu2:
    """Return a published checkpoint, streamed onto `devices` tensor by tensor."""
    from transformers import LlamaConfig

    source = checkpoint.source
    config = configured(LlamaConfig, checkpoint.language(), f"config.json of {source}")
    if tokens.rows > config.vocab_size:
        raise CheckpointError(
            f"{source}: the vocabulary numbers {tokens.rows} tokens, the embedding has "
            f"{config.vocab_size} rows"
        )
    network = empty_network(checkpoint.vision(), config)
    layout = checkpoint.layout(network.state_dict())
    stored = checkpoint.tensors()
    if quantization is not None:
        stored = quantising(stored, network, layout, quantization)
    home = device_map(network, devices)
    stray = checkpoint.stray(config.num_hidden_layers)
    where: dict[str, Any] = {"source": source, "device": home, "dtype": dtype}
    fill(network, stored, layout, **where, tolerated=stray)
    return _ready(network, tokens, config, devices, home)


def random_model(
    part: Part,
    weights: Weights,
    devices: Sequence[torch.device],
    dtype: torch.dtype,
    quantization: Quantization | None = None,
    strip: bool = True,
) -> Emu2:
    """Return a seeded random model that writes sentences."""
    tiny = weights == "tiny"
    sizes = config_of("emu2", tiny=tiny)
    tokens = toy_tokens(SPECIAL[part], sizes["vocabulary"], strip)
    config = llama_config(sizes, tokens.rows)
    network = empty_network(vision_size(sizes, part), config)
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
        _prepare(layer, _SHARPENED if tiny and part == "chat" else 1.0)
        if quantization is not None:
            quantise_layer(network, place, quantization)
    model = _ready(network, tokens, config, devices, home)
    _steer(network.lm, tokens)
    return model


def vision_size(sizes: Mapping[str, Any], part: Part) -> VisionSize:
    """Return the dimensions of a part's vision encoder."""
    return VisionSize(**sizes["vision"], queries=sizes["queries"][part])


def llama_config(sizes: Mapping[str, Any], rows: int) -> Any:
    """Return the `LlamaConfig` for a vocabulary of `rows` tokens."""
    from transformers import LlamaConfig

    return LlamaConfig(**sizes["language"], vocab_size=rows)


def _ready(
    network: Any,
    tokens: Emu2Tokens,
    config: Any,
    devices: Sequence[torch.device],
    home: Callable[[str], torch.device],
) -> Emu2:
    revived(network.lm, config, devices[0])
    if len(devices) > 1:
        connect(network.lm, home)
    return Emu2(network, tokens, config.max_position_embeddings)


END = "."
"""The token after which tiny models may end."""
_PIECES = 480
"""Bytes, characters, and enough merges to make each word one piece."""
_SHARPENED = 4.0
"""Factor on random attention. Above 1 answers depend more on their questions, and
regression becomes chaotic: a rounding error grows from vector to vector."""
_SHARPNESS = 4.0
"""Random logits are so flat that beam search would end at once."""
_FORBIDDEN, _END_LOGIT = -30.0, 30.0


def toy_pieces() -> Any:
    """Return a sentencepiece model with LLaMA's options in which each word is one piece."""
    from sentencepiece import SentencePieceProcessor

    lines = [" ".join([*WORDS[i:], *WORDS[:i], END]) for i in range(len(WORDS))]
    ids = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    model = trained_pieces(lines, _PIECES, character_coverage=1.0, **ids)
    return SentencePieceProcessor(model_proto=model)


def toy_tokens(
    added: Sequence[str], first: int | None = None, strip: bool = True
) -> Emu2Tokens:
    """Return a small vocabulary with the special tokens `added`, numbered from `first` on.

    LLaMA's own come after 32,000 pieces; by default they follow the last piece here.
    """
    pieces = toy_pieces()
    start = first or pieces.get_piece_size()
    return Emu2Tokens(pieces, {name: start + i for i, name in enumerate(added)}, strip)


@torch.no_grad()
def _prepare(layer: Any, attention: float) -> None:
    """Keep a layer from channels 0 and 1 of the residual stream; sharpen its attention."""
    layer.self_attn.q_proj.weight *= attention
    layer.self_attn.o_proj.weight *= attention
    isolate(layer, channels=2)


@torch.no_grad()
def _steer(lm: Any, tokens: Emu2Tokens) -> None:
    """Make a random LLaMA of isolated channels write words, and end only after a full stop.

    Channel 0 is constant: the head reads from it which tokens are not words. Channel 1 is
    set by the full stop alone: the head reads from it that the answer may end.
    """
    words: list[int] = [piece for [piece] in tokens.pieces.encode([*WORDS, END])]
    embeddings: Tensor = lm.model.embed_tokens.weight
    strength = embeddings.shape[1] ** 0.5 / 2
    embeddings[:, 0] = strength
    embeddings[:, 1] = 0.0
    embeddings[words[-1], 1] = strength
    ids = torch.tensor([[tokens["<s>"], *words]], device=lm.lm_head.weight.device)
    hidden: Tensor = lm.model(input_ids=ids, use_cache=False).last_hidden_state
    after_word, after_end = hidden[0, -2, :2], hidden[0, -1, :2]
    head: Tensor = lm.lm_head.weight
    word_rows = head[words] * _SHARPNESS
    word_rows[:, :2] = 0.0
    head.zero_()
    head[:, 0] = _FORBIDDEN / after_word[0]
    head[words] = word_rows
    head[tokens["</s>"], 1] = (_END_LOGIT - _FORBIDDEN) / after_end[1]
