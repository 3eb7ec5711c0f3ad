"""Emu2's network and its tokens: vision encoder, language model, projections between them.

The vision encoder is an EVA-02-CLIP-E with post-norm residuals and no final norm, as in
emu/eva_vit.py of baaivision/Emu with the values of emu/conf/emu_conf.py.

Upstream tokenises with the slow tokenizer of transformers 4.31
(`plait.generators.loading.llama`), in which every special token but `<unk>` takes the white
space on both its sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import isqrt
from typing import Any

import timm
import torch
import torch.nn.functional as F
from PIL import Image as Pillow
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from plait.generators.base import Failure, Skip
from plait.generators.content import display_text
from plait.generators.decoding.drafting import NativePrompt, Piece, clip_pixels, too_long
from plait.generators.decoding.streams import Streams
from plait.generators.document import Image
from plait.generators.images import ImageError, decode
from plait.generators.loading.llama import (
    BOS,
    UNKNOWN,
    AddedToken,
    Control,
    LlamaPieces,
    LlamaTokenizer,
)

PAD = "[PAD]"
BEGIN_IMAGE = "[IMG]"
IMAGE = "<image>"
END_IMAGE = "[/IMG]"
USER = "[USER]"
ASSISTANT = "[ASSISTANT]"

ADDED = (
    *(PAD, BEGIN_IMAGE, END_IMAGE, IMAGE, "[gIMG]", "[/gIMG]", "[EOC]", "[VIDEO]"),
    *("<grounding>", "<phrase>", "</phrase>", "<object>", "</object>"),
    *("</delimiter_of_multi_objects/>", "<REC>"),
    *(f"<patch_index_{number:04d}>" for number in range(257)),
)
"""What upstream adds to LLaMA's 32,000 pieces, in order (emu/lm.py)."""
ADDED_CHAT = (*ADDED, USER, ASSISTANT)
"""The same for Emu2-Chat, with the marks of its turns."""

_NOT_IN_TEXT = {PAD, BEGIN_IMAGE, END_IMAGE, IMAGE, "[gIMG]", "[/gIMG]", "[VIDEO]"}
"""Marks of images and padding; in a text their names are just letters."""


