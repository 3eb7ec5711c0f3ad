"""Loads a language model of Emu2 with pretrained, dummy or tiny weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from plait.generators.architectures import config_of
from plait.generators.base import Weights
from plait.generators.decoding.steering import held_level, isolate
from plait.generators.emu2.checkpoints import Emu2Checkpoint, open_checkpoint
from plait.generators.emu2.network import (
    ADDED,
    ADDED_CHAT,
    USER,
    Emu2,
    Emu2Tokens,
    VisionSize,
    empty_network,
)
from plait.generators.emu2.placing import (
    connect,
    device_map,
    devices_of,
    import_bitsandbytes,
    quantise,
    quantising,
)
from plait.generators.emu2.settings import Emu2Settings, Quantization
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import config_of_class
from plait.generators.loading.llama import LlamaPieces, train_pieces
from plait.generators.loading.strict import fill, first_keys, randomise, rebuild_rotary
from plait.generators.toys import WORDS

Part = Literal["chat", "gen"]
"""Emu2-Chat, or Emu2-Gen's multimodal encoder."""
SPECIAL: Mapping[Part, tuple[str, ...]] = {"chat": ADDED_CHAT, "gen": ADDED}
"""Special tokens of each beyond LLaMA's pieces."""

_SEED = 20_231_220
"""Seed of random weights: the day Emu2 was published."""


def load(settings: Emu2Settings, weights: Weights, part: Part) -> Emu2:
    """Return the model of `settings`; CheckpointError when a checkpoint does not fit.

    A published one is streamed onto the devices tensor by tensor; random ones are seeded
    and write sentences.
    """
    if settings.quantization is not None:
        # Before gigabytes are read.
        import_bitsandbytes()
    if weights == "pretrained":
        return _load_published(settings, part)
    return _load_random(settings, weights, part)


def _load_published(settings: Emu2Settings, part: Part) -> Emu2:
    checkpoint = open_checkpoint(settings.model, settings.revision)
    tokens = _vocabulary(checkpoint, part, settings.strip_text)
    vision = checkpoint.vision()
    config = checkpoint.language(tokens.rows)
    network: Any = empty_network(vision, config)
    devices = devices_of(settings.device)
    home = device_map(network, devices)
    layout = checkpoint.layout(network.state_dict())
    tensors = checkpoint.tensors()
    if settings.quantization is not None:
        tensors = quantising(tensors, network, layout, settings.quantization)
    fill(
        network,
        tensors,
        layout,
        source=checkpoint.source,
        device=home,
        dtype=getattr(torch, settings.dtype),
        tolerated=checkpoint.stray(config.num_hidden_layers),
    )
    _complete(network, config, devices, home)
    return Emu2(network, tokens, vision, config.max_position_embeddings)


def _load_random(settings: Emu2Settings, weights: Weights, part: Part) -> Emu2:
    tiny = weights == "tiny"
    sizes = config_of("emu2", tiny=tiny)
    tokens = toy_tokens(SPECIAL[part], sizes["vocabulary"], settings.strip_text)
    vision = vision_size(sizes, part)
    config = llama_config(sizes, tokens.rows)
    network: Any = empty_network(vision, config)
    devices = devices_of(settings.device)
    home = device_map(network, devices)
    _randomise(
        network,
        home,
        dtype=torch.float32 if tiny else getattr(torch, settings.dtype),
        kind=settings.quantization,
        sharpness=_SHARPENED if tiny and part == "chat" else 1.0,
    )
    _complete(network, config, devices, home)
    _steer(network.lm, tokens)
    return Emu2(network, tokens, vision, config.max_position_embeddings)


def _complete(
    network: Any,
    config: Any,
    devices: Sequence[torch.device],
    home: Callable[[str], torch.device],
) -> None:
    """Make what no file holds, and join the layers of several devices."""
    rebuild_rotary(network.lm, config, devices[0])
    for block in network.visual.blocks:
        # timm's own zeros, which no file holds, are on the meta device.
        block.attn.k_bias = torch.zeros_like(block.attn.q_bias)
    if len(devices) > 1:
        connect(network.lm, home)


def _vocabulary(checkpoint: Emu2Checkpoint, part: Part, strip: bool) -> Emu2Tokens:
    """Return the checkpoint's tokens.

    CheckpointError where it lacks one of the part's special tokens, or is asked to
    condition and has the marks of a conversation: Emu2-Chat was tuned to write text only.
    """
    tokens = checkpoint.tokens(strip)
    lacking = [name for name in SPECIAL[part] if name not in tokens.added]
    wrong = f"lacks {first_keys(lacking)}" if lacking else ""
    if part == "gen" and USER in tokens.added:
        wrong = f"has {USER}, so it is Emu2-Chat"
    if wrong:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary {wrong}; drafting takes Emu2-Chat, "
            "conditioning Emu2-Gen"
        )
    return tokens


