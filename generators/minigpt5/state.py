"""The progress of one record in the loop: its ids, and the states of its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from generators.minigpt5.sizes import VOKENS
from generators.minigpt5.tokens import MiniGPT5Vocabulary


class MiniGPT5Stop(StrEnum):
    """Why an answer ends where it does."""

    MARK = "### reached"
    END = "end of sequence"
    CONTEXT = "context full"
    BUDGET = "token budget reached"


@dataclass(frozen=True, slots=True)
class MiniGPT5Limits:
    """The maximum length of an answer, and where it ends."""

    context: int
    """Maximum positions of prompt and answer; a picture takes eight."""
    max_new_tokens: int
    """A picture counts as one."""
    max_images: int
    end_id: int
    force_image: bool


class MiniGPT5Track:
    """The sampled ids of one record, and the states of its pictures."""

    def __init__(
        self, prompt_length: int, vocabulary: MiniGPT5Vocabulary, limits: MiniGPT5Limits
    ) -> None:
        self.vocabulary = vocabulary
        self.limits = limits
        self.prompt_length = prompt_length
        self.ids: list[int] = []
        """Sampled ids; `[IMG0]` represents its picture, as in upstream's sequences."""
        self.pictures: list[list[Tensor]] = []
        """States of each picture: one before `[IMG0]`, then those at `[IMG0..6]`."""
        self.stop: MiniGPT5Stop | None = None

    @property
    def length(self) -> int:
        """Number of positions of prompt and answer."""
        more_vokens = (VOKENS - 1) * len(self.pictures)
        return self.prompt_length + len(self.ids) + more_vokens

    @property
    def drawing(self) -> bool:
        """Whether the current picture still lacks states."""
        return bool(self.pictures) and len(self.pictures[-1]) < VOKENS

    @property
    def may_begin_image(self) -> bool:
        """Whether a whole picture still fits, and the answer may hold one more."""
        fits = self.length + VOKENS <= self.limits.context
        return fits and len(self.pictures) < self.limits.max_images

    @property
    def must_begin_image(self) -> bool:
        """Whether nothing but a picture may come next."""
        return self.limits.force_image and not self.pictures and self.may_begin_image

    def take(self, token: int, state: Tensor) -> int:
        """Append an id sampled from `state` (width,); the id to feed next."""
        self.ids.append(token)
        if token == self.vocabulary.begin_image:
            self.pictures.append([state])
        else:
            self._stop_at_limits()
        return token

    def collect(self, state: Tensor) -> int:
        """Append a state of the current picture; the voken to feed next."""
        states = self.pictures[-1]
        states.append(state)
        if not self.drawing:
            self._stop_at_limits()
        return self.vocabulary.vokens[len(states) - 1]

    def _stop_at_limits(self) -> None:
        if self.vocabulary.mark_length(self.ids):
            self.stop = MiniGPT5Stop.MARK
        elif self.ids[-1] == self.limits.end_id:
            self.stop = MiniGPT5Stop.END
        elif len(self.ids) >= self.limits.max_new_tokens:
            self.stop = MiniGPT5Stop.BUDGET
        elif self.length >= self.limits.context:
            self.stop = MiniGPT5Stop.CONTEXT

    def segments(self) -> list[str | Tensor]:
        """Unstripped text, and states (vokens, width) of the pictures, in order."""
        parts: list[str | Tensor] = []
        run: list[int] = []
        pictures = iter(self.pictures)
        for token in self._ids_without_mark():
            if token != self.vocabulary.begin_image:
                run.append(token)
                continue
            parts += [self.vocabulary.text(run), torch.stack(next(pictures))]
            run = []
        return [*parts, self.vocabulary.text(run)]

    @property
    def other_added_ids(self) -> dict[str, int]:
        """How often each added id other than `[IMG0]` was sampled; they are not text."""
        size = self.vocabulary.tokenizer.size
        added = [i for i in self.ids if i >= size and i != self.vocabulary.begin_image]
        return {self.vocabulary.added_name(i): added.count(i) for i in sorted(set(added))}

    def _ids_without_mark(self) -> Sequence[int]:
        """The ids without the mark at their end."""
        return self.ids[: len(self.ids) - self.vocabulary.mark_length(self.ids)]
