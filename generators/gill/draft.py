"""The drafting stage of GILL: a question in, text and the states of images out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.base import Failure, Outcome, Result, Skip, Weights
from generators.content import answered, display_text, unanswerable
from generators.decoding.sampling import NO_NUMBERS, Sampler
from generators.document import Draft, Image, Request
from generators.gill.dialogue import GillAnswers, Piece, pieces
from generators.gill.loop import GillInterleaver, GillLimits, GillRules, GillTrack
from generators.gill.models import load_models
from generators.gill.settings import GillDraftSettings
from generators.overflow import SCORES, no_numbers
from generators.pictures import PictureError


@dataclass(frozen=True, slots=True)
class GillPrompt:
    """A request as the model reads it, before its pictures are encoded."""

    parts: tuple[list[int] | Tensor, ...]
    """Ids of text; pixels of pictures."""
    display_text: str
    """For people: the text, with a mark for each picture."""
    seed: int

    @property
    def pixels(self) -> list[Tensor]:
        """The pixels of each picture, in order."""
        return [part for part in self.parts if isinstance(part, Tensor)]


class GillDraft:
    """Writes interleaved answers; takes the fields of `GillDraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = GillDraftSettings(**settings)
        models = load_models(weights, self.settings)
        self.language, self.vision = models.language, models.vision
        self._interleave = GillInterleaver(self.language, self.limits, self.rules)
        self._answers = GillAnswers(self.language, self.settings)

    @property
    def limits(self) -> GillLimits:
        """How long an answer may be."""
        settings = self.settings
        return GillLimits(
            context=self.language.context,
            words=settings.num_words,
            min_words=settings.min_word_tokens,
            images=settings.max_num_rets,
            trailing_text=settings.trailing_text,
            newline=settings.newline,
        )

    @property
    def rules(self) -> GillRules:
        """How tokens are chosen."""
        settings = self.settings
        greedy = settings.temperature == 0
        sampler = Sampler(settings.temperature or 1.0, settings.top_p, greedy)
        return GillRules(sampler, (settings.ret_scale_factor, settings.gen_scale_factor))

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request, in order.

        A request that leaves no room in the context is skipped; one without content,
        without a seed to sample from, or with an unreadable picture fails.
        """
        return answered([self.prompt(request) for request in inputs], self._drafts)

    def prompt(self, request: Request) -> GillPrompt | Skip | Failure:
        """The request as the model reads it, or why it cannot be answered."""
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        content = pieces(request.turns, self.settings, self.language.tokens.voken_names)
        texts = self._tokenized([p for p in content if isinstance(p, str)])
        if reason := self._too_long(sum(map(len, texts)), len(content) - len(texts)):
            return Skip(reason)
        try:
            parts = self._parts(content, texts)
        except PictureError as error:
            return Failure(str(error))
        return GillPrompt(parts, display_text(content), request.seed or 0)

    def _tokenized(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text; the first, or every one, begins with the BOS."""
        tokens, every = self.language.tokens, self.settings.always_add_bos
        return [
            [tokens.bos, *tokens.encode(text)] if every or i == 0 else tokens.encode(text)
            for i, text in enumerate(texts)
        ]

    def _too_long(self, words: int, pictures: int) -> str | None:
        each, context = self.vision.tokens, self.language.context
        length = words + pictures * each
        if length < context:
            return None
        return (
            f"the prompt takes {length} tokens ({words} of text and {pictures} pictures of "
            f"{each}); the context holds {context}, the answer included"
        )

    def _parts(
        self, content: Sequence[Piece], texts: Sequence[list[int]]
    ) -> tuple[list[int] | Tensor, ...]:
        ids, resize = iter(texts), self.settings.resize
        return tuple(
            self.vision.pixels(p, resize) if isinstance(p, Image) else next(ids)
            for p in content
        )

    def _drafts(self, prompts: Sequence[GillPrompt]) -> list[Outcome[Draft]]:
        tracks = self._interleave(self.embed(prompts), [p.seed for p in prompts])
        return [self.result(p, t) for p, t in zip(prompts, tracks, strict=True)]

    def embed(self, prompts: Sequence[GillPrompt]) -> list[Tensor]:
        """Embeddings (positions, width) of each prompt, all pictures encoded together."""
        pixels = [p for prompt in prompts for p in prompt.pixels]
        pictures = iter(self.vision(torch.stack(pixels)) if pixels else ())
        return [
            torch.cat(
                [
                    next(pictures)
                    if isinstance(part, Tensor)
                    else self.language.embed(part)
                    for part in prompt.parts
                ]
            )
            for prompt in prompts
        ]

    def result(self, prompt: GillPrompt, track: GillTrack) -> Result[Draft] | Failure:
        """The result of a finished track, or why there is none."""
        if track.stop == NO_NUMBERS:
            return no_numbers(SCORES, self.language.embeddings.dtype)
        segments = self._answers.segments(track)
        usage = {
            "input_tokens": track.prompt_length,
            "input_images": len(prompt.pixels),
            "output_tokens": len(track.ids),
            "images": len(track.images),
        }
        notes = {
            "prompt": prompt.display_text,
            "stop": str(track.stop),
            "written": self._answers.readable(track),
        }
        return Result(Draft(segments), usage, notes)
