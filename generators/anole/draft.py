"""The drafting stage of Anole: a question in, text and the VQ codes of images out.

Records that write text and records that draw share every forward pass; finished ones
leave. A record's text keeps its cache through an image; the two guidance streams of an
image are open from its first code to its last. Upstream runs one record at a time and
rebuilds its cache at each switch (`Generator`, chameleon.py of GAIR-NLP/anole).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from generators.anole.codec import encoder_input
from generators.anole.models import AnoleLanguage, load_codec, load_language
from generators.anole.settings import AnoleDraftSettings
from generators.anole.tokens import AnoleTrack, TokenMode, split_runs
from generators.base import Weights
from generators.decoding.drafting import (
    InterleavedDraft,
    NativePrompt,
    Piece,
    Segment,
    context_of,
)
from generators.decoding.interleaving import Interleaver, Record
from generators.decoding.payloads import pack
from generators.decoding.sampling import Sampler, penalised
from generators.decoding.streams import Streams
from generators.document import Image, ImageRequest, Request, Text
from generators.loading.strict import device_of

_Record = Record[AnoleTrack]


def guided_logits(
    full: Tensor, image: Tensor, free: Tensor, *, text: float, picture: float
) -> Tensor:
    """Return logits guided by the text and by earlier images (arXiv:2211.09800).

    `full` are the logits given the whole context, `image` given its images alone,
    `free` given neither; all of one shape.
    """
    return free + picture * (image - free) + text * (full - image)


class AnoleInterleaver(Interleaver[AnoleTrack]):
    """Writes the answers of a batch of prompts."""

    def __init__(
        self, language: AnoleLanguage, settings: AnoleDraftSettings, context: int
    ) -> None:
        super().__init__(language.model.model, context)
        self._head = language.model.lm_head
        self._vocabulary = vocabulary = language.vocabulary
        self._settings = own = settings
        self.text = Sampler(own.text_temperature, own.text_top_p, own.text_greedy)
        self.image = Sampler(own.image_temperature, own.image_top_p, own.image_greedy)
        text = sorted((vocabulary.eos, *vocabulary.text, vocabulary.begin_image))
        self._text_ids = torch.tensor(text, device=self.device)
        self._begin_column = text.index(vocabulary.begin_image)
        self._image_ids = torch.tensor(sorted(vocabulary.image), device=self.device)

    def seen_at_first(self, track: AnoleTrack) -> Tensor:
        """The penalty applies to every id of the context, image tokens included."""
        return self.seen(track.prompt)

    def advance(
        self, records: Sequence[_Record], streams: Streams
    ) -> Mapping[_Record, int]:
        """Give every record its next token; close the guides of finished images."""
        # The model's own `forward` forbids image tokens, so its parts are called.
        logits = self._head(streams.step()).float()
        by_mode: dict[TokenMode, list[_Record]] = {mode: [] for mode in TokenMode}
        for record in records:
            by_mode[record.track.mode].append(record)
        chosen = dict.fromkeys(by_mode[TokenMode.CLOSING], self._vocabulary.end_image)
        if text := by_mode[TokenMode.TEXT]:
            chosen |= zip(text, self._text_tokens(text, logits), strict=True)
        if image := by_mode[TokenMode.IMAGE]:
            chosen |= zip(image, self._image_tokens(image, logits), strict=True)
        for record, token in chosen.items():
            record.take(token)
        for record in records:
            drawing = record.track.mode is TokenMode.IMAGE and record.track.stop is None
            if record.guides and not drawing:
                for guide in dict.fromkeys(record.guides):
                    streams.close(guide)
                record.guides = ()
        return chosen

    def _text_tokens(self, records: list[_Record], logits: Tensor) -> list[int]:
        permitted = logits[self.rows(records)][:, self._text_ids]
        banned = self.flags([not r.track.may_begin_image for r in records])
        permitted[:, self._begin_column].masked_fill_(banned, -torch.inf)
        known = torch.stack([r.seen for r in records])[:, self._text_ids]
        lowered = penalised(permitted, known, self._settings.repetition_penalty)
        return self.sampled(self.text, lowered, records, self._text_ids)

    def _image_tokens(self, records: list[_Record], logits: Tensor) -> list[int]:
        rows = [(r.stream.row, *(guide.row for guide in r.guides)) for r in records]
        full, image, free = logits[torch.tensor(rows, device=self.device).T]
        weights = (self._settings.guidance_text, self._settings.guidance_image)
        mixed = guided_logits(full, image, free, text=weights[0], picture=weights[1])
        permitted = mixed[:, self._image_ids]
        return self.sampled(self.image, permitted, records, self._image_ids)

    def feed(self, chosen: Mapping[_Record, int], streams: Streams) -> None:
        """Feed a record's token to all its streams; open the guides of new images.

        One stream serves as both where the two contexts are equal.
        """
        fed = [
            (s, t) for r, t in chosen.items() for s in dict.fromkeys((r.stream, *r.guides))
        ]
        if fed:
            streams.feed([s for s, _ in fed], self.embed([t for _, t in fed]))
        drawing = [r for r in chosen if r.track.mode is TokenMode.IMAGE]
        new = [record for record in drawing if not record.guides]
        prompts = [(r, prompt) for r in new for prompt in r.track.guidance_prompts()]
        unique = list(dict.fromkeys(prompts))
        opened = streams.open([self.embed(prompt) for _, prompt in unique])
        guides = dict(zip(unique, opened, strict=True))
        for record in new:
            record.guides = tuple(
                guides[record, p] for p in record.track.guidance_prompts()
            )


class AnoleDraft(InterleavedDraft[AnoleTrack]):
    """Writes interleaved answers; takes the fields of `AnoleDraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = AnoleDraftSettings(**settings)
        where = (weights, own.model, own.revision, device_of(own.device))
        self.language = load_language(*where, getattr(torch, own.dtype))
        self.codec = load_codec(*where)
        self.dtype = self.language.model.dtype
        self.image_tokens = self.codec.side**2
        self.each = self.image_tokens + 2
        self.leading = (self.language.vocabulary.bos,)
        context = context_of(own.context, self.language.context)
        self.interleave = AnoleInterleaver(self.language, own, context)

    def parts(self, request: Request) -> list[Piece]:
        """Return text and images of all turns in order, without any template."""
        parts: list[Piece] = []
        for turn in request.turns:
            if parts and turn.content:
                parts.append(self.settings.turn_separator)
            parts += [s.text if isinstance(s, Text) else s for s in turn.content]
        return parts

    def tokenized(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        encode = self.language.tokenizer.encode
        return [encode(text, add_special_tokens=False).ids for text in texts]

    def read(self, image: Image) -> list[int]:
        """Return an image's codes as ids, between its two marks."""
        vocabulary = self.language.vocabulary
        codes = self.codec.encode(encoder_input(image, self.codec.resolution))
        tokens = vocabulary.tokens(codes.ravel().tolist())
        return [vocabulary.begin_image, *tokens, vocabulary.end_image]

    def track(self, prompt: NativePrompt) -> AnoleTrack:
        """Return the answer to a prompt before its first token."""
        vocabulary, context = self.language.vocabulary, self.interleave.context
        limits = (self.settings, context, self.image_tokens)
        return AnoleTrack(prompt.ids, vocabulary, *limits)

    def more_usage(self, track: AnoleTrack) -> dict[str, float]:
        """Return how many of the tokens are codes."""
        return {"image_tokens": track.images * self.image_tokens}

    def segments(self, track: AnoleTrack) -> list[Segment]:
        """Return text as the tokenizer spells it, blank runs left out, and requests."""
        segments: list[Segment] = []
        for mode, ids in split_runs(track.ids, self.language.vocabulary):
            if mode is TokenMode.IMAGE:
                codes = torch.tensor(self.language.vocabulary.codes(ids), dtype=torch.int32)
                grid = codes.view(self.codec.side, self.codec.side)
                segments.append(ImageRequest(payload=pack(codes=grid)))
                continue
            text = self.language.tokenizer.decode(list(ids), skip_special_tokens=True)
            if text.strip():
                segments.append(Text(text))
        return segments
