"""From logits to one token id per row: penalty, temperature, top-k, top-p, draw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import TopKLogitsWarper, TopPLogitsWarper

NONE = -1
"""In place of a column or a token where there is none to choose."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """How one id is chosen among the permitted ones."""

    temperature: float
    top_p: float
    greedy: bool
    top_k: int = 0
    """How many of the most probable ids are considered; 0 for all."""

    def sample(self, logits: Tensor, generators: Iterable[torch.Generator]) -> Tensor:
        """Column of each row of (rows, columns) logits, by the row's own generator.

        A generator gives one number for each sampled id, and none where it is greedy.
        """
        return self.choose(logits, uniforms([] if self.greedy else generators))

    def choose(self, logits: Tensor, uniforms: Tensor) -> Tensor:
        """Column of each row: (rows, columns) logits and (rows,) draws in [0, 1).

        It is NONE where the logits are no numbers (`read_tokens`).
        """
        if self.greedy:
            return most_probable(logits)
        limited = nucleus(shortlist(logits / self.temperature, self.top_k), self.top_p)
        return drawn(limited.softmax(dim=-1), uniforms)


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits with those of `seen` columns divided (if negative multiplied) by `penalty`."""
    lowered = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, lowered, logits)


def shortlist(logits: Tensor, top_k: int) -> Tensor:
    """Logits of the `top_k` most probable columns, others -inf; all where it is 0."""
    if top_k == 0:
        return logits
    warped: Tensor = TopKLogitsWarper(top_k)(None, logits)
    return warped


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Logits of the most probable columns that together reach `top_p`, others -inf."""
    if top_p >= 1.0:
        return logits
    warped: Tensor = TopPLogitsWarper(top_p)(None, logits)
    return warped


def most_probable(logits: Tensor) -> Tensor:
    """Column of the largest logit of each row; NONE where they are no numbers."""
    largest, columns = logits.max(dim=-1)
    return columns.where(largest > -torch.inf, NONE)


def drawn(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Column at which each row's cumulative probability passes its draw in [0, 1).

    One number per token, so that a record's draws are the same on every device and in
    every batch. NONE where the probabilities are no numbers.
    """
    steps = probabilities.double().cumsum(dim=-1)
    marks = uniforms.to(steps)[:, None] * steps[:, -1:]
    # `right=True` finds the first column beyond the mark, which has probability > 0.
    columns = torch.searchsorted(steps, marks, right=True)[:, 0]
    return columns.clamp(max=steps.shape[-1] - 1).where(steps[:, -1] > 0, NONE)


def read_tokens(tokens: Tensor) -> list[int]:
    """The chosen tokens; FloatingPointError where one is NONE.

    The program waits for them here, so that is the time to find out.
    """
    read: list[int] = tokens.tolist()
    if NONE in read:
        raise FloatingPointError(
            "the model's scores of its next token are no numbers (NaN), as happens where "
            "float16 overflows; set dtype to bfloat16 or float32"
        )
    return read


def uniforms(generators: Iterable[torch.Generator]) -> Tensor:
    """One number in [0, 1) of each generator, in float64."""
    draws = [torch.rand(1, generator=g, dtype=torch.float64) for g in generators]
    return torch.cat(draws) if draws else torch.empty(0, dtype=torch.float64)