@torch.no_grad()
def _randomise(
    network: Any,
    home: Callable[[str], torch.device],
    dtype: torch.dtype,
    kind: Quantization | None,
    sharpness: float,
) -> None:
    """Fill an empty network layer by layer, so that none waits for its quantisation."""
    layers = network.lm.model.layers
    network.lm.model.layers = nn.ModuleList()
    randomise(network, device=home, dtype=dtype, seed=_SEED)
    # `randomise` takes a name with `embed` for an embedding, which has one input.
    patches = network.visual.patch_embed.proj.weight
    patches *= patches[0].numel() ** -0.5
    network.lm.model.layers = layers
    for number, layer in enumerate(layers):
        place = f"lm.model.layers.{number}."
        randomise(layer, device=home(place), dtype=dtype, seed=_SEED + number)
        # Above 1, attention is sharpened.
        layer.self_attn.q_proj.weight *= sharpness
        layer.self_attn.o_proj.weight *= sharpness
        isolate(layer, channels=2)
        if kind is not None:
            # A list, since quantising replaces what the names are read from.
            for name, _ in list(layer.named_parameters(prefix=place.removesuffix("."))):
                quantise(network, name, kind)


def vision_size(sizes: Mapping[str, Any], part: Part) -> VisionSize:
    """Return the dimensions of a part's vision encoder."""
    return VisionSize(**sizes["vision"], queries=sizes["queries"][part])


def llama_config(sizes: Mapping[str, Any], rows: int) -> Any:
    """Return the `LlamaConfig` for a vocabulary of `rows` tokens."""
    fields = sizes["language"] | {"vocab_size": rows}
    return config_of_class("LlamaConfig", fields, "emu2.json")


END = "."
"""The token after which tiny models may end."""
_PIECES = 480
"""Bytes, characters, and enough merges to make each word one piece."""
_SHARPENED = 4.0
"""Factor on random attention. Above 1 answers depend more on their questions, and
regression becomes chaotic: a rounding error grows from vector to vector."""
_SHARPNESS = 4.0
"""Random logits are so flat that beam search would end at once."""
_FORBIDDEN = -30.0
_END_LOGIT = 30.0


def toy_tokens(
    added: Sequence[str], first: int | None = None, strip: bool = True
) -> Emu2Tokens:
    """Return a vocabulary in which each word is one piece, with the special tokens `added`.

    Pieces have LLaMA's options. Special tokens are numbered from `first` on: LLaMA's own
    come after 32,000 pieces; by default they follow the last piece here.
    """
    lines: list[str] = []
    for first_word in range(len(WORDS)):
        # The words in each of their rotations.
        words = [*WORDS[first_word:], *WORDS[:first_word], END]
        lines.append(" ".join(words))
    ids = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    model = train_pieces(lines, _PIECES, character_coverage=1.0, **ids)
    pieces = LlamaPieces.parse(model, "the toy vocabulary")
    numbered = enumerate(added, first or pieces.size)
    return Emu2Tokens(pieces, {name: number for number, name in numbered}, strip)


@torch.no_grad()
def _steer(lm: Any, tokens: Emu2Tokens) -> None:
    """Make a random LLaMA of isolated channels write words, and end only after a full stop.

    Channel 0 is constant: the head reads from it which tokens are not words. Channel 1 is
    set by the full stop alone: the head reads from it that the answer may end.
    """
    # Each word is one piece (`toy_tokens`); the full stop is the last of them.
    words = [tokens.pieces.encode(word)[0] for word in (*WORDS, END)]
    embeddings: Tensor = lm.model.embed_tokens.weight
    strength = held_level(embeddings.shape[1])
    embeddings[:, 0] = strength
    embeddings[:, 1] = 0.0
    embeddings[words[-1], 1] = strength
    ids = torch.tensor([[tokens["<s>"], *words]], device=lm.lm_head.weight.device)
    hidden: Tensor = lm.model(input_ids=ids, use_cache=False).last_hidden_state
    # Both channels, (2,), after the last word and after the full stop.
    after_word = hidden[0, -2, :2]
    after_end = hidden[0, -1, :2]
    head: Tensor = lm.lm_head.weight
    word_rows = head[words] * _SHARPNESS
    word_rows[:, :2] = 0.0
    head.zero_()
    head[:, 0] = _FORBIDDEN / after_word[0]
    head[words] = word_rows
    head[tokens["</s>"], 1] = (_END_LOGIT - _FORBIDDEN) / after_end[1]
