"""Many token streams through one language model, each with its own row of the KV cache.

Streams may join and leave at any step and be of any length. Row r of the cache holds
the tokens of stream r from column 0 on; where streams have left, the last rows move into
their places, so that the rows in use are always the first ones and no step copies them.

A column is the number of tokens before a token. Its position ids, which the decoder's
position embeddings read, are the same for text; under M-RoPE (Qwen2-VL, arXiv:2409.12191,
section 2.1) they are three, of time, height and width, which differ inside an image: an
image of many tokens takes up as many numbers as its longer side has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from plait.generators.cuda_graphs import are_wanted, suits
from plait.generators.decoding.graphs import (
    StepGraphs,
    StepInputs,
    round_rows,
    round_up,
)
from plait.generators.decoding.prefixes import PrefixPart, levels, marks, passes


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
            layer[:] = [self._enlarge(old) for old in layer]
        return True

    def _enlarge(self, old: Tensor) -> Tensor:
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

    def mend(self) -> None:
        """Put zeros in the place of states that are no finite numbers."""
        for layer in self._layers:
            for states in layer:
                states.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)

    def spread(self, sources: Tensor, targets: Tensor, columns: int) -> None:
        """Copy the first `columns` of rows `sources` over those of rows `targets`."""
        for layer in self._layers:
            for states in layer:
                # Layers may live on several devices; indices have to follow them.
                read = sources.to(states.device)
                written = targets.to(states.device)
                states[written, :, :columns] = states[read, :, :columns]

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
        all_keys, all_values = layer
        columns = slice(self.columns_in_use)
        return all_keys[read, :, columns], all_values[read, :, columns]

    def _store(self, layer: Sequence[Tensor], states: Sequence[Tensor]) -> None:
        at = self._at
        assert at is not None
        if isinstance(at, int):
            for stored, new in zip(layer, states, strict=True):
                rows, _, tokens, _ = new.shape
                stored[:rows, :, at : at + tokens] = new
            return
        device = states[0].device
        rows_at = at[0].to(device)
        columns_at = at[1].to(device)
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


@dataclass(eq=False, slots=True)
class Stream:
    """One sequence, which is at `row` of the cache."""

    row: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Where some streams are, for the host and on the device, until one joins or leaves."""

    here: npt.NDArray[np.int64]
    there: Tensor | slice
    """A slice, which takes no copy, of rows that follow one another."""


