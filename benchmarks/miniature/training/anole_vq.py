"""The VQ model of the mini Anole: 64 codes a picture (van den Oord et al. 2017).

The codebook begins as latents of the first pictures, once the autoencoder has learned to
draw without it; codes that no picture uses are made new until the rate falls.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.miniature.training.loop import TrainingPlan
from benchmarks.miniature.training.norms import with_fast_norms
from generators.anole.codec import vq_model
from scorers.truth.drawing import SIDE, draw
from scorers.truth.scene import random_scene

VQ: Mapping[str, Any] = {
    "resolution": SIDE,
    "in_channels": 3,
    "base_channels": 64,
    "channel_multiplier": [1, 1, 1, 1],
    "num_res_blocks": 1,
    "latent_channels": 16,
    "embed_dim": 8,
    "num_embeddings": 256,
    "double_latent": False,
    "attn_resolutions": [],
    "attn_type": "vanilla",
}
"""Fields of `ChameleonVQVAEConfig`. Its normalisation has 32 groups: with 32 channels each
would stand alone, and the mean colour of a picture would be lost."""
VQ_PLAN = TrainingPlan(steps=1800, rate=2e-3, warmup=50, average=0.99, save_every=200)
BATCH, CROPS = 8, 12
CROPPED = 2 / 3
"""Share of the steps that see CROPS quarters of pictures, first: they cost a quarter."""
PLAIN = 150
"""First steps, which leave the latents as they are."""
RENEW_EVERY = 25
CODE_TIES, SQUARES, EDGES = 1.0, 4.0, 0.5
"""Weights of the distance between latents and codes, and of squared differences of pixels,
which find the colours first, and of the pictures' edges."""

Pictures = npt.NDArray[np.uint8]
"""(pictures, side, side, 3)."""


def drawn_pictures(count: int, seed: int) -> Pictures:
    """Pictures of random scenes of the train split."""
    rng = random.Random(seed)
    scenes = (random_scene(rng, "train") for _ in range(count))
    return np.stack([np.asarray(draw(s, rng.randrange(2**31))) for s in scenes])


def as_input(pictures: Pictures) -> Tensor:
    """(pictures, 3, side, side) in [-1, 1], as the codec reads them."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1


class VqLearner:
    """The model and the loss of a batch."""

    def __init__(
        self,
        config: Mapping[str, Any],
        pictures: Pictures,
        plan: TrainingPlan,
        batch: int = BATCH,
    ) -> None:
        torch.manual_seed(plan.seed)
        model = with_fast_norms(vq_model(config).train())
        self.model = model.to(memory_format=torch.channels_last)
        self._pictures, self._plan, self._batch = pictures, plan, batch

    def loss(self, step: int) -> Tensor:
        """How far pictures change through their codes, and latents by becoming codes."""
        rng = np.random.default_rng((self._plan.seed, step))
        if step >= PLAIN and step % RENEW_EVERY == 0 and step < self._plan.steps // 2:
            self._renew(rng, first=step == PLAIN)
        cropped = step < CROPPED * self._plan.steps
        chosen = self._crops(rng) if cropped else self._some(rng, self._batch)
        with torch.autocast("cpu", torch.bfloat16):
            latents = self.model.encode(chosen).latents
        latents = latents.float()
        codes, ties = latents, latents.new_zeros(())
        if step >= PLAIN:
            nearest = self._nearest(latents)
            ties = F.mse_loss(nearest, latents.detach())
            ties = ties + 0.25 * F.mse_loss(latents, nearest.detach())
            codes = latents + (nearest - latents).detach()
        with torch.autocast("cpu", torch.bfloat16):
            drawn = self.model.decoder(self.model.post_quant_conv(codes))
        loss: Tensor = _difference(drawn.float(), chosen) + CODE_TIES * ties
        return loss

    def _some(self, rng: np.random.Generator, count: int) -> Tensor:
        rows = rng.choice(len(self._pictures), min(count, len(self._pictures)), False)
        return as_input(self._pictures[rows]).contiguous(memory_format=torch.channels_last)

    def _crops(self, rng: np.random.Generator) -> Tensor:
        """Half as wide and high, from anywhere in the pictures."""
        pictures = self._some(rng, CROPS)
        side = pictures.shape[-1] // 2
        corners = rng.integers(0, side + 1, (len(pictures), 2)).tolist()
        rows = zip(pictures, corners, strict=True)
        crops = [p[:, y : y + side, x : x + side] for p, (y, x) in rows]
        return torch.stack(crops).contiguous(memory_format=torch.channels_last)

    def _nearest(self, latents: Tensor) -> Tensor:
        """The codes (batch, channels, height, width) next to the latents."""
        embedding = self.model.quantize.embedding
        rows = latents.permute(0, 2, 3, 1)
        ids = torch.cdist(rows.flatten(0, 2).detach(), embedding.weight).argmin(1)
        found: Tensor = embedding(ids).view(rows.shape)
        return found.permute(0, 3, 1, 2)

    @torch.no_grad()
    def _renew(self, rng: np.random.Generator, first: bool) -> None:
        """Put latents of pictures in place of codes that none of these pictures uses."""
        with torch.autocast("cpu", torch.bfloat16):
            latents = self.model.encode(self._some(rng, 4 * self._batch)).latents.float()
        rows = latents.permute(0, 2, 3, 1).flatten(0, 2)
        book = self.model.quantize.embedding.weight
        distances, used = torch.cdist(rows, book).min(1)
        unused = torch.ones(len(book), dtype=torch.bool)
        if not first:
            unused[used] = False
        # Latents far from every code are those it lacks; most pixels are background.
        weights = torch.ones(len(rows)) if first else distances**2 + 1e-9
        if first:
            weights = (rows - rows.median(0).values).norm(dim=1) + 1e-6
        count = int(unused.sum())
        if count:
            book[unused] = rows[torch.multinomial(weights, count)]


def _difference(drawn: Tensor, meant: Tensor) -> Tensor:
    """Absolute and squared differences of pixels, and of neighbouring pixels."""
    loss = F.l1_loss(drawn, meant) + SQUARES * F.mse_loss(drawn, meant)
    for axis in (2, 3):
        edges = (drawn.diff(dim=axis) - meant.diff(dim=axis)).abs().mean()
        loss = loss + EDGES * edges
    return loss


@torch.no_grad()
def codes_of(model: Any, pictures: Pictures, batch: int = 64) -> npt.NDArray[np.int16]:
    """(pictures, codes) in rows from the top left."""
    grids = []
    for first in range(0, len(pictures), batch):
        latents = model.encode(as_input(pictures[first : first + batch])).latents
        ids = model.quantize(latents)[2][2]
        grids.append(ids.view(len(latents), -1).to(torch.int16).numpy())
    return np.concatenate(grids)


@torch.no_grad()
def pictures_of(model: Any, codes: npt.NDArray[np.int16]) -> Pictures:
    """The pictures (pictures, side, side, 3) that codes (pictures, codes) stand for."""
    side = int(codes.shape[1] ** 0.5)
    vectors = model.quantize.embedding(torch.from_numpy(codes.astype(np.int64)))
    grids = vectors.view(len(codes), side, side, -1).permute(0, 3, 1, 2).contiguous()
    drawn = model.decoder(model.post_quant_conv(grids)).clamp(-1, 1)
    values: Pictures = ((drawn + 1) / 2 * 255).permute(0, 2, 3, 1).to(torch.uint8).numpy()
    return values
