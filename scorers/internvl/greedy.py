"""Many replies at once, each the likeliest token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from generators.decoding.streams import Stream, Streams
from scorers.internvl.models import Judge


@dataclass
class Reply:
    """The reply to one prompt, while it is written and after."""

    limit: int
    """Most tokens of it."""
    ids: list[int] = field(default_factory=list)
    """Without the token that ended it."""
    ended: bool = False
    """Whether the model ended it, rather than the limit."""

    @property
    def tokens(self) -> int:
        """Tokens written, the ending one included."""
        return len(self.ids) + self.ended

    def take(self, token: int, end: int) -> bool:
        """Take the next token; whether the reply goes on."""
        if token == end:
            self.ended = True
            return False
        self.ids.append(token)
        return len(self.ids) < self.limit


def replies(
    judge: Judge, prompts: Sequence[Tensor], limits: Sequence[int], end: int
) -> list[Reply]:
    """Replies to prompts of embeddings (positions, width), all decoded together.

    A reply that has ended leaves the batch, and does not slow down the others.
    """
    streams = Streams(judge.decoder, judge.positions)
    written = [Reply(limit) for limit in limits]
    live = list(zip(_opened(judge, streams, prompts), written, strict=True))
    while live:
        chosen = judge.logits(streams.step()).argmax(dim=-1).tolist()
        # Rows move when streams close: read them all before.
        taken = [(stream, reply, chosen[stream.row]) for stream, reply in live]
        live, tokens = [], []
        for stream, reply, token in taken:
            if reply.take(token, end):
                live.append((stream, reply))
                tokens.append(token)
            else:
                streams.close(stream)
        if live:
            inputs = judge.embeddings(torch.tensor(tokens))
            streams.feed([stream for stream, _ in live], inputs)
    return written


def _opened(judge: Judge, streams: Streams, prompts: Sequence[Tensor]) -> list[Stream]:
    """The stream of each prompt. Long ones are read apart: see `LongRope`."""
    opened: dict[int, Stream] = {}
    for long in (False, True):
        group = [i for i, p in enumerate(prompts) if judge.rope.is_long(len(p)) is long]
        with judge.rope.prompts(long):
            begun = streams.open([prompts[i] for i in group])
        opened |= dict(zip(group, begun, strict=True))
    return [opened[i] for i in range(len(prompts))]
