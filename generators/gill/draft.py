"""The drafting stage of GILL: a question in, text and the states of images out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.base import Failure, Outcome, Result, Skip, Weights
from generators.content import unanswerable
from generators.decoding.sampling import Sampler
from generators.document import Draft, Image, Request
from generators.gill.answer import Answers
from generators.gill.loop import Interleaver, Rules
from generators.gill.models import load_drafter
from generators.gill.prompts import Piece, pieces, shown
from generators.gill.settings import GillDraftSettings
from generators.gill.state import Limits, Track
from generators.pictures import PictureError


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as the model reads it, before its pictures are encoded."""

    parts: tuple[list[int] | Tensor, ...]
    """Ids of text; pixels of pictures."""
    shown: str
    """For people: the text, with a mark for each picture."""

    @property
    def pixels(self) -> list[Tensor]:
        """Of each picture, in order."""
        return [part for part in self.parts if isinstance(part, Tensor)]


class GillDraft:
    """Writes interleaved answers; takes the fields of `GillDraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = GillDraftSettings(**settings)
        loaded = load_drafter(weights, self.settings)
        self.language, self.vision = loaded.language, loaded.vision
        self._interleave = Interleaver(self.language, self.limits, self.rules)
        self._answers = Answers(self.language, self.settings)

    @property
    def limits(self) -> Limits:
        """How long an answer may be."""
        told = self.settings
        return Limits(
            context=self.language.context,
            words=told.num_words,
            words_first=told.min_word_tokens,
            images=told.max_num_rets,
            trailing_text=told.trailing_text,
            newline=told.newline,
        )

    @property
    def rules(self) -> Rules:
        """How tokens are chosen."""
        told = self.settings
        greedy = told.temperature == 0
        sampler = Sampler(told.temperature or 1.0, told.top_p, greedy)
        return Rules(sampler, (told.ret_scale_factor, told.gen_scale_factor))

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request, in order.

        A request that leaves no room in the context is skipped; one without content,
        without a seed to sample from, or with an unreadable picture fails.
        """
        prompts = [self.prompt(request) for request in inputs]
        ready = [
            (prompt, request.seed or 0)
            for prompt, request in zip(prompts, inputs, strict=True)
            if isinstance(prompt, Prompt)
        ]
        drafts = iter(self._drafts([p for p, _ in ready], [s for _, s in ready]))
        return [next(drafts) if isinstance(p, Prompt) else p for p in prompts]

    def prompt(self, request: Request) -> Prompt | Skip | Failure:
        """The request as the model reads it, or why it cannot be answered."""
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        read = pieces(request.turns, self.settings, self.language.tokens.voken_names)
        texts = self._tokenized([p for p in read if isinstance(p, str)])
        if reason := self._too_long(sum(map(len, texts)), len(read) - len(texts)):
            return Skip(reason)
        try:
            parts = self._parts(read, texts)
        except PictureError as error:
            return Failure(str(error))
        return Prompt(parts, shown(read))

    def _tokenized(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text; the first, or every one, opens with the BOS."""
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
        self, read: Sequence[Piece], texts: Sequence[list[int]]
    ) -> tuple[list[int] | Tensor, ...]:
        ids, resize = iter(texts), self.settings.resize
        return tuple(
            self.vision.prepared(p, resize) if isinstance(p, Image) else next(ids)
            for p in read
        )

    def _drafts(
        self, prompts: Sequence[Prompt], seeds: Sequence[int]
    ) -> list[Result[Draft]]:
        if not prompts:
            return []
        tracks = self._interleave(self.embedded(prompts), seeds)
        return [self.drafted(p, t) for p, t in zip(prompts, tracks, strict=True)]

    def embedded(self, prompts: Sequence[Prompt]) -> list[Tensor]:
        """Embeddings (positions, width) of each prompt, all pictures encoded together."""
        pixels = [p for prompt in prompts for p in prompt.pixels]
        seen = iter(self.vision(torch.stack(pixels)) if pixels else ())
        return [
            torch.cat(
                [
                    next(seen) if isinstance(part, Tensor) else self.language.embedded(part)
                    for part in prompt.parts
                ]
            )
            for prompt in prompts
        ]

    def drafted(self, prompt: Prompt, track: Track) -> Result[Draft]:
        """The answer that a finished track holds."""
        segments = self._answers.segments(track)
        usage = {
            "input_tokens": track.prompt_length,
            "input_images": len(prompt.pixels),
            "output_tokens": len(track.ids),
            "images": len(track.images),
        }
        notes = {
            "prompt": prompt.shown,
            "stop": str(track.stop),
            "written": self._answers.whole(track),
        }
        return Result(Draft(segments), usage, notes)
