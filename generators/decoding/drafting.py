"""The drafting stage of native models: requests in, text and payloads of images out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from plait.generators.base import Failure, Outcome, Result, Skip
from plait.generators.content import answer_all, display_text, unanswerable
from plait.generators.decoding.batch_writer import BatchWriter, Written
from plait.generators.decoding.rules import Rules, TextRules
from plait.generators.decoding.sampling import (
    NO_NUMBERS,
    NONE,
    NoNumbers,
    Numbers,
    Sampler,
    sound_tokens,
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
        ids: list[int] = []
        for piece in self.pieces:
            if isinstance(piece, list):
                ids += piece
        return ids

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

    def take_all(self, tokens: list[int]) -> None:
        """Take the tokens of the whole answer; by default one after another."""
        for token in tokens:
            self.take(token)

    def take(self, token: int) -> None:
        """Append the next token."""
        raise NotImplementedError


class LimitedTrack(Track):
    """An answer that ends at the token `end`, at so many tokens, or with the context.

    Where it ends is decided on the device alone (`TextRules`); this says why.
    """

    def __init__(
        self, prompt: NativePrompt, context: int, limit: int, end: int = NONE
    ) -> None:
        super().__init__(prompt, context)
        self._limit = limit
        self._end = end

    def take_all(self, tokens: list[int]) -> None:
        """Take the tokens of the whole answer."""
        self.ids = tokens
        if tokens[-1:] == [self._end]:
            self.stop = Stop.END
        elif len(tokens) >= self._limit:
            self.stop = Stop.LIMIT
        else:
            self.stop = Stop.CONTEXT


TrackT = TypeVar("TrackT", bound=Track)


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

    All records of a batch are written together (`BatchWriter`), by the rules of a model;
    the programs of the models' authors write one record at a time.
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
        pixels: list[Tensor] = []
        for prompt in prompts:
            pixels += prompt.pixels
        images = iter(self._encode(torch.stack(pixels)) if pixels else ())
        embedded: list[Tensor] = []
        for prompt in prompts:
            parts: list[Tensor] = []
            for piece in prompt.pieces:
                if isinstance(piece, Tensor):
                    parts.append(next(images))
                else:
                    parts.append(self.embeddings(piece))
            embedded.append(torch.cat(parts))
        return embedded

    def embeddings(self, ids: Sequence[int]) -> Tensor:
        """Return embeddings (ids, width)."""
        return self.embed_tokens(torch.tensor(list(ids), dtype=torch.long))

    def embed_tokens(self, ids: Tensor) -> Tensor:
        """Return embeddings (ids, width) of ids (ids,)."""
        return self.table[ids.to(self.device)]

    @torch.inference_mode()
    def tracks(self, prompts: Sequence[NativePrompt]) -> Sequence[TrackT]:
        """Return the finished answer to each prompt.

        Its seed alone fixes a record's samples, whatever the rest of the batch.
        """
        streams = self._streams(prompts)
        rules = self._rules(prompts, streams)

        def open_streams(records: list[int]) -> Sequence[tuple[Stream, ...]]:
            return self._open([prompts[record] for record in records], streams)

        written = BatchWriter(streams, rules, open_streams)()
        tracks: list[TrackT] = []
        for record, prompt in enumerate(prompts):
            tracks.append(self._track_of(record, prompt, written[record], rules))
        return tracks

    def _streams(self, prompts: Sequence[NativePrompt]) -> Streams:
        return Streams(self.decoder, self.context)

    @abstractmethod
    def _rules(self, prompts: Sequence[NativePrompt], streams: Streams) -> Rules:
        """Return the rules by which these prompts are answered."""

    def _open(
        self, prompts: Sequence[NativePrompt], streams: Streams
    ) -> Sequence[tuple[Stream, ...]]:
        """Open the stream of each prompt, and those that guide it from the start."""
        return [(stream,) for stream in streams.open(self.embed(prompts))]

    def _track_of(
        self, record: int, prompt: NativePrompt, written: Written, rules: Rules
    ) -> TrackT:
        """Return the answer that was written to a prompt, which is a record of `rules`."""
        track = self.track(prompt)
        track.take_all(written.tokens)
        if written.broken:
            track.stop = NO_NUMBERS
        return track


class LimitedWriting(Writing[LimitedTrack]):
    """Answers of one kind of token, each by the sampler alone."""

    sampler: Sampler
    limit: int
    """Most tokens of an answer."""
    end: int = NONE
    """The token that ends an answer, if there is one."""

    @abstractmethod
    def logits(self, states: Tensor) -> Tensor:
        """Return float32 logits (records, ids) of states (streams, records, width)."""

    def embed_written(self, ids: Tensor) -> Tensor:
        """Return embeddings (ids, width) of what was written (ids,)."""
        return self.embed_tokens(ids)

    def track(self, prompt: NativePrompt) -> LimitedTrack:
        """Return the answer to a prompt before its first token."""
        return LimitedTrack(prompt, self.context, self.limit, self.end)

    def _rules(self, prompts: Sequence[NativePrompt], streams: Streams) -> TextRules:
        numbers = Numbers([prompt.seed for prompt in prompts])

        def choose(states: Tensor, records: Tensor) -> Tensor:
            logits = self.logits(states)
            columns = self.sampler.choose(logits, partial(numbers.draw, records))
            return sound_tokens(columns, logits)

        limits = [min(self.limit, self.context - prompt.length) for prompt in prompts]
        ends = {self.end} - {NONE}
        return TextRules(choose, self.embed_written, limits, ends, streams.device)


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
        pieces: list[list[int] | Tensor] = [[*self.leading]] if self.leading else []
        ids = iter(texts)
        # Only now are images read: a prompt that is too long is skipped before.
        for part in parts:
            if isinstance(part, str):
                pieces.append(next(ids))
                continue
            try:
                pieces.append(self._read(part))
            except ImageError as error:
                return Failure(str(error))
        shown = display_text(parts, self.mark)
        return NativePrompt(tuple(pieces), shown, length, images, request.seed or 0)

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
