"""The answers of many records, written with one language model, one step at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from generators.decoding.sampling import NO_NUMBERS, NONE, Sampler, read_tokens
from generators.decoding.streams import Stream, Streams


class Track:
    """The answer of one record so far."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        """Its tokens, those of images included."""
        self.stop: Any = None
        """Why it has ended; None while it goes on."""

    def take(self, token: int) -> None:
        """Append the next token."""
        raise NotImplementedError


TrackT = TypeVar("TrackT", bound=Track)


@dataclass(eq=False)
class Record(Generic[TrackT]):
    """A track with its stream and its source of random numbers."""

    track: TrackT
    stream: Stream
    generator: torch.Generator
    seen: Tensor
    """Which ids a repetition penalty applies to: (vocabulary,)."""
    guides: tuple[Stream, ...] = ()
    """Further streams, which read some of its tokens."""

    def take(self, token: int) -> None:
        """Give the track its next token; NONE ends it."""
        if token == NONE:
            self.track.stop = NO_NUMBERS
            return
        self.track.take(token)
        if len(self.seen):
            self.seen[token] = True


class Interleaver(ABC, Generic[TrackT]):
    """Writes answers with one decoder; records that have stopped leave the batch."""

    def __init__(self, decoder: Any, context: int) -> None:
        """Take a decoder of transformers; the most tokens of a prompt and its answer."""
        self.decoder, self.context = decoder, context
        self.table: Tensor = decoder.get_input_embeddings().weight
        self.device = self.table.device

    @torch.inference_mode()
    def __call__(
        self, prompts: Sequence[Tensor], tracks: Sequence[TrackT], seeds: Sequence[int]
    ) -> Sequence[TrackT]:
        """Run every track, of a prompt (positions, width), until it stops.

        Prompts must be shorter than the context. The seed alone fixes a record's samples,
        whatever the rest of the batch.
        """
        streams = Streams(self.decoder, self.context)
        records = [
            Record(
                track,
                stream,
                torch.Generator().manual_seed(seed),
                self.seen_at_first(track),
            )
            for track, stream, seed in zip(
                tracks, streams.open(prompts), seeds, strict=True
            )
        ]
        while records:
            chosen = self.advance(records, streams)
            for record in (r for r in records if r.track.stop is not None):
                streams.close(record.stream, record.track.stop == NO_NUMBERS)
            records = [r for r in records if r.track.stop is None]
            self.feed({r: chosen[r] for r in records if r in chosen}, streams)
        return tracks

    @abstractmethod
    def advance(
        self, records: Sequence[Record[TrackT]], streams: Streams
    ) -> Mapping[Record[TrackT], int]:
        """Compute a step; return the new tokens of the records that have taken one."""

    def feed(self, chosen: Mapping[Record[TrackT], int], streams: Streams) -> None:
        """Feed the records that go on their new tokens."""
        if chosen:
            tokens = self.embed(list(chosen.values()))
            streams.feed([record.stream for record in chosen], tokens)

    def seen_at_first(self, track: TrackT) -> Tensor:
        """Return the mask of ids that a repetition penalty applies to, if there is one."""
        return torch.empty(0, dtype=torch.bool)

    def seen(self, ids: Sequence[int]) -> Tensor:
        """Return the mask of `ids`: (vocabulary,)."""
        mask = torch.zeros(len(self.table), dtype=torch.bool, device=self.device)
        mask[torch.tensor(ids, device=self.device)] = True
        return mask

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Return embeddings (ids, width)."""
        return self.table[torch.tensor(list(ids), dtype=torch.long, device=self.device)]

    def rows(self, records: Sequence[Record[TrackT]]) -> Tensor:
        """Return the rows of the records' streams."""
        return torch.tensor([r.stream.row for r in records], device=self.device)

    def flags(self, values: Sequence[bool]) -> Tensor:
        """Return a mask of one value for each record."""
        return torch.tensor(values, device=self.device)

    def sampled(
        self,
        sampler: Sampler,
        logits: Tensor,
        records: Sequence[Record[TrackT]],
        ids: Tensor | None = None,
    ) -> list[int]:
        """Sample a token for each record from logits (records, ids), or NONE.

        `ids` are those of the columns where these are not the whole vocabulary.
        """
        columns = sampler.sample(logits, (record.generator for record in records))
        return read_tokens(columns if ids is None else ids[columns], logits)
