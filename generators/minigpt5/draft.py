"""The drafting stage of MiniGPT-5: a question in, text and the states of pictures out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.base import Failure, Outcome, Result, Skip, Weights
from generators.content import answered, unanswerable
from generators.decoding.sampling import NO_NUMBERS, Sampler
from generators.document import Draft, Image, ImageRequest, Request, Text
from generators.loading.strict import device_of
from generators.minigpt5.loop import (
    MiniGPT5Interleaver,
    MiniGPT5Limits,
    MiniGPT5Rules,
    MiniGPT5Track,
)
from generators.minigpt5.models import context_of, load_writer
from generators.minigpt5.prompts import display_text, prompt_parts
from generators.minigpt5.settings import MiniGPT5DraftSettings
from generators.minigpt5.vision import encoder_pixels
from generators.overflow import SCORES, no_numbers
from generators.pictures import PictureError
from generators.vokens.mapper import pack_states


@dataclass(frozen=True, slots=True)
class MiniGPT5Prompt:
    """A request as the model reads it."""

    pieces: tuple[list[int] | Tensor, ...]
    """Ids, and the pixels (3, side, side) of the pictures between them."""
    length: int
    """Number of positions."""
    display_text: str
    seed: int

    @property
    def pixels(self) -> list[Tensor]:
        """The pixels of each picture, in order."""
        return [piece for piece in self.pieces if isinstance(piece, Tensor)]


class MiniGPT5Draft:
    """Writes interleaved answers; takes the fields of `MiniGPT5DraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = options = MiniGPT5DraftSettings(**settings)
        dtype = getattr(torch, options.dtype)
        self.writer = load_writer(weights, options, device_of(options.device), dtype)
        self.vocabulary = self.writer.vocabulary
        self.limits = MiniGPT5Limits(
            context=context_of(self.writer, options.context),
            max_new_tokens=options.max_new_tokens,
            max_images=options.max_images,
            end_id=options.end_id,
            force_image=options.force_image,
        )
        sampler = Sampler(options.temperature, options.top_p, options.greedy, options.top_k)
        self.rules = MiniGPT5Rules(sampler, options.repetition_penalty, options.leading_id)
        self._interleave = MiniGPT5Interleaver(
            self.writer.language, self.vocabulary, self.limits, self.rules
        )

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request, in order.

        A request that leaves no room in the context is skipped; one without content,
        without a seed to sample from, or with an unreadable picture fails.
        """
        return answered([self.prompt(request) for request in inputs], self._drafts)

    def _drafts(self, prompts: Sequence[MiniGPT5Prompt]) -> list[Outcome[Draft]]:
        tracks = self._interleave(self.embed(prompts), [p.seed for p in prompts])
        return [self.result(p, t) for p, t in zip(prompts, tracks, strict=True)]

    def prompt(self, request: Request) -> MiniGPT5Prompt | Skip | Failure:
        """The request as the model reads it, or why it cannot be answered."""
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        parts = prompt_parts(request, self.settings)
        pieces = [p if isinstance(p, Image) else self._tokenized(p) for p in parts]
        # One position is that of the id with which every prompt begins.
        length = 1 + sum(map(self._positions, pieces))
        if length >= self.limits.context:
            return Skip(self._too_long(length, len(request.images)))
        try:
            content = tuple(self._pixels(p) if isinstance(p, Image) else p for p in pieces)
        except PictureError as error:
            return Failure(str(error))
        return MiniGPT5Prompt(content, length, display_text(parts), request.seed or 0)

    def _tokenized(self, text: str) -> list[int]:
        return self.vocabulary.tokenizer.encode(text)

    def _positions(self, piece: Image | list[int]) -> int:
        return self._queries if isinstance(piece, Image) else len(piece)

    @property
    def _queries(self) -> int:
        """Number of positions of one picture."""
        return self.writer.encoder.query_tokens.shape[1]

    def _too_long(self, length: int, pictures: int) -> str:
        return (
            f"the prompt takes {length} positions ({pictures} pictures of {self._queries}, "
            f"the rest text); the context holds {self.limits.context}, the answer included"
        )

    def _pixels(self, image: Image) -> Tensor:
        return encoder_pixels(image, self.writer.encoder.side, self.settings.fit)

    def embed(self, prompts: Sequence[MiniGPT5Prompt]) -> list[Tensor]:
        """Vectors (positions, width) of each prompt; all pictures are encoded together."""
        pixels = [pixels for prompt in prompts for pixels in prompt.pixels]
        pictures = iter(self.writer.encoder(torch.stack(pixels)) if pixels else ())
        return [self._joined(prompt, pictures) for prompt in prompts]

    def _joined(self, prompt: MiniGPT5Prompt, pictures: Iterator[Tensor]) -> Tensor:
        vectors = [self._interleave.embed([self.vocabulary.bos])]
        for piece in prompt.pieces:
            if isinstance(piece, Tensor):
                vectors.append(next(pictures))
            else:
                vectors.append(self._interleave.embed(piece))
        return torch.cat(vectors)

    def result(
        self, prompt: MiniGPT5Prompt, track: MiniGPT5Track
    ) -> Result[Draft] | Failure:
        """The result of a finished track, or why there is none."""
        if track.stop == NO_NUMBERS:
            return no_numbers(SCORES, self.writer.language.dtype)
        usage = {
            "input_tokens": prompt.length,
            "input_images": len(prompt.pixels),
            "output_tokens": len(track.ids),
            "images": len(track.pictures),
        }
        notes: dict[str, Any] = {"prompt": prompt.display_text, "stop": str(track.stop)}
        if others := track.other_added_ids:
            notes["left out"] = others
        return Result(Draft(self._segments(track)), usage, notes)

    def _segments(self, track: MiniGPT5Track) -> tuple[Text | ImageRequest, ...]:
        """Requests, and stripped text that is not blank, in order."""
        parts = track.segments()
        if self.settings.spell_leading_id and isinstance(parts[0], str):
            parts[0] = "<unk>" + parts[0]
        segments: list[Text | ImageRequest] = []
        for part in parts:
            if isinstance(part, Tensor):
                segments.append(ImageRequest(payload=pack_states(part)))
            elif part.strip():
                segments.append(Text(part.strip()))
        return tuple(segments)
