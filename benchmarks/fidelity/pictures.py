"""How far two pictures agree: pixels, structure, CLIP's features, and LPIPS.

Pixels are those of the decoded pictures, 8-bit RGB. Pictures of different sizes have no
pixels in common and only a CLIP distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from benchmarks.local import available
from generators.base import Weights
from generators.document import Image
from generators.errors import PlaitError, UsageError
from generators.names import unknown
from generators.pictures import decode
from scorers.clipscore import ClipSettings
from scorers.ssim import KERNEL, pixels_of, similarity

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Pixels = npt.NDArray[np.uint8]
LpipsNet = Literal["alex", "vgg", "squeeze"]
LPIPS_SIDE = 64
"""Smaller pictures vanish in the networks' last layers and have no LPIPS distance."""
_BACKBONES = {
    "alex": ("alexnet", "AlexNet_Weights"),
    "vgg": ("vgg16", "VGG16_Weights"),
    "squeeze": ("squeezenet1_1", "SqueezeNet1_1_Weights"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureDifference:
    """Two pictures compared; None for what was not or cannot be measured."""

    same_size: bool
    identical: bool
    """Every pixel is the same."""
    equal_pixels: float | None = None
    """Share of pixels of which all three channels are the same."""
    mean_difference: float | None = None
    """Mean absolute difference over pixels and channels, 0 to 255."""
    largest_difference: float | None = None
    """Of one channel of one pixel, 0 to 255."""
    ssim: float | None = None
    """Structural similarity (Wang et al. 2004) at full size; 1 for the same picture."""
    clip_distance: float | None = None
    """1 minus the cosine of CLIP's features."""
    lpips: float | None = None
    """Learned perceptual distance (Zhang et al. 2018)."""


Distance = Callable[[Image, Image], float]
PixelDistance = Callable[["Picture", "Picture"], float]


@dataclass(frozen=True, kw_only=True)
class PictureMeter:
    """Compares pictures by pixels, and by the networks it has."""

    clip: Distance | None = None
    lpips: PixelDistance | None = None
    notes: tuple[str, ...] = ()
    """With which weights, or why something is not measured."""

    def __call__(self, one: Image, other: Image) -> PictureDifference:
        """The difference; PictureError where one cannot be read."""
        first, second = decode(one), decode(other)
        if first.size != second.size:
            distance = self.clip and self.clip(one, other)
            return PictureDifference(
                same_size=False, identical=False, clip_distance=distance
            )
        equal, mean, largest = pixel_difference(np.asarray(first), np.asarray(second))
        return PictureDifference(
            same_size=True,
            identical=equal == 1.0,
            equal_pixels=equal,
            mean_difference=mean,
            largest_difference=largest,
            ssim=_ssim(first, second),
            clip_distance=self._clip(one, other, equal == 1.0),
            lpips=self._lpips(first, second),
        )

    def _clip(self, one: Image, other: Image, identical: bool) -> float | None:
        if self.clip is None:
            return None
        # Rounding would leave the cosine of a picture with itself off 1.
        return 0.0 if identical else self.clip(one, other)

    def _lpips(self, one: Picture, other: Picture) -> float | None:
        if self.lpips is None or min(one.size) < LPIPS_SIDE:
            return None
        return self.lpips(one, other)


def pixel_difference(one: Pixels, other: Pixels) -> tuple[float, float, float]:
    """Share of equal pixels, mean and largest absolute difference of (h, w, 3) arrays."""
    difference = np.abs(one.astype(np.int16) - other)
    equal = (difference == 0).all(axis=-1)
    return float(equal.mean()), float(difference.mean()), float(difference.max())


def share_text(share: float) -> str:
    """A share of pixels in percent, rounded down: 100 % only where all are equal."""
    return f"{math.floor(share * 1e4) / 1e4:.2%}"


def _ssim(one: Picture, other: Picture) -> float | None:
    return similarity(one, other, one.size) if min(one.size) >= KERNEL else None


def picture_meter(
    *, weights: Weights, clip: str | None, lpips: str | None, required: bool
) -> PictureMeter:
    """The meter with the networks that are asked for.

    `clip` is a model of `clipscore` with `weights`. Where its weights cannot be had, that
    is a note, or an error if it is `required`. UsageError for an `lpips` network whose
    weights are not there: they are never replaced by others.
    """
    notes, distance = [], None
    if clip is not None:
        try:
            distance = clip_distance(clip, weights)
            kind = "" if weights == "pretrained" else f", {weights} random weights"
            notes.append(f"CLIP distance: {clip}{kind}")
        except (PlaitError, OSError) as error:
            if required:
                raise
            notes.append(f"no CLIP distance: {str(error).splitlines()[0]}")
    network = None if lpips is None else lpips_distance(lpips)
    notes += [] if lpips is None else [f"LPIPS: {lpips}"]
    return PictureMeter(clip=distance, lpips=network, notes=tuple(notes))


def clip_distance(model: str, weights: Weights) -> Distance:
    """1 - cosine of CLIP's features; CheckpointError, UsageError without weights."""
    settings = ClipSettings(model=model)
    spec = available(lambda: settings.spec("CLIP", weights), lambda s: (s,))
    from scorers.clip.model import ClipEncoder, load_clip

    pinned = ClipSettings(**{**spec.settings, **_fields(spec.options)})
    encoder = ClipEncoder(load_clip(pinned, weights))

    def distance(one: Image, other: Image) -> float:
        features = encoder.images([one, other])
        first, second = (features[image.digest] for image in (one, other))
        for problem in (first, second):
            if isinstance(problem, PlaitError):
                raise problem
        return max(0.0, 1.0 - float(np.dot(first, second)))  # type: ignore[arg-type]

    return distance


def _fields(options: Any) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k in ClipSettings.model_fields}


def lpips_distance(net: str) -> PixelDistance:
    """LPIPS by torchmetrics; UsageError where the network's weights are not there.

    torchmetrics brings the linear layers; the network below them is torchvision's.
    """
    if net not in get_args(LpipsNet):
        raise unknown("network of LPIPS", net, get_args(LpipsNet))
    import torch

    place = _backbone(net)
    if not place.exists():
        name, enum = _BACKBONES[net]
        raise UsageError(
            f"LPIPS needs torchvision's weights of {name}, which are not at {place}; "
            f'download them with `python -c "import torchvision; torchvision.models.{name}'
            f'(weights=torchvision.models.{enum}.DEFAULT)"` or leave out --lpips'
        )
    from torchmetrics.image.lpip import LearnedPerceptualImagePatchSimilarity

    metric = LearnedPerceptualImagePatchSimilarity(net_type=net, normalize=True)

    def distance(one: Picture, other: Picture) -> float:
        pixels = (torch.from_numpy(pixels_of(p, p.size)) for p in (one, other))
        with torch.inference_mode():
            return float(metric(*pixels))

    return distance


def _backbone(net: str) -> Path:
    """Where torchvision keeps the weights of the network below LPIPS."""
    import torch
    import torchvision

    _, enum = _BACKBONES[net]
    url = str(getattr(torchvision.models, enum).DEFAULT.url)
    return Path(str(torch.hub.get_dir())) / "checkpoints" / url.rpartition("/")[2]
