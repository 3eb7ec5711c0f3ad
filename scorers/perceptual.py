"""LPIPS and DISTS: an image beside the ground truth's, by features of networks for photos.

The arithmetic is torchmetrics'; the weights that were fitted to people's judgements ship
with it. The network beneath them is torchvision's, in a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import torchvision
from PIL import Image as Pillow
from torch import Tensor, nn
from torchmetrics.functional.image.dists import DISTSNetwork, L2pooling
from torchmetrics.functional.image.lpips import NetLinLayer, ScalingLayer

from plait.generators.base import Weights
from plait.generators.loading.files import in_pickle, weights_file
from plait.generators.loading.strict import device_of, fill, identical, randomise
from plait.scorers.ssim import (
    DistsSettings,
    LpipsSettings,
    PairedImages,
    PerceptualSettings,
    common_size,
    pixels_of,
)

SEED = 13
LEAST = 64
"""Pixels along a side: AlexNet takes no fewer than 63."""
LPIPS_TAPS = {1: 64, 4: 192, 7: 384, 9: 256, 11: 256}
"""Layers of AlexNet whose outputs are compared, and their channels."""
DISTS_STAGES = [(0, 4, 0), (5, 9, 64), (10, 16, 128), (17, 23, 256), (24, 30, 512)]
"""Layers of VGG16 in each stage, and the channels of the pool before it."""
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Of ImageNet, as DISTS subtracts and divides."""


class Perceptual(PairedImages):
    """Scores images by their distance from the ground truth's; one pair at a time."""

    settings: type[PerceptualSettings]
    build: Callable[[Any], nn.Module]

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = self.settings(**settings)
        self._longest = config.longest_side
        self._device = device_of(config.device)
        net = getattr(torchvision.models, config.network)
        with torch.device("meta"):
            features = net(weights=None).features[: config.layers]
        if weights == "pretrained":
            path = weights_file(config.model)
            names = identical(features.state_dict(), "features.")
            _fill(features, path, names, tolerated={"classifier"})
        else:
            cpu = torch.device("cpu")
            randomise(features, device=cpu, dtype=torch.float32, seed=SEED)
        network = type(self).build(features)
        self._network = network.to(self._device).eval().requires_grad_(False)

    def compare(self, own: Pillow.Image, true: Pillow.Image) -> float:
        """Return the distance at the size of the ground truth."""
        size = common_size(true.size, self._longest, LEAST)
        pair = [torch.from_numpy(pixels_of(i, size)).to(self._device) for i in (own, true)]
        with torch.inference_mode():
            return float(self._network(*pair))


class _Lpips(nn.Module):
    def __init__(self, features: nn.Sequential) -> None:
        super().__init__()
        self.features = features
        self.scaling = ScalingLayer()
        # The dropout does nothing here, but the shipped weights count it as a layer.
        heads = [NetLinLayer(n, use_dropout=True) for n in LPIPS_TAPS.values()]
        self.heads = nn.ModuleList(heads)
        # They are stored as `lin0.model.1.weight` and on, without a name for the list.
        names = identical(self.heads.state_dict(), "lin")
        _fill(self.heads, _path_of_shipped("lpips_models/alex.pth"), names)

    def forward(self, *pair: Tensor) -> Tensor:
        """Return the distance of two images (1, 3, height, width) from 0 to 1."""
        layers = zip(*map(self._outputs, pair), self.heads, strict=True)
        each = [head((one - other) ** 2).mean((2, 3)) for one, other, head in layers]
        return torch.stack(each).sum()

    def _outputs(self, image: Tensor) -> list[Tensor]:
        # As torchmetrics does: pixels from -1 to 1, and channels of unit length, with an
        # epsilon below the root.
        x = self.scaling(2 * image - 1)
        outputs = []
        for number, layer in enumerate(self.features):
            x = layer(x)
            if number in LPIPS_TAPS:
                outputs.append(x / torch.sqrt(1e-8 + (x**2).sum(1, keepdim=True)))
        return outputs


class _Dists(DISTSNetwork):  # type: ignore[misc]
    """The library's network, which downloads its layers, with layers that are given."""

    def __init__(self, features: nn.Sequential) -> None:
        nn.Module.__init__(self)
        for number, (first, end, channels) in enumerate(DISTS_STAGES, start=1):
            pool = [L2pooling(channels=channels)] if channels else []
            stage = nn.Sequential(*pool, *list(features)[first:end])
            setattr(self, f"stage{number}", stage)
        self.chns = [3, 64, 128, 256, 512, 512]
        for name, values in {"mean": MEAN, "std": STD}.items():
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1))
        weights = in_pickle(_path_of_shipped("dists_models/weights.pt"))
        self.alpha = nn.Parameter(weights["alpha"])
        self.beta = nn.Parameter(weights["beta"])


class Lpips(Perceptual):
    """Scores images by LPIPS on AlexNet (Zhang et al., CVPR 2018)."""

    settings = LpipsSettings
    build = _Lpips


class Dists(Perceptual):
    """Scores images by DISTS (Ding et al., TPAMI 2020)."""

    settings = DistsSettings
    build = _Dists


def _path_of_shipped(name: str) -> Path:
    return Path(str(files("torchmetrics.functional.image") / name))


def _fill(module: nn.Module, path: Path, layout: Any, **more: Any) -> None:
    cpu = torch.device("cpu")
    stored = in_pickle(path).items()
    fill(module, stored, layout, source=str(path), device=cpu, dtype=torch.float32, **more)
