"""The drafting stage of native models: requests in, text and payloads of images out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from plait.generators.base import Failure, Outcome, Result, Skip
from plait.generators.content import answer_all, display_text, unanswerable
from plait.generators.decoding.sampling import (
    NO_NUMBERS,
    NONE,
    NoNumbers,
    Sampler,
    read_tokens,
)
from plait.generators.decoding.streams import Stream, Streams
from plait.generators.document import Content, Draft, Image, ImageRequest, Request, Text
from plait.generators.errors import CheckpointError
from plait.generators.images import ImageError
from plait.generators.overflow import SCORES, no_numbers

Piece = str | Image
Segment = Text | ImageRequest


@dataclass(frozen=True, slots=True)
class NativePrompt:
    """A request as a model reads it, before its images are encoded."""

    pieces: tuple[list[int] | Tensor, ...]
    """Ids, and the pixels (3, height, width) of images that are encoded later."""
    shown: str
    """For people: the text, with a mark for each image."""
    length: int
    """In positions."""
    images: int
    seed: int

    @property
    def ids(self) -> list[int]:
        """All ids, in order."""
        return list(chain.from_iterable(p for p in self.pieces if isinstance(p, list)))

    @property
    def pixels(self) -> list[Tensor]:
        """The pixels of each image, in order."""
        return [piece for piece in self.pieces if isinstance(piece, Tensor)]


class Stop(StrEnum):
    """Why an answer ended."""

    END = "end of sequence"
    MARK = "### reached"
    LINE = "end of line"
    CONTEXT = "context full"
    IMAGES = "image limit reached"
    WORDS = "word budget reached"
    TEXT = "text budget reached"
    TOKENS = "token budget reached"
    LIMIT = "token limit"


class Track:
    """The answer to one prompt so far."""

    def __init__(self, prompt: NativePrompt, context: int) -> None:
        """Take the prompt, and the most positions of it and its answer."""
        self.prompt = prompt
        self.context = context
        self.ids: list[int] = []
        """Its tokens, those of images included."""
        self.stop: Stop | NoNumbers | None = None
        """Why it has ended; None while it goes on."""

    @property
    def length(self) -> int:
        """Positions of prompt and answer."""
        return self.prompt.length + len(self.ids)

    def take(self, token: int) -> None:
        """Append the next token."""
        raise NotImplementedError


class LimitedTrack(Track):
    """An answer that ends at the token `end`, at so many tokens, or with the context."""

    def __init__(
        self, prompt: NativePrompt, context: int, limit: int, end: int = NONE
    ) -> None:
        super().__init__(prompt, context)
        self._limit = limit
        self._end = end

    def take(self, token: int) -> None:
        """Append the next token."""
        self.ids.append(token)
        if token == self._end:
            self.stop = Stop.END
        elif len(self.ids) >= self._limit:
            self.stop = Stop.LIMIT
        elif self.length >= self.context:
            self.stop = Stop.CONTEXT


TrackT = TypeVar("TrackT", bound=Track)


@dataclass(eq=False)
class Record(Generic[TrackT]):
    """A track with its stream and its source of random numbers."""

    track: TrackT
    stream: Stream
    generator: torch.Generator
    seen: Tensor | None
    """Which ids a repetition penalty applies to: (vocabulary,)."""
    guides: tuple[Stream, ...] = ()
    """Further streams, which read some of its tokens."""

    def take(self, token: int) -> None:
        """Give the track its next token; NONE ends it."""
        if token == NONE:
            self.track.stop = NO_NUMBERS
            return
        self.track.take(token)
        if self.seen is not None:
            self.seen[token] = True


def ids_penalised(records: Sequence[Record[Any]]) -> Tensor:
    """Return which ids the repetition penalty of each record applies to."""
    return torch.stack([record.seen for record in records if record.seen is not None])


class Drafting(ABC, Generic[TrackT]):
    """Answers a batch of requests, each of which fails or is skipped alone."""

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """Return one draft per request, in order.

        A request that leaves no room in the context is skipped; one without content,
        without a seed to sample from, or with an unreadable image fails.
        """
        read = [self.prompt(request) for request in inputs]
        return answer_all(read, lambda ready: map(self.result, ready, self.tracks(ready)))

    @abstractmethod
    def prompt(self, request: Request) -> NativePrompt | Skip | Failure:
        """Return the request as the model reads it, or why it cannot be answered."""

    @abstractmethod
    def tracks(self, prompts: Sequence[NativePrompt]) -> Sequence[TrackT]:
        """Return the finished answer to each prompt."""

    def result(self, prompt: NativePrompt, track: TrackT) -> Result[Draft] | Failure:
        """Return the result of a finished answer, or why there is none."""
        if track.stop == NO_NUMBERS:
            return no_numbers(SCORES, self.dtype)
        draft = Draft(tuple(self._segments(track)))
        usage = {
            "input_tokens": prompt.length,
            "input_images": prompt.images,
            "output_tokens": len(track.ids),
            "images": len(draft.requests),
        }
        notes = {"prompt": prompt.shown, "stop": str(track.stop)}
        more_usage, more_notes = self._details(track)
        return Result(draft, usage | more_usage, notes | more_notes)

    dtype: torch.dtype
    """Of the language model."""

    @abstractmethod
    def _segments(self, track: TrackT) -> Sequence[Segment]:
        """Return the text and the image requests of a finished answer, in order."""

    def _details(self, track: TrackT) -> tuple[dict[str, float], dict[str, Any]]:
        """Return what a model counts and notes besides."""
        return {}, {}


class Writing(ABC, Generic[TrackT]):
    """The tokens of many prompts, from one decoder of transformers.

    All records of a batch are written together, one step at a time, and leave when they
    have stopped; the programs of the models' authors write one record at a time.
    """

    track: Callable[[NativePrompt], TrackT]
    """Makes the answer to a prompt before its first token."""

    def _use(self, decoder: Any, context: int | None = None) -> None:
        """Write with a decoder of transformers; by default in all its context."""
        self.decoder = decoder
        self.table: Tensor = decoder.get_input_embeddings().weight
        self.device = self.table.device
        self.dtype = self.table.dtype
        self.context = context_of(context, decoder.config.max_position_embeddings)
        """Most tokens of a prompt and its answer."""

    def _encode(self, pixels: Tensor) -> Tensor:
        """Return embeddings (images, positions, width) of pixels (images, 3, ...)."""
        raise NotImplementedError

    def embed(self, prompts: Sequence[NativePrompt]) -> list[Tensor]:
        """Return embeddings (positions, width) of each prompt; images are read together."""
        pixels = list(chain.from_iterable(prompt.pixels for prompt in prompts))
        images = iter(self._encode(torch.stack(pixels)) if pixels else ())

        def embed_piece(piece: list[int] | Tensor) -> Tensor:
            return next(images) if isinstance(piece, Tensor) else self.embeddings(piece)

        return [torch.cat([*map(embed_piece, prompt.pieces)]) for prompt in prompts]

    def embeddings(self, ids: Sequence[int]) -> Tensor:
        """Return embeddings (ids, width)."""
        return self.table[torch.tensor(list(ids), dtype=torch.long, device=self.device)]

    @torch.inference_mode()
    def tracks(self, prompts: Sequence[NativePrompt]) -> Sequence[TrackT]:
        """Return the finished answer to each prompt.

        Its seed alone fixes a record's samples, whatever the rest of the batch.
        """
        streams = self._streams(prompts)
        opened = zip(prompts, streams.open(self.embed(prompts)), strict=True)
        everyone = [self._record(prompt, stream) for prompt, stream in opened]
        records = everyone
        self._guide(records, streams)
        while records:
            chosen = self._advance(records, streams)
            for record in records:
                if record.track.stop is None:
                    continue
                for stream in (record.stream, *record.guides):
                    streams.close(stream, record.track.stop == NO_NUMBERS)
            records = [r for r in records if r.track.stop is None]
            self._feed({r: chosen[r] for r in records if r in chosen}, streams)
        return [record.track for record in everyone]

    def _streams(self, prompts: Sequence[NativePrompt]) -> Streams:
        return Streams(self.decoder, self.context)

    def _guide(self, records: Sequence[Record[TrackT]], streams: Streams) -> None:
        """Open further streams of new records, where they are guided from the start."""

    def _record(self, prompt: NativePrompt, stream: Stream) -> Record[TrackT]:
        seen = None
        if (ids := self._ids_to_penalise(prompt)) is not None:
            seen = torch.zeros(len(self.table), dtype=torch.bool, device=self.device)
            seen[torch.tensor(ids, device=self.device)] = True
        generator = torch.Generator().manual_seed(prompt.seed)
        return Record(self.track(prompt), stream, generator, seen)

    def _ids_to_penalise(self, prompt: NativePrompt) -> Sequence[int] | None:
        """Return the ids that a repetition penalty applies to at first, if there is one."""
        return None

    @abstractmethod
    def _advance(
        self, records: Sequence[Record[TrackT]], streams: Streams
    ) -> dict[Record[TrackT], int]:
        """Compute a step; give some records new tokens, and return these."""

    def _feed(self, chosen: Mapping[Record[TrackT], int], streams: Streams) -> None:
        if chosen:
            tokens = self.embeddings(list(chosen.values()))
            streams.feed([record.stream for record in chosen], tokens)

    def _rows(self, records: Sequence[Record[TrackT]]) -> Tensor:
        return torch.tensor([r.stream.row for r in records], device=self.device)

    def _sample(
        self,
        sampler: Sampler,
        logits: Tensor,
        records: Sequence[Record[TrackT]],
        ids: Tensor | None = None,
    ) -> dict[Record[TrackT], int]:
        """Give each record a token, sampled from logits (records, ids), or NONE.

        `ids` are those of the columns where these are not the whole vocabulary.
        """
        columns = sampler.sample(logits, (record.generator for record in records))
        tokens = read_tokens(columns if ids is None else ids[columns], logits)
        for record, token in zip(records, tokens, strict=True):
            record.take(token)
        return dict(zip(records, tokens, strict=True))


class InterleavedDraft(Writing[TrackT], Drafting[TrackT]):
    """Drafts of a model that reads texts and images piece by piece and interleaves."""

    settings: Any
    each: int
    """Positions of an image in a prompt."""
    leading: Sequence[int] = ()
    """Ids before every prompt."""
    mark = "<image>"
    """Stands for an image in the text that people read."""

    def prompt(self, request: Request) -> NativePrompt | Skip | Failure:
        """Return the request as the model reads it, or why it cannot be answered."""
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        parts = self._parts(request)
        texts = self._tokenize([part for part in parts if isinstance(part, str)])
        images = len(parts) - len(texts)
        length = len(self.leading) + sum(map(len, texts)) + images * self.each
        if skip := too_long(length, images, self.each, self.context):
            return skip
        ids = iter(texts)
        try:
            read = [self._read(p) if isinstance(p, Image) else next(ids) for p in parts]
        except ImageError as error:
            return Failure(str(error))
        pieces = ([*self.leading], *read) if self.leading else tuple(read)
        shown = display_text(parts, self.mark)
        return NativePrompt(pieces, shown, length, images, request.seed or 0)

    @abstractmethod
    def _parts(self, request: Request) -> Sequence[Piece]:
        """Return the texts and images of a prompt, in the model's template."""

    @abstractmethod
    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]: ...

    @abstractmethod
    def _read(self, image: Image) -> list[int] | Tensor:
        """Return the ids of an image, or its pixels; ImageError where it is broken."""


