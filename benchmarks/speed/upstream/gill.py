"""GILL's own loop: one record at a time, without a cache.

After `GILLModel.generate` (gill/models.py, kohjingyu/gill): every token recomputes the
whole sequence and keeps the states of all layers; all words are written before the answer
is cut. The original fails with an error where the last word is an image; this does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from generators.base import Outcome
from generators.document import Draft, Request
from generators.gill.draft import GillDraft, GillPrompt
from generators.gill.loop import GillTrack


class GillLoop:
    """Answers as a loaded `GillDraft` does, from the same random numbers."""

    def __init__(self, stage: GillDraft) -> None:
        self._stage = stage
        self._language = stage.language

    @torch.inference_mode()
    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request, in order."""
        return [self._answer(request) for request in inputs]

    def _answer(self, request: Request) -> Outcome[Draft]:
        prompt = self._stage.prompt(request)
        if not isinstance(prompt, GillPrompt):
            return prompt
        (embedded,) = self._stage.embed([prompt])
        ids, states = self._written(embedded, request.seed or 0)
        track = GillTrack(len(embedded), self._language.tokens, self._stage.limits)
        for token, state in zip(ids, states, strict=True):
            track.take(token)
            track.read(state)
            if track.stop is not None:
                break
        return self._stage.result(prompt, track)

    def _written(self, prompt: Tensor, seed: int) -> tuple[list[int], Tensor]:
        """All ids, beyond the end of the answer too, and their states (ids, width)."""
        generator = torch.Generator().manual_seed(seed)
        sequence = prompt
        ids: list[int] = []
        for step in range(self._stage.limits.words):
            new = self._sampled(self._states(sequence)[-1:], step, generator)
            ids += new
            sequence = torch.cat([sequence, self._language.embed(new)])
        return ids, self._states(sequence)[len(prompt) :]

    def _states(self, sequence: Tensor) -> Tensor:
        positions = torch.arange(len(sequence), device=sequence.device)
        outputs = self._language.decoder(
            inputs_embeds=sequence[None],
            position_ids=positions[None],
            use_cache=False,
            output_hidden_states=True,
        )
        states: Tensor = outputs.last_hidden_state[0]
        return states

    def _sampled(self, state: Tensor, step: int, generator: torch.Generator) -> list[int]:
        """One id, or those of all image tokens."""
        rules, (first, *others) = self._stage.rules, self._language.tokens.vokens
        logits = self._language.logits(state)
        logits[:, others] = -torch.inf
        for scale in rules.scales:
            if scale > 1:
                logits[:, first] = logits[:, first].abs() * scale
        if step < self._stage.limits.min_words:
            logits[:, first] = -torch.inf
        token = int(rules.sampler.sample(logits, [generator]))
        return [first, *others] if token == first else [token]
