"""BAGEL's network: shared attention over two sets of weights, an image encoder, latents.

A mixture of transformers (arXiv:2505.14683, section 2.1): latents of images go through
weights of their own in every layer, texts and what the encoder sees through the others, and
all attend to each other. Modules have the names of the published file, as defined by
modeling/bagel of ByteDance-Seed/Bagel@056b5fd.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.qwen2.modeling_qwen2 import (
    Qwen2MLP,
    Qwen2RMSNorm,
    Qwen2RotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.siglip.modeling_siglip import SiglipEncoder

LATENTS = "_moe_gen"
"""Ends the names of modules that only latents go through."""
DRAWING = ("latent_pos_embed.", "time_embedder.", "vae2llm.", "llm2vae.")
"""Beginnings of the names of what else only images are drawn with."""
_FREQUENCIES = 256
"""Inputs of the timestep's embedding (TimestepEmbedder of modeling_utils.py)."""
_LONGEST_PERIOD = 10_000


@dataclass(frozen=True, slots=True)
class Routing:
    """Which positions of a batch, flattened, are texts and which are latents.

    Those that are neither are padding, and nothing is computed for them.
    """

    texts: Tensor
    latents: Tensor

    @classmethod
    def of(cls, latents: Tensor, real: Tensor) -> Routing:
        """Return the routing by masks (rows, positions) of latents and of no padding."""
        texts = (real & ~latents).flatten().nonzero()[:, 0]
        return cls(texts, (real & latents).flatten().nonzero()[:, 0])

    def __call__(
        self,
        states: Tensor,
        of_texts: Callable[[Tensor], Tensor],
        of_latents: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Return (rows, positions, ...) with each position through its own weights."""
        flat = states.flatten(0, 1)
        texts = of_texts(flat[self.texts])
        # Zeros, not uninitialised memory: a masked NaN is still a NaN.
        result = texts.new_zeros(len(flat), *texts.shape[1:])
        result[self.texts] = texts
        result[self.latents] = of_latents(flat[self.latents])
        return result.view(*states.shape[:2], *result.shape[1:])


class _TwoSets(nn.Module):
    """A module whose parts named `NAME` may have a twin `NAME_moe_gen` for latents."""

    def add(self, name: str, make: Callable[[], nn.Module], draws: bool) -> None:
        """Make the part of that name and, where images are drawn, its twin."""
        self.add_module(name, make())
        if draws:
            self.add_module(name + LATENTS, make())

    def through(self, name: str, states: Tensor, routing: Routing | None) -> Tensor:
        """Return `states` after the part of that name; without a routing all are texts."""
        part = getattr(self, name)
        if routing is None:
            result: Tensor = part(states)
            return result
        return routing(states, part, getattr(self, name + LATENTS))


class Attention(_TwoSets):
    """Grouped-query attention with norms of queries and keys, over all positions."""

    def __init__(self, config: Any, layer: int, draws: bool) -> None:
        super().__init__()
        self.layer = layer
        self.size = config.hidden_size // config.num_attention_heads
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        width = config.hidden_size
        inner = config.num_attention_heads * self.size
        outer = config.num_key_value_heads * self.size
        norm = partial(Qwen2RMSNorm, self.size, config.rms_norm_eps)
        self.add("q_proj", partial(nn.Linear, width, inner), draws)
        self.add("k_proj", partial(nn.Linear, width, outer), draws)
        self.add("v_proj", partial(nn.Linear, width, outer), draws)
        self.add("o_proj", partial(nn.Linear, inner, width, bias=False), draws)
        self.add("q_norm", norm, draws)
        self.add("k_norm", norm, draws)

    def forward(
        self,
        states: Tensor,
        rotary: tuple[Tensor, Tensor],
        mask: Tensor | None,
        cache: Any,
        routing: Routing | None,
        causal: bool,
    ) -> Tensor:
        """Return what the positions (rows, positions, width) attend to."""
        # (rows, positions, heads, channels), then (rows, heads, positions, channels).
        by_head = (*states.shape[:2], -1, self.size)
        queries = self.through("q_proj", states, routing).view(by_head)
        keys = self.through("k_proj", states, routing).view(by_head)
        values = self.through("v_proj", states, routing).view(by_head).transpose(1, 2)
        queries = self.through("q_norm", queries, routing).transpose(1, 2)
        keys = self.through("k_norm", keys, routing).transpose(1, 2)
        queries, keys = apply_rotary_pos_emb(queries, keys, *rotary)
        if cache is not None:
            keys, values = cache.update(keys, values, self.layer)
        read, _ = sdpa_attention_forward(
            self, queries, keys, values, mask, scaling=self.size**-0.5, is_causal=causal
        )
        return self.through("o_proj", read.flatten(2), routing)


class Layer(_TwoSets):
    """Attention and MLP, each after a norm."""

    def __init__(self, config: Any, layer: int, draws: bool) -> None:
        super().__init__()
        norm = partial(Qwen2RMSNorm, config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer, draws)
        self.add("mlp", partial(Qwen2MLP, config), draws)
        self.add("input_layernorm", norm, draws)
        self.add("post_attention_layernorm", norm, draws)

    def forward(
        self,
        states: Tensor,
        rotary: tuple[Tensor, Tensor],
        mask: Tensor | None,
        cache: Any,
        routing: Routing | None,
        causal: bool,
    ) -> Tensor:
        """Return the states (rows, positions, width) after the layer."""
        before = self.through("input_layernorm", states, routing)
        states = states + self.self_attn(before, rotary, mask, cache, routing, causal)
        before = self.through("post_attention_layernorm", states, routing)
        return states + self.through("mlp", before, routing)


class Decoder(_TwoSets):
    """Qwen2.5's decoder with two sets of weights, called as transformers' decoders are."""

    def __init__(self, config: Any, draws: bool) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        numbers = range(config.num_hidden_layers)
        self.layers = nn.ModuleList([Layer(config, number, draws) for number in numbers])
        norm = partial(Qwen2RMSNorm, config.hidden_size, config.rms_norm_eps)
        self.add("norm", norm, draws)
        self.rotary_emb = Qwen2RotaryEmbedding(config)

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table of embeddings."""
        return self.embed_tokens

    def forward(
        self,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        routing: Routing | None = None,
        causal: bool = True,
        input_ids: Tensor | None = None,
        use_cache: bool = True,
    ) -> Any:
        """Return states after the last norm, (rows, positions, width).

        Without a mask every position attends to those before it, or, where it is not
        `causal`, to all. Positions that share an id are those of one image.
        """
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        states: Tensor = inputs_embeds
        if position_ids is None:
            position_ids = torch.arange(states.shape[1], device=states.device)[None]
        rotary = self.rotary_emb(states, position_ids)
        # A lone position attends to all that are in the cache: there is none after it.
        hides_later = causal and attention_mask is None and states.shape[1] > 1
        for layer in self.layers:
            states = layer(
                states, rotary, attention_mask, past_key_values, routing, hides_later
            )
        states = self.through("norm", states, routing)
        return BaseModelOutputWithPast(last_hidden_state=states)


class _Language(nn.Module):
    def __init__(self, config: Any, draws: bool, writes: bool) -> None:
        super().__init__()
        self.model = Decoder(config, draws)
        if writes:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)


