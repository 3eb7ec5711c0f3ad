"""What the model reads, one piece after another: texts, and images in one of two forms.

Every position has an id of its own but for those of an image, which share one and attend to
each other both ways (`prepare_vit_images` and others, modeling/bagel/bagel.py). So a
position attends to all whose ids are not greater than its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from PIL import Image as Pillow
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from plait.generators.bagel.models import BEGIN_IMAGE, END_IMAGE, Bagel
from plait.generators.bagel.network import Decoder, Routing
from plait.generators.bagel.pixels import places_of, to_patches, to_tensor
from plait.generators.decoding.streams import KeyValueRows, Stream, Streams


@dataclass(frozen=True, slots=True, eq=False)
class TextPiece:
    """A text between its marks."""

    ids: list[int]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class ImagePiece:
    """Patches of an image between two marks: as the encoder sees it, or its latents."""

    patches: Tensor
    """(patches, values)."""
    places: Tensor
    """Of each patch in the table of places."""
    latents: bool = False

    def __len__(self) -> int:
        return len(self.patches) + 2


Piece = TextPiece | ImagePiece


def see(image: Pillow.Image, bagel: Bagel) -> ImagePiece:
    """Return the piece of an image as the encoder sees it."""
    sides = bagel.size.seen
    pixels = to_tensor(sides.resize(image))
    rows, columns = (side // sides.stride for side in pixels.shape[1:])
    patches = to_patches(pixels, sides.stride)
    return ImagePiece(patches, places_of(rows, columns, sides.across))


def length_of(pieces: Sequence[Piece]) -> int:
    """Return how many positions the pieces take."""
    return sum(map(len, pieces))


def typical(images: Sequence[int], largest: int) -> int:
    """Return the positions of an image for a message: the mean of these, rounded up."""
    return math.ceil(sum(images) / len(images)) if images else largest


def position_ids(pieces: Sequence[Piece]) -> Tensor:
    """Return the ids (positions,): an image counts as one."""
    found: list[Tensor] = []
    first = 0
    for piece in pieces:
        if isinstance(piece, TextPiece):
            found.append(torch.arange(first, first + len(piece)))
            first += len(piece)
        else:
            found.append(torch.full((len(piece),), first))
            first += 1
    return torch.cat(found) if found else torch.empty(0, dtype=torch.long)


def next_id(pieces: Sequence[Piece]) -> int:
    """Return the id of what follows the pieces."""
    return sum(len(own) if isinstance(own, TextPiece) else 1 for own in pieces)


def are_latents(pieces: Sequence[Piece]) -> Tensor:
    """Return which positions (positions,) are latents; the marks around them are texts."""
    masks = [torch.zeros(0, dtype=torch.bool)]
    for piece in pieces:
        mask = torch.zeros(len(piece), dtype=torch.bool)
        if isinstance(piece, ImagePiece) and piece.latents:
            mask[1:-1] = True
        masks.append(mask)
    return torch.cat(masks)


@torch.inference_mode()
def embed(sequences: Sequence[Sequence[Piece]], bagel: Bagel) -> list[Tensor]:
    """Return embeddings (positions, width) of each sequence; images are seen together."""
    network = bagel.network
    table: Tensor = network.language_model.model.embed_tokens.weight
    device = table.device
    begin, end = table[[bagel.id(BEGIN_IMAGE), bagel.id(END_IMAGE)]][:, None]
    patches_of = _embed_patches(sequences, network, device)

    def embed_piece(piece: Piece) -> Tensor:
        if isinstance(piece, TextPiece):
            return table[torch.tensor(piece.ids, device=device)]
        return torch.cat([begin, patches_of[id(piece)].to(table), end])

    nothing = table[:0]
    return [torch.cat([nothing, *map(embed_piece, pieces)]) for pieces in sequences]


def _embed_patches(
    sequences: Sequence[Sequence[Piece]], network: Any, device: torch.device
) -> dict[int, Tensor]:
    """Return embeddings (patches, width) of the images, by the `id` of their pieces.

    A piece that several sequences share is computed once.
    """
    seen: dict[int, ImagePiece] = {}
    latents: dict[int, ImagePiece] = {}
    for piece in chain.from_iterable(sequences):
        if isinstance(piece, ImagePiece):
            kind = latents if piece.latents else seen
            kind[id(piece)] = piece
    embedded: dict[int, Tensor] = {}
    if seen:
        patches = [piece.patches.to(device) for piece in seen.values()]
        places = [piece.places.to(device) for piece in seen.values()]
        embedded |= zip(seen, network.see(patches, places), strict=True)
    for key, piece in latents.items():
        # Time 0: the image itself, without noise.
        embedded[key] = network.place_latents(
            piece.patches.to(device), piece.places.to(device), time=0.0
        )
    return embedded


def prefill(
    decoder: Decoder,
    cache: KeyValueRows,
    rows: Tensor,
    embeddings: Sequence[Tensor],
    ids: Sequence[Tensor],
    latents: Sequence[Tensor],
) -> None:
    """Put sequences that begin in column 0 into `rows` of the cache, in one pass.

    Each has `embeddings` (positions, width), position `ids` (positions,) and a mask of its
    `latents` (positions,). They are padded on the right, and later positions overwrite
    what padding leaves.
    """
    device = rows.device
    padded = pad_sequence([*embeddings], batch_first=True)
    padded_ids = pad_sequence([own.to(device) for own in ids], batch_first=True)
    ends = torch.tensor([len(own) for own in ids], device=device)
    # (rows, positions): which are no padding.
    real = torch.arange(padded.shape[1], device=device) < ends[:, None]
    # (rows, queries, keys): a position attends to all whose ids are not greater.
    mask = padded_ids[:, None] <= padded_ids[..., None]
    # Padding attends to itself alone: a row of a mask without any column has no softmax.
    diagonal = torch.eye(padded.shape[1], dtype=torch.bool, device=device)
    mask = (mask & real[:, None]) | diagonal
    drawn = pad_sequence([own.to(device) for own in latents], batch_first=True)
    routing = Routing.of(drawn, real) if drawn.any() else None
    cache.begin_prefill(rows)
    decoder(padded, padded_ids, mask[:, None], cache, routing)


class ContextStreams(Streams):
    """Streams whose prompts are pieces; images in them attend both ways."""

    def __init__(
        self, decoder: Decoder, context: int, prompts: Sequence[Sequence[Piece]]
    ) -> None:
        """`prompts` are those that are opened, all at once, by their embeddings."""
        super().__init__(decoder, context)
        self._ids_of = [position_ids(pieces)[:, None] for pieces in prompts]
        self._latents_of = [are_latents(pieces) for pieces in prompts]

    def open(
        self, prompts: Sequence[Tensor], position_ids: Sequence[Tensor] | None = None
    ) -> list[Stream]:
        """Open streams for the prompts' embeddings (positions, width), in their order."""
        return super().open(prompts, self._ids_of)

    def _prefill(self, first: int, prompts: list[Tensor], ids: list[Tensor]) -> None:
        # Nothing is shared among prompts: the parts might end within an image.
        self._reserve(len(self._rows), max(map(len, prompts)) + 1)
        rows = self._rows_from(first, range(len(prompts)))
        latents: list[Tensor] = []
        for mask, prompt in zip(self._latents_of, prompts, strict=True):
            latents.append(mask[: len(prompt)])
        # Of one axis.
        plain_ids = [own[:, 0] for own in ids]
        prefill(self._decoder, self._cache, rows, prompts, plain_ids, latents)
