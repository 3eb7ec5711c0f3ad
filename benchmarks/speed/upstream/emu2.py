"""Emu2-Gen's own loop: one request at a time, the whole prompt again for every vector.

After `generate_image` of emu/emu.py (baaivision/Emu), whose original also spells and
tokenises the growing prompt anew each time, which this does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from generators.base import Outcome
from generators.document import ImageRequest, Payload
from generators.emu2.condition import ConditionMode, Emu2Condition
from generators.emu2.reading import Emu2Prompt, embeddings


class Emu2Loop(Emu2Condition):
    """Makes the vectors a loaded `Emu2Condition` makes."""

    def __init__(self, stage: Emu2Condition) -> None:
        self.settings, self.model, self.context = stage.settings, stage.model, stage.context

    @torch.inference_mode()
    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        """One payload per request, in order."""
        each = (Emu2Condition.__call__(self, [one]) for one in inputs)
        return [outcome for outcomes in each for outcome in outcomes]

    def _vectors(self, prompts: Sequence[Emu2Prompt], mode: ConditionMode) -> Tensor:
        if mode == "autoencoding":
            return super()._vectors(prompts, mode)
        return torch.stack([self._regressed(p) for p in embeddings(self.model, prompts)])

    def _regressed(self, prompt: Tensor) -> Tensor:
        """Vectors (queries, width) that follow one prompt (positions, hidden)."""
        network = self.model.network
        vectors = prompt.new_empty(0, network.project_down.out_features)
        for made in range(self.model.vision.queries):
            sequence = torch.cat([prompt, network.project_up(vectors)])[None]
            states = network.lm.model(inputs_embeds=sequence, use_cache=False)[0][0]
            vectors = network.project_down(states[-(made + 1) :])
        return vectors
