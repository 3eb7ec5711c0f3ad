"""Emu2's network: vision encoder, language model, and the projections between them.

The vision encoder is an EVA-02-CLIP-E with post-norm residuals and no final norm, as in
emu/eva_vit.py of baaivision/Emu with the values of emu/conf/emu_conf.py. timm has the same
shape (`eva02_enormous_patch14_clip_224`) under other parameter names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isqrt
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image as Pillow
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from generators.base import Failure, Skip
from generators.content import display_text
from generators.decoding.drafting import NativePrompt, Piece, clip_pixels, too_long
from generators.decoding.streams import Streams
from generators.document import Image
from generators.emu2.tokens import IMAGE, Emu2Tokens
from generators.images import ImageError, decode


@dataclass(frozen=True, kw_only=True)
class VisionSize:
    """Dimensions of the vision encoder and of its pooled output."""

    width: int
    layers: int
    heads: int
    mlp_width: int
    patch: int
    grid: int
    """Patches along a side of an image."""
    norm_eps: float = 1e-6
    queries: int
    """Vectors that stand for one image; a square number."""

    @property
    def side(self) -> int:
        """Pixels along a side of an image."""
        return self.patch * self.grid


def encoder_input(image: Image, side: int) -> Tensor:
    """Return the encoder's input: (3, side, side), float32, normalised.

    Both sides are scaled to `side` by bicubic interpolation, without a crop
    (`transform`, emu/chat.py). ImageError where the image cannot be read.
    """
    return clip_pixels(decode(image).resize((side, side), Pillow.Resampling.BICUBIC))


class Attention(nn.Module):
    """Self-attention with biases on queries and values only."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(width))
        self.v_bias = nn.Parameter(torch.zeros(width))
        self.proj = nn.Linear(width, width)

    def forward(self, states: Tensor) -> Tensor:
        """(batch, positions, width) -> the same."""
        bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias), self.v_bias))
        mixed = F.linear(states, self.qkv.weight, bias)
        split = mixed.view(*states.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(split[0], split[1], split[2])
        output: Tensor = self.proj(attended.transpose(1, 2).flatten(2))
        return output


class Block(nn.Module):
    """One layer; the output of each part is normed before it is added."""

    def __init__(self, size: VisionSize) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(size.width, eps=size.norm_eps)
        self.attn = Attention(size.width, size.heads)
        self.norm2 = nn.LayerNorm(size.width, eps=size.norm_eps)
        layers = {
            "fc1": nn.Linear(size.width, size.mlp_width),
            "act": nn.GELU(),
            "fc2": nn.Linear(size.mlp_width, size.width),
        }
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, states: Tensor) -> Tensor:
        """(batch, positions, width) -> the same."""
        states = states + self.norm1(self.attn(states))
        output: Tensor = states + self.norm2(self.mlp(states))
        return output


