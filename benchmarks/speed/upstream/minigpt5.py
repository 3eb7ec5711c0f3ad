"""MiniGPT-5's own loop: one record at a time, cached, a picture's vokens in one pass.

After `generate` of minigpt5.py and `predict_step` of train_eval.py (UCSB-AI/MiniGPT-5),
with every picture of an answer kept, as CoMM's loop does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from generators.base import Outcome
from generators.decoding.sampling import penalised
from generators.document import Draft, Request
from generators.minigpt5.draft import MiniGPT5Draft, MiniGPT5Prompt
from generators.minigpt5.loop import MiniGPT5Track


class MiniGPT5Loop:
    """Answers as a loaded `MiniGPT5Draft` does, from the same random numbers."""

    def __init__(self, stage: MiniGPT5Draft) -> None:
        self._stage = stage
        self._model = stage.writer.language
        self._table: Tensor = self._model.model.embed_tokens.weight
        self._vokens = self._table[list(stage.vocabulary.vokens)]

    @torch.inference_mode()
    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request, in order."""
        return [self._answer(request) for request in inputs]

    def _answer(self, request: Request) -> Outcome[Draft]:
        prompt = self._stage.prompt(request)
        if not isinstance(prompt, MiniGPT5Prompt):
            return prompt
        (fed,) = self._stage.embed([prompt])
        track = MiniGPT5Track(len(fed), self._stage.vocabulary, self._stage.limits)
        generator = torch.Generator().manual_seed(prompt.seed)
        cache = DynamicCache()
        while track.stop is None:
            states = self._states(fed, cache)
            if track.drawing:
                for state in states[:-1]:
                    track.collect(state)
            if track.stop is None:
                fed = self._next(track, states[-1], generator)
        return self._stage.result(prompt, track)

    def _states(self, fed: Tensor, cache: DynamicCache) -> Tensor:
        """Hidden states (positions, width) of what is not in the cache."""
        states: Tensor = self._model.model(
            inputs_embeds=fed[None], past_key_values=cache, use_cache=True
        ).last_hidden_state[0]
        return states

    def _next(
        self, track: MiniGPT5Track, state: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Take the next id; what it is fed as (positions, width)."""
        rules, begin = self._stage.rules, self._stage.vocabulary.begin_image
        logits = self._model.lm_head(state)[None].float()
        generated = torch.zeros_like(logits, dtype=torch.bool)
        generated[0, [rules.leading_id, *track.ids]] = True
        logits = penalised(logits, generated, rules.repetition_penalty)
        if track.must_begin_image:
            logits[0, :begin], logits[0, begin + 1 :] = -torch.inf, -torch.inf
        elif not track.may_begin_image:
            logits[0, begin] = -torch.inf
        token = int(rules.sampler.sample(logits, [generator]))
        track.take(token, state)
        return self._vokens if token == begin else self._table[[token]]
