"""The interleaved loop of MiniGPT-5: one record's track, and many records in one batch.

Upstream runs one record at a time and feeds the eight vokens of a picture in one pass, as
is done here where all records are inside a picture. Fed one by one they have the same
states, because no voken attends to a later one: records that write text and records inside
a picture share every pass. Finished ones leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from generators.decoding.records import DecodingRecord, close_stopped, open_records
from generators.decoding.sampling import NoNumbers, Sampler, penalised, read_tokens
from generators.decoding.streams import Streams
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
        self.stop: MiniGPT5Stop | NoNumbers | None = None

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

    def take(self, token: int, state: Tensor) -> None:
        """Append an id sampled from `state` (width,)."""
        self.ids.append(token)
        if token == self.vocabulary.begin_image:
            self.pictures.append([state])
        else:
            self._stop_at_limits()

    def collect(self, state: Tensor) -> None:
        """Append a state of the current picture."""
        self.pictures[-1].append(state)
        if not self.drawing:
            self._stop_at_limits()

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


@dataclass(frozen=True, slots=True)
class MiniGPT5Rules:
    """How ids are chosen."""

    sampler: Sampler
    repetition_penalty: float
    leading_id: int


_Record = DecodingRecord[MiniGPT5Track]


class MiniGPT5Interleaver:
    """Answers prompts with one language model."""

    def __init__(
        self,
        model: Any,
        vocabulary: MiniGPT5Vocabulary,
        limits: MiniGPT5Limits,
        rules: MiniGPT5Rules,
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._limits = limits
        self._rules = rules
        self._device = model.lm_head.weight.device

    @torch.inference_mode()
    def __call__(
        self, prompts: Sequence[Tensor], seeds: Sequence[int]
    ) -> list[MiniGPT5Track]:
        """The tracks of all prompts (positions, width), in order, each run until it stops.

        Prompts must be shorter than the context; a seed fixes a record's samples, whatever
        the rest of the batch.
        """
        streams = Streams(self._model.model, self._limits.context)
        tracks = [MiniGPT5Track(len(p), self._vocabulary, self._limits) for p in prompts]
        records = open_records(_Record, tracks, streams, prompts, seeds)
        generated = self._initial_mask(len(records))
        while records:
            chosen = self._advance(records, streams.step_run(), generated)
            records = close_stopped(records, streams)
            self._feed({r: chosen[r.index] for r in records if r.index in chosen}, streams)
        return tracks

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Embeddings (ids, width)."""
        embedded: Tensor = self._model.model.embed_tokens(
            torch.tensor(list(ids), dtype=torch.long, device=self._device)
        )
        return embedded

    def _initial_mask(self, records: int) -> Tensor:
        """Mask of the ids that count as generated: (records, rows of the vocabulary)."""
        shape = (records, self._vocabulary.rows)
        generated = torch.zeros(shape, dtype=torch.bool, device=self._device)
        generated[:, self._rules.leading_id] = True
        return generated

    def _feed(self, chosen: Mapping[_Record, int], streams: Streams) -> None:
        """Feed the ids to the records that have taken them; a picture is fed as a whole."""
        plain = [record for record in chosen if not record.track.drawing]
        if plain:
            ids = [chosen[record] for record in plain]
            streams.feed([record.stream for record in plain], self.embed(ids))
        for record in chosen:
            if record.track.drawing:
                streams.feed_run(record.stream, self.embed(self._vocabulary.vokens))

    def _advance(
        self, records: list[_Record], hidden: Tensor, generated: Tensor
    ) -> dict[int, int]:
        """Take the states (streams, tokens, width); record index -> its new id.

        Records inside a picture have none: they were fed all of it.
        """
        drawing = [record for record in records if record.track.drawing]
        for record in drawing:
            _collect(record.track, hidden[record.stream.row, :-1])
        # Of a picture fed as a whole, the last state is not the picture's: it writes on.
        # Beside records that write, one voken is fed, and its state is the picture's.
        writing = [r for r in records if not r.track.drawing and r.track.stop is None]
        for record in drawing:
            _collect(record.track, hidden[record.stream.row, -1:])
        if not writing:
            return {}
        rows = torch.tensor([r.stream.row for r in writing], device=self._device)
        states = hidden[rows, -1]
        indices = torch.tensor([r.index for r in writing], device=self._device)
        ids = self._sampled(writing, states, generated[indices])
        generated[indices, ids] = True
        for record, state, token in zip(writing, states, ids, strict=True):
            record.take(token, state)
        return {r.index: token for r, token in zip(writing, ids, strict=True)}

    def _sampled(
        self, records: list[_Record], states: Tensor, generated: Tensor
    ) -> list[int]:
        """The next id of each record that writes text."""
        logits = self._model.lm_head(states).float()
        logits = penalised(logits, generated, self._rules.repetition_penalty)
        begin = self._vocabulary.begin_image
        for row, record in zip(logits, records, strict=True):
            if record.track.must_begin_image:
                row[:begin], row[begin + 1 :] = -torch.inf, -torch.inf
            elif not record.track.may_begin_image:
                row[begin] = -torch.inf
        generators = (record.generator for record in records)
        return read_tokens(self._rules.sampler.sample(logits, generators), logits)


def _collect(track: MiniGPT5Track, states: Iterable[Tensor]) -> None:
    """Give the picture of a record the states that it lacks."""
    for state in states:
        if track.drawing:
            track.collect(state)
