"""Texts that BAGEL writes after texts and images: answers, and thoughts before an image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.generators.bagel.contexts import (
    ContextStreams,
    Piece,
    TextPiece,
    embed,
)
from plait.generators.bagel.models import END, START, Bagel
from plait.generators.bagel.settings import BagelLanguageSettings
from plait.generators.decoding.drafting import (
    LimitedTrack,
    LimitedWriting,
    NativePrompt,
)
from plait.generators.decoding.sampling import Sampler
from plait.generators.decoding.streams import Streams
from plait.generators.document import Content, Text

THINK_AND_ANSWER = (
    "You should first think about the reasoning process in the mind and then provide the "
    "user with the answer. \nThe reasoning process is enclosed within <think> </think> "
    "tags, i.e. <think> reasoning process here </think> answer here"
)
THINK_AND_DRAW = (
    "You should first think about the planning process in the mind and then generate the "
    "image. \nThe planning process is enclosed within <think> </think> tags, i.e. <think> "
    "planning process here </think> image here"
)
"""The system prompts of the authors' program (inferencer.py), which the model was trained
with: it reads them as its first text."""


@dataclass(frozen=True, slots=True)
class BagelPrompt(NativePrompt):
    """A request in pieces."""

    read: tuple[Piece, ...] = ()
    """Texts and images, in order."""


def display(content: Content | Iterable[object]) -> str:
    """Return texts with their marks, and a mark for each image, for people."""
    shown = ""
    for segment in content:
        text = segment.text if isinstance(segment, Text) else segment
        shown += f"{START}{text}{END}" if isinstance(text, str) else "<image>"
    return shown


class BagelWriting(LimitedWriting):
    """Writes after pieces, many prompts at once, up to the mark of an end."""

    bagel: Bagel

    def write_with(self, bagel: Bagel, settings: BagelLanguageSettings, most: int) -> None:
        """Write with a model, at most so many tokens; its end counts as one."""
        self.bagel = bagel
        self._use(bagel.network.language_model.model, settings.context)
        self.limit = most
        self.end = bagel.id(END)
        self.sampler = Sampler(settings.temperature or 1.0, 1.0, settings.temperature == 0)

    def opening_of(self, prompt: BagelPrompt) -> list[Piece]:
        """Return the prompt's pieces, and the mark that the text begins with."""
        return [*prompt.read, TextPiece([self.bagel.id(START)])]

    def embed(self, prompts: Sequence[NativePrompt]) -> list[Tensor]:
        """Return embeddings (positions, width) of each prompt, with the mark at its end."""
        return embed([self.opening_of(_own(prompt)) for prompt in prompts], self.bagel)

    def _streams(self, prompts: Sequence[NativePrompt]) -> Streams:
        pieces = [self.opening_of(_own(prompt)) for prompt in prompts]
        return ContextStreams(self.decoder, self.context, pieces)

    def logits(self, states: Tensor) -> Tensor:
        """Return float32 logits (records, ids) of states (1, records, width)."""
        logits: Tensor = self.bagel.network.language_model.lm_head(states[0])
        return logits.float()

    @torch.inference_mode()
    def text_of(self, track: LimitedTrack) -> str:
        """Return what was written."""
        return self.bagel.decode(track.ids)


def _own(prompt: NativePrompt) -> BagelPrompt:
    assert isinstance(prompt, BagelPrompt)
    return prompt