class _PatchEmbeddings(nn.Module):
    """Patches are rows of values, so that the kernel is a matrix."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        values = config.num_channels * config.patch_size**2
        self.patch_embedding = nn.Linear(values, config.hidden_size)
        places = (config.image_size // config.patch_size) ** 2
        self.position_embedding = nn.Embedding(places, config.hidden_size)


class _VisionTower(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embeddings = _PatchEmbeddings(config)
        self.encoder = SiglipEncoder(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(
        self, patches: Sequence[Tensor], places: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return vectors (patches, width) of each image; images may differ in size."""
        lengths = [len(image) for image in patches]
        padded = pad_sequence([*patches], batch_first=True)
        padded_places = pad_sequence([*places], batch_first=True)
        states = self.embeddings.patch_embedding(padded)
        states += self.embeddings.position_embedding(padded_places)
        # (images, 1, 1, patches): no patch attends to padding.
        mask = None
        if min(lengths) < max(lengths):
            columns = torch.arange(max(lengths), device=states.device)
            ends = torch.tensor(lengths, device=states.device)
            mask = (columns < ends[:, None])[:, None, None]
        seen = self.encoder(states, attention_mask=mask).last_hidden_state
        seen = self.post_layernorm(seen)
        return [image[:length] for image, length in zip(seen, lengths, strict=True)]


