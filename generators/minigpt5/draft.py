"""The drafting stage of MiniGPT-5: a question in, text and the states of images out.

Upstream runs one record at a time and feeds the eight vokens of an image in one pass, as
is done here where all records are inside an image. Fed one by one they have the same
states, because no voken attends to a later one: records that write text and records inside
an image share every pass. Finished ones leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

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
    merge_texts,
    pieces_of,
)
from plait.generators.decoding.payloads import pack
from plait.generators.decoding.sampling import Sampler, penalise
from plait.generators.decoding.streams import Streams
from plait.generators.document import Image, ImageRequest, Request, Text, Turn
from plait.generators.minigpt5.models import VOKENS, MiniGPT5Vocabulary, load_models
from plait.generators.minigpt5.settings import MiniGPT5DraftSettings
from plait.generators.minigpt5.vision import encoder_pixels

_Record = Record["MiniGPT5Track"]


def prompt_parts(request: Request, settings: MiniGPT5DraftSettings) -> list[Piece]:
    """Return the prompt: no two texts are adjacent, and none is empty.

    System turns follow the model's system prompt; the request comes after the last human
    turn; a conversation that ends with the assistant is continued.
    """
    wording = settings.wording
    separator = settings.turn_separator
    parts: list[Piece] = [wording.system]
    for turn in request.turns:
        if turn.role == "system":
            parts += [separator, *_content(turn, settings)]
    dialogue = [turn for turn in request.turns if turn.role != "system"]
    last = max((i for i, t in enumerate(dialogue) if t.role == "user"), default=-1)
    for i, turn in enumerate(dialogue):
        asked = turn.role == "user"
        opening = wording.human if asked else settings.assistant + separator
        parts += [separator if i else "", opening, *_content(turn, settings)]
        if i == last:
            after_image = turn.content and isinstance(turn.content[-1], Image)
            parts += [wording.after_last_image if after_image else "", wording.request]
    if not dialogue or dialogue[-1].role == "user":
        parts.append(settings.assistant)
    return _strip(parts)


def _content(turn: Turn, settings: MiniGPT5DraftSettings) -> list[Piece]:
    parts: list[Piece] = []
    for part in pieces_of(turn.content):
        if isinstance(part, Image):
            parts += [settings.before_image, part, settings.after_image]
        else:
            parts.append(part)
    return parts


def _strip(parts: Iterable[Piece]) -> list[Piece]:
    """Return the parts with adjoining texts joined, and without empty ones.

    White space beside an image is stripped, as upstream's tokenizer does beside
    `<ImageHere>`.
    """
    joined = merge_texts(parts)
    for i, part in enumerate(joined):
        if isinstance(part, str):
            part = part.lstrip() if i else part
            joined[i] = part.rstrip() if i + 1 < len(joined) else part
    return [part for part in joined if part != ""]


class MiniGPT5Track(Track):
    """The sampled ids of one record, and the states of its images.

    `[IMG0]` among the ids represents its image, as in upstream's sequences.
    """

    def __init__(
        self,
        prompt: NativePrompt,
        context: int,
        vocabulary: MiniGPT5Vocabulary,
        settings: MiniGPT5DraftSettings,
    ) -> None:
        super().__init__(prompt, context)
        self.vocabulary = vocabulary
        self.settings = settings
        self.images: list[list[Tensor]] = []
        """States of each image: one before `[IMG0]`, then those at `[IMG0..6]`."""

    @property
    def length(self) -> int:
        """Positions of prompt and answer; an image among the ids takes eight."""
        return super().length + (VOKENS - 1) * len(self.images)

    @property
    def drawing(self) -> bool:
        """Whether the current image still lacks states."""
        return bool(self.images) and len(self.images[-1]) < VOKENS

    @property
    def may_begin_image(self) -> bool:
        """Whether a whole image still fits, and the answer may hold one more."""
        fits = self.length + VOKENS <= self.context
        return fits and len(self.images) < self.settings.max_images

    @property
    def must_begin_image(self) -> bool:
        """Whether nothing but an image may come next."""
        return self.settings.force_image and not self.images and self.may_begin_image

    def take(self, token: int) -> None:
        """Append an id; of an image that begins, the state before it is collected next."""
        self.ids.append(token)
        if token == self.vocabulary.begin_image:
            self.images.append([])
        else:
            self._stop_at_limits()

    def collect(self, states: Iterable[Tensor]) -> None:
        """Give the current image the states (width,) that it lacks."""
        for state in states:
            if self.drawing:
                self.images[-1].append(state)
                if not self.drawing:
                    self._stop_at_limits()

    def _stop_at_limits(self) -> None:
        if self.vocabulary.mark_length(self.ids):
            self.stop = Stop.MARK
        elif self.ids[-1] == self.settings.end_id:
            self.stop = Stop.END
        elif len(self.ids) >= self.settings.max_new_tokens:
            self.stop = Stop.TOKENS
        elif self.length >= self.context:
            self.stop = Stop.CONTEXT

    def parts(self) -> list[str | Tensor]:
        """Return unstripped text, and states (vokens, width) of the images, in order."""
        parts: list[str | Tensor] = []
        run: list[int] = []
        images = iter(self.images)
        for token in self.ids[: len(self.ids) - self.vocabulary.mark_length(self.ids)]:
            if token != self.vocabulary.begin_image:
                run.append(token)
                continue
            parts += [self.vocabulary.text(run), torch.stack(next(images))]
            run = []
        return [*parts, self.vocabulary.text(run)]


class MiniGPT5Draft(InterleavedDraft[MiniGPT5Track]):
    """Writes interleaved answers; takes the fields of `MiniGPT5DraftSettings`."""

    mark = "<ImageHere>"

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = MiniGPT5DraftSettings(**settings)
        self.model, self.vocabulary, self.encoder = load_models(weights, own)
        self.each = self.encoder.query_tokens.shape[1]
        self.leading = (self.vocabulary.bos,)
        self._use(self.model.model, own.context)
        about = (self.context, self.vocabulary, own)
        self.track = lambda prompt: MiniGPT5Track(prompt, *about)
        self.sampler = Sampler(own.temperature, own.top_p, own.greedy, own.top_k)

    def _parts(self, request: Request) -> list[Piece]:
        return prompt_parts(request, self.settings)

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.vocabulary.tokenizer.encode(text) for text in texts]

    def _read(self, image: Image) -> Tensor:
        return encoder_pixels(image, self.encoder.side, self.settings.fit)

    def _encode(self, pixels: Tensor) -> Tensor:
        vectors: Tensor = self.encoder(pixels)
        return vectors

    def _ids_to_penalise(self, prompt: NativePrompt) -> list[int]:
        """Return upstream's leading id; the penalty applies to what is generated, too."""
        return [self.settings.leading_id]

    def _advance(self, records: Sequence[_Record], streams: Streams) -> dict[_Record, int]:
        """Give records inside an image their states, and the others their next ids.

        Records inside an image have no new ids: they were fed all of it.
        """
        hidden = streams.step_run()
        drawing = [record for record in records if record.track.drawing]
        for record in drawing:
            record.track.collect(hidden[record.stream.row, :-1])
        # Of an image fed as a whole, the last state is not the image's: it writes on.
        # Beside records that write, one voken is fed, and its state is the image's.
        writing = [r for r in records if not r.track.drawing and r.track.stop is None]
        for record in drawing:
            record.track.collect(hidden[record.stream.row, -1:])
        if not writing:
            return {}
        states = hidden[self._rows(writing), -1]
        logits = self.model.lm_head(states).float()
        seen = ids_penalised(writing)
        penalty = self.settings.repetition_penalty
        logits = penalise(logits, seen, penalty)
        begin = self.vocabulary.begin_image
        for row, record in zip(logits, writing, strict=True):
            if record.track.must_begin_image:
                row[:begin] = -torch.inf
                row[begin + 1 :] = -torch.inf
            elif not record.track.may_begin_image:
                row[begin] = -torch.inf
        chosen = self._sample(self.sampler, logits, writing)
        for record, state in zip(writing, states, strict=True):
            record.track.collect([state])
        return chosen

    def _feed(self, chosen: Mapping[_Record, int], streams: Streams) -> None:
        """Feed the ids to the records that have taken them; an image is fed as a whole."""
        super()._feed({r: t for r, t in chosen.items() if not r.track.drawing}, streams)
        for record in chosen:
            if record.track.drawing:
                streams.feed_run(record.stream, self.embeddings(self.vocabulary.vokens))

    def _segments(self, track: MiniGPT5Track) -> list[Segment]:
        parts = track.parts()
        if self.settings.spell_leading_id and isinstance(parts[0], str):
            parts[0] = "<unk>" + parts[0]
        segments: list[Segment] = []
        for part in parts:
            if isinstance(part, Tensor):
                segments.append(ImageRequest(payload=pack(states=part.float())))
            elif part.strip():
                segments.append(Text(part.strip()))
        return segments

    def _details(self, track: MiniGPT5Track) -> tuple[dict[str, float], dict[str, Any]]:
        """Note how often added ids were sampled that are neither text nor images."""
        begin = self.vocabulary.begin_image
        size = self.vocabulary.tokenizer.size
        others = Counter(i for i in sorted(track.ids) if i >= size and i != begin)
        named = {self.vocabulary.added_name(i): n for i, n in others.items()}
        return {}, {"left out": named} if named else {}
