"""The interleaved loop of GILL: many records, one cached step at a time.

Upstream runs one record and recomputes its whole sequence, keeping the states of all
layers, for every token (`GILLModel.generate`, gill/models.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from generators.decoding.sampling import Sampler
from generators.decoding.streams import Stream, Streams
from generators.gill.language import GillLanguage
from generators.gill.state import GillLimits, GillTrack


@dataclass(frozen=True, slots=True)
class GillRules:
    """How tokens are chosen."""

    sampler: Sampler
    scales: tuple[float, ...]
    """Each above 1 makes the logit of [IMG0] its absolute value times the scale."""


@dataclass(eq=False)
class _Record:
    """A track with its stream and its source of random numbers."""

    track: GillTrack
    stream: Stream
    generator: torch.Generator


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
        records = [
            _Record(track, stream, torch.Generator().manual_seed(seed))
            for track, stream, seed in zip(
                tracks, streams.open(prompts), seeds, strict=True
            )
        ]
        while records:
            next_tokens = self._advance(records, streams.step())
            for record in records:
                if record.track.stop is not None:
                    streams.close(record.stream)
            records = [r for r in records if r.track.stop is None]
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
            record.track.take(token)
        return tokens

    def _sampled(self, records: list[_Record], hidden: Tensor) -> list[int]:
        rows = torch.tensor([r.stream.row for r in records], device=self._device)
        logits = self._language.logits(hidden[rows])
        self._scale_vokens(records, logits)
        generators = (record.generator for record in records)
        tokens: list[int] = self._rules.sampler.sample(logits, generators).tolist()
        return tokens

    def _scale_vokens(self, records: list[_Record], logits: Tensor) -> None:
        """Scale or forbid [IMG0], forbid the others, in place."""
        first, *others = self._language.tokens.vokens
        logits[:, others] = -torch.inf
        for scale in self._rules.scales:
            if scale > 1:
                logits[:, first] = logits[:, first].abs() * scale
        banned = [not r.track.may_begin_image for r in records]
        logits[torch.tensor(banned, device=self._device), first] = -torch.inf
