"""The progress of one record in GILL's loop: its ids, its images' states, its stop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from generators.gill.settings import NewlineRule
from generators.gill.tokens import GillTokens


class GillStop(StrEnum):
    """Why an answer ends where it does."""

    LINE = "end of line"
    WORDS = "word budget reached"
    IMAGES = "image limit reached"
    CONTEXT = "context full"


@dataclass(frozen=True, slots=True)
class GillLimits:
    """The maximum length of an answer, and where it ends."""

    context: int
    """Maximum number of tokens of prompt and answer together."""
    words: int
    """Maximum number of sampled tokens; an image counts as one."""
    min_words: int
    """Minimum number of tokens before an image."""
    images: int
    """Maximum number of images."""
    trailing_text: bool
    """Whether the answer continues after the last image."""
    newline: NewlineRule


class GillTrack:
    """The answer of one record, and what may come next.

    After [IMG0] the other image tokens are forced. The states of all of them, each read
    one step after its token was fed, are the image. Upstream cuts an answer afterwards,
    at full length: at the newline that ends it, and after its last image. Here it stops
    as soon as the cut is certain.
    """

    def __init__(self, prompt_length: int, tokens: GillTokens, limits: GillLimits) -> None:
        self.tokens = tokens
        self.limits = limits
        self.prompt_length = prompt_length
        self.ids: list[int] = []
        self.images: list[Tensor] = []
        """States (vokens, width) of each finished image."""
        self.steps = 0
        self.stop: GillStop | None = None
        self._states: list[Tensor] = []

    @property
    def forced(self) -> int | None:
        """The image token that must come next, if any."""
        return self.tokens.vokens[len(self._states)] if self._states else None

    @property
    def may_begin_image(self) -> bool:
        """Whether an image may begin now, and all its tokens fit."""
        needed = self.prompt_length + len(self.ids) + len(self.tokens.vokens)
        return (
            self.steps >= self.limits.min_words
            and len(self.images) < self.limits.images
            and needed <= self.limits.context
        )

    def read(self, state: Tensor) -> None:
        """Collect the model's state (width,) at the last token."""
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
            self.stop = GillStop.LINE
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
            self.stop = GillStop.IMAGES
        else:
            self._stop_at_limits()

    def _stop_at_limits(self) -> None:
        if self.steps >= self.limits.words:
            self.stop = GillStop.WORDS
        elif self.prompt_length + len(self.ids) >= self.limits.context:
            self.stop = GillStop.CONTEXT
