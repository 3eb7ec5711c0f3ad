"""Texts of many records written at once: one that ends makes room for the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from plait.generators.decoding.batch_writer import BatchWriter, Written
from plait.generators.decoding.rules import Chooser, Embedder, TextRules
from plait.generators.decoding.sampling import NO_NUMBERS, NONE, NoNumbers
from plait.generators.decoding.streams import Stream, Streams

Finish = Literal["stop", "length"] | NoNumbers
"""Whether the model ended its text, it reached its limit, or its logits were no numbers."""


@dataclass(eq=False)
class TextTrack:
    """The text of one record, while it is written and after."""

    limit: int
    """Most tokens of it; at least one."""
    ids: list[int] = field(default_factory=list)
    """Without the token that ended it."""
    stop: Finish | None = None
    """None while it goes on."""

    @property
    def tokens(self) -> int:
        """Tokens written, the ending one included."""
        return len(self.ids) + (self.stop == "stop")

    def take(self, token: int, ends: Collection[int]) -> None:
        """Append the next token; one of `ends`, or NONE, ends the text."""
        if token == NONE or token in ends:
            self.stop = NO_NUMBERS if token == NONE else "stop"
            return
        self.ids.append(token)
        if len(self.ids) >= self.limit:
            self.stop = "length"


@dataclass(frozen=True, slots=True)
class TextWriter:
    """Writes texts with the streams of one language model."""

    streams: Streams
    open: Callable[[list[int]], list[Stream]]
    """Opens the streams of these records, by index, in this order."""
    choose: Chooser
    embed: Embedder
    ends: Collection[int]
    """Tokens that end a text."""
    rows: int | None = None
    """Most texts written at a time; None for all at once."""

    def __call__(self, limits: Sequence[int]) -> list[TextTrack]:
        """Return a text per record, in order, of at most `limits[record]` tokens."""
        device = self.streams.device
        rules = TextRules(self.choose, self.embed, limits, self.ends, device)

        def open_alone(records: list[int]) -> list[tuple[Stream, ...]]:
            return [(stream,) for stream in self.open(records)]

        written = BatchWriter(self.streams, rules, open_alone, self.rows)()
        tracks: list[TextTrack] = []
        for record, limit in enumerate(limits):
            tracks.append(self._track(limit, written[record]))
        return tracks

    def _track(self, limit: int, written: Written) -> TextTrack:
        track = TextTrack(limit)
        for token in written.tokens:
            track.take(token, self.ends)
        if written.broken:
            track.take(NONE, self.ends)
        return track
