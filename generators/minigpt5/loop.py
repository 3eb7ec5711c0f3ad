"""The interleaved loop of MiniGPT-5: many records, one step at a time.

Upstream runs one record at a time and feeds the eight vokens of a picture in one pass.
Fed one by one they have the same states, because no voken attends to a later one. Records
that write text and records inside a picture share every pass; finished ones leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.decoding.sampling import Sampler, penalised
from generators.decoding.streams import Stream, Streams
from generators.minigpt5.state import MiniGPT5Limits, MiniGPT5Track
from generators.minigpt5.tokens import MiniGPT5Vocabulary


@dataclass(frozen=True, slots=True)
class MiniGPT5Rules:
    """How ids are chosen."""

    sampler: Sampler
    repetition_penalty: float
    leading_id: int


@dataclass(eq=False)
class _Record:
    """A track with its stream and its source of random numbers."""

    index: int
    track: MiniGPT5Track
    stream: Stream
    generator: torch.Generator


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
        companion_files = zip(tracks, streams.open(prompts), seeds, strict=True)
        records = [
            _Record(i, track, stream, torch.Generator().manual_seed(seed))
            for i, (track, stream, seed) in enumerate(companion_files)
        ]
        generated = self._initial_mask(len(records))
        while records:
            next_ids = self._advance(records, streams.step(), generated)
            for record in records:
                if record.track.stop is not None:
                    streams.close(record.stream)
            records = [r for r in records if r.track.stop is None]
            if records:
                ids = [next_ids[record.index] for record in records]
                streams.feed([r.stream for r in records], self.embed(ids))
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

    def _advance(
        self, records: list[_Record], hidden: Tensor, generated: Tensor
    ) -> dict[int, int]:
        """Advance every record by one step; record index -> the id to feed it."""
        writing = [r for r in records if not r.track.drawing]
        next_ids = {
            r.index: r.track.collect(hidden[r.stream.row])
            for r in records
            if r.track.drawing
        }
        if not writing:
            return next_ids
        states = hidden[torch.tensor([r.stream.row for r in writing], device=self._device)]
        indices = torch.tensor([r.index for r in writing], device=self._device)
        tokens = self._sampled(writing, states, generated[indices])
        generated[indices, tokens] = True
        for record, state, token in zip(writing, states, tokens.tolist(), strict=True):
            next_ids[record.index] = record.track.take(token, state)
        return next_ids

    def _sampled(self, records: list[_Record], states: Tensor, generated: Tensor) -> Tensor:
        """The next id of each record that writes text."""
        logits = self._model.lm_head(states).float()
        logits = penalised(logits, generated, self._rules.repetition_penalty)
        begin = self._vocabulary.begin_image
        for row, record in zip(logits, records, strict=True):
            if record.track.must_begin_image:
                row[:begin], row[begin + 1 :] = -torch.inf, -torch.inf
            elif not record.track.may_begin_image:
                row[begin] = -torch.inf
        return self._rules.sampler.sample(logits, (record.generator for record in records))
