"""Prompts as embeddings, and the vectors regressed from them, with their payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from generators.base import Failure, Skip
from generators.decoding.streams import Streams
from generators.document import Image, Payload
from generators.emu2.network import Emu2, encoder_input
from generators.emu2.tokens import PicturePlace
from generators.pictures import PictureError


@dataclass(frozen=True, slots=True)
class Emu2Prompt:
    """A prompt in the model's own terms."""

    ids: tuple[int, ...]
    pixels: tuple[Tensor, ...]
    """Each picture as the vision encoder reads it, in order."""


def read_prompt(
    model: Emu2,
    parts: Sequence[str | Image],
    room: int,
    context: int,
    *,
    begins_picture: bool = False,
) -> Emu2Prompt | Skip | Failure:
    """The prompt of `parts`; a Skip where it and `room` more positions do not fit.

    With `begins_picture` it ends with the mark of a picture to come. Failure where a
    picture cannot be read.
    """
    runs = [PicturePlace.GIVEN if isinstance(part, Image) else part for part in parts]
    runs += [PicturePlace.NEXT] * begins_picture
    ids = model.tokens.encoded(runs, model.vision.queries)
    images = [part for part in parts if isinstance(part, Image)]
    if len(ids) + room > context:
        return Skip(_too_long(model, len(ids), len(images), room, context))
    try:
        pixels = tuple(encoder_input(image, model.vision.side) for image in images)
    except PictureError as error:
        return Failure(str(error))
    return Emu2Prompt(tuple(ids), pixels)


def _too_long(model: Emu2, length: int, pictures: int, room: int, context: int) -> str:
    words = length - pictures * model.picture
    fit = max(context - room - words, 0) // model.picture
    return (
        f"the prompt takes {length} tokens ({pictures} pictures of {model.picture} and "
        f"{words} of text) and the answer up to {room}; the context holds {context}, so "
        f"beside this text at most {fit} pictures fit"
    )


def embeddings(model: Emu2, prompts: Sequence[Emu2Prompt]) -> list[Tensor]:
    """Embeddings (positions, hidden) of each prompt; all pictures are encoded together."""
    vectors = model.picture_vectors(
        [pixels for prompt in prompts for pixels in prompt.pixels]
    )
    ends = list(accumulate((len(prompt.pixels) for prompt in prompts), initial=0))
    shares = (vectors[a:b] for a, b in pairwise(ends))
    return [model.embeddings(p.ids, v) for p, v in zip(prompts, shares, strict=True)]


def context_of(model: Emu2, limit: int | None) -> int:
    """The context in use; ValueError where `limit` exceeds the model's."""
    if limit is not None and limit > model.context:
        raise ValueError(f"context {limit} exceeds the model's {model.context} tokens")
    return limit or model.context


@torch.inference_mode()
def regress(model: Emu2, prompts: Sequence[Tensor]) -> Tensor:
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


VECTORS, UNCONDITIONAL = "vectors", "unconditional"
"""Names of the two tensors, each (queries, width)."""


def pack_vectors(vectors: Tensor, unconditional: Tensor) -> Payload:
    """Both matrices as safetensors, in the precision they were computed in.

    Guidance starts from the unconditional one, and the renderer has no language model to
    compute it, so every payload holds both; a stage computes it only once.
    """
    tensors = {VECTORS: vectors, UNCONDITIONAL: unconditional}
    return Payload.of(save({k: t.cpu().contiguous() for k, t in tensors.items()}))


def unpack_vectors(payload: Payload) -> tuple[Tensor, Tensor]:
    """Both matrices; ValueError if the payload lacks them."""
    try:
        tensors = load(payload.read())
        return tensors[VECTORS], tensors[UNCONDITIONAL]
    except (SafetensorError, KeyError) as error:
        raise ValueError(
            f"the payload holds no tensors {VECTORS!r} and {UNCONDITIONAL!r}: {error}"
        ) from None
