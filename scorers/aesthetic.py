"""The stage that reads the head of LAION's aesthetic predictor.

The head (`MLP` in simple_inference.py of christophschuhmann/improved-aesthetic-predictor
@6934dd8, Apache-2.0) has no activations: its layers make one affine function of an
embedding of length 1, which is the stage's only record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from generators.base import Outcome, Weights
from generators.document import Candidate, Embedding
from generators.loading.files import Files, in_pickle, shape_of
from generators.loading.strict import fill, identical, randomised
from scorers.embeddings.stage import embedded
from scorers.imagereward import LinearHead
from scorers.preferences import AestheticHeadSettings

WIDTH, TINY_WIDTH = 768, 32
"""Of the embeddings of ViT-L/14, and of the toy CLIP."""
SEED = 11


class AestheticHead:
    """Gives the head itself: the weights of an embedding's numbers, and the bias."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = AestheticHeadSettings(**settings)
        cpu = torch.device("cpu")
        if weights == "pretrained":
            source = Files(config.model, config.revision).need(config.file)
            tensors = in_pickle(source)
            width = shape_of(tensors, "layers.0.weight", str(source), 2)[1]
            head = LinearHead(width)
            fill(
                head,
                tensors.items(),
                identical(head.state_dict()),
                source=str(source),
                device=cpu,
                dtype=torch.float64,
            )
        else:
            width = TINY_WIDTH if weights == "tiny" else WIDTH
            head = LinearHead(width)
            randomised(head, device=cpu, dtype=torch.float64, seed=SEED)
        layers = head.eval().requires_grad_(False).layers
        bias = layers(torch.zeros(1, width, dtype=torch.float64))
        each = layers(torch.eye(width, dtype=torch.float64)) - bias
        self._function = torch.cat([each, bias])[:, 0].numpy()

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Embedding]]:
        """Return (width + 1,) numbers for each input, which is not looked at."""
        return [embedded(self._function, {}) for _ in inputs]
