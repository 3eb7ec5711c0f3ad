"""Likeness of an answer's images to the ground truth's.

Images are paired in order, the answer's first with the ground truth's first; those left
over on either side are counted and not scored. A document's value is the mean over its
pairs, each as torchmetrics computes it.

`ssim` (Wang et al. 2004): structural similarity, -1 to 1, 1 for the same image.
`lpips` (Zhang et al., CVPR 2018), `dists` (Ding et al., TPAMI 2020): distances between
features of AlexNet and VGG16, 0 for the same image. DISTS forgives other texture.

They compare what is in place: a faithful image from another angle scores as a wrong one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from plait.generators.base import (
    Failure,
    Kind,
    NotApplicable,
    Outcome,
    Result,
    Unscored,
    Weights,
)
from plait.generators.document import Candidate, Document, Image, Query, Score
from plait.generators.extras import Extra
from plait.generators.settings import unkeyed
from plait.generators.work import FigureRange
from plait.scorers.base import (
    NO_IMAGE,
    NO_TRUE_IMAGE,
    NO_TRUTH,
    DocumentSettings,
    NoScore,
    Preset,
    Presets,
    Scorer,
)
from plait.scorers.embeddings.settings import ImageModelSettings
from plait.scorers.parts import PartScale, PartTable

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image as Pillow

KERNEL = 11
"""Pixels along a side of the Gaussian window: the least an image can have."""


class SsimSettings(DocumentSettings):
    """How images are brought to one size."""

    stage: ClassVar[str] = "ssim"
    target: ClassVar[str] = "plait.scorers.ssim:Ssim"
    extra: ClassVar[Extra | None] = "models"
    cpu_s: ClassVar[FigureRange] = FigureRange.between(0.1, 2.0)
    """Measured: 0.1 s at 256 x 256 pixels, 2 s at `longest_side` on a busy machine."""

    batch_size: int = unkeyed(16, ge=1)
    """Documents scored at once."""
    num_cpus: float = unkeyed(1.0, ge=0)
    """CPU cores of one replica."""
    longest_side: int = Field(default=512, ge=KERNEL)
    """Pixels: both images are resized to the size of the ground truth's or, where that
    is larger, to its shape with this longer side."""


class PerceptualSettings(ImageModelSettings):
    """The network beneath LPIPS or DISTS, and how images are brought to one size."""

    kind: ClassVar[Kind] = Kind.SCORE
    network: ClassVar[str]
    """torchvision's name of it."""
    layers: ClassVar[int]
    """How many of its layers are used."""
    products: ClassVar[float]
    """Multiplications for an image of 224 x 224 pixels."""

    batch_size: int = unkeyed(16, ge=1)
    """Documents scored at once."""
    dtype: Literal["float32"] = "float32"
    longest_side: int = Field(default=256, ge=64)
    """Pixels, as for SSIM. DISTS' authors resize the shorter side to 256."""

    def flops(self) -> float:
        """Return those of two images, two for each product."""
        return 4 * self.products * (self.longest_side / 224) ** 2


class LpipsSettings(PerceptualSettings):
    """LPIPS' AlexNet, and how images are brought to one size."""

    stage: ClassVar[str] = "lpips"
    target: ClassVar[str] = "plait.scorers.perceptual:Lpips"
    network: ClassVar[str] = "alexnet"
    layers: ClassVar[int] = 12
    products: ClassVar[float] = 0.7e9

    model: str = unkeyed("https://download.pytorch.org/models/alexnet-owt-7be5be79.pth")
    """The address of a weights file, whose name ends with its digest, or a file."""
    params_b: float | None = unkeyed(0.0025, gt=0)


class DistsSettings(PerceptualSettings):
    """DISTS' VGG16, and how images are brought to one size."""

    stage: ClassVar[str] = "dists"
    target: ClassVar[str] = "plait.scorers.perceptual:Dists"
    network: ClassVar[str] = "vgg16"
    layers: ClassVar[int] = 30
    products: ClassVar[float] = 15.5e9

    model: str = unkeyed("https://download.pytorch.org/models/vgg16-397923af.pth")
    """The address of a weights file, whose name ends with its digest, or a file."""
    params_b: float | None = unkeyed(0.0147, gt=0)


