"""Pixels, structure, CLIP and LPIPS of two pictures, against known numbers."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from fidelity_helpers import png

from benchmarks.fidelity.comparison import compared
from benchmarks.fidelity.diffs import card
from benchmarks.fidelity.pictures import (
    PictureMeter,
    clip_distance,
    lpips_distance,
    picture_meter,
    pixel_difference,
)
from benchmarks.fidelity.texts import text_difference
from generators.base import Result
from generators.document import Document, Image, Sample
from generators.errors import UsageError
from generators.pictures import PictureError, decode


def noise(seed: int, side: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


@pytest.mark.parametrize(
    ("one", "other", "at", "prefix"),
    [
        ("abc", "abc", None, 1.0),
        ("", "", None, 1.0),
        ("abc", "abd", 2, 2 / 3),
        ("abc", "abcd", 3, 3 / 4),
        ("", "abcd", 0, 0.0),
        ("😀b", "😀c", 1, 1 / 2),
    ],
)
def test_texts_are_compared_by_character(
    one: str, other: str, at: int | None, prefix: float
) -> None:
    for difference in (text_difference(one, other), text_difference(other, one)):
        assert difference.first_difference == at
        assert difference.prefix == prefix
        assert difference.equal == (one == other)


def test_pixels_differ_in_both_directions() -> None:
    one = np.zeros((2, 2, 3), np.uint8)
    other = one.copy()
    other[0, 0] = (255, 0, 3)
    assert pixel_difference(one, other) == (3 / 4, 258 / 12, 255)
    assert pixel_difference(other, one) == (3 / 4, 258 / 12, 255)
    assert pixel_difference(one, one) == (1, 0, 0)


def test_the_same_pixels_in_another_file_are_identical() -> None:
    from picture_helpers import saved
    from PIL import Image as Pillow

    pixels = noise(1)
    bitmap = Image.of(saved(Pillow.fromarray(pixels), "BMP"))
    found = PictureMeter()(png(pixels), bitmap)
    assert found.identical
    assert found.ssim == pytest.approx(1)


def test_structure_is_measured_at_full_size() -> None:
    from skimage.metrics import structural_similarity

    one, other = noise(1, 640), noise(2, 640)
    mixed = (0.7 * one + 0.3 * other).astype(np.uint8)
    ours = PictureMeter()(png(one), png(mixed)).ssim
    theirs = structural_similarity(
        one / 255,
        mixed / 255,
        channel_axis=-1,
        data_range=1,
        gaussian_weights=True,
        use_sample_covariance=False,
    )
    assert ours == pytest.approx(theirs, abs=5e-3)


def test_a_broken_picture_is_an_error() -> None:
    with pytest.raises(PictureError):
        PictureMeter()(png(noise(1)), Image.of(b"GIF89a"))


def test_one_pixel_that_differs_stays_visible_on_the_page() -> None:
    one = np.full((700, 1000, 3), 90, np.uint8)
    other = one.copy()
    other[650, 999, 1] += 1
    sample = Sample(id="s", category="c", field="f", turns=())
    answers = [Result(Document((png(pixels),))) for pixels in (one, other)]
    (pair,) = compared([sample], (answers[0],), (answers[1],), PictureMeter())
    (shown,) = card(pair, ("one", "other")).sides[2].pictures
    assert shown.caption.startswith("difference x 255, equal pixels 99.99%")
    data = base64.b64decode(shown.url.removeprefix("data:image/png;base64,"))
    pixels = np.asarray(decode(data))
    assert pixels.shape == (234, 334, 3)
    assert pixels[650 // 3, 999 // 3].tolist() == [0, 255, 0]
    assert pixels.sum() == 255


@pytest.mark.models
def test_clip_distance_is_one_minus_the_cosine() -> None:
    from scorers.clip.model import ClipEncoder, load_clip
    from scorers.clipscore import ClipSettings

    one, other = png(noise(1)), png(noise(2))
    features = ClipEncoder(load_clip(ClipSettings(), "tiny")).images([one, other])
    cosine = float(np.dot(features[one.digest], features[other.digest]))
    meter = picture_meter(weights="tiny", clip="ViT-B-32:openai", lpips=None, required=True)
    assert meter(one, other).clip_distance == pytest.approx(1 - cosine)
    assert meter(one, one).clip_distance == 0
    assert meter.notes == ("CLIP distance: ViT-B-32:openai, tiny random weights",)


def test_missing_weights_of_clip_are_a_note_unless_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    where = str(tmp_path / "nothing.bin")
    meter = picture_meter(weights="pretrained", clip=where, lpips=None, required=False)
    assert meter.clip is None
    assert meter.notes[0].startswith("no CLIP distance: ")
    with pytest.raises(Exception, match=r"nothing\.bin"):
        clip_distance(where, "pretrained")


@pytest.mark.models
def test_lpips_is_refused_without_its_weights_and_torchmetrics_with_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch
    import torchvision
    from torchmetrics.functional.image import learned_perceptual_image_patch_similarity

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"weights of squeezenet1_1.*squeezenet1_1-b8a52"):
        lpips_distance("squeeze")
    with pytest.raises(UsageError, match="unknown network of LPIPS 'resnet'"):
        lpips_distance("resnet")
    torch.manual_seed(0)
    random = torchvision.models.squeezenet1_1(weights=None).state_dict()
    place = tmp_path / "hub" / "checkpoints" / "squeezenet1_1-b8a52dc0.pth"
    place.parent.mkdir(parents=True)
    torch.save(random, place)
    one, other = noise(1, 96), noise(2, 96)
    images = (
        torch.from_numpy(p.transpose(2, 0, 1)[None].copy()).float() / 255
        for p in (one, other)
    )
    expected = learned_perceptual_image_patch_similarity(
        *images, net_type="squeeze", normalize=True
    )
    meter = PictureMeter(lpips=lpips_distance("squeeze"))
    assert meter(png(one), png(other)).lpips == pytest.approx(float(expected), rel=1e-5)
    assert meter(png(one), png(one)).lpips == 0
    small = (png(noise(1, 32)), png(noise(2, 32)))
    assert meter(*small).lpips is None
    assert decode(small[0]).size == (32, 32)
