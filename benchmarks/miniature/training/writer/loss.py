"""The loss of the mini writer: its answers' tokens, and what stands in each place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb_vision

from benchmarks.miniature.training.writer.data import WriterChunk
from scorers.truth.scene import COLOURS, PLACES, SHAPES, SIZES, Scene

PATCHES = 64
"""Patches of a picture of 112 x 112 pixels; four of them make one token."""
_QUARTERS = torch.tensor([[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]])
"""The tokens of each of `PLACES`, in the 4 x 4 tokens of a picture."""
_CLASSES = (len(COLOURS) + 1, len(SHAPES) + 1, len(SIZES) + 1)
_PLACE_WEIGHT = 0.3


class PlaceReader(nn.Module):
    """Names colour, shape and size in each place from the tokens of a picture.

    It is trained along and thrown away: language alone teaches the vision tower slowly.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(4 * width, sum(_CLASSES))

    def forward(self, tokens: Tensor) -> Tensor:
        """(pictures, 16, width) to (pictures, 4, classes)."""
        scores: Tensor = self.out(tokens[:, _QUARTERS].flatten(2))
        return scores

    def loss(self, tokens: Tensor, scenes: tuple[Scene, ...]) -> Tensor:
        """Mean cross entropy of the three attributes, 0 standing for an empty place."""
        scores = self(tokens).float().split(_CLASSES, dim=-1)
        truth = torch.tensor([[_attributes(s, place) for place in PLACES] for s in scenes])
        parts = zip(scores, truth.unbind(-1), strict=True)
        losses = [functional.cross_entropy(s.flatten(0, 1), t.flatten()) for s, t in parts]
        return torch.stack(losses).mean()


def writer_loss(
    model: Qwen2VLForConditionalGeneration,
    places: PlaceReader,
    chunks: list[WriterChunk],
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """The loss of one batch; matrices are multiplied in `dtype`.

    A row weighs as the root of its answer's length, so that short answers count.
    """
    total, weights, seen = torch.zeros(()), torch.zeros(()), torch.zeros(())
    for chunk in chunks:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            logits, tokens = forward(model, chunk)
            seen = seen + places.loss(tokens, chunk.scenes) / len(chunks)
        targets = chunk.answers[:, 1:]
        losses = functional.cross_entropy(
            logits.float(), chunk.ids[:, 1:][targets], reduction="none"
        )
        share = targets / targets.sum(1, keepdim=True).sqrt()
        total = total + (losses * share[targets]).sum()
        weights = weights + share.sum()
    return total / weights + _PLACE_WEIGHT * seen


def forward(
    model: Qwen2VLForConditionalGeneration, chunk: WriterChunk
) -> tuple[Tensor, Tensor]:
    """Logits of the answers' tokens, and the pictures' tokens (rows, 16, width)."""
    pictures = chunk.ids == model.config.image_token_id
    positions, _ = model.model.get_rope_index(chunk.ids, pictures.int(), chunk.grid)
    with equal_pictures(model):
        features = model.get_image_features(chunk.pixels, chunk.grid, return_dict=True)
    # Padding is on the right, where causal attention does not look.
    hidden = model.model(
        input_ids=chunk.ids,
        position_ids=positions,
        mm_encoder_outputs={"image": features},
        use_cache=False,
    ).last_hidden_state
    logits: Tensor = model.lm_head(hidden[:, :-1][chunk.answers[:, 1:]])
    return logits, torch.stack(list(features.pooler_output))


@contextmanager
def equal_pictures(model: Qwen2VLForConditionalGeneration) -> Iterator[None]:
    """Vision attention over all pictures at once, where all have `PATCHES` patches.

    The library attends picture by picture, since sizes may differ.
    """
    layers = [block.attn for block in model.model.visual.blocks]
    for layer in layers:
        layer.forward = partial(_attend, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _attend(
    layer: Any, hidden: Tensor, *, position_embeddings: tuple[Tensor, Tensor], **_: Any
) -> Tensor:
    rows, heads = hidden.shape[0], layer.num_heads
    q, k, v = layer.qkv(hidden).reshape(rows, 3, heads, -1).unbind(1)
    q, k = apply_rotary_pos_emb_vision(q, k, *position_embeddings)
    # In single precision: the half precision kernel is several times slower on a CPU.
    q, k, v = (
        t.float().reshape(-1, PATCHES, heads, t.shape[-1]).transpose(1, 2)
        for t in (q, k, v)
    )
    with torch.autocast("cpu", enabled=False):
        mixed = functional.scaled_dot_product_attention(q, k, v)
    projected: Tensor = layer.proj(mixed.transpose(1, 2).reshape(rows, -1))
    return projected


def _attributes(scene: Scene, place: str) -> tuple[int, int, int]:
    item = scene.at(place)
    if item is None:
        return 0, 0, 0
    return (
        [*COLOURS].index(item.colour) + 1,
        SHAPES.index(item.shape) + 1,
        [*SIZES].index(item.size) + 1,
    )
