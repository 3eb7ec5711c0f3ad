"""Prompts as embeddings, and the vectors regressed from them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from generators.base import Failure, Skip
from generators.content import display_text
from generators.decoding.drafting import NativePrompt, Piece, too_long
from generators.decoding.streams import Streams
from generators.document import Image
from generators.emu2.network import Emu2, encoder_input
from generators.pictures import PictureError


def read_prompt(
    model: Emu2,
    parts: Sequence[Piece],
    room: int,
    context: int,
    *,
    begins_image: bool = False,
) -> NativePrompt | Skip | Failure:
    """Return the prompt of `parts`: all its ids, then the pixels of its images.

    With `begins_image` it ends with the mark of an image to come. A Skip where it and
    `room` more positions do not fit, a Failure where an image cannot be read.
    """
    ids = model.tokens.encoded(parts, model.vision.queries, begins_image)
    images = [part for part in parts if isinstance(part, Image)]
    if skip := too_long(len(ids), len(images), model.positions, context, room):
        return skip
    try:
        pixels = [encoder_input(image, model.vision.side) for image in images]
    except PictureError as error:
        return Failure(str(error))
    return NativePrompt((ids, *pixels), display_text(parts), len(ids), len(images), 0)


def embeddings(model: Emu2, prompts: Sequence[NativePrompt]) -> list[Tensor]:
    """Return embeddings (positions, hidden) of each prompt; images are read together."""
    vectors = model.image_vectors([p for prompt in prompts for p in prompt.pixels])
    ends = list(accumulate((prompt.images for prompt in prompts), initial=0))
    shares = (vectors[a:b] for a, b in pairwise(ends))
    return [model.embeddings(p.ids, v) for p, v in zip(prompts, shares, strict=True)]


@torch.inference_mode()
def regress(model: Emu2, prompts: Sequence[Tensor]) -> Tensor:
    """Return vectors (prompts, queries, width) that follow each prompt.

    Prompts are embeddings (positions, hidden) that end with the mark of an image's
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
