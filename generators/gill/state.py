"""Where one record stands in GILL's loop: its ids, the states of its images, its stop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from generators.gill.settings import NewlineRule
from generators.gill.tokens import Tokens


class Stop(StrEnum):
    """Why an answer ends where it does."""

    LINE = "end of line"
    WORDS = "word budget reached"
    IMAGES = "image limit reached"
    CONTEXT = "context full"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an answer may be, and where it ends."""

    context: int
    """Most tokens of prompt and answer together."""
    words: int
    """Tokens chosen, an image counting as one."""
    words_first: int
    """Tokens before an image may be asked for."""
    images: int
    trailing_text: bool
    """Whether to go on after the last image."""
    newline: NewlineRule


class Track:
    """The answer of one record, and what may come next.

    After [IMG0] the other image tokens are forced, and the states of all of them, read
    one step after each was fed, are the image. What upstream decides afterwards, on an
    answer of full length, is decided here as soon as it is certain: the newline that
    ends the answer, and that nothing after its last image is kept.
    """

    def __init__(self, prompt_length: int, tokens: Tokens, limits: Limits) -> None:
        self.tokens = tokens
        self.limits = limits
        self.prompt_length = prompt_length
        self.ids: list[int] = []
        self.images: list[Tensor] = []
        """States (vokens, width) of each finished image."""
        self.steps = 0
        self.stop: Stop | None = None
        self._states: list[Tensor] = []

    @property
    def forced(self) -> int | None:
        """The image token that must come next, if any."""
        return self.tokens.vokens[len(self._states)] if self._states else None

    @property
    def may_ask(self) -> bool:
        """Whether an image may be asked for now, and all its tokens fit."""
        needed = self.prompt_length + len(self.ids) + len(self.tokens.vokens)
        return (
            self.steps >= self.limits.words_first
            and len(self.images) < self.limits.images
            and needed <= self.limits.context
        )

    def read(self, state: Tensor) -> None:
        """Take the model's state (width,) at the last token."""
        if not self.ids or self.ids[-1] not in self.tokens.vokens:
            return
        self._states.append(state)
        if len(self._states) == len(self.tokens.vokens):
            self.images.append(torch.stack(self._states))
            self._states = []
            self._stop_after_image()

    def take(self, token: int) -> None:
        """Append the next token."""
        if self._ends(token):
            self.stop = Stop.LINE
            return
        self.ids.append(token)
        if self._states:
            return
        self.steps += 1
        if token != self.tokens.vokens[0]:
            self._stop_at_limits()

    def _ends(self, token: int) -> bool:
        if token != self.tokens.newline or self.limits.newline == "never":
            return False
        if self.limits.newline == "upstream":
            return bool(self.ids) and self.ids[0] != token
        return any(i != token for i in self.ids)

    def _stop_after_image(self) -> None:
        if len(self.images) >= self.limits.images and not self.limits.trailing_text:
            self.stop = Stop.IMAGES
        else:
            self._stop_at_limits()

    def _stop_at_limits(self) -> None:
        if self.steps >= self.limits.words:
            self.stop = Stop.WORDS
        elif self.prompt_length + len(self.ids) >= self.limits.context:
            self.stop = Stop.CONTEXT
