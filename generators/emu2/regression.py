"""A picture's vectors, one after another, from the language model of Emu2-Gen.

Upstream (`generate_image`, emu/emu.py) runs the whole prompt again for each vector, with
one more `<image>` at its end. A position does not see the later ones, so the earlier
states come out the same each time, and a cache gives them in one pass and a step each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from generators.decoding.streams import Streams
from generators.emu2.model import Emu2


@torch.inference_mode()
def regressed(model: Emu2, prompts: Sequence[Tensor]) -> Tensor:
    """Vectors (prompts, queries, width) that follow each prompt.

    Prompts are embeddings (positions, hidden) that end with the mark of a picture's
    beginning. A vector is the last state, projected down; projected up again it is what
    the model reads next.
    """
    network = model.network
    streams = Streams(network.lm.model, model.context)
    opened = streams.open(prompts)
    vectors: list[Tensor] = []
    while True:
        # Streams keep the order they were opened in, because none leaves before the end.
        vectors.append(network.project_down(streams.step()))
        if len(vectors) == model.vision.queries:
            return torch.stack(vectors, dim=1)
        streams.feed(opened, network.project_up(vectors[-1]))