class Streams:
    """The streams in flight over one decoder of transformers (LLaMA, OPT, Qwen2-VL, ...).

    Streams are driven by embeddings, so that ids, image features and regressed vectors
    are all alike to them. A stream that is not fed computes its last token again, to the
    same states in the same place.
    """

    def __init__(self, decoder: Any, context: int, axes: int = 1) -> None:
        """`context` is the most tokens of a stream; `axes` is 3 under M-RoPE."""
        # Rounded up as columns are: the last ones of a context, too, need whole masks.
        self._context = context = _up(context)
        self._decoder = decoder
        self._axes = axes
        weight = decoder.get_input_embeddings().weight
        self.device: torch.device = weight.device
        self._dtype = weight.dtype
        self._cache = KeyValueRows(context)
        captured = are_wanted() and suits(decoder, self.device)
        self._graphs = StepGraphs() if captured else None
        self._rows: list[Stream] = []
        """By row; also streams that have left, until others take their rows."""
        self._left: set[Stream] = set()
        self._pending = torch.empty(0, weight.shape[1], device=self.device)
        self._pending = self._pending.to(self._dtype)
        """What the next step computes: (rows, width)."""
        self._lengths = torch.empty(0, dtype=torch.long, device=self.device)
        """Tokens before it, which are in the cache: (rows,)."""
        self._ids = torch.empty(0, axes, dtype=torch.long, device=self.device)
        """Its position ids: (rows, axes)."""
        self._most = np.zeros(0, dtype=np.int64)
        """The lengths as far as the host knows: the device may have fed fewer rows."""
        self._knows_lengths = True

    def __len__(self) -> int:
        return len(self._rows) - len(self._left)

    def rows(self, streams: Sequence[Stream]) -> Rows:
        """Return the rows of streams, in this order."""
        here = np.array([stream.row for stream in streams], dtype=np.int64)
        first = int(here[0]) if len(here) else 0
        if np.array_equal(here, np.arange(first, first + len(here))):
            return Rows(here, slice(first, first + len(here)))
        return Rows(here, torch.tensor(here, device=self.device))

    @torch.inference_mode()
    def open(
        self, prompts: Sequence[Tensor], position_ids: Sequence[Tensor] | None = None
    ) -> list[Stream]:
        """Open streams for prompts (positions, width), in rows of that order.

        `position_ids` (positions, axes) of each prompt count from 0 by default. All
        positions but each prompt's last are computed, those that prompts share once; the
        next `step` computes the last ones, together with whatever other streams are fed.
        """
        if not prompts:
            return []
        if position_ids is None:
            position_ids = [torch.arange(len(prompt))[:, None] for prompt in prompts]
        self._compact()
        first = len(self._rows)
        new: list[Stream] = []
        # Of each prompt, what is read now, and the last position, which waits for a step.
        befores: list[Tensor] = []
        ids_before: list[Tensor] = []
        lasts: list[Tensor] = []
        last_ids: list[Tensor] = []
        for prompt, numbers in zip(prompts, position_ids, strict=True):
            new.append(Stream(first + len(new)))
            ids = numbers.to(self.device).expand(-1, self._axes)
            befores.append(prompt[:-1].to(self._pending))
            ids_before.append(ids[:-1])
            lasts.append(prompt[-1])
            last_ids.append(ids[-1])
        self._rows += new
        lengths = [len(before) for before in befores]
        if any(lengths):
            self._prefill(first, befores, ids_before)
        self._pending = torch.cat([self._pending, torch.stack(lasts).to(self._pending)])
        self._ids = torch.cat([self._ids, torch.stack(last_ids)])
        joining = torch.tensor(lengths, device=self.device)
        self._lengths = torch.cat([self._lengths, joining])
        self._most = np.concatenate([self._most, lengths]).astype(np.int64)
        return new

    def _prefill(self, first: int, prompts: list[Tensor], ids: list[Tensor]) -> None:
        """Compute prompts in the rows from `first` on: what they share once, in one row."""
        self._reserve(len(self._rows), max(map(len, prompts)) + 1)
        for level in levels([*map(marks, prompts, ids)]):
            for parts in passes(level):
                self._read(first, parts, _pad(prompts, parts), _pad(ids, parts))
            self._copy(first, level)

    def _read(
        self, first: int, parts: Sequence[PrefixPart], padded: Tensor, ids: Tensor
    ) -> None:
        # Padded on the right: no real position attends to padding, and later ones
        # overwrite what padding leaves in the cache before they could see it.
        rows = self._rows_from(first, [part.members[0] for part in parts])
        starts = torch.tensor([part.start for part in parts], device=self.device)
        stored_at = torch.arange(padded.shape[1], device=self.device) + starts[:, None]
        columns = max(part.start for part in parts) + padded.shape[1]
        if columns == padded.shape[1]:
            self._cache.begin_prefill(rows)
            self._forward(padded, ids)
            return
        columns = self._align(columns)
        self._reserve(len(self._rows), columns)
        self._cache.begin(stored_at, columns, rows)
        self._forward(padded, ids, stored_at)

    def _copy(self, first: int, parts: Iterable[PrefixPart]) -> None:
        """Copy what was read for the first members of parts to the rows of the others."""
        sources: list[int] = []
        targets: list[int] = []
        columns = 0
        for part in parts:
            source, *others = part.members
            if others:
                sources += [source] * len(others)
                targets += others
                columns = max(columns, part.end)
        if targets:
            read = self._rows_from(first, sources)
            written = self._rows_from(first, targets)
            self._cache.spread(read, written, columns)

    def _rows_from(self, first: int, members: Sequence[int]) -> Tensor:
        """Return the rows of prompts by their numbers, where the first has row `first`."""
        return torch.tensor(members, device=self.device) + first

    @torch.inference_mode()
    def feed(self, rows: Rows, embeddings: Tensor, going: Tensor | None = None) -> None:
        """Set what the next `step` computes for some streams: (rows, width).

        Of these only the ones that are `going` (rows,) on are fed, if it is given.
        """
        there = rows.there
        given = embeddings.to(self._pending)
        ids = self._ids[there]
        following = _following(ids)
        if going is None:
            self._lengths[there] += 1
        else:
            self._knows_lengths = False
            self._lengths[there] += going
            given = torch.where(going[:, None], given, self._pending[there])
            following = torch.where(going[:, None], following, ids)
        self._pending[there] = given
        self._ids[there] = following
        self._most[rows.here] += 1

    @torch.inference_mode()
    def step(self) -> Tensor:
        """Return hidden states (rows, width) after the last norm, by row."""
        rows = len(self._rows)
        # The device may have gone on with fewer than the host has counted.
        columns = min(int(self._most.max()) + 1, self._context)
        inputs = StepInputs(
            self._pending[:, None], self._ids[:, None], self._lengths[:, None]
        )
        if self._graphs is not None:
            self._reserve(rows, columns)
            shape = round_up(rows, columns, (self._cache.rows, self._context))
            self._reserve(*shape)
            hidden = self._graphs(self._forward_step, inputs, *shape)
        else:
            columns = min(self._align(columns), self._context)
            self._reserve(rows, columns)
            hidden = self._forward_step(inputs, columns, self._same_length())
        return hidden[:, -1].to(self.device)

    @torch.inference_mode()
    def step_run(self, rows: Rows, more: Tensor) -> Tensor:
        """As `step`, of several tokens in one pass: (rows, 1 + tokens, width).

        `more` (rows, tokens, width) follow what was fed; `rows` are those of all streams.
        """
        there = rows.there
        tokens = more.shape[1]
        size = len(self._rows)
        following = self._pending.new_zeros(size, *more.shape[1:])
        following[there] = more.to(following)
        steps = torch.arange(1 + tokens, device=self.device)
        ids = _following(self._ids)[:, None] + steps[:-1, None]
        # Rows that streams have left may be full.
        stored_at = (self._lengths[:, None] + steps).clamp(max=self._context - 1)
        inputs = StepInputs(
            torch.cat([self._pending[:, None], following], dim=1),
            torch.cat([self._ids[:, None], ids], dim=1),
            stored_at,
        )
        columns = self._align(int(self._most.max()) + 1 + tokens)
        columns = min(columns, self._context)
        self._reserve(size, columns)
        hidden = self._forward_step(inputs, columns, self._same_length())
        self._pending[there] = following[there, -1]
        self._ids[there] = ids[there, -1]
        self._lengths[there] += tokens
        self._most[rows.here] += tokens
        return hidden.to(self.device)

    def _same_length(self) -> int | None:
        """Return the length of all streams, if the host knows that they have only one."""
        shortest = int(self._most.min())
        alike = self._knows_lengths and shortest == self._most.max()
        return shortest if alike else None

    def _align(self, columns: int) -> int:
        """Round up on a GPU, whose fast attention kernels read masks of whole 16 bytes."""
        return _up(columns) if self.device.type == "cuda" else columns

    def _forward_step(
        self, step: StepInputs, columns: int, same: int | None = None
    ) -> Tensor:
        self._cache.begin(step.stored_at, columns, same=same)
        return self._forward(step.embeddings, step.position_ids, step.stored_at)

    def _reserve(self, rows: int, columns: int) -> None:
        """Make room in the cache; graphs of the memory it had before are dropped."""
        if self._cache.reserve(rows, columns) and self._graphs is not None:
            self._graphs.forget()

    @torch.inference_mode()
    def close(self, streams: Sequence[Stream], broken: bool = False) -> None:
        """Let streams leave; the last rows take their places where steps then cost less.

        Steps without graphs cost less for every row, graphs where a smaller one serves.
        Nothing is left of what `broken` ones have stored that is no number.
        """
        if broken:
            self._cache.mend()
        self._left |= set(streams)
        if self._rows_computed(len(self)) < self._rows_computed(len(self._rows)):
            self._compact()

    def _rows_computed(self, rows: int) -> int:
        """Return how many rows a step of so many computes."""
        return rows if self._graphs is None else round_rows(rows) * (rows > 0)

    def _compact(self) -> None:
        """Put the last rows into the places of those that have left."""
        if not self._left:
            return
        size = len(self)
        places = sorted(stream.row for stream in self._left if stream.row < size)
        moving: list[Stream] = []
        for stream in self._rows[size:]:
            if stream not in self._left:
                moving.append(stream)
        if moving:
            last = [stream.row for stream in moving]
            read = torch.tensor(last, device=self.device)
            written = torch.tensor(places, device=self.device)
            self._cache.spread(read, written, int(self._most[last].max()))
            for waiting in (self._pending, self._ids, self._lengths):
                waiting[written] = waiting[read]
            self._most[places] = self._most[last]
        for stream, row in zip(moving, places, strict=True):
            self._rows[row] = stream
            stream.row = row
        self._left.clear()
        self._rows = self._rows[:size]
        self._pending = self._pending[:size]
        self._ids = self._ids[:size]
        self._lengths = self._lengths[:size]
        self._most = self._most[:size]

    def _forward(
        self, embeddings: Tensor, ids: Tensor, stored_at: Tensor | None = None
    ) -> Tensor:
        """Return hidden states; new tokens attend up to their columns `stored_at`."""
        outputs = self._decoder(
            inputs_embeds=embeddings,
            # transformers has (rows, tokens), or (axes, rows, tokens) of several axes.
            position_ids=ids[..., 0] if self._axes == 1 else ids.permute(2, 0, 1),
            attention_mask=None if stored_at is None else self._mask(stored_at),
            past_key_values=self._cache,
            use_cache=True,
        )
        hidden: Tensor = outputs.last_hidden_state
        return hidden

    def _mask(self, stored_at: Tensor) -> Tensor:
        """Return a mask that is added to scores, made once and not by every layer."""
        columns = torch.arange(self._cache.columns_in_use, device=self.device)
        hidden = (columns > stored_at[..., None])[:, None]
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self.device)
        return mask.masked_fill_(hidden, -torch.inf)


def _up(columns: int) -> int:
    """Round up to a multiple of 8: of 16 bits each, these are 16 bytes of a mask."""
    return -(-columns // 8) * 8


def _following(ids: Tensor) -> Tensor:
    """Return where text goes on after tokens at `ids` (rows, axes): past the largest."""
    axes = ids.shape[-1]
    return ids + 1 if axes == 1 else (ids.amax(dim=-1, keepdim=True) + 1).repeat(1, axes)


def _pad(prompts: Sequence[Tensor], parts: Sequence[PrefixPart]) -> Tensor:
    """Return what parts hold of their first members, zeros after it: (parts, ...)."""
    of_parts = [prompts[part.members[0]][part.start : part.end] for part in parts]
    return pad_sequence(of_parts, batch_first=True)
