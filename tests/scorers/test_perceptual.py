"""LPIPS and DISTS against torchmetrics' own functions, on networks of random values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.functional.image.dists as torchmetrics_dists
import torchvision
from contents import document
from PIL import Image as Pillow
from report_helpers import picture
from torch import nn
from torchmetrics.functional.image import (
    deep_image_structure_and_texture_similarity,
    learned_perceptual_image_patch_similarity,
)

from plait.generators.document import Candidate, Image
from plait.generators.errors import CheckpointError
from plait.generators.images import decode
from plait.scorers.perceptual import Dists, Lpips
from plait.scorers.ssim import common_size

pytestmark = pytest.mark.models

PAIRS = [
    (picture(1), picture(2)),
    (picture(3, 90), picture(4, 100)),
    (picture(5), picture(5)),
]
Direct = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def saved(folder: Path, stage: Any) -> tuple[nn.Sequential, dict[str, str]]:
    """The layers of a tiny stage, and settings that name a file as torchvision has it."""
    network = stage._network
    layers = getattr(network, "features", None) or nn.Sequential(
        *(layer for n in range(1, 6) for layer in getattr(network, f"stage{n}"))
    )
    if isinstance(stage, Dists):  # its own pools stand where VGG16 has other ones
        pools = {
            4: nn.MaxPool2d(2),
            9: nn.MaxPool2d(2),
            16: nn.MaxPool2d(2),
            23: nn.MaxPool2d(2),
        }
        layers = nn.Sequential(*(pools.get(i, layer) for i, layer in enumerate(layers)))
    state = {f"features.{name}": value for name, value in layers.state_dict().items()}
    torch.save(state | {"classifier.6.bias": torch.zeros(1000)}, folder / "weights.pth")
    return layers, {"model": str(folder / "weights.pth")}


def lpips(layers: nn.Sequential, patch: pytest.MonkeyPatch) -> Direct:
    whole = nn.Sequential(*layers, nn.MaxPool2d(3, 2))
    patch.setattr(
        torchvision.models, "alexnet", lambda weights: SimpleNamespace(features=whole)
    )
    return lambda one, other: learned_perceptual_image_patch_similarity(
        one, other, net_type="alex", normalize=True
    )


def dists(layers: nn.Sequential, patch: pytest.MonkeyPatch) -> Direct:
    whole = SimpleNamespace(features=layers)
    patch.setattr(torchmetrics_dists, "vgg16", lambda weights: whole)
    return deep_image_structure_and_texture_similarity


def pixels(image: Image, size: tuple[int, int]) -> torch.Tensor:
    resized = decode(image).resize(size, Pillow.Resampling.BICUBIC)
    return torch.tensor(np.array(resized), dtype=torch.float32).permute(2, 0, 1)[None] / 255


@pytest.mark.parametrize(("kind", "theirs"), [(Lpips, lpips), (Dists, dists)])
def test_equals_torchmetrics_alone_and_in_batches(
    kind: Any, theirs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, settings = saved(tmp_path, kind(weights="tiny"))
    stage = kind(**settings)
    inputs = [Candidate(document(own), reference=document(true)) for own, true in PAIRS]
    together = [outcome.value.value for outcome in stage(inputs)]
    assert together == [stage([given])[0].value.value for given in inputs]
    direct = theirs(layers, monkeypatch)
    for (own, true), value in zip(PAIRS, together, strict=True):
        size = common_size(decode(true).size, 256, 64)
        with torch.no_grad():
            expected = float(direct(pixels(own, size), pixels(true, size)))
        assert value == pytest.approx(expected, abs=1e-6)
    assert together[0] > 0.01 > abs(together[2])


@pytest.mark.parametrize("kind", [Lpips, Dists])
def test_other_keys_are_named(kind: Any, tmp_path: Path) -> None:
    _, settings = saved(tmp_path, kind(weights="tiny"))
    stored = torch.load(settings["model"])
    stored["features.99.bias"] = stored.pop("features.0.bias")
    torch.save(stored, settings["model"])
    with pytest.raises(CheckpointError, match=r"missing: features\.0.*unexpected: feat"):
        kind(**settings)