def merge_texts(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces with neighbouring texts as one."""
    found: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        else:
            found.append(piece)
    return found


def pieces_of(content: Content) -> list[Piece]:
    """Return the texts and images of a turn."""
    return [s.text if isinstance(s, Text) else s for s in content]


def too_long(
    length: int, images: int, each: int, context: int, room: int = 1
) -> Skip | None:
    """Return the skip of a prompt that leaves no `room` in the context for an answer.

    `length` is that of the prompt with its images, which take `each` positions.
    """
    if length + room <= context:
        return None
    words = length - images * each
    fit = max(context - room - words, 0) // each
    return Skip(
        f"the prompt takes {length} tokens ({images} images of {each} and {words} of text) "
        f"and the answer needs {room}; the context holds {context}, so beside this text at "
        f"most {fit} images fit"
    )


def context_of(requested: int | None, longest: int) -> int:
    """Return the context in use; CheckpointError for more than the model's."""
    if requested is not None and requested > longest:
        raise CheckpointError(f"context {requested} exceeds the model's {longest} tokens")
    return requested or longest


def clip_pixels(pil_image: Pillow.Image) -> Tensor:
    """Return an RGB image as CLIP reads it: (3, height, width), float32, normalised."""
    values = torch.from_numpy(np.asarray(pil_image).astype(np.float32) / 255.0)
    mean = torch.tensor(OPENAI_CLIP_MEAN)
    deviation = torch.tensor(OPENAI_CLIP_STD)
    return ((values - mean) / deviation).permute(2, 0, 1)
