"""The official scorer's loop: one document at a time, a cache that grows by copying.

After main.py (Lillianwei-h/MMIE@eb0fd6e) and `chat` of InternVL: transformers' greedy
search over the whole prompt of every document, every picture read anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from generators.base import Outcome
from generators.document import Draft, Request
from scorers.internvl.prompts import JudgePrompt
from scorers.internvl.stage import MmieScore, WrittenReply


class MmieScoreLoop:
    """Answers as a loaded `MmieScore` does."""

    def __init__(self, stage: MmieScore) -> None:
        self._stage, self._judge = stage, stage.judge

    @torch.inference_mode()
    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request, in order."""
        return [self._answer(request) for request in inputs]

    def _answer(self, request: Request) -> Outcome[Draft]:
        pictures = self._stage.pictures([request])
        prompt = self._stage.prompt(request, pictures)
        if not isinstance(prompt, JudgePrompt):
            return prompt
        (embedded,) = self._stage.embedded([prompt], pictures)
        return self._stage.drafted(prompt, self._written(embedded, prompt.budget.reply))

    def _written(self, prompt: Tensor, limit: int) -> WrittenReply:
        reply, cache = WrittenReply(limit), DynamicCache()
        with self._judge.rope.prompts(self._judge.rope.is_long(len(prompt))):
            token = self._next(prompt, cache)
        while reply.take(token, self._stage.end):
            token = self._next(self._judge.embeddings(torch.tensor([token])), cache)
        return reply

    def _next(self, fed: Tensor, cache: DynamicCache) -> int:
        """The likeliest id after what is fed, (positions, width)."""
        states = self._judge.decoder(
            inputs_embeds=fed[None], past_key_values=cache, use_cache=True
        ).last_hidden_state
        return int(self._judge.logits(states[:, -1]).argmax())
