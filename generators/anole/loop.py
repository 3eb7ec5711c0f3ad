"""The interleaved loop: text and image tokens of many records, one step at a time.

Records in text and records in a picture share every forward pass; finished ones leave.
A record's text keeps its cache through a picture; the two guidance streams of a picture
live from its first code to its last. Upstream runs one record at a time and rebuilds
its cache at each switch (`Generator`, chameleon.py of GAIR-NLP/anole).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.anole.state import Limits, Mode, Track
from generators.anole.vocab import Vocabulary
from generators.decoding.sampling import Sampler, penalised
from generators.decoding.streams import Stream, Streams


def guided(
    full: Tensor, image: Tensor, free: Tensor, *, text: float, picture: float
) -> Tensor:
    """Logits under guidance by the text and by earlier pictures (arXiv:2211.09800).

    `full` are the logits given the whole context, `image` given its pictures alone,
    `free` given neither; all of one shape.
    """
    return free + picture * (image - free) + text * (full - image)


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

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Every stream that reads this record's tokens, once."""
        return tuple(dict.fromkeys((self.stream, *(self.guides or ()))))


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
        streams = Streams(self._model.model, self._limits.context)
        tracks = [Track(prompt, self._vocabulary, self._limits) for prompt in prompts]
        opened = streams.open([self._embedded(prompt) for prompt in prompts])
        seen = self._seen(prompts)
        records = [
            _Record(i, track, stream, torch.Generator().manual_seed(seed))
            for i, (track, stream, seed) in enumerate(
                zip(tracks, opened, seeds, strict=True)
            )
        ]
        while records:
            # The model's own `forward` forbids image tokens, so its parts are called.
            logits = self._model.lm_head(streams.step()).float()
            chosen = self._advance(records, logits, seen)
            records = self._settled(records, streams)
            self._feed(chosen, streams)
            self._open_guides(records, streams)
        return tracks

    def _embedded(self, ids: Sequence[int]) -> Tensor:
        """Embeddings (ids, width)."""
        embedded: Tensor = self._model.model.embed_tokens(
            torch.tensor(list(ids), device=self._device)
        )
        return embedded

    def _feed(self, chosen: Mapping[_Record, int], streams: Streams) -> None:
        """Give every open stream its record's new token."""
        fed = [(s, t) for r, t in chosen.items() if r.track.stop is None for s in r.streams]
        if fed:
            streams.feed([s for s, _ in fed], self._embedded([t for _, t in fed]))

    def _seen(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Which ids each record's context holds: (records, vocabulary)."""
        size = self._model.lm_head.weight.shape[0]
        seen = torch.zeros(len(prompts), size, dtype=torch.bool, device=self._device)
        for row, prompt in zip(seen, prompts, strict=True):
            row[torch.tensor(prompt, device=self._device)] = True
        return seen

    def _advance(
        self, records: list[_Record], logits: Tensor, seen: Tensor
    ) -> dict[_Record, int]:
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
            record.track.take(token)
        rows = torch.tensor([r.index for r in chosen], device=self._device)
        seen[rows, torch.tensor(list(chosen.values()), device=self._device)] = True
        return chosen

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
        columns = sampler.sample(logits, (record.generator for record in records))
        tokens: list[int] = ids[columns].tolist()
        return tokens

    def _settled(self, records: list[_Record], streams: Streams) -> list[_Record]:
        """Close the streams that have ended; the records still to be run."""
        for record in records:
            if record.guides is not None and record.track.mode is not Mode.IMAGE:
                for guide in dict.fromkeys(record.guides):
                    streams.close(guide)
                record.guides = None
            if record.track.stop is not None:
                streams.close(record.stream)
        return [r for r in records if r.track.stop is None]

    def _open_guides(self, records: list[_Record], streams: Streams) -> None:
        """Guidance streams for pictures just begun.

        A record's two share one stream where their contexts are equal.
        """
        begun = [r for r in records if r.track.mode is Mode.IMAGE and r.guides is None]
        wanted = [(r, prompt) for r in begun for prompt in r.track.guidance_prompts()]
        unique = list(dict.fromkeys(wanted))
        opened = streams.open([self._embedded(prompt) for _, prompt in unique])
        guides = dict(zip(unique, opened, strict=True))
        for record in begun:
            pictures, nothing = record.track.guidance_prompts()
            record.guides = (guides[record, pictures], guides[record, nothing])
