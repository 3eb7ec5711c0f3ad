"""Many token streams through one language model, each with its own row of the KV cache.

Streams may join and leave at any step and be of any length. Row r of the cache holds
the tokens of stream r from column 0 on; when a stream leaves, the last row moves into
its place, so that the rows in use are always the first ones and no step copies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class Stream:
    """One sequence: `length` of its positions are in the cache, at `row`."""

    __slots__ = ("length", "row")

    def __init__(self, row: int, length: int) -> None:
        self.row, self.length = row, length


class KeyValueRows:
    """The cache as transformers' attention layers see it: `update` by layer.

    Keys and values of a layer are (rows, heads, columns, head size), allocated when the
    first tokens arrive and enlarged when rows or columns run out.
    """

    def __init__(self, most_columns: int) -> None:
        self._most_columns = most_columns
        self._layers: list[list[Tensor]] = []
        self._rows = self._columns = 0
        self._first_row: int | None = None
        self._columns_in_use = 0
        self._at: tuple[Tensor, Tensor] | None = None

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for that many rows and columns; columns grow by doubling."""
        if rows <= self._rows and columns <= self._columns:
            return
        self._rows = max(rows, self._rows)
        if columns > self._columns:
            doubled = min(max(2 * self._columns, 64), self._most_columns)
            self._columns = max(columns, doubled)
        for layer in self._layers:
            layer[:] = [self._enlarged(old) for old in layer]

    def _enlarged(self, old: Tensor) -> Tensor:
        rows, heads, columns, size = old.shape
        # Zeros, not whatever memory held: a masked NaN is still a NaN.
        new = old.new_zeros(self._rows, heads, self._columns, size)
        new[:rows, :, :columns] = old
        return new

    def begin_prefill(self, first_row: int) -> None:
        """The next forward pass fills new rows from column 0 on."""
        self._first_row = first_row

    def begin_step(self, positions: Tensor, columns: int) -> None:
        """The next forward pass adds one token to every row, at `positions` (rows,)."""
        self._first_row = None
        self._at = (torch.arange(len(positions), device=positions.device), positions)
        self._columns_in_use = columns

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        for layer in self._layers:
            for states in layer:
                states[target] = states[source]

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new states (rows, heads, tokens, head size); the states to attend over."""
        if layer_idx == len(self._layers):
            self._layers.append([self._empty(keys), self._empty(values)])
        layer = self._layers[layer_idx]
        if self._first_row is not None:
            rows = slice(self._first_row, self._first_row + keys.shape[0])
            for stored, new in zip(layer, (keys, values), strict=True):
                stored[rows, :, : new.shape[2]] = new
            return keys, values
        assert self._at is not None
        # Layers may live on several devices; indices have to follow them.
        rows_at, positions = (index.to(keys.device) for index in self._at)
        for stored, new in zip(layer, (keys, values), strict=True):
            stored[rows_at, :, positions] = new[:, :, 0]
        all_keys, all_values = (s[: len(rows_at), :, : self._columns_in_use] for s in layer)
        return all_keys, all_values

    def _empty(self, states: Tensor) -> Tensor:
        _, heads, _, size = states.shape
        return states.new_zeros(self._rows, heads, self._columns, size)

    # Asked for by transformers' mask builder in a prefill, where nothing precedes.
    is_compileable = False

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Tokens before the ones being computed."""
        return 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """As `get_query_offset`; positions are always given."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Length and offset of the keys."""
        return query_length, 0


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
        """New streams for prompts of embeddings (positions, width).

        All positions but each prompt's last are computed, in one pass; the next `step`
        computes the last ones, together with whatever other streams are fed.
        """
        if not prompts:
            return []
        first = len(self._open)
        lengths = [len(prompt) - 1 for prompt in prompts]
        new = [Stream(first + i, length) for i, length in enumerate(lengths)]
        self._open += new
        longest = max(lengths)
        self._cache.reserve(len(self._open), longest + 1)
        if longest:
            self._prefill(first, [prompt[:-1] for prompt in prompts])
        lasts = torch.stack([prompt[-1] for prompt in prompts]).to(self._pending)
        self._pending = torch.cat([self._pending[:first], lasts])
        return new

    def _prefill(self, first: int, prompts: list[Tensor]) -> None:
        # Padded on the right: no real position attends to padding, and later ones
        # overwrite what padding leaves in the cache before they could see it.
        padded = pad_sequence(prompts, batch_first=True).to(self._device, self._dtype)
        positions = torch.arange(padded.shape[1], device=self._device)
        self._cache.begin_prefill(first)
        self._forward(padded, positions.expand(len(prompts), -1), None)

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
        positions = torch.tensor([s.length for s in self._open], device=self._device)
        self._cache.begin_step(positions, columns)
        visible = torch.arange(columns, device=self._device) <= positions[:, None]
        hidden = self._forward(
            self._pending[:, None], positions[:, None], visible[:, None, None]
        )
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
