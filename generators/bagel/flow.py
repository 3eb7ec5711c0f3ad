"""From noise to the latents of images, in steps, in up to three contexts each.

`Bagel.generate_image` and `_forward_flow`, modeling/bagel/bagel.py of
ByteDance-Seed/Bagel@056b5fd, for many images at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from plait.generators.bagel.contexts import (
    Piece,
    are_latents,
    embed,
    length_of,
    next_id,
    position_ids,
    prefill,
)
from plait.generators.bagel.models import BEGIN_IMAGE, END_IMAGE, Bagel
from plait.generators.bagel.network import Routing
from plait.generators.bagel.pixels import places_of
from plait.generators.bagel.settings import BagelConditionSettings
from plait.generators.decoding.streams import KeyValueRows

_TINY = 1e-8
"""Keeps a length of 0 from dividing, as upstream has it."""


@dataclass(frozen=True, slots=True)
class FlowContexts:
    """What an image is drawn from, and what guidance leads away from."""

    whole: tuple[Piece, ...]
    without_text: tuple[Piece, ...]
    without_images: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One evaluation of the network."""

    time: float
    """From 1, noise, to 0, the image."""
    length: float
    """How far it goes."""
    guided: bool


def steps_of(settings: BagelConditionSettings) -> Iterator[Step]:
    """Yield the steps: one less than there are times, at all of them but the last."""
    # In float32 as upstream, so that the same times lie within the interval of guidance.
    even = torch.linspace(1, 0, settings.num_timesteps)
    shift = settings.timestep_shift
    times = shift * even / (1 + (shift - 1) * even)
    low, high = settings.cfg_interval
    for time, following in pairwise(times):
        within = bool(time > low) and bool(time <= high)
        guided = within and settings.cfg_text_scale > 1
        yield Step(float(time), float(time - following), guided)


def guide(
    plain: Tensor,
    without_text: Tensor,
    without_images: Tensor | None,
    settings: BagelConditionSettings,
) -> Tensor:
    """Return the guided velocity (patches, values), scaled to the length of the plain one.

    `without_images` is None where images do not guide.
    """
    guided = without_text + settings.cfg_text_scale * (plain - without_text)
    if settings.cfg_renorm_type == "text_channel":
        guided = _shorten(guided, plain, -1, settings.cfg_renorm_min)
    if without_images is not None:
        guided = without_images + settings.cfg_img_scale * (guided - without_images)
    if settings.cfg_renorm_type == "text_channel":
        return guided
    dim = -1 if settings.cfg_renorm_type == "channel" else None
    return _shorten(guided, plain, dim, settings.cfg_renorm_min)


def _shorten(guided: Tensor, plain: Tensor, dim: int | None, least: float) -> Tensor:
    """Return `guided` scaled down to the length of `plain`, by `least` at the least.

    Lengths are taken along `dim`, or of the whole tensor.
    """
    wanted = torch.linalg.vector_norm(plain, dim=dim, keepdim=dim is not None)
    length = torch.linalg.vector_norm(guided, dim=dim, keepdim=dim is not None)
    shortened: Tensor = guided * (wanted / (length + _TINY)).clamp(least, 1.0)
    return shortened


