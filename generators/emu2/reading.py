"""Prompts as embeddings, many at once, and the regression of what follows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from generators.base import Failure, Skip
from generators.decoding.streams import Streams
from generators.document import Image
from generators.emu2.model import Emu2
from generators.emu2.tokens import Picture
from generators.emu2.vision import prepared
from generators.pictures import PictureError


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in the model's own terms."""

    ids: tuple[int, ...]
    pixels: tuple[Tensor, ...]
    """Each picture as the vision encoder reads it, in order."""


def read(
    model: Emu2,
    parts: Sequence[str | Image],
    room: int,
    context: int,
    *,
    begins_picture: bool = False,
) -> Prompt | Skip | Failure:
    """The prompt of `parts`; a Skip where it and `room` more positions do not fit.

    With `begins_picture` it ends with the mark of a picture to be made. Failure where a
    picture cannot be read, or text cannot be encoded.
    """
    try:
        "".join(part for part in parts if isinstance(part, str)).encode()
    except UnicodeEncodeError as error:
        return Failure(f"the prompt is not valid text: {error.reason} at {error.start}")
    runs = [Picture.GIVEN if isinstance(part, Image) else part for part in parts]
    runs += [Picture.NEXT] * begins_picture
    ids = model.tokens.encoded(runs, model.vision.queries)
    images = [part for part in parts if isinstance(part, Image)]
    if len(ids) + room > context:
        return Skip(_too_long(model, len(ids), len(images), room, context))
    try:
        pixels = tuple(prepared(image, model.vision.side) for image in images)
    except PictureError as error:
        return Failure(str(error))
    return Prompt(tuple(ids), pixels)


def _too_long(model: Emu2, length: int, pictures: int, room: int, context: int) -> str:
    words = length - pictures * model.picture
    fit = max(context - room - words, 0) // model.picture
    return (
        f"the prompt takes {length} tokens ({pictures} pictures of {model.picture} and "
        f"{words} of text) and the answer up to {room}; the context holds {context}, so "
        f"beside this text at most {fit} pictures fit"
    )


def embedded(model: Emu2, prompts: Sequence[Prompt]) -> list[Tensor]:
    """Embeddings (positions, hidden) of each prompt; all pictures are seen together."""
    vectors = model.seen([pixels for prompt in prompts for pixels in prompt.pixels])
    ends = list(accumulate((len(prompt.pixels) for prompt in prompts), initial=0))
    shares = (vectors[a:b] for a, b in pairwise(ends))
    return [model.embedded(p.ids, v) for p, v in zip(prompts, shares, strict=True)]


def context_of(model: Emu2, told: int | None) -> int:
    """The context in use; ValueError where `told` exceeds the model's."""
    if told is not None and told > model.context:
        raise ValueError(f"context {told} exceeds the model's {model.context} tokens")
    return told or model.context


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
