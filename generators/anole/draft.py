"""The drafting stage of Anole: a question in, text and the VQ codes of images out.

Records that write text and records that draw share every forward pass; finished ones
leave. A record's text keeps its cache through an image; the two guidance streams of an
image are open from its first code to its last. Upstream runs one record at a time and
rebuilds its cache at each switch (`Generator`, chameleon.py of GAIR-NLP/anole).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from plait.generators.anole.codec import encoder_input
from plait.generators.anole.models import AnoleVocabulary, load_codec, load_language
from plait.generators.anole.settings import AnoleDraftSettings
from plait.generators.base import Weights
from plait.generators.decoding.drafting import (
    InterleavedDraft,
    NativePrompt,
    Piece,
    Record,
    Segment,
    Stop,
    Track,
    ids_penalised,
    pieces_of,
)
from plait.generators.decoding.payloads import pack
from plait.generators.decoding.sampling import Sampler, penalise
from plait.generators.decoding.streams import Stream, Streams
from plait.generators.document import Image, ImageRequest, Request, Text


class TokenMode(StrEnum):
    """What the next token of a record is."""

    TEXT = "text"
    IMAGE = "image"
    CLOSING = "closing"
    """The end-of-image token, which is set, not sampled."""


class AnoleTrack(Track):
    """The tokens of one record, and what may come next.

    Follows the `TextDecoder` and `ImageDecoder` of GAIR-NLP/anole: an image, once begun,
    is always finished; the text budget counts from the last image; the end of the
    sequence is recognised in text only.
    """

    def __init__(
        self,
        prompt: NativePrompt,
        context: int,
        vocabulary: AnoleVocabulary,
        settings: AnoleDraftSettings,
        image_tokens: int,
    ) -> None:
        """Take, besides, the number of codes of one image."""
        super().__init__(prompt, context)
        self.vocabulary = vocabulary
        self.settings = settings
        self.image_tokens = image_tokens
        self.mode = TokenMode.TEXT
        self.images = 0
        self.runs: list[tuple[TokenMode, list[int]]] = []
        """Text and whole images in order, without their marks."""
        self._begin_text()

    @property
    def tokens(self) -> list[int]:
        """Prompt and answer."""
        return self.prompt.ids + self.ids

    @property
    def may_begin_image(self) -> bool:
        """Whether an image and its two marks still fit, and the answer may hold it."""
        fits = self.length < self.context - (self.image_tokens + 2)
        return fits and self.images < self.settings.max_images

    def take(self, token: int) -> None:
        """Append the next token and update the mode."""
        self.ids.append(token)
        if self.mode is TokenMode.CLOSING:
            self._begin_text()
        elif self.mode is TokenMode.IMAGE:
            self.runs[-1][1].append(token)
            if len(self.runs[-1][1]) == self.image_tokens:
                self.mode = TokenMode.CLOSING
        elif token == self.vocabulary.begin_image:
            self.mode = TokenMode.IMAGE
            self.runs.append((self.mode, []))
            self.images += 1
        else:
            self.runs[-1][1].append(token)
            self._stop_at_limit()
            if token == self.vocabulary.eos:
                self.stop = Stop.END

    def guidance_prompts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the guiding contexts of a new image: the earlier images, and nothing."""
        vocabulary = self.vocabulary
        images = tuple(i for i in self.tokens if i in vocabulary.guiding)
        return images, (vocabulary.bos, vocabulary.begin_image)

    def _begin_text(self) -> None:
        self.mode = TokenMode.TEXT
        self.runs.append((self.mode, []))
        self._run_end = self.length + self.settings.max_text_tokens
        self._stop_at_limit()

    def _stop_at_limit(self) -> None:
        if self.length >= self.context:
            self.stop = Stop.CONTEXT
        elif self.length >= self._run_end:
            self.stop = Stop.TEXT


_Record = Record[AnoleTrack]


def _rows_of_contexts(record: _Record) -> tuple[int, ...]:
    """Return the row of the record's own stream, then those of its two guides."""
    return (record.stream.row, *(guide.row for guide in record.guides))


def guided_logits(
    full: Tensor, images: Tensor, free: Tensor, *, text: float, image: float
) -> Tensor:
    """Return logits guided by the text and by earlier images (arXiv:2211.09800).

    `full` are the logits given the whole context, `images` given its images alone,
    `free` given neither; all of one shape.
    """
    return free + image * (images - free) + text * (full - images)