class Flow:
    """The images of a batch on their way; all of them take each step together.

    The contexts stay in the cache, and every step writes its own positions behind them.
    """

    def __init__(
        self,
        bagel: Bagel,
        settings: BagelConditionSettings,
        contexts: Sequence[FlowContexts],
        noise: Sequence[Tensor],
        grids: Sequence[tuple[int, int]],
    ) -> None:
        """`noise` (patches, values) of each image has a row for a patch of its grid."""
        self._bagel = bagel
        self._settings = settings
        self._decoder = bagel.network.language_model.model
        self._table: Tensor = self._decoder.embed_tokens.weight
        self._device = self._table.device
        self.latents = [image.to(self._device) for image in noise]
        side = bagel.size.network.side
        self._places = [places_of(*grid, side).to(self._device) for grid in grids]
        self._plan_rows(contexts)
        self._prefill()

    def _plan_rows(self, contexts: Sequence[FlowContexts]) -> None:
        """Give each image a row of the cache for each of its contexts, the whole first."""
        self._rows: list[tuple[Piece, ...]] = []
        """The context in each row."""
        self._owners: list[int] = []
        """The image that each row is for."""
        self._text_rows: dict[int, int] = {}
        """By image the row without its last text, where texts guide."""
        self._image_rows: dict[int, int] = {}
        """By image the row without its images, where images guide too."""
        for image, context in enumerate(contexts):
            self._add_row(image, context.whole)
        if self._settings.cfg_text_scale <= 1:
            return
        for image, context in enumerate(contexts):
            self._text_rows[image] = self._add_row(image, context.without_text)
        if self._settings.cfg_img_scale <= 1:
            return
        for image, context in enumerate(contexts):
            # Where there are no images, and no thought, that is the whole context.
            if context.without_images == context.whole:
                self._image_rows[image] = image
            else:
                self._image_rows[image] = self._add_row(image, context.without_images)

    def _add_row(self, image: int, context: tuple[Piece, ...]) -> int:
        """Add a row for one context of an image, and return its number."""
        self._rows.append(context)
        self._owners.append(image)
        return len(self._rows) - 1

    def _prefill(self) -> None:
        """Read all contexts into the cache, with room behind each for its image."""
        self._lengths = torch.tensor([*map(length_of, self._rows)], device=self._device)
        self._next = torch.tensor([*map(next_id, self._rows)], device=self._device)
        # An image has a mark at each end.
        most = max(map(len, self.latents)) + 2
        columns = int(self._lengths.max()) + most
        self._cache = KeyValueRows(columns)
        self._cache.reserve(len(self._rows), columns)
        filled = [row for row, pieces in enumerate(self._rows) if pieces]
        if not filled:
            return
        pieces = [self._rows[row] for row in filled]
        prefill(
            self._decoder,
            self._cache,
            torch.tensor(filled, device=self._device),
            embed(pieces, self._bagel),
            [*map(position_ids, pieces)],
            [*map(are_latents, pieces)],
        )

    @torch.inference_mode()
    def advance(self, step: Step) -> None:
        """Take a step: the network is evaluated once."""
        images = len(self.latents)
        rows = len(self._rows) if step.guided else images
        velocities = self._velocities(step.time, rows)
        for image in range(images):
            velocity = velocities[image]
            if step.guided:
                of_images = self._image_rows.get(image)
                velocity = guide(
                    velocity,
                    velocities[self._text_rows[image]],
                    None if of_images is None else velocities[of_images],
                    self._settings,
                )
            self.latents[image] = self.latents[image] - velocity * step.length

    def _velocities(self, time: float, rows: int) -> list[Tensor]:
        """Return the velocities (patches, values) in the first `rows`."""
        images = [self._embed(image, time) for image in range(len(self.latents))]
        padded = pad_sequence(images, batch_first=True)
        owners = torch.tensor(self._owners[:rows], device=self._device)
        # Positions of each row's image and of its context: (rows,).
        counts = torch.tensor([*map(len, images)], device=self._device)[owners]
        lengths = self._lengths[:rows]
        # (rows, positions): which are no padding, and which are no mark either.
        positions = torch.arange(padded.shape[1], device=self._device)
        real = positions < counts[:, None]
        latents = (positions > 0) & (positions < counts[:, None] - 1)
        columns = int(lengths.max()) + padded.shape[1]
        alike = bool((lengths == lengths[0]).all())
        # Where every row has as many positions, each attends to all: no mask, fast kernels.
        mask = None
        if not (alike and bool(real.all())):
            column = torch.arange(columns, device=self._device)
            mask = (column < (lengths + counts)[:, None])[:, None, None]
        stored_at = lengths[:, None] + positions
        self._cache.begin(stored_at, columns, same=int(lengths[0]) if alike else None)
        states = self._decoder(
            padded[owners],
            # All positions of an image share an id.
            self._next[:rows, None].expand(rows, len(positions)),
            mask,
            self._cache,
            Routing.of(latents, real),
            causal=False,
        ).last_hidden_state
        velocities: list[Tensor] = []
        for own, count in zip(states, counts.tolist(), strict=True):
            # Without the marks.
            velocities.append(self._bagel.network.llm2vae(own[1 : count - 1]).float())
        return velocities

    def _embed(self, image: int, time: float) -> Tensor:
        """Return embeddings (patches + 2, width) of an image's latents and its marks."""
        ids = [self._bagel.id(mark) for mark in (BEGIN_IMAGE, END_IMAGE)]
        begin, end = self._table[ids][:, None]
        latents = self.latents[image]
        places = self._places[image]
        placed: Tensor = self._bagel.network.place_latents(latents, places, time)
        return torch.cat([begin, placed.to(self._table), end])
