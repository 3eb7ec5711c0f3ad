"""The drafting stage of a model that interleaves: a request in, text and payloads out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

from generators.base import Failure, Outcome, Result, Skip
from generators.content import answered, unanswerable
from generators.decoding.interleaving import Interleaver, TrackT
from generators.decoding.sampling import NO_NUMBERS
from generators.document import Draft, Image, ImageRequest, Request, Text
from generators.errors import CheckpointError
from generators.overflow import SCORES, no_numbers
from generators.pictures import PictureError

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


MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)
"""CLIP's, by channel."""


def clip_pixels(picture: Pillow.Image) -> Tensor:
    """Return an RGB image as CLIP reads it: (3, height, width), float32, normalised."""
    values = torch.from_numpy(np.asarray(picture).astype(np.float32) / 255.0)
    return ((values - torch.tensor(MEAN)) / torch.tensor(DEVIATION)).permute(2, 0, 1)


def context_of(requested: int | None, longest: int) -> int:
    """Return the context in use; CheckpointError for more than the model's."""
    if requested is not None and requested > longest:
        raise CheckpointError(f"context {requested} exceeds the model's {longest} tokens")
    return requested or longest


class Drafting(ABC, Generic[TrackT]):
    """Answers a batch of requests, each of which fails or is skipped alone."""

    dtype: torch.dtype
    """Of the language model."""

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """Return one draft per request, in order.

        A request that leaves no room in the context is skipped; one without content,
        without a seed to sample from, or with an unreadable image fails.
        """
        return answered([self.prompt(request) for request in inputs], self._drafts)

    @abstractmethod
    def prompt(self, request: Request) -> NativePrompt | Skip | Failure:
        """Return the request as the model reads it, or why it cannot be answered."""

    @abstractmethod
    def tracks(self, prompts: Sequence[NativePrompt]) -> Sequence[TrackT]:
        """Return the finished answer to each prompt."""

    @abstractmethod
    def segments(self, track: TrackT) -> Sequence[Segment]:
        """Return the text and the image requests of a finished answer, in order."""

    def _drafts(self, prompts: Sequence[NativePrompt]) -> list[Result[Draft] | Failure]:
        tracks = self.tracks(prompts)
        return [self.result(p, t) for p, t in zip(prompts, tracks, strict=True)]

    def result(self, prompt: NativePrompt, track: TrackT) -> Result[Draft] | Failure:
        """Return the result of a finished answer, or why there is none."""
        if track.stop == NO_NUMBERS:
            return no_numbers(SCORES, self.dtype)
        draft = Draft(tuple(self.segments(track)))
        usage = {
            "input_tokens": prompt.length,
            "input_images": prompt.images,
            "output_tokens": len(track.ids),
            "images": len(draft.requests),
        }
        notes = {"prompt": prompt.shown, "stop": str(track.stop)}
        return Result(draft, usage | self.more_usage(track), notes | self.more_notes(track))

    def more_usage(self, track: TrackT) -> dict[str, float]:
        """Return what the model counts besides."""
        return {}

    def more_notes(self, track: TrackT) -> dict[str, Any]:
        """Return what the model notes besides."""
        return {}


class InterleavedDraft(Drafting[TrackT]):
    """Drafts of a model that reads texts and images piece by piece and interleaves."""

    settings: Any
    each: int
    """Positions of an image in a prompt."""
    leading: Sequence[int]
    """Ids before every prompt."""
    interleave: Interleaver[TrackT]
    mark = "<image>"
    """Stands for an image in the text that people read."""

    def prompt(self, request: Request) -> NativePrompt | Skip | Failure:
        """Return the request as the model reads it, or why it cannot be answered."""
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        parts = self.parts(request)
        texts = self.tokenized([part for part in parts if isinstance(part, str)])
        images = len(parts) - len(texts)
        length = len(self.leading) + sum(map(len, texts)) + images * self.each
        if skip := too_long(length, images, self.each, self.interleave.context):
            return skip
        ids = iter(texts)
        try:
            read = [self.read(p) if isinstance(p, Image) else next(ids) for p in parts]
        except PictureError as error:
            return Failure(str(error))
        pieces = ([*self.leading], *read) if self.leading else tuple(read)
        shown = "".join(self.mark if isinstance(p, Image) else p for p in parts)
        return NativePrompt(pieces, shown, length, images, request.seed or 0)

    @abstractmethod
    def parts(self, request: Request) -> Sequence[Piece]:
        """Return the texts and images of a prompt, in the model's template."""

    @abstractmethod
    def tokenized(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""

    @abstractmethod
    def read(self, image: Image) -> list[int] | Tensor:
        """Return the ids of an image, or its pixels; PictureError where it is broken."""

    def encoded(self, pixels: Tensor) -> Tensor:
        """Return embeddings (images, positions, width) of pixels (images, 3, ...)."""
        raise NotImplementedError

    def embed(self, prompts: Sequence[NativePrompt]) -> list[Tensor]:
        """Return embeddings (positions, width) of each prompt; images are read together."""
        pixels = [pixels for prompt in prompts for pixels in prompt.pixels]
        images = iter(self.encoded(torch.stack(pixels)) if pixels else ())

        def embedded(piece: list[int] | Tensor) -> Tensor:
            return (
                next(images) if isinstance(piece, Tensor) else self.interleave.embed(piece)
            )

        return [torch.cat([*map(embedded, prompt.pieces)]) for prompt in prompts]

    @abstractmethod
    def track(self, prompt: NativePrompt) -> TrackT:
        """Return the answer to a prompt before its first token."""

    def tracks(self, prompts: Sequence[NativePrompt]) -> Sequence[TrackT]:
        """Return the finished answer to each prompt."""
        tracks = [self.track(prompt) for prompt in prompts]
        return self.interleave(self.embed(prompts), tracks, [p.seed for p in prompts])
