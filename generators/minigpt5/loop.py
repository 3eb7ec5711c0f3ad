"""The interleaved loop: many records, one step at a time, text and vokens alike.

Upstream runs one record at a time and feeds the eight vokens of a picture in one pass;
fed one by one they have the same states, since no voken sees a later one. Records that
write text and records inside a picture share every pass; finished ones leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.decoding.sampling import Sampler, penalised
from generators.decoding.streams import Stream, Streams
from generators.minigpt5.state import Limits, Track
from generators.minigpt5.tokens import Vocabulary


@dataclass(frozen=True, slots=True)
class Rules:
    """How ids are chosen."""

    sampler: Sampler
    repetition_penalty: float
    leading_id: int


@dataclass(eq=False)
class _Record:
    """A track with its stream and its source of random numbers."""

    index: int
    track: Track
    stream: Stream
    generator: torch.Generator


class Interleaver:
    """Answers prompts with one language model."""

    def __init__(
        self, model: Any, vocabulary: Vocabulary, limits: Limits, rules: Rules
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._limits = limits
        self._rules = rules
        self._device = model.lm_head.weight.device

    @torch.inference_mode()
    def __call__(self, prompts: Sequence[Tensor], seeds: Sequence[int]) -> list[Track]:
        """The tracks of all prompts (positions, width), in order, each run to its stop.

        Prompts must be shorter than the context; a seed fixes a record's samples
        whatever its neighbours.
        """
        streams = Streams(self._model.model, self._limits.context)
        tracks = [Track(len(p), self._vocabulary, self._limits) for p in prompts]
        opened = zip(tracks, streams.open(prompts), seeds, strict=True)
        records = [
            _Record(i, track, stream, torch.Generator().manual_seed(seed))
            for i, (track, stream, seed) in enumerate(opened)
        ]
        seen = self._seen(len(records))
        while records:
            fed = self._advance(records, streams.step(), seen)
            for record in records:
                if record.track.stop is not None:
                    streams.close(record.stream)
            records = [r for r in records if r.track.stop is None]
            if records:
                ids = [fed[record.index] for record in records]
                streams.feed([r.stream for r in records], self.embedded(ids))
        return tracks

    def embedded(self, ids: Sequence[int]) -> Tensor:
        """Embeddings (ids, width)."""
        embedded: Tensor = self._model.model.embed_tokens(
            torch.tensor(list(ids), dtype=torch.long, device=self._device)
        )
        return embedded

    def _seen(self, records: int) -> Tensor:
        """Which ids count as generated: (records, rows of the vocabulary)."""
        shape = (records, self._vocabulary.rows)
        seen = torch.zeros(shape, dtype=torch.bool, device=self._device)
        seen[:, self._rules.leading_id] = True
        return seen

    def _advance(
        self, records: list[_Record], hidden: Tensor, seen: Tensor
    ) -> dict[int, int]:
        """Bring every record one step on; by its index the id it is to be fed."""
        writing = [r for r in records if not r.track.drawing]
        fed = {
            r.index: r.track.collect(hidden[r.stream.row])
            for r in records
            if r.track.drawing
        }
        if not writing:
            return fed
        states = hidden[torch.tensor([r.stream.row for r in writing], device=self._device)]
        indices = torch.tensor([r.index for r in writing], device=self._device)
        chosen = self._chosen(writing, states, seen[indices])
        seen[indices, chosen] = True
        for record, state, token in zip(writing, states, chosen.tolist(), strict=True):
            fed[record.index] = record.track.take(token, state)
        return fed

    def _chosen(self, records: list[_Record], states: Tensor, seen: Tensor) -> Tensor:
        """The next id of each record that writes text."""
        logits = self._model.lm_head(states).float()
        logits = penalised(logits, seen, self._rules.repetition_penalty)
        begin = self._vocabulary.begin_image
        for row, record in zip(logits, records, strict=True):
            if record.track.must_begin_image:
                row[:begin], row[begin + 1 :] = -torch.inf, -torch.inf
            elif not record.track.may_begin_image:
                row[begin] = -torch.inf
        return self._rules.sampler.sample(logits, (record.generator for record in records))
