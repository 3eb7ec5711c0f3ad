"""Structural similarity against a direct call of torchmetrics, and what is not scored."""

from __future__ import annotations

import numpy as np
import pytest
from contents import document
from PIL import Image as Pillow
from report_helpers import picture

from plait.generators.document import Candidate, Document, Image
from plait.generators.images import decode
from plait.scorers.ssim import Ssim, common_size

pytestmark = pytest.mark.models


def scored(own: Document, truth: Document | None, **settings):
    return Ssim(**settings)([Candidate(own, reference=truth)])[0]


def direct(own: Image, truth: Image, size: tuple[int, int]) -> float:
    """torchmetrics on the pixels, resized by Pillow alone."""
    import torch
    from torchmetrics.functional.image import structural_similarity_index_measure

    resized = [decode(i).resize(size, Pillow.Resampling.BICUBIC) for i in (own, truth)]
    one, other = (
        torch.tensor(np.array(p), dtype=torch.float32).permute(2, 0, 1)[None] / 255
        for p in resized
    )
    return float(structural_similarity_index_measure(one, other, data_range=1.0))


@pytest.mark.parametrize(("side", "longest", "size"), [(64, 512, 48), (90, 32, 32)])
def test_equals_torchmetrics_at_the_size_of_the_ground_truth(side, longest, size):
    own, truth = picture(1, side), picture(2, 48)
    result = scored(document(own), document(truth), longest_side=longest)
    assert result.value.value == pytest.approx(direct(own, truth, (size, size)), abs=1e-6)
    assert -1 < result.value.value < 0.99


def test_pictures_are_paired_in_order_and_the_rest_counted():
    own, truth = [picture(i) for i in (1, 2, 3)], [picture(i) for i in (1, 4)]
    result = scored(document(*own), document(*truth)).value
    expected = [1.0, direct(own[1], truth[1], (64, 64))]
    assert result.parts["pairs"] == pytest.approx(expected, abs=1e-6)
    assert result.value == pytest.approx(np.mean(expected), abs=1e-6)
    assert result.parts["unpaired"] == {"answer": 1, "ground_truth": 0}


def test_tiny_and_long_pictures_have_a_size_that_the_window_fits():
    assert common_size((3, 5), 512) == (11, 11)
    assert common_size((4000, 20), 512) == (512, 11)
    with pytest.raises(ValueError, match="greater than or equal to 11"):
        Ssim(longest_side=10)
    result = scored(document(picture(1)), document(picture(2, 3)))
    assert np.isfinite(result.value.value)