class Emu2Tokens(LlamaTokenizer):
    """The vocabulary of one checkpoint."""

    def __init__(
        self, pieces: LlamaPieces, added: Mapping[str, int], strip: bool = True
    ) -> None:
        """Take ids of special tokens; `strip` drops white space beside most of them."""
        ids = {**pieces.named, **added}
        tokens: list[AddedToken] = []
        for name, number in ids.items():
            strips = strip and name != UNKNOWN
            tokens.append(AddedToken(name, number, strips, strips))
        super().__init__(pieces, tokens)
        longest_first = sorted({*ids} - _NOT_IN_TEXT, key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        """Splits a text at the names of tokens, which stay: every second part is one."""

    def __getitem__(self, name: str) -> int:
        """Return a special token's id; CheckpointError where there is none."""
        return self.id(Control(name))

    @property
    def rows(self) -> int:
        """How many embeddings the ids need."""
        highest = max(token.id for token in self.added.values())
        return max(self.pieces.size, highest + 1)

    def encode_prompt(
        self, parts: Iterable[str | Image], queries: int, begins_image: bool = False
    ) -> list[int]:
        """Return ids of a prompt after `<s>`; an image takes `queries` and two marks.

        Adjoining texts are one text. Names of special tokens in it mean these tokens;
        only the marks of images are read letter by letter. A prompt may end with the first
        mark of an image to come.
        """
        begin = Control(BEGIN_IMAGE)
        whole_image = [begin, *[Control(IMAGE)] * queries, Control(END_IMAGE)]
        placed: list[str | Control] = []
        text = ""
        for part in parts:
            if isinstance(part, str):
                text += part
            else:
                placed += [*self._cut(text), *whole_image]
                text = ""
        placed += self._cut(text)
        if begins_image:
            placed.append(begin)
        return [self[BOS], *self.encode(placed)]

    def _cut(self, text: str) -> list[str | Control]:
        """Return a text in runs, the names of special tokens in it as these tokens."""
        runs: list[str | Control] = []
        for place, run in enumerate(self._special.split(text)):
            if place % 2:
                runs.append(Control(run))
            elif run:
                runs.append(run)
        return runs

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens left out."""
        return self.pieces.decode(ids)


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


def _vision_encoder(size: VisionSize) -> Any:
    """Return timm's encoder of these sizes: its parameters have the authors' names."""
    encoder = timm.create_model(
        "eva02_enormous_patch14_clip_224",
        img_size=size.side,
        patch_size=size.patch,
        embed_dim=size.width,
        depth=size.layers,
        num_heads=size.heads,
        # It truncates the product of ratio and width.
        mlp_ratio=(size.mlp_width + 0.5) / size.width,
        norm_layer=partial(nn.LayerNorm, eps=size.norm_eps),
        num_classes=0,
    )
    encoder.norm = nn.Identity()
    return encoder


class Emu2Network(nn.Module):
    """The modules of a checkpoint, under the names of the native layout but for `lm`."""

    def __init__(self, vision: VisionSize, config: Any) -> None:
        super().__init__()
        self.vision = vision
        self.visual = _vision_encoder(vision)
        self.lm = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        self.project_up = nn.Linear(vision.width, config.hidden_size, bias=False)
        self.project_down = nn.Linear(config.hidden_size, vision.width, bias=False)

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Return vectors (batch, queries, width) of normalised (batch, 3, side, side).

        They are means over squares of the grid of patches (`encode_image`, emu/emu.py).
        """
        side = self.vision.grid
        # Without the class token: (batch, patches, width).
        states = self.visual.forward_features(pixels)[:, 1:]
        grid = states.transpose(1, 2).reshape(len(states), -1, side, side)
        pooled = F.avg_pool2d(grid, side // isqrt(self.vision.queries))
        # Squares of patches row by row: (batch, queries, width).
        return pooled.flatten(2).transpose(1, 2)


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
    vision: VisionSize
    context: int
    """Most positions of a sequence."""

    def read(
        self, parts: Sequence[Piece], room: int, context: int, begins_image: bool = False
    ) -> NativePrompt | Skip | Failure:
        """Return the prompt of `parts`: all its ids, then the pixels of its images.

        With `begins_image` it ends with the mark of an image to come. A Skip where it and
        `room` more positions do not fit, a Failure where an image cannot be read.
        """
        ids = self.tokens.encode_prompt(parts, self.vision.queries, begins_image)
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
        vectors: Tensor = self.network.encode_images(batch)
        return vectors

    @torch.inference_mode()
    def embeddings(self, prompts: Sequence[NativePrompt]) -> list[Tensor]:
        """Return embeddings (positions, hidden) of prompts; images are read together."""
        pixels = list(chain.from_iterable(prompt.pixels for prompt in prompts))
        vectors = self.image_vectors(pixels)
        of_prompts = torch.split(vectors, [prompt.images for prompt in prompts])
        embedded: list[Tensor] = []
        for prompt, own in zip(prompts, of_prompts, strict=True):
            embedded.append(self._embed(prompt.ids, own))
        return embedded

    def _embed(self, ids: Sequence[int], vectors: Tensor) -> Tensor:
        """Return embeddings (positions, hidden), with the vectors of images in place."""
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
        rows = streams.rows(streams.open(prompts))
        vectors: list[Tensor] = []
        while True:
            # Streams keep the order they were opened in: none leaves before the end.
            vectors.append(self.network.project_down(streams.step()))
            if len(vectors) == self.vision.queries:
                return torch.stack(vectors, dim=1)
            streams.feed(rows, self.network.project_up(vectors[-1]))
