"""Texts of many records written at once: one that ends makes room for the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

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


Opener = Callable[[list[int]], list[Stream]]
"""Opens the streams of these records, by index, in this order."""
Chooser = Callable[[Tensor, list[int]], list[int]]
"""Next token of each record, or NONE, from hidden states (records, width) and indices."""
Embedder = Callable[[list[int]], Tensor]
"""Embeddings (tokens, width) of token ids."""


@dataclass(frozen=True, slots=True)
class TextWriter:
    """Writes texts with the streams of one language model."""

    streams: Streams
    open: Opener
    choose: Chooser
    embed: Embedder
    ends: Collection[int]
    """Tokens that end a text."""
    rows: int | None = None
    """Most texts written at a time; None for all at once."""

    def __call__(self, limits: Sequence[int]) -> list[TextTrack]:
        """Return a text per record, in order, of at most `limits[record]` tokens."""
        tracks = [TextTrack(limit) for limit in limits]
        waiting = deque(range(len(tracks)))
        live: dict[int, Stream] = {}
        while waiting or live:
            live |= self._join(waiting, len(live))
            # Row by row, as the states are.
            order = sorted(live, key=lambda record: live[record].row)
            chosen = self.choose(self.streams.step(), order)
            for record, token in zip(order, chosen, strict=True):
                tracks[record].take(token, self.ends)
            tokens = dict(zip(order, chosen, strict=True))
            for record in order:
                if (stop := tracks[record].stop) is not None:
                    self.streams.close(live.pop(record), stop == NO_NUMBERS)
            if live:
                following = self.embed([tokens[record] for record in live])
                self.streams.feed(list(live.values()), following)
        return tracks

    def _join(self, waiting: deque[int], live: int) -> dict[int, Stream]:
        room = len(waiting) if self.rows is None else self.rows - live
        joining = [waiting.popleft() for _ in range(min(room, len(waiting)))]
        return dict(zip(joining, self.open(joining), strict=True)) if joining else {}
