"""The Inception v3 that FID and KID are defined on: TensorFlow's of 2015-12-05.

torchvision's network with the three pools of TensorFlow's graph that differ, as in
mseitzer/pytorch-fid and toshas/torch-fidelity; the weights are theirs. Images are resized
as torchmetrics does by default, bilinear and antialiased; torch-fidelity's own program does
not antialias, and its figures are others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import Inception3

from plait.generators.base import Weights
from plait.generators.loading.files import in_pickle, weights_file
from plait.generators.loading.strict import device_of, fill, identical
from plait.scorers.embeddings.settings import InceptionSettings
from plait.scorers.embeddings.stage import Embed, Encoder

SIDE = 299
CLASSES = 1008
SEED = 7
AVERAGED = [f"Mixed_{n}" for n in ("5b", "5c", "5d", "6b", "6c", "6d", "6e", "7b")]
"""Blocks whose average pool does not count the padding."""
LAST = "Mixed_7c"
"""The block that pools by the largest."""


def network() -> Any:
    """Return the network without its classes, (n, 3, 299, 299) to (n, 2048)."""
    model = Inception3(CLASSES, aux_logits=False, init_weights=False)
    model.fc = nn.Identity()
    average = partial(
        F.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False
    )
    largest = partial(F.max_pool2d, kernel_size=3, stride=1, padding=1)
    for name in AVERAGED:
        model.get_submodule(name).register_forward_hook(_pool_hook(average))
    model.get_submodule(LAST).register_forward_hook(_pool_hook(largest))
    return model.eval().requires_grad_(False)


def _pool_hook(pool: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a hook that replaces what a block makes of its pool, its last channels."""

    def hook(block: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        other_branches = output[:, : -block.branch_pool.conv.out_channels]
        pooled = block.branch_pool(pool(inputs[0]))
        return torch.cat([other_branches, pooled], dim=1)

    return hook


class InceptionEmbed(Embed):
    """Encodes images by the Inception v3 of FID."""

    settings = InceptionSettings

    @staticmethod
    def load(config: Any, weights: Weights) -> Encoder:
        """Return the network; random weights have the published size."""
        device = device_of(config.device)
        if weights == "pretrained":
            model = _load_published(config.model, device)
        else:
            with torch.random.fork_rng([]):
                torch.manual_seed(SEED)
                model = network().apply(_random).to(device)
        return Encoder(prepare, model, device, torch.float32)


def prepare(image: Pillow.Image) -> Tensor:
    """Return pixels (3, 299, 299), from -1 to 1."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()
    resized = F.interpolate(pixels, (SIDE, SIDE), mode="bilinear", antialias=True)
    return (resized[0] - 128) / 128


def _load_published(model: str, device: torch.device) -> Any:
    with torch.device("meta"):
        built = network()
    # Files of different ages do or do not count the batches that made the averages.
    counts = {name for name in built.state_dict() if name.endswith("num_batches_tracked")}
    path = weights_file(model)
    fill(
        built,
        in_pickle(path).items(),
        identical(built.state_dict().keys() - counts),
        source=str(path),
        device=device,
        dtype=torch.float32,
        tolerated={"fc", *counts},
    )
    return built


def _random(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