class PairedImages:
    """Scores images against the ground truth's.

    A result's `parts` hold `pairs`, the value of each, and how many images were `unpaired`
    in the answer and in the ground truth.
    """

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """Return one score per document; an image that cannot be read is a Failure."""
        return [self._outcome(candidate) for candidate in inputs]

    def _outcome(self, candidate: Candidate) -> Outcome[Score]:
        from plait.generators.images import ImageError, decode

        images = _images(candidate.document, candidate.reference)
        if not isinstance(images, tuple):
            return images
        answer, truth = images
        values = []
        # Those without a counterpart are counted below.
        for number, (own, other) in enumerate(zip(answer, truth, strict=False), 1):
            try:
                values.append(self.compare(decode(own), decode(other)))
            except ImageError as error:
                return Failure(f"image {number} or its ground truth: {error}")
        unpaired = {
            "answer": max(0, len(answer) - len(truth)),
            "ground_truth": max(0, len(truth) - len(answer)),
        }
        parts = {"pairs": values, "unpaired": unpaired}
        return Result(Score(sum(values) / len(values), parts), {"images": len(values)})

    def compare(self, own: Pillow, true: Pillow) -> float:
        """Return the value of an RGB image beside the ground truth's."""
        raise NotImplementedError


class Ssim(PairedImages):
    """Scores images by their structural similarity to the ground truth's."""

    def __init__(self, *, weights: Weights | None = None, **settings: Any) -> None:
        self._longest = SsimSettings(**settings).longest_side

    def compare(self, own: Pillow, true: Pillow) -> float:
        """Return the similarity at the size of the ground truth."""
        return similarity(own, true, common_size(true.size, self._longest))


def similarity(own: Pillow, other: Pillow, size: tuple[int, int]) -> float:
    """Return the structural similarity of two RGB images at `size` (width, height)."""
    import torch
    from torchmetrics.functional.image import structural_similarity_index_measure

    pixels = (torch.from_numpy(pixels_of(image, size)) for image in (own, other))
    with torch.inference_mode():
        value = structural_similarity_index_measure(*pixels, data_range=1.0)
    return float(value)


def common_size(
    size: tuple[int, int], longest: int, least: int = KERNEL
) -> tuple[int, int]:
    """`size` (width, height) shrunk to `longest`, each side at least `least`."""
    factor = min(1.0, longest / max(size))
    width, height = (max(least, round(side * factor)) for side in size)
    return width, height


def pixels_of(image: Pillow, size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return an RGB image as float32 (1, 3, height, width) from 0 to 1, bicubic."""
    import numpy as np
    from PIL.Image import Resampling

    if image.size != size:
        image = image.resize(size, Resampling.BICUBIC)
    pixels = np.asarray(image, dtype=np.float32) / 255
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def _without_images(truth: Document | None) -> NotApplicable | None:
    """Return why there is nothing to compare images with; None where there is."""
    if truth is None:
        return NotApplicable(NO_TRUTH)
    return None if truth.images else NotApplicable(NO_TRUE_IMAGE)


def _images(
    document: Document, truth: Document | None
) -> tuple[tuple[Image, ...], tuple[Image, ...]] | NoScore:
    if (refused := _without_images(truth)) is not None:
        return refused
    assert truth is not None
    return (document.images, truth.images) if document.images else Unscored(NO_IMAGE)


@dataclass(frozen=True, slots=True)
class PairedScorer(Scorer):
    """Scores the images of a document against the ground truth's."""

    presets: ClassVar[Presets] = {
        "ssim": Preset(SsimSettings(), {"scale": "-1-1", "unit": "SSIM"}),
        "lpips": Preset(
            LpipsSettings(),
            {"direction": "lower", "unit": "LPIPS (AlexNet)", "licence": "BSD-2-Clause"},
        ),
        "dists": Preset(
            DistsSettings(), {"direction": "lower", "unit": "DISTS", "licence": "MIT"}
        ),
    }
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("pairs/*"), PartScale("unpaired/*", "images")
    )
    images_only: bool = True

    def candidate(self, query: Query, document: Document) -> Candidate | NoScore:
        """Return the images alone: systems with other text beside them share the record."""
        images = _images(document, query.reference)
        if not isinstance(images, tuple):
            return images
        answer, reference = (Document(each) for each in images)
        return Candidate(answer, reference=reference)

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs images of the ground truth."""
        return _without_images(query.reference)
