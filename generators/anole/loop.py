"""The interleaved loop: text and image tokens of many records, one step at a time.

Records in text and records in a picture share every forward pass; finished ones leave.
A record's text keeps its cache through a picture; the two guidance streams of a picture
live from its first code to its last. Upstream runs one record at a time and rebuilds
its cache at each switch (`Generator`, chameleon.py of GAIR-NLP/anole).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.anole.sampling import Sampler, guided, penalised
from generators.anole.state import Limits, Mode, Track
from generators.anole.streams import Stream, Streams
from generators.anole.vocab import Vocabulary


@dataclass(frozen=True, slots=True)
class Rules:
    """How tokens are chosen."""

    text: Sampler
    image: Sampler
    repetition_penalty: float
    """On every id of the context, in text only; image tokens of the context count."""
    guidance_text: float
    guidance_image: float


@dataclass(eq=False)
class _Record:
    """A track with its streams and its source of random numbers."""

    index: int
    track: Track
    stream: Stream
    generator: torch.Generator
    guides: tuple[Stream, Stream] | None = None
    """Of the pictures alone, and of nothing; one and the same before the first picture."""


class Interleaver:
    """Answers prompts with one language model."""

    def __init__(
        self, model: Any, vocabulary: Vocabulary, limits: Limits, rules: Rules
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._limits = limits
        self._rules = rules
        self._device = next(model.parameters()).device
        text = sorted((vocabulary.eos, *vocabulary.text, vocabulary.begin_image))
        self._text_ids = torch.tensor(text, device=self._device)
        self._begin_column = text.index(vocabulary.begin_image)
        self._image_ids = torch.tensor(sorted(vocabulary.image), device=self._device)

    @torch.inference_mode()
    def __call__(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]
    ) -> list[Track]:
        """The tracks of all prompts, in order, each run to its stop.

        Prompts must be shorter than the context; a seed fixes a record's samples
        whatever its neighbours.
        """
        streams = Streams(self._model, self._limits.context)
        tracks = [Track(prompt, self._vocabulary, self._limits) for prompt in prompts]
        opened = streams.open(prompts)
        seen = self._seen(prompts)
        records = [
            _Record(i, track, stream, torch.Generator().manual_seed(seed))
            for i, (track, stream, seed) in enumerate(
                zip(tracks, opened, seeds, strict=True)
            )
        ]
        while records:
            self._advance(records, streams.step(), seen)
            records = _settled(records, streams)
        return tracks

    def _seen(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Which ids each record's context holds: (records, vocabulary)."""
        size = self._model.lm_head.weight.shape[0]
        seen = torch.zeros(len(prompts), size, dtype=torch.bool, device=self._device)
        for row, prompt in zip(seen, prompts, strict=True):
            row[torch.tensor(prompt, device=self._device)] = True
        return seen

    def _advance(self, records: list[_Record], logits: Tensor, seen: Tensor) -> None:
        """Give every record its next token."""
        by_mode: dict[Mode, list[_Record]] = {mode: [] for mode in Mode}
        for record in records:
            by_mode[record.track.mode].append(record)
        chosen = dict.fromkeys(by_mode[Mode.CLOSING], self._vocabulary.end_image)
        if text := by_mode[Mode.TEXT]:
            chosen |= zip(text, self._text_tokens(text, logits, seen), strict=True)
        if image := by_mode[Mode.IMAGE]:
            chosen |= zip(image, self._image_tokens(image, logits), strict=True)
        for record, token in chosen.items():
            _take(record, token)
        rows = torch.tensor([r.index for r in chosen], device=self._device)
        seen[rows, torch.tensor(list(chosen.values()), device=self._device)] = True

    def _text_tokens(
        self, records: list[_Record], logits: Tensor, seen: Tensor
    ) -> list[int]:
        rows = torch.tensor([r.stream.row for r in records], device=self._device)
        permitted = logits[rows][:, self._text_ids]
        banned = torch.tensor(
            [not r.track.may_begin_image for r in records], device=self._device
        )
        permitted[:, self._begin_column].masked_fill_(banned, -torch.inf)
        indices = torch.tensor([r.index for r in records], device=self._device)
        known = seen[indices][:, self._text_ids]
        lowered = penalised(permitted, known, self._rules.repetition_penalty)
        return self._chosen(self._rules.text, lowered, self._text_ids, records)

    def _image_tokens(self, records: list[_Record], logits: Tensor) -> list[int]:
        rows = [(r.stream.row, *(g.row for g in r.guides or ())) for r in records]
        full, image, free = logits[torch.tensor(rows, device=self._device).T]
        mixed = guided(
            full,
            image,
            free,
            text=self._rules.guidance_text,
            picture=self._rules.guidance_image,
        )
        permitted = mixed[:, self._image_ids]
        return self._chosen(self._rules.image, permitted, self._image_ids, records)

    def _chosen(
        self, sampler: Sampler, logits: Tensor, ids: Tensor, records: list[_Record]
    ) -> list[int]:
        draws = [
            0.0 if sampler.greedy else _uniform(record.generator) for record in records
        ]
        columns = sampler.choose(logits, torch.tensor(draws, dtype=torch.float64))
        tokens: list[int] = ids[columns].tolist()
        return tokens


def _uniform(generator: torch.Generator) -> float:
    return float(torch.rand((), generator=generator, dtype=torch.float64))


def _take(record: _Record, token: int) -> None:
    record.track.take(token)
    for stream in (record.stream, *(record.guides or ())):
        stream.pending = token


def _settled(records: list[_Record], streams: Streams) -> list[_Record]:
    """Open and close streams as the new tokens ask; the records still to be run."""
    for record in records:
        if record.guides is not None and record.track.mode is not Mode.IMAGE:
            for guide in dict.fromkeys(record.guides):
                streams.close(guide)
            record.guides = None
        if record.track.stop is not None:
            streams.close(record.stream)
    begun = [r for r in records if r.track.mode is Mode.IMAGE and r.guides is None]
    _open_guides(begun, streams)
    return [r for r in records if r.track.stop is None]


def _open_guides(records: list[_Record], streams: Streams) -> None:
    """Guidance streams for pictures just begun; equal contexts share one stream."""
    wanted = [(r, prompt) for r in records for prompt in r.track.guidance_prompts()]
    unique = list(dict.fromkeys(wanted))
    opened = dict(zip(unique, streams.open([p for _, p in unique]), strict=True))
    for record in records:
        pictures, nothing = record.track.guidance_prompts()
        record.guides = (opened[record, pictures], opened[record, nothing])
