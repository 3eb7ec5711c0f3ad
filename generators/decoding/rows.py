"""The KV cache of many token streams, as transformers' attention layers see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class KeyValueRows:
    """A cache for transformers' attention layers, which call `update`.

    Keys and values of a layer are (rows, heads, columns, head size), allocated when the
    first tokens arrive and enlarged when rows or columns run out.
    """

    def __init__(self, most_columns: int) -> None:
        self._most_columns = most_columns
        self._layers: list[list[Tensor]] = []
        self.rows = self._columns = 0
        self._new_rows: Tensor | None = None
        self.columns_in_use = 0
        self._at: tuple[Tensor, Tensor] | int | None = None
        """Rows and columns of the new states, or their first column if it is the same."""
        self._read: Tensor | slice = slice(0)

    def reserve(self, rows: int, columns: int) -> bool:
        """Make room for that many rows and columns; return whether memory was allocated.

        Columns grow by doubling.
        """
        if rows <= self.rows and columns <= self._columns:
            return False
        self.rows = max(rows, self.rows)
        if columns > self._columns:
            doubled = min(max(2 * self._columns, 64), self._most_columns)
            self._columns = max(columns, doubled)
        for layer in self._layers:
            layer[:] = [self._enlarged(old) for old in layer]
        return True

    def _enlarged(self, old: Tensor) -> Tensor:
        rows, heads, columns, size = old.shape
        # Zeros, not uninitialised memory: a masked NaN is still a NaN.
        new = old.new_zeros(self.rows, heads, self._columns, size)
        new[:rows, :, :columns] = old
        return new

    def begin_prefill(self, rows: Tensor) -> None:
        """Let the next forward pass fill new `rows` (rows,) from column 0 on."""
        self._new_rows = rows

    def begin(
        self,
        positions: Tensor,
        columns: int,
        rows: Tensor | None = None,
        same: int | None = None,
    ) -> None:
        """Let the next forward pass add tokens, which attend over the first `columns`.

        `positions` (rows, tokens) are their columns, in `rows` (rows,) or the first ones;
        `same` is the first of these where all rows have the same ones.
        """
        self._new_rows = None
        self.columns_in_use = columns
        # A slice reads rows without a copy.
        self._read = slice(len(positions)) if rows is None else rows
        if same is not None:
            self._at = same
            return
        if rows is None:
            rows = torch.arange(len(positions), device=positions.device)
        self._at = (rows[:, None], positions)

    def move(self, source: int, target: int, columns: int) -> None:
        """Copy the first `columns` of one row over another."""
        for layer in self._layers:
            for states in layer:
                states[target, :, :columns] = states[source, :, :columns]

    def mend(self) -> None:
        """Put zeros in the place of states that are no finite numbers."""
        for layer in self._layers:
            for states in layer:
                states.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)

    def spread(self, sources: Tensor, targets: Tensor, columns: int) -> None:
        """Copy the first `columns` of rows `sources` over those of rows `targets`."""
        for layer in self._layers:
            for states in layer:
                of, to = (rows.to(states.device) for rows in (sources, targets))
                states[to, :, :columns] = states[of, :, :columns]

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store states (rows, heads, tokens, head size); return those to attend over."""
        if layer_idx == len(self._layers):
            self._layers.append([self._empty(keys), self._empty(values)])
        layer = self._layers[layer_idx]
        if self._new_rows is not None:
            rows = self._new_rows.to(keys.device)
            for stored, new in zip(layer, (keys, values), strict=True):
                stored[rows, :, : new.shape[2]] = new
            return keys, values
        self._store(layer, (keys, values))
        read = self._read
        if isinstance(read, Tensor):
            read = read.to(keys.device)
        all_keys, all_values = (s[read, :, : self.columns_in_use] for s in layer)
        return all_keys, all_values

    def _store(self, layer: Sequence[Tensor], states: Sequence[Tensor]) -> None:
        """Write new keys and values of a layer to where the pass adds them."""
        at = self._at
        assert at is not None
        if isinstance(at, int):
            for stored, new in zip(layer, states, strict=True):
                rows, _, tokens, _ = new.shape
                stored[:rows, :, at : at + tokens] = new
            return
        # Layers may live on several devices; indices have to follow them.
        rows_at, columns_at = (index.to(states[0].device) for index in at)
        for stored, new in zip(layer, states, strict=True):
            stored[rows_at, :, columns_at] = new.transpose(1, 2)

    def _empty(self, states: Tensor) -> Tensor:
        _, heads, _, size = states.shape
        return states.new_zeros(self.rows, heads, self._columns, size)

    # For transformers' mask builder, in a prefill, where nothing precedes.
    is_compileable = False

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Return the number of tokens before the ones being computed."""
        return 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the same; positions are always given."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Return length and offset of the keys."""
        return query_length, 0
