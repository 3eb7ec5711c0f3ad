"""The records of a batch while they decode, each with its stream and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from generators.decoding.sampling import NO_NUMBERS, NONE
from generators.decoding.streams import Stream, Streams


class Track(Protocol):
    """The answer of one record so far."""

    stop: Any
    """Why it has ended; None while it goes on."""

    def take(self, token: int, *about: Any) -> None:
        """Append the next token."""


TrackT = TypeVar("TrackT", bound=Track)
RecordT = TypeVar("RecordT", bound="DecodingRecord[Any]")


@dataclass(eq=False)
class DecodingRecord(Generic[TrackT]):
    """A track with its stream and its source of random numbers."""

    index: int
    """Place in the batch."""
    track: TrackT
    stream: Stream
    generator: torch.Generator

    def take(self, token: int, *about: Any) -> None:
        """Give the track its next token; NONE ends it."""
        if token == NONE:
            self.track.stop = NO_NUMBERS
        else:
            self.track.take(token, *about)


def open_records(
    kind: type[RecordT],
    tracks: Sequence[Any],
    streams: Streams,
    prompts: Sequence[Tensor],
    seeds: Sequence[int],
) -> list[RecordT]:
    """A record for each track; a stream is opened for its prompt (positions, width).

    The seed alone fixes a record's samples, whatever the rest of the batch.
    """
    opened = zip(tracks, streams.open(prompts), seeds, strict=True)
    return [
        kind(i, track, stream, torch.Generator().manual_seed(seed))
        for i, (track, stream, seed) in enumerate(opened)
    ]


def close_stopped(records: Sequence[RecordT], streams: Streams) -> list[RecordT]:
    """Close the streams of the records that have stopped; the records that go on."""
    for record in records:
        if record.track.stop is not None:
            streams.close(record.stream, record.track.stop == NO_NUMBERS)
    return [record for record in records if record.track.stop is None]
