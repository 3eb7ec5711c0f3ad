"""The interleaved loop of GILL: one record's track, and many records in one batch.

Upstream runs one record and recomputes its whole sequence, keeping the states of all
layers, for every token (`GILLModel.generate`, gill/models.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from generators.decoding.records import DecodingRecord, close_stopped, open_records
from generators.decoding.sampling import NoNumbers, Sampler, read_tokens
from generators.decoding.streams import Streams
from generators.gill.networks import GillLanguage
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
        self.stop: GillStop | NoNumbers | None = None
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


@dataclass(frozen=True, slots=True)
class GillRules:
    """How tokens are chosen."""

    sampler: Sampler
    scales: tuple[float, ...]
    """Each above 1 makes the logit of [IMG0] its absolute value times the scale."""


_Record = DecodingRecord[GillTrack]


class GillInterleaver:
    """Answers prompts with one language model."""

    def __init__(
        self, language: GillLanguage, limits: GillLimits, rules: GillRules
    ) -> None:
        self._language = language
        self._limits = limits
        self._rules = rules
        self._device = language.embeddings.device

    @torch.inference_mode()
    def __call__(self, prompts: Sequence[Tensor], seeds: Sequence[int]) -> list[GillTrack]:
        """The tracks of all prompts, in order, each run until it stops.

        Prompts are embeddings (positions, width), shorter than the context; a seed fixes
        a record's samples, whatever the rest of the batch.
        """
        streams = Streams(self._language.decoder, self._limits.context)
        tracks = [GillTrack(len(p), self._language.tokens, self._limits) for p in prompts]
        records = open_records(_Record, tracks, streams, prompts, seeds)
        while records:
            next_tokens = self._advance(records, streams.step())
            records = close_stopped(records, streams)
            if records:
                ids = [next_tokens[r] for r in records]
                embeddings = self._language.embed(ids)
                streams.feed([r.stream for r in records], embeddings)
        return tracks

    def _advance(self, records: list[_Record], hidden: Tensor) -> Mapping[_Record, int]:
        """Append the next token to every record that continues."""
        for record in records:
            record.track.read(hidden[record.stream.row])
        running = [r for r in records if r.track.stop is None]
        forced = {r: r.track.forced for r in running}
        tokens = {r: token for r, token in forced.items() if token is not None}
        if free := [r for r, token in forced.items() if token is None]:
            tokens |= zip(free, self._sampled(free, hidden), strict=True)
        for record, token in tokens.items():
            record.take(token)
        return tokens

    def _sampled(self, records: list[_Record], hidden: Tensor) -> list[int]:
        rows = torch.tensor([r.stream.row for r in records], device=self._device)
        logits = self._language.logits(hidden[rows])
        self._scale_vokens(records, logits)
        generators = (record.generator for record in records)
        return read_tokens(self._rules.sampler.sample(logits, generators), logits)

    def _scale_vokens(self, records: list[_Record], logits: Tensor) -> None:
        """Scale or forbid [IMG0], forbid the others, in place."""
        first, *others = self._language.tokens.vokens
        logits[:, others] = -torch.inf
        for scale in self._rules.scales:
            if scale > 1:
                logits[:, first] = logits[:, first].abs() * scale
        banned = [not r.track.may_begin_image for r in records]
        logits[torch.tensor(banned, device=self._device), first] = -torch.inf
