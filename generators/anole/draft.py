"""The drafting stage of Anole: a question in, text and the VQ codes of pictures out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from generators.anole.codec import encoder_input, pack_codes
from generators.anole.loop import AnoleInterleaver, AnoleRules
from generators.anole.models import load_codec, load_language
from generators.anole.settings import AnoleDraftSettings
from generators.anole.tokens import AnoleLimits, AnoleTrack, TokenMode, split_runs
from generators.base import Failure, Outcome, Result, Skip, Weights
from generators.content import answered, unanswerable
from generators.decoding.sampling import NO_NUMBERS, Sampler
from generators.document import Draft, Image, ImageRequest, Request, Text
from generators.loading.strict import device_of
from generators.overflow import SCORES, no_numbers
from generators.pictures import PictureError


@dataclass(frozen=True, slots=True)
class AnolePrompt:
    """A request in the model's own tokens."""

    ids: tuple[int, ...]
    shown: str
    """The text, with a mark for each picture, for readers of the result."""
    images: int
    seed: int


class AnoleDraft:
    """Writes interleaved answers; takes the fields of `AnoleDraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = AnoleDraftSettings(**settings)
        device = device_of(self.settings.device)
        dtype = getattr(torch, self.settings.dtype)
        place = (weights, self.settings.model, self.settings.revision, device)
        self.language = load_language(*place, dtype)
        self.codec = load_codec(*place)
        self.limits = self._limits()
        self._interleave = AnoleInterleaver(
            self.language.model, self.language.vocabulary, self.limits, self.rules
        )

    def _limits(self) -> AnoleLimits:
        longest = self.language.context
        context = self.settings.context or longest
        if context > longest:
            raise ValueError(f"context {context} exceeds the model's {longest} tokens")
        return AnoleLimits(
            context=context,
            image_tokens=self.codec.side**2,
            max_text_tokens=self.settings.max_text_tokens,
            max_images=self.settings.max_images,
        )

    @property
    def rules(self) -> AnoleRules:
        """How tokens are chosen."""
        own = self.settings
        return AnoleRules(
            text=Sampler(own.text_temperature, own.text_top_p, own.text_greedy),
            image=Sampler(own.image_temperature, own.image_top_p, own.image_greedy),
            repetition_penalty=own.repetition_penalty,
            guidance_text=own.guidance_text,
            guidance_image=own.guidance_image,
        )

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request, in order.

        A request that leaves no room in the context is skipped; one without content,
        without a seed to sample from, or with an unreadable picture fails.
        """
        return answered([self.prompt(request) for request in inputs], self._drafts)

    def _drafts(self, prompts: Sequence[AnolePrompt]) -> list[Outcome[Draft]]:
        tracks = self._interleave([p.ids for p in prompts], [p.seed for p in prompts])
        return [self.drafted(p, t) for p, t in zip(prompts, tracks, strict=True)]

    def prompt(self, request: Request) -> AnolePrompt | Skip | Failure:
        """The request in the model's tokens, or why it cannot be answered."""
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        parts = self._parts(request)
        pieces = [p if isinstance(p, Image) else self._tokenized(p) for p in parts]
        if reason := self._too_long(pieces):
            return Skip(reason)
        try:
            tokens = [self._image_tokens(p) if isinstance(p, Image) else p for p in pieces]
        except PictureError as error:
            return Failure(str(error))
        shown = "".join("<image>" if isinstance(p, Image) else p for p in parts)
        ids = (self.language.vocabulary.bos, *chain.from_iterable(tokens))
        return AnolePrompt(ids, shown, len(request.images), request.seed or 0)

    def _parts(self, request: Request) -> list[str | Image]:
        """Text and pictures of all turns in order, without any template."""
        parts: list[str | Image] = []
        for turn in request.turns:
            if parts and turn.content:
                parts.append(self.settings.turn_separator)
            parts += [s.text if isinstance(s, Text) else s for s in turn.content]
        return parts

    def _tokenized(self, text: str) -> list[int]:
        ids: list[int] = self.language.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _image_tokens(self, image: Image) -> list[int]:
        vocabulary = self.language.vocabulary
        codes = self.codec.encode(encoder_input(image, self.codec.resolution))
        tokens = vocabulary.tokens(codes.ravel().tolist())
        return [vocabulary.begin_image, *tokens, vocabulary.end_image]

    def _too_long(self, pieces: Sequence[Image | list[int]]) -> str | None:
        limits = self.limits
        pictures = sum(isinstance(piece, Image) for piece in pieces)
        words = sum(len(piece) for piece in pieces if not isinstance(piece, Image))
        length = 1 + pictures * limits.picture + words
        if length < limits.context:
            return None
        return (
            f"the prompt takes {length} tokens ({pictures} pictures of {limits.picture} "
            f"and {words} of text); the context holds {limits.context}, the answer "
            f"included, so at most {(limits.context - 2) // limits.picture} pictures fit"
        )

    def drafted(self, prompt: AnolePrompt, track: AnoleTrack) -> Result[Draft] | Failure:
        """The draft in a finished track, or why there is none."""
        if track.stop == NO_NUMBERS:
            return no_numbers(SCORES, self.language.model.dtype)
        segments = self._segments(track.generated)
        usage = {
            "input_tokens": len(prompt.ids),
            "input_images": prompt.images,
            "output_tokens": len(track.generated),
            "images": track.images,
            "image_tokens": track.images * self.limits.image_tokens,
        }
        notes = {"prompt": prompt.shown, "stop": str(track.stop)}
        return Result(Draft(segments), usage, notes)

    def _segments(self, tokens: Sequence[int]) -> tuple[Text | ImageRequest, ...]:
        """Text as the tokenizer spells it (blank runs left out), pictures as requests."""
        segments: list[Text | ImageRequest] = []
        for mode, ids in split_runs(tokens, self.language.vocabulary):
            if mode is TokenMode.IMAGE:
                segments.append(self._request(ids))
                continue
            text = self.language.tokenizer.decode(list(ids), skip_special_tokens=True)
            if text.strip():
                segments.append(Text(text))
        return tuple(segments)

    def _request(self, tokens: Sequence[int]) -> ImageRequest:
        codes = np.array(self.language.vocabulary.codes(tokens), dtype=np.int32)
        grid = codes.reshape(self.codec.side, self.codec.side)
        return ImageRequest(payload=pack_codes(grid))
