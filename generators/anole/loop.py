"""The interleaved loop: text and image tokens of many records, one step at a time.

Records that write text and records that draw share every forward pass; finished ones
leave. A record's text keeps its cache through a picture; the two guidance streams of a
picture are open from its first code to its last. Upstream runs one record at a time and
rebuilds its cache at each switch (`Generator`, chameleon.py of GAIR-NLP/anole).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.anole.tokens import AnoleLimits, AnoleTrack, AnoleVocabulary, TokenMode
from generators.decoding.records import DecodingRecord, close_stopped, open_records
from generators.decoding.sampling import Sampler, penalised, read_tokens
from generators.decoding.streams import Stream, Streams


def guided_logits(
    full: Tensor, image: Tensor, free: Tensor, *, text: float, picture: float
) -> Tensor:
    """Logits under guidance by the text and by earlier pictures (arXiv:2211.09800).

    `full` are the logits given the whole context, `image` given its pictures alone,
    `free` given neither; all of one shape.
    """
    return free + picture * (image - free) + text * (full - image)


@dataclass(frozen=True, slots=True)
class AnoleRules:
    """How tokens are chosen."""

    text: Sampler
    image: Sampler
    repetition_penalty: float
    """Applies to every id of the context, image tokens included, when text is written."""
    guidance_text: float
    guidance_image: float


@dataclass(eq=False)
class _Record(DecodingRecord[AnoleTrack]):
    """With the streams that guide its picture."""

    guides: tuple[Stream, Stream] | None = None
    """Given the pictures alone, and given nothing: one stream before the first picture."""

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Every stream that reads this record's tokens, once."""
        return tuple(dict.fromkeys((self.stream, *(self.guides or ()))))


class AnoleInterleaver:
    """Answers prompts with one language model."""

    def __init__(
        self,
        model: Any,
        vocabulary: AnoleVocabulary,
        limits: AnoleLimits,
        rules: AnoleRules,
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
    ) -> list[AnoleTrack]:
        """The tracks of all prompts, in order, each run to its end.

        Prompts must be shorter than the context; a record's samples depend on
        its seed and not on its batch.
        """
        streams = Streams(self._model.model, self._limits.context)
        tracks = [AnoleTrack(prompt, self._vocabulary, self._limits) for prompt in prompts]
        embeddings = [self._embeddings(prompt) for prompt in prompts]
        records = open_records(_Record, tracks, streams, embeddings, seeds)
        seen = self._seen(prompts)
        while records:
            # The model's own `forward` forbids image tokens, so its parts are called.
            logits = self._model.lm_head(streams.step()).float()
            chosen = self._advance(records, logits, seen)
            records = self._close_ended(records, streams)
            self._feed(chosen, streams)
            self._open_guides(records, streams)
        return tracks

    def _embeddings(self, ids: Sequence[int]) -> Tensor:
        """Embeddings (ids, width)."""
        embeddings: Tensor = self._model.model.embed_tokens(
            torch.tensor(list(ids), device=self._device)
        )
        return embeddings

    def _feed(self, chosen: Mapping[_Record, int], streams: Streams) -> None:
        """Feed every open stream its record's new token."""
        fed = [(s, t) for r, t in chosen.items() if r.track.stop is None for s in r.streams]
        if fed:
            streams.feed([s for s, _ in fed], self._embeddings([t for _, t in fed]))

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
        by_mode: dict[TokenMode, list[_Record]] = {mode: [] for mode in TokenMode}
        for record in records:
            by_mode[record.track.mode].append(record)
        chosen = dict.fromkeys(by_mode[TokenMode.CLOSING], self._vocabulary.end_image)
        if text := by_mode[TokenMode.TEXT]:
            chosen |= zip(text, self._text_tokens(text, logits, seen), strict=True)
        if image := by_mode[TokenMode.IMAGE]:
            chosen |= zip(image, self._image_tokens(image, logits), strict=True)
        for record, token in chosen.items():
            record.take(token)
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
        mixed = guided_logits(
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
        return read_tokens(ids[columns], logits)

    def _close_ended(self, records: list[_Record], streams: Streams) -> list[_Record]:
        """Close the streams that have ended; return the records that have not."""
        for record in records:
            drawing = record.track.mode is TokenMode.IMAGE and record.track.stop is None
            if record.guides is not None and not drawing:
                for guide in dict.fromkeys(record.guides):
                    streams.close(guide)
                record.guides = None
        return close_stopped(records, streams)

    def _open_guides(self, records: list[_Record], streams: Streams) -> None:
        """Open the guidance streams of new pictures.

        A record needs only one stream where both contexts are equal.
        """
        drawing = [r for r in records if r.track.mode is TokenMode.IMAGE]
        new = [r for r in drawing if r.guides is None]
        prompts = [(r, prompt) for r in new for prompt in r.track.guidance_prompts()]
        unique = list(dict.fromkeys(prompts))
        opened = streams.open([self._embeddings(prompt) for _, prompt in unique])
        guides = dict(zip(unique, opened, strict=True))
        for record in new:
            pictures, nothing = record.track.guidance_prompts()
            record.guides = (guides[record, pictures], guides[record, nothing])
