"""Many token streams through one language model, each with its own row of the KV cache.

Streams may join and leave at any step and be of any length. Row r of the cache holds
the tokens of stream r from column 0 on; when a stream leaves, the last row moves into
its place, so that the rows in use are always the first ones and no step copies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from generators.decoding.prefixes import PrefixPart, levels, marks, passes
from generators.decoding.rows import KeyValueRows


class Stream:
    """One sequence: `length` of its positions are in the cache, at `row`."""

    __slots__ = ("length", "row")

    def __init__(self, row: int, length: int) -> None:
        self.row, self.length = row, length


class Streams:
    """The streams in flight over one decoder of transformers (LLaMA, OPT, Chameleon).

    Streams are driven by embeddings, so that ids, image features and regressed vectors
    are all the same to them.
    """

    def __init__(self, decoder: Any, context: int) -> None:
        self._decoder = decoder
        weight = decoder.get_input_embeddings().weight
        self._device, self._dtype = weight.device, weight.dtype
        self._cache = KeyValueRows(context)
        self._open: list[Stream] = []
        self._pending = torch.empty(0, weight.shape[1], device=self._device)
        self._pending = self._pending.to(self._dtype)

    def __len__(self) -> int:
        return len(self._open)

    @torch.inference_mode()
    def open(self, prompts: Sequence[Tensor]) -> list[Stream]:
        """New streams for prompts of embeddings (positions, width), in rows of that order.

        All positions but each prompt's last are computed, those that prompts share once;
        the next `step` computes the last ones, together with whatever other streams are
        fed.
        """
        if not prompts:
            return []
        first = len(self._open)
        befores = [prompt[:-1].to(self._pending) for prompt in prompts]
        new = [Stream(first + i, len(before)) for i, before in enumerate(befores)]
        self._open += new
        if any(len(before) for before in befores):
            self._prefill(first, befores)
        lasts = torch.stack([prompt[-1] for prompt in prompts]).to(self._pending)
        self._pending = torch.cat([self._pending[:first], lasts])
        return new

    def _prefill(self, first: int, prompts: list[Tensor]) -> None:
        self._cache.reserve(len(self._open), max(map(len, prompts)) + 1)
        for level in levels([marks(prompt) for prompt in prompts]):
            for parts in passes(level):
                texts = [prompts[part.members[0]][part.start : part.end] for part in parts]
                self._read(first, parts, pad_sequence(texts, batch_first=True))
            self._copy(first, [part for part in level if len(part.members) > 1])

    def _read(self, first: int, parts: Sequence[PrefixPart], padded: Tensor) -> None:
        # Padded on the right: no real position attends to padding, and later ones
        # overwrite what padding leaves in the cache before they could see it.
        rows = self._rows(first, (part.members[0] for part in parts))
        starts = torch.tensor([part.start for part in parts], device=self._device)
        positions = torch.arange(padded.shape[1], device=self._device) + starts[:, None]
        columns = max(part.start for part in parts) + padded.shape[1]
        if columns == padded.shape[1]:
            self._cache.begin_prefill(rows)
            self._forward(padded, positions, None)
            return
        self._cache.reserve(len(self._open), columns)
        self._cache.begin_after(rows, positions, columns)
        visible = torch.arange(columns, device=self._device) <= positions[..., None]
        self._forward(padded, positions, visible[:, None])

    def _copy(self, first: int, parts: Sequence[PrefixPart]) -> None:
        """What was read for the first member of each part, to its other members."""
        if parts:
            pairs = [(p.members[0], other) for p in parts for other in p.members[1:]]
            sources, targets = (
                self._rows(first, rows) for rows in zip(*pairs, strict=True)
            )
            self._cache.spread(sources, targets, max(part.end for part in parts))

    def _rows(self, first: int, members: Iterable[int]) -> Tensor:
        return torch.tensor([first + member for member in members], device=self._device)

    @torch.inference_mode()
    def feed(self, streams: Sequence[Stream], embeddings: Tensor) -> None:
        """What the next `step` computes for each stream: (streams, width)."""
        rows = torch.tensor([s.row for s in streams], device=self._device)
        self._pending[rows] = embeddings.to(self._pending)

    @torch.inference_mode()
    def step(self) -> Tensor:
        """Hidden states (streams, width) after the last norm, by row of the streams."""
        columns = max(stream.length for stream in self._open) + 1
        self._cache.reserve(len(self._open), columns)
        lengths = torch.tensor([s.length for s in self._open], device=self._device)
        positions = lengths[:, None]
        self._cache.begin_step(positions, columns)
        visible = torch.arange(columns, device=self._device) <= positions
        hidden = self._forward(self._pending[:, None], positions, visible[:, None, None])
        for stream in self._open:
            stream.length += 1
        return hidden[:, -1]

    @torch.inference_mode()
    def close(self, stream: Stream) -> None:
        """Let a stream leave; the last row takes its place."""
        last = self._open.pop()
        if last is not stream:
            self._cache.move(last.row, stream.row)
            self._pending[stream.row] = self._pending[last.row]
            self._open[stream.row] = last
            last.row = stream.row
        self._pending = self._pending[: len(self._open)]

    def _forward(
        self, embeddings: Tensor, positions: Tensor, mask: Tensor | None
    ) -> Tensor:
        outputs = self._decoder(
            inputs_embeds=embeddings,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
        )
        hidden: Tensor = outputs.last_hidden_state
        return hidden