class AnoleDraft(InterleavedDraft[AnoleTrack]):
    """Writes interleaved answers; takes the fields of `AnoleDraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = AnoleDraftSettings(**settings)
        self.language = load_language(weights, own)
        self.codec = load_codec(weights, own)
        self.vocabulary = ids = self.language.vocabulary
        self.image_tokens = self.codec.side**2
        self.each = self.image_tokens + 2
        self.leading = (ids.bos,)
        self._use(self.language.model.model, own.context)
        about = (self.context, ids, own, self.image_tokens)
        self.track = lambda prompt: AnoleTrack(prompt, *about)
        self.text = Sampler(own.text_temperature, own.text_top_p, own.text_greedy)
        self.image = Sampler(own.image_temperature, own.image_top_p, own.image_greedy)
        text = sorted((ids.eos, *ids.text, ids.begin_image))
        self._text_ids = torch.tensor(text, device=self.device)
        self._begin_column = text.index(ids.begin_image)
        self._image_ids = torch.tensor(sorted(ids.image), device=self.device)

    def _parts(self, request: Request) -> list[Piece]:
        parts: list[Piece] = []
        for turn in request.turns:
            if parts and turn.content:
                parts.append(self.settings.turn_separator)
            parts += pieces_of(turn.content)
        return parts

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        encode = self.language.tokenizer.encode
        return [encode(text, add_special_tokens=False).ids for text in texts]

    def _read(self, image: Image) -> list[int]:
        codes = self.codec.encode(encoder_input(image, self.codec.resolution))
        tokens = self.vocabulary.tokens(codes.ravel().tolist())
        return [self.vocabulary.begin_image, *tokens, self.vocabulary.end_image]

    def _ids_to_penalise(self, prompt: NativePrompt) -> list[int]:
        """Return every id of the context, image tokens included."""
        return prompt.ids

    def _advance(self, records: Sequence[_Record], streams: Streams) -> dict[_Record, int]:
        # The model's own `forward` forbids image tokens, so its parts are called.
        logits = self.language.model.lm_head(streams.step()).float()
        by_mode: dict[TokenMode, list[_Record]] = {mode: [] for mode in TokenMode}
        for record in records:
            by_mode[record.track.mode].append(record)
        chosen = dict.fromkeys(by_mode[TokenMode.CLOSING], self.vocabulary.end_image)
        for record, token in chosen.items():
            record.take(token)
        if text := by_mode[TokenMode.TEXT]:
            chosen |= self._text_tokens(text, logits)
        if image := by_mode[TokenMode.IMAGE]:
            chosen |= self._image_tokens(image, logits)
        for record in records:
            drawing = record.track.mode is TokenMode.IMAGE and record.track.stop is None
            if record.guides and not drawing:
                for guide in dict.fromkeys(record.guides):
                    streams.close(guide)
                record.guides = ()
        return chosen

    def _text_tokens(self, records: list[_Record], logits: Tensor) -> dict[_Record, int]:
        permitted = logits[self._rows(records)][:, self._text_ids]
        banned = [not record.track.may_begin_image for record in records]
        mask = torch.tensor(banned, device=self.device)
        permitted[:, self._begin_column].masked_fill_(mask, -torch.inf)
        known = ids_penalised(records)[:, self._text_ids]
        lowered = penalise(permitted, known, self.settings.repetition_penalty)
        return self._sample(self.text, lowered, records, self._text_ids)

    def _image_tokens(self, records: list[_Record], logits: Tensor) -> dict[_Record, int]:
        rows = [_rows_of_contexts(record) for record in records]
        of_contexts = torch.tensor(rows, device=self.device).T[..., None]
        full, image, free = logits[of_contexts, self._image_ids]
        text = self.settings.guidance_text
        guide = self.settings.guidance_image
        mixed = guided_logits(full, image, free, text=text, image=guide)
        return self._sample(self.image, mixed, records, self._image_ids)

    def _feed(self, chosen: Mapping[_Record, int], streams: Streams) -> None:
        """Feed a record's token to all its streams; open the guides of new images."""
        fed: list[Stream] = []
        tokens: list[int] = []
        for record, token in chosen.items():
            # Both guides may be one stream, which reads the token once.
            own = dict.fromkeys((record.stream, *record.guides))
            fed += own
            tokens += [token] * len(own)
        if fed:
            streams.feed(fed, self.embeddings(tokens))
        drawing = [r for r in chosen if r.track.mode is TokenMode.IMAGE]
        self._open_guides([record for record in drawing if not record.guides], streams)

    def _open_guides(self, records: Sequence[_Record], streams: Streams) -> None:
        """Open both guides of each record's new image, together for all of them.

        One stream serves as both where the two contexts are equal.
        """
        prompts: list[tuple[_Record, tuple[int, ...]]] = []
        for record in records:
            prompts += [(record, prompt) for prompt in record.track.guidance_prompts()]
        unique = list(dict.fromkeys(prompts))
        opened = streams.open([self.embeddings(prompt) for _, prompt in unique])
        guides = dict(zip(unique, opened, strict=True))
        for record in records:
            contexts = record.track.guidance_prompts()
            record.guides = tuple(guides[record, prompt] for prompt in contexts)

    def _details(self, track: AnoleTrack) -> tuple[dict[str, float], dict[str, Any]]:
        return {"image_tokens": track.images * self.image_tokens}, {}

    def _segments(self, track: AnoleTrack) -> list[Segment]:
        segments: list[Segment] = []
        for mode, ids in track.runs:
            if mode is TokenMode.IMAGE:
                codes = torch.tensor(self.vocabulary.codes(ids), dtype=torch.int32)
                grid = codes.view(self.codec.side, self.codec.side)
                segments.append(ImageRequest(payload=pack(codes=grid)))
                continue
            text = self.language.tokenizer.decode(ids, skip_special_tokens=True)
            if text.strip():
                segments.append(Text(text))
        return segments