class VisionEncoder(nn.Module):
    """Images to a grid of vectors, averaged down to `queries` of them."""

    def __init__(self, size: VisionSize) -> None:
        super().__init__()
        self.size = size
        patches = nn.Conv2d(3, size.width, size.patch, stride=size.patch)
        self.patch_embed = nn.Sequential(OrderedDict(proj=patches))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, size.width))
        self.pos_embed = nn.Parameter(torch.zeros(1, size.grid**2 + 1, size.width))
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))

    def forward(self, pixels: Tensor) -> Tensor:
        """(batch, 3, side, side), normalised -> (batch, queries, width)."""
        # Row by row.
        patches = self.patch_embed(pixels).flatten(2).transpose(1, 2)
        states = torch.cat((self.cls_token.expand(len(pixels), -1, -1), patches), dim=1)
        states = states + self.pos_embed
        for block in self.blocks:
            states = block(states)
        return self._pooled(states[:, 1:])

    def _pooled(self, states: Tensor) -> Tensor:
        """Return means over squares of the grid (`encode_image`, emu/emu.py)."""
        side = self.size.grid
        grid = states.transpose(1, 2).reshape(len(states), -1, side, side)
        pooled = F.avg_pool2d(grid, side // isqrt(self.size.queries))
        return pooled.flatten(2).transpose(1, 2)


class Emu2Network(nn.Module):
    """The modules of a checkpoint, under the names of the native layout but for `lm`."""

    def __init__(self, vision: VisionSize, config: Any) -> None:
        super().__init__()
        self.visual = VisionEncoder(vision)
        self.lm = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        self.project_up = nn.Linear(vision.width, config.hidden_size, bias=False)
        self.project_down = nn.Linear(config.hidden_size, vision.width, bias=False)


def empty_network(vision: VisionSize, config: Any) -> Emu2Network:
    """Return the network on the meta device, without values."""
    with torch.device("meta"):
        network = Emu2Network(vision, config)
    return network.eval().requires_grad_(False)


@dataclass(frozen=True)
class Emu2:
    """A loaded model with its vocabulary."""

    network: Any
    """An `Emu2Network` with values."""
    tokens: Emu2Tokens
    context: int
    """Most positions of a sequence."""

    @property
    def vision(self) -> VisionSize:
        """Dimensions of the vision encoder."""
        size: VisionSize = self.network.visual.size
        return size

    def read(
        self, parts: Sequence[Piece], room: int, context: int, begins_image: bool = False
    ) -> NativePrompt | Skip | Failure:
        """Return the prompt of `parts`: all its ids, then the pixels of its images.

        With `begins_image` it ends with the mark of an image to come. A Skip where it and
        `room` more positions do not fit, a Failure where an image cannot be read.
        """
        ids = self.tokens.encoded(parts, self.vision.queries, begins_image)
        images = [part for part in parts if isinstance(part, Image)]
        each = self.vision.queries + 2
        if skip := too_long(len(ids), len(images), each, context, room):
            return skip
        try:
            pixels = [encoder_input(image, self.vision.side) for image in images]
        except ImageError as error:
            return Failure(str(error))
        return NativePrompt((ids, *pixels), display_text(parts), len(ids), len(images), 0)

    @torch.inference_mode()
    def image_vectors(self, pixels: Sequence[Tensor]) -> Tensor:
        """Return vectors (images, queries, width) of prepared images (3, side, side)."""
        weight = self.network.project_up.weight
        if not pixels:
            none: Tensor = weight.new_zeros(0, self.vision.queries, self.vision.width)
            return none
        batch = torch.stack(list(pixels)).to(weight.device, weight.dtype)
        vectors: Tensor = self.network.visual(batch)
        return vectors

    @torch.inference_mode()
    def embeddings(self, prompts: Sequence[NativePrompt]) -> list[Tensor]:
        """Return embeddings (positions, hidden) of prompts; images are read together."""
        vectors = self.image_vectors([p for prompt in prompts for p in prompt.pixels])
        ends = list(accumulate((prompt.images for prompt in prompts), initial=0))
        shares = (vectors[a:b] for a, b in pairwise(ends))
        return [self._embedded(p.ids, v) for p, v in zip(prompts, shares, strict=True)]

    def _embedded(self, ids: Sequence[int], vectors: Tensor) -> Tensor:
        embed = self.network.lm.get_input_embeddings()
        input_ids = torch.tensor(list(ids), device=embed.weight.device)
        states: Tensor = embed(input_ids)
        raised: Tensor = self.network.project_up(vectors.flatten(0, 1))
        states[input_ids == self.tokens[IMAGE]] = raised.to(states)
        return states

    @torch.inference_mode()
    def regress(self, prompts: Sequence[Tensor]) -> Tensor:
        """Return vectors (prompts, queries, width) that follow each prompt.

        Prompts are embeddings (positions, hidden) that end with the mark of an image's
        beginning. A vector is the last state, projected down; projected up again it is
        what the model reads next.
        """
        streams = Streams(self.network.lm.model, self.context)
        opened = streams.open(prompts)
        vectors: list[Tensor] = []
        while True:
            # Streams keep the order they were opened in: none leaves before the end.
            vectors.append(self.network.project_down(streams.step()))
            if len(vectors) == self.vision.queries:
                return torch.stack(vectors, dim=1)
            streams.feed(opened, self.network.project_up(vectors[-1]))