class _Vision(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.vision_model = _VisionTower(config)


class _Connector(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, outputs)
        self.fc2 = nn.Linear(outputs, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """Return vectors of the language model's width."""
        inner = nn.functional.gelu(self.fc1(states), approximate="tanh")
        result: Tensor = self.fc2(inner)
        return result


class _Places(nn.Module):
    """A fixed table of vectors for the places of patches in an image."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.empty(places, width), requires_grad=False)

    def forward(self, places: Tensor) -> Tensor:
        """Return the vectors (places, width)."""
        return self.pos_embed[places]


class _Timestep(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        inner = nn.Linear(_FREQUENCIES, width)
        self.mlp = nn.Sequential(inner, nn.SiLU(), nn.Linear(width, width))

    def forward(self, time: float) -> Tensor:
        """Return the vector (width,) of a time from 0, the image, to 1, noise."""
        weight: Tensor = self.mlp[2].weight  # type: ignore[assignment]
        half = _FREQUENCIES // 2
        steps = torch.arange(half, dtype=torch.float32, device=weight.device) / half
        angles = time * torch.exp(-math.log(_LONGEST_PERIOD) * steps)
        waves = torch.cat([angles.cos(), angles.sin()])
        result: Tensor = self.mlp(waves.to(weight.dtype))
        return result


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """What a network is made of."""

    language: Any
    """A `Qwen2Config`."""
    vision: Any
    """A `SiglipVisionConfig` of as many layers as there are."""
    side: int
    """Latent patches along the longest side of an image."""
    values: int
    """Values of a latent patch."""


class BagelNetwork(nn.Module):
    """All of it, or without what only drawing (`draws`) or writing (`writes`) needs."""

    def __init__(self, size: NetworkSize, draws: bool, writes: bool) -> None:
        super().__init__()
        width = size.language.hidden_size
        self.language_model = _Language(size.language, draws, writes)
        self.vit_model = _Vision(size.vision)
        self.connector = _Connector(size.vision.hidden_size, width)
        places = (size.vision.image_size // size.vision.patch_size) ** 2
        self.vit_pos_embed = _Places(places, width)
        if draws:
            self.time_embedder = _Timestep(width)
            self.vae2llm = nn.Linear(size.values, width)
            self.llm2vae = nn.Linear(width, size.values)
            self.latent_pos_embed = _Places(size.side**2, width)

    def see(self, patches: Sequence[Tensor], places: Sequence[Tensor]) -> list[Tensor]:
        """Return embeddings (patches, width) of images that the encoder sees."""
        tower = self.vit_model.vision_model
        dtype = self.connector.fc1.weight.dtype
        vectors = tower([image.to(dtype) for image in patches], places)
        embeddings: list[Tensor] = []
        for image, own_places in zip(vectors, places, strict=True):
            embeddings.append(self.connector(image) + self.vit_pos_embed(own_places))
        return embeddings

    def place_latents(self, latents: Tensor, places: Tensor, time: float) -> Tensor:
        """Return embeddings (..., patches, width) of latents at a `time`."""
        given = self.vae2llm(latents.to(self.vae2llm.weight.dtype))
        result: Tensor = given + self.time_embedder(time) + self.latent_pos_embed(places)
        return result


def is_wanted(name: str, draws: bool, writes: bool) -> bool:
    """Return whether a stored tensor is of a network with these parts."""
    if not draws and (f"{LATENTS}." in name or name.startswith(DRAWING)):
        return False
    return writes or not name.startswith("language_model.lm_head.")
