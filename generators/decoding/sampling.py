"""From logits to one token id per row: penalty, temperature, top-k, top-p, draw.

Rows of logits that are no numbers are found by one check, `are_numbers`, however a token
is chosen: by this module's samplers (`sound_tokens`) or by transformers (`NumberCheck`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from transformers import LogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

NONE = -1
"""In place of a token where there is none to choose."""
NoNumbers = Literal["no numbers"]
NO_NUMBERS: NoNumbers = "no numbers"
"""Why an answer ends where the logits of its next token are no numbers."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """How one id is chosen among the permitted ones."""

    temperature: float
    top_p: float
    greedy: bool
    top_k: int = 0
    """How many of the most probable ids are considered; 0 for all."""

    def sample(self, logits: Tensor, generators: Iterable[torch.Generator]) -> Tensor:
        """Return the column of each row of (rows, columns) logits.

        A row's own generator gives one number for its id, and none where it is greedy.
        """
        return self.choose(logits, lambda: uniforms(generators))

    def choose(self, logits: Tensor, draw: Callable[[], Tensor]) -> Tensor:
        """As `sample`; `draw` gives a number in [0, 1) for each row, if they are needed."""
        if self.greedy:
            return logits.argmax(dim=-1)
        limited = nucleus(shortlist(logits / self.temperature, self.top_k), self.top_p)
        return draw_tokens(limited.softmax(dim=-1), draw())


_AHEAD = 64
"""How many numbers of each record are drawn at first."""


class Numbers:
    """The random numbers of many records, each from a seed of its own, in [0, 1).

    A record's series is that of its generator, number by number. It is drawn ahead and
    moved to the device in blocks, each twice as long as the one before: a step neither
    calls a generator nor waits for a copy.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._ahead: Tensor | None = None
        """(records, numbers), in float64."""
        self._next: Tensor | None = None
        """Which number of each record comes next: (records,)."""
        self._calls = 0

    def draw(self, records: Tensor, used: Tensor | None = None) -> Tensor:
        """Return the next number of each of some records (records,), on their device.

        The numbers of records that have not `used` theirs come once more.
        """
        ahead = self._reserve(records.device)
        if self._next is None:
            self._next = torch.zeros_like(ahead[:, 0], dtype=torch.long)
        at = self._next[records]
        self._next[records] = at + (1 if used is None else used.long())
        return ahead[records, at]

    def _reserve(self, device: torch.device) -> Tensor:
        """Return numbers for one more call, in which no record uses more than one."""
        drawn = 0 if self._ahead is None else self._ahead.shape[1]
        self._calls += 1
        if self._ahead is None or self._calls > drawn:
            block = self._draw_block(max(drawn, _AHEAD)).to(device)
            before = [] if self._ahead is None else [self._ahead]
            self._ahead = torch.cat([*before, block], dim=1)
        return self._ahead

    def _draw_block(self, numbers: int) -> Tensor:
        """Return the next `numbers` of every record's series: (records, numbers)."""
        series: list[Tensor] = []
        for generator in self._generators:
            series.append(torch.rand(numbers, generator=generator, dtype=torch.float64))
        return torch.stack(series)


def penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Return logits with `seen` ones divided (if negative multiplied) by `penalty`."""
    lowered = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, lowered, logits)


def seen_ids(
    rows: Sequence[Sequence[int]], vocabulary: int, device: torch.device
) -> Tensor:
    """Return which ids each row has: (rows, vocabulary)."""
    seen = torch.zeros(len(rows), vocabulary, dtype=torch.bool)
    for row, ids in zip(seen, rows, strict=True):
        row[torch.as_tensor(ids, dtype=torch.long, device="cpu")] = True
    return seen.to(device)


def mark_seen(seen: Tensor, rows: Tensor, tokens: Tensor, where: Tensor) -> None:
    """Note a token (rows,) of each of these rows, of those `where` (rows,) it is True."""
    columns = tokens.clamp(min=0)
    seen[rows, columns] = seen[rows, columns] | where


def shortlist(logits: Tensor, top_k: int) -> Tensor:
    """Return logits of the `top_k` most probable columns, others -inf; all if it is 0."""
    if top_k == 0:
        return logits
    warped: Tensor = TopKLogitsWarper(top_k)(None, logits)
    return warped


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Return logits of the most probable columns that reach `top_p`, others -inf."""
    if top_p >= 1.0:
        return logits
    warped: Tensor = TopPLogitsWarper(top_p)(None, logits)
    return warped


def draw_tokens(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Return the column at which a row's cumulative probability passes its draw.

    One number per token, so that a record's draws are the same on every device and in
    every batch.
    """
    steps = probabilities.double().cumsum(dim=-1)
    targets = uniforms.to(steps)[:, None] * steps[:, -1:]
    # `right=True` finds the first column beyond it, which has probability > 0.
    columns = torch.searchsorted(steps, targets, right=True)[:, 0]
    return columns.clamp(max=steps.shape[-1] - 1)


def are_numbers(logits: Tensor) -> Tensor:
    """Return whether each row has a largest logit, neither NaN nor infinite."""
    return logits.amax(dim=-1).isfinite()


def sound_tokens(tokens: Tensor, logits: Tensor) -> Tensor:
    """Return the tokens chosen by (rows, columns) logits; NONE where no numbers."""
    return tokens.where(are_numbers(logits), NONE)


class NumberCheck(LogitsProcessor):  # type: ignore[misc]
    """Notes where `generate` chooses by numbers, and changes nothing."""

    def __init__(self) -> None:
        self._steps: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the same scores (rows, vocabulary)."""
        self._steps.append(are_numbers(scores))
        return scores

    @property
    def rows(self) -> list[list[bool]]:
        """Of every row, whether it was so at each step."""
        rows: list[list[bool]] = torch.stack(self._steps, dim=1).tolist()
        return rows


def uniforms(generators: Iterable[torch.Generator]) -> Tensor:
    """Return one number in [0, 1) of each generator, in float64."""
    draws = [torch.empty(0, dtype=torch.float64)]
    for generator in generators:
        draws.append(torch.rand(1, generator=generator, dtype=torch.float64))
    return torch.cat(draws)
