"""The drafting stage of MiniGPT-5: a question in, text and the states of pictures out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.base import Failure, Outcome, Result, Skip, Weights
from generators.decoding.requests import unanswerable
from generators.decoding.sampling import Sampler
from generators.document import Draft, Image, ImageRequest, Request, Text
from generators.loading.devices import device_of
from generators.minigpt5.loop import Interleaver, Rules
from generators.minigpt5.models import context_of, load_writer
from generators.minigpt5.prompts import asked, shown
from generators.minigpt5.settings import MiniGPT5DraftSettings
from generators.minigpt5.state import Limits, Track
from generators.minigpt5.vision import prepared
from generators.pictures import PictureError
from generators.vokens.mapper import packed


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request in the model's own terms."""

    pieces: tuple[list[int] | Tensor, ...]
    """Ids, and pixels (3, side, side) of the pictures between them."""
    length: int
    """Positions it takes."""
    shown: str
    seed: int

    @property
    def pixels(self) -> list[Tensor]:
        """The pictures, in order."""
        return [piece for piece in self.pieces if isinstance(piece, Tensor)]


class MiniGPT5Draft:
    """Writes interleaved answers; takes the fields of `MiniGPT5DraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = told = MiniGPT5DraftSettings(**settings)
        dtype = getattr(torch, told.dtype)
        self.writer = load_writer(weights, told, device_of(told.device), dtype)
        self.vocabulary = self.writer.vocabulary
        self.limits = Limits(
            context=context_of(self.writer, told.context),
            max_new_tokens=told.max_new_tokens,
            max_images=told.max_images,
            end_id=told.end_id,
            force_image=told.force_image,
        )
        sampler = Sampler(told.temperature, told.top_p, told.greedy, told.top_k)
        self.rules = Rules(sampler, told.repetition_penalty, told.leading_id)
        self._interleave = Interleaver(
            self.writer.language, self.vocabulary, self.limits, self.rules
        )

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request, in order.

        A request that leaves no room in the context is skipped; one without content,
        without a seed to sample from, or with an unreadable picture fails.
        """
        read = [self.prompt(request) for request in inputs]
        prompts = [prompt for prompt in read if isinstance(prompt, Prompt)]
        tracks = self._interleave(self.embedded(prompts), [p.seed for p in prompts])
        written = iter(zip(prompts, tracks, strict=True))
        return [self.drafted(*next(written)) if isinstance(p, Prompt) else p for p in read]

    def prompt(self, request: Request) -> Prompt | Skip | Failure:
        """The request in the model's own terms, or why it cannot be answered."""
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        parts = asked(request, self.settings)
        pieces = [p if isinstance(p, Image) else self._tokenised(p) for p in parts]
        # One position is that of the id every prompt begins with.
        length = 1 + sum(map(self._positions, pieces))
        if length >= self.limits.context:
            return Skip(self._too_long(length, len(request.images)))
        try:
            read = tuple(self._pixels(p) if isinstance(p, Image) else p for p in pieces)
        except PictureError as error:
            return Failure(str(error))
        return Prompt(read, length, shown(parts), request.seed or 0)

    def _tokenised(self, text: str) -> list[int]:
        return self.vocabulary.tokenizer.encode(text)

    def _positions(self, piece: Image | list[int]) -> int:
        return self._queries if isinstance(piece, Image) else len(piece)

    @property
    def _queries(self) -> int:
        """Positions one picture takes."""
        return self.writer.encoder.query_tokens.shape[1]

    def _too_long(self, length: int, pictures: int) -> str:
        return (
            f"the prompt takes {length} positions ({pictures} pictures of {self._queries}, "
            f"the rest text); the context holds {self.limits.context}, the answer included"
        )

    def _pixels(self, image: Image) -> Tensor:
        return prepared(image, self.writer.encoder.side, self.settings.fit)

    def embedded(self, prompts: Sequence[Prompt]) -> list[Tensor]:
        """Each prompt as vectors (positions, width); all pictures are encoded together."""
        pixels = [pixels for prompt in prompts for pixels in prompt.pixels]
        seen = iter(self.writer.encoder(torch.stack(pixels)) if pixels else ())
        return [self._joined(prompt, seen) for prompt in prompts]

    def _joined(self, prompt: Prompt, pictures: Iterator[Tensor]) -> Tensor:
        vectors = [self._interleave.embedded([self.vocabulary.bos])]
        for piece in prompt.pieces:
            if isinstance(piece, Tensor):
                vectors.append(next(pictures))
            else:
                vectors.append(self._interleave.embedded(piece))
        return torch.cat(vectors)

    def drafted(self, prompt: Prompt, track: Track) -> Result[Draft]:
        """What a finished track says."""
        usage = {
            "input_tokens": prompt.length,
            "input_images": len(prompt.pixels),
            "output_tokens": len(track.ids),
            "images": len(track.pictures),
        }
        notes: dict[str, Any] = {"prompt": prompt.shown, "stop": str(track.stop)}
        if strays := track.strays:
            notes["left out"] = strays
        return Result(Draft(self._segments(track)), usage, notes)

    def _segments(self, track: Track) -> tuple[Text | ImageRequest, ...]:
        """Text without the white space at its edges (blank runs left out), and requests."""
        parts = track.segments()
        if self.settings.spell_leading_id and isinstance(parts[0], str):
            parts[0] = "<unk>" + parts[0]
        segments: list[Text | ImageRequest] = []
        for part in parts:
            if isinstance(part, Tensor):
                segments.append(ImageRequest(payload=packed(part)))
            elif part.strip():
                segments.append(Text(part.strip()))
        return tuple(segments)
