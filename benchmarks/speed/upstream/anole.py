"""Anole's own loop: one record at a time, its cache built anew at every switch.

After `Generator` of chameleon.py (GAIR-NLP/anole): a run of text fills a new cache with
the whole context; a picture fills one with three streams in one left-padded batch. The
original also captures CUDA graphs, which this does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from generators.anole.draft import AnoleDraft, AnolePrompt
from generators.anole.loop import guided_logits
from generators.anole.tokens import AnoleTrack, TokenMode
from generators.base import Outcome
from generators.decoding.sampling import penalised
from generators.document import Draft, Request


class AnoleLoop:
    """Answers as a loaded `AnoleDraft` does, from the same random numbers."""

    def __init__(self, stage: AnoleDraft) -> None:
        self._stage = stage
        self._model = stage.language.model
        self._vocabulary = stage.language.vocabulary
        self._device = self._model.device

    @torch.inference_mode()
    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request, in order."""
        return [self._answer(request) for request in inputs]

    def _answer(self, request: Request) -> Outcome[Draft]:
        prompt = self._stage.prompt(request)
        if not isinstance(prompt, AnolePrompt):
            return prompt
        track = AnoleTrack(prompt.ids, self._vocabulary, self._stage.limits)
        generator = torch.Generator().manual_seed(request.seed or 0)
        while track.stop is None:
            match track.mode:
                case TokenMode.TEXT:
                    self._write(track, generator)
                case TokenMode.IMAGE:
                    self._draw(track, generator)
                case TokenMode.CLOSING:
                    track.take(self._vocabulary.end_image)
        return self._stage.drafted(prompt, track)

    def _write(self, track: AnoleTrack, generator: torch.Generator) -> None:
        """One run of text, up to a picture's beginning or the end."""
        rules, vocabulary = self._stage.rules, self._vocabulary
        ids = sorted((vocabulary.eos, *vocabulary.text, vocabulary.begin_image))
        permitted = torch.tensor(ids, device=self._device)
        cache = DynamicCache()
        fed = torch.tensor([track.ids], device=self._device)
        while track.stop is None and track.mode is TokenMode.TEXT:
            logits = self._logits(fed, torch.ones_like(fed), cache)[:, permitted]
            if not track.may_begin_image:
                logits[:, ids.index(vocabulary.begin_image)] = -torch.inf
            seen = torch.isin(permitted, torch.tensor(track.ids, device=self._device))
            lowered = penalised(logits, seen[None], rules.repetition_penalty)
            track.take(ids[int(rules.text.sample(lowered, [generator]))])
            fed = torch.tensor([track.ids[-1:]], device=self._device)

    def _draw(self, track: AnoleTrack, generator: torch.Generator) -> None:
        """The codes of one picture, guided by two further streams."""
        rules = self._stage.rules
        ids = sorted(self._vocabulary.image)
        permitted = torch.tensor(ids, device=self._device)
        cache = DynamicCache()
        streams = [track.ids, *track.guidance_prompts()]
        longest = max(map(len, streams))
        pads = [longest - len(stream) for stream in streams]
        fed = self._tensor([[0] * n + [*s] for n, s in zip(pads, streams, strict=True)])
        mask = self._tensor([[0] * n + [1] * (longest - n) for n in pads])
        while track.mode is TokenMode.IMAGE:
            full, image, free = self._logits(fed, mask, cache)[:, permitted]
            mixed = guided_logits(
                full, image, free, text=rules.guidance_text, picture=rules.guidance_image
            )
            token = ids[int(rules.image.sample(mixed[None], [generator]))]
            track.take(token)
            fed = self._tensor([[token]] * 3)
            mask = torch.cat([mask, mask.new_ones(3, 1)], dim=1)

    def _logits(self, fed: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        """Logits (rows, vocabulary) after `fed`, the tokens that are not in the cache."""
        length = int(cache.get_seq_length()) + fed.shape[1]
        if mask.shape[1] < length:
            mask = mask.new_ones(len(fed), length)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -fed.shape[1] :]
        states = self._model.model(
            input_ids=fed,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        logits: Tensor = self._model.lm_head(states[:, -1])
        return logits.float()

    def _tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor([list(row) for row in rows], device=self._device)
