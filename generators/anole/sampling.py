"""From logits to one token id per row: guidance, penalty, temperature, top-p, draw.

The order of the steps is that of upstream's logits processors (chameleon.py,
logits_processor.py of GAIR-NLP/anole).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import TopPLogitsWarper


@dataclass(frozen=True, slots=True)
class Sampler:
    """How one id is chosen among the permitted ones."""

    temperature: float
    top_p: float
    greedy: bool

    def choose(self, logits: Tensor, uniforms: Tensor) -> Tensor:
        """Column of each row: (rows, columns) logits and (rows,) draws in [0, 1)."""
        if self.greedy:
            return logits.argmax(dim=-1)
        kept = nucleus(logits / self.temperature, self.top_p)
        return drawn(kept.softmax(dim=-1), uniforms)


def guided(
    full: Tensor, image: Tensor, free: Tensor, *, text: float, picture: float
) -> Tensor:
    """Logits under guidance by the text and by earlier pictures (arXiv:2211.09800).

    `full` are the logits given the whole context, `image` given its pictures alone,
    `free` given neither; all of one shape.
    """
    return free + picture * (image - free) + text * (full - image)


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits with those of `seen` columns divided (if negative multiplied) by `penalty`."""
    lowered = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, lowered, logits)


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Logits of the most probable columns that together reach `top_p`, others -inf."""
    if top_p >= 1.0:
        return logits
    warped: Tensor = TopPLogitsWarper(top_p)(None, logits)
    return warped


def drawn(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Column at which each row's cumulative probability passes its draw in [0, 1).

    One number per token, so that a record's draws are the same on every device and in
    every batch.
    """
    steps = probabilities.double().cumsum(dim=-1)
    marks = uniforms.to(steps)[:, None] * steps[:, -1:]
    # `right=True` finds the first column beyond the mark, which has probability > 0.
    return torch.searchsorted(steps, marks, right=True)[:, 0]
