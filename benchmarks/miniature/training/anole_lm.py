"""The language model of the mini Anole: what it learns from each step."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.miniature.training.anole_data import AnoleData, Sequences
from benchmarks.miniature.training.anole_vq import VQ
from benchmarks.miniature.training.labels import CLASSES, reading_loss
from benchmarks.miniature.training.loop import TrainingPlan

LANGUAGE: Mapping[str, Any] = {
    "hidden_size": 160,
    "intermediate_size": 384,
    "num_hidden_layers": 5,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "max_position_embeddings": 1024,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
}
"""Fields of transformers' `ChameleonConfig`."""
LM_PLAN = TrainingPlan(
    steps=1600, rate=2.5e-3, warmup=60, decay=0.05, average=0.99, save_every=100
)
PAIRS = 0.5
"""Share of the steps that learn from single pictures and sentences alone, first."""
SINGLE, MIXED = {"drawing": 20, "reading": 10}, {"drawing": 8, "SA": 6, "PBL": 5, "MSR": 5}
"""Sequences of a step, then and afterwards."""
READ_AT, READING = 3, 0.5
"""After how many layers scenes are read, and the weight of that loss."""


def chameleon(ids: Mapping[str, int], language: Mapping[str, Any] = LANGUAGE) -> Any:
    """An untrained Chameleon for a vocabulary of token name -> id, without a VQ model."""
    from transformers import ChameleonConfig, ChameleonForConditionalGeneration

    config = ChameleonConfig(
        **language, vq_config=dict(VQ), vocab_size=len(ids), vocabulary_map=dict(ids)
    )
    model = ChameleonForConditionalGeneration._from_config(
        config, attn_implementation="sdpa"
    )
    del model.model.vqmodel
    return model.train()


class AnoleLearner:
    """The model, a layer that reads scenes from its states, and the loss of a step.

    Where a picture begins and ends, the states after READ_AT layers are to tell what it
    shows: the model learns sooner so to carry a scene from words to codes and back.
    """

    def __init__(self, model: Any, data: AnoleData, plan: TrainingPlan) -> None:
        self.model, self._data, self._plan = model, data, plan
        self.reader = nn.Linear(model.config.hidden_size, sum(CLASSES))

    def loss(self, step: int) -> Tensor:
        """Mean over all weighted tokens of the step, and of what the marks tell."""
        rng = random.Random(self._plan.seed * 1_000_003 + step)
        single = step < PAIRS * self._plan.steps
        groups = [self._some(rng, *g) for g in (SINGLE if single else MIXED).items()]
        weight = sum(float(group.weights[:, 1:].sum()) for group in groups)
        results = [self._group(group) for group in groups]
        tokens = torch.stack([tokens for tokens, _ in results]).sum() / weight
        readings = [reading for _, reading in results]
        return tokens + READING * torch.stack(readings).mean()

    def _some(self, rng: random.Random, kind: str, count: int) -> Sequences:
        match kind:
            case "drawing":
                return self._data.drawings(rng, count)
            case "reading":
                return self._data.readings(rng, count)
            case "SA" | "PBL" | "MSR":
                return self._data.answers(rng, kind, count)
        raise ValueError(f"{kind!r} is not a kind of sequence")

    def _group(self, group: Sequences) -> tuple[Tensor, Tensor]:
        """Summed losses of tokens, and the mean loss of what the marks tell."""
        ids, weights = group.ids, group.weights[:, 1:]
        # Flash attention's backward pass takes three times as long on a CPU.
        with sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16):
            # The model's own `forward` forbids image tokens, so its parts are called.
            states = self.model.model(
                input_ids=ids, use_cache=False, output_hidden_states=True
            )
            wanted = weights > 0
            logits = self.model.lm_head(states.last_hidden_state[:, :-1][wanted])
        losses = F.cross_entropy(logits.float(), ids[:, 1:][wanted], reduction="none")
        rows, places = group.marks.T
        early = states.hidden_states[READ_AT][rows, places].float()
        early = F.layer_norm(early, early.shape[-1:])
        reading = reading_loss(self.reader, early, group.scenes)
        return (losses * weights[wanted]).sum(), reading
