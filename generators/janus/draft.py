"""The drafting stage of Janus: a conversation in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from plait.generators.base import Weights
from plait.generators.decoding.drafting import (
    InterleavedDraft,
    LimitedTrack,
    LimitedWriting,
    Piece,
    merge_texts,
)
from plait.generators.decoding.sampling import Sampler
from plait.generators.document import Content, Image, Request, Text, Turn
from plait.generators.images import decode
from plait.generators.janus.models import (
    ASSISTANT,
    BEGIN_IMAGE,
    BOS,
    DRAWING,
    END_IMAGE,
    EOS,
    USER,
    load,
)
from plait.generators.janus.settings import JanusDraftSettings
from plait.generators.rounds import continue_turns

SYSTEM = (
    "You are a helpful language and vision assistant. "
    "You are able to understand the visual content that the user provides, "
    "and assist the user with a variety of tasks using natural language.\n\n"
)
"""What the published checkpoints put before every conversation (`VLChatProcessor`)."""
_MARKS = {"user": f"{USER}: ", "assistant": f"{ASSISTANT}: ", "system": "System: "}
_ENDS = {"user": "\n\n", "assistant": EOS, "system": EOS}
ANSWER = f"{ASSISTANT}:"
"""Before the answer."""


def chat_parts(turns: Sequence[Turn], settings: JanusDraftSettings) -> list[Piece]:
    """Return text and images of a conversation, by the published chat template.

    A last turn of the assistant is the answer so far, from an earlier round.
    """
    own = settings.system_message
    parts: list[Piece] = [SYSTEM if own is None else own]
    said, answer = continue_turns(turns, settings.continuation, settings.feed_images)
    for turn in said:
        parts += [_MARKS[turn.role], *_pieces(turn.content), _ENDS[turn.role]]
    parts.append(ANSWER)
    if answer:
        parts += [" ", *_pieces(answer)]
    return merge_texts(parts)


def _pieces(content: Content) -> list[Piece]:
    """Put images on lines of their own, and a space between texts."""
    pieces: list[Piece] = []
    last = len(content) - 1
    for place, segment in enumerate(content):
        if isinstance(segment, Image):
            if place > 0:
                pieces.append("\n")
            pieces.append(segment)
            if place < last:
                pieces.append("\n")
            continue
        text = segment.text
        if place == 0:
            text = text.lstrip()
        if place == last:
            text = text.rstrip()
        if place > 0 and isinstance(content[place - 1], Text):
            text = f" {text}"
        pieces.append(text)
    return pieces


class JanusDraft(LimitedWriting, InterleavedDraft[LimitedTrack]):
    """Writes answers; takes the fields of `JanusDraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = JanusDraftSettings(**settings)
        self.janus = load(own, weights, DRAWING)
        self.each = self.janus.image_tokens + 2
        self.leading = (self.janus.id(BOS),)
        self._use(self.janus.model.model.language_model, own.context)
        self.limit = own.max_new_tokens
        self.end = self.janus.id(EOS)
        greedy = own.temperature == 0
        self.sampler = Sampler(own.temperature or 1.0, own.top_p, greedy, own.top_k)

    def _parts(self, request: Request) -> list[Piece]:
        return chat_parts(request.turns, self.settings)

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.janus.encode(text) for text in texts]

    def _read(self, image: Image) -> Tensor:
        pixels = self.janus.images(decode(image), return_tensors="pt").pixel_values
        return torch.as_tensor(pixels[0])

    def _encode(self, pixels: Tensor) -> Tensor:
        """Return (images, positions, width): an image's vectors between its marks."""
        read = self.janus.model.model.get_image_features(
            pixels.to(self.device, self.dtype), return_dict=True
        )
        marks = self.embeddings([self.janus.id(BEGIN_IMAGE), self.janus.id(END_IMAGE)])
        begin, end = marks[:, None, None].expand(2, len(pixels), 1, -1)
        return torch.cat([begin, read.pooler_output.to(marks), end], dim=1)

    def logits(self, states: Tensor) -> Tensor:
        """Return float32 logits (records, ids) of states (1, records, width)."""
        logits: Tensor = self.janus.model.lm_head(states[0])
        return logits.float()

    def _segments(self, track: LimitedTrack) -> list[Text]:
        text = self.janus.tokenizer.decode(track.ids, skip_special_tokens=True).strip()
        return [Text(text)] if text else []
