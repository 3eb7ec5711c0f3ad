"""Preprocessing to upstream's rule, by hand."""

import io

import numpy as np
import pytest
from PIL import Image as Pillow

from generators.anole.codec import centre_crop, encoder_input, on_white
from generators.document import Image
from generators.pictures import PictureError


def stored(picture: Pillow.Image, kind: str = "PNG", **options) -> Image:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return Image.of(file.getvalue())


def noise(width: int, height: int, mode: str = "RGB") -> Pillow.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, len(mode)))
    return Pillow.fromarray(pixels.astype(np.uint8), mode)


@pytest.mark.parametrize(
    ("size", "scaled", "corner"),
    [
        # 512 / 720 * 1000 = 711.1: rounding and truncation agree.
        ((1000, 720), (711, 512), (99, 0)),
        # 512 / 719 * 1000 = 712.1
        ((1000, 719), (712, 512), (100, 0)),
        # 512 / 480 * 667 = 711.47 and 512 / 480 * 668 = 712.53: the latter rounds up.
        ((667, 480), (711, 512), (99, 0)),
        ((480, 668), (512, 713), (0, 100)),
        ((300, 300), (512, 512), (0, 0)),
        ((512, 1024), (512, 1024), (0, 256)),
    ],
)
def test_shorter_side_then_centre_crop(size, scaled, corner):
    picture = noise(*size)
    whole = picture.resize(scaled, Pillow.Resampling.LANCZOS)
    box = (*corner, corner[0] + 512, corner[1] + 512)
    assert np.array_equal(
        np.asarray(centre_crop(picture, 512)), np.asarray(whole.crop(box))
    )


def test_values_span_minus_one_to_one():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[0, 0] = (0, 128, 255)
    tensor = encoder_input(stored(Pillow.fromarray(pixels)), 4)
    assert tensor.shape == (3, 4, 4)
    assert tensor[:, 0, 0].tolist() == pytest.approx([-1.0, 128 / 127.5 - 1, 1.0])


def test_transparency_is_blended_on_white_and_truncated():
    pixels = np.array([[[10, 200, 0, 255], [10, 200, 0, 0], [10, 200, 0, 100]]], np.uint8)
    blended = np.asarray(on_white(stored(Pillow.fromarray(pixels, "RGBA"))))
    # (1 - 100 / 255) * 255 + 100 / 255 * v = 155 + v * 0.39: 158.9, 233.4, 155.
    assert blended.tolist() == [[[10, 200, 0], [255, 255, 255], [158, 233, 155]]]


def test_transparent_palette_and_grey():
    palette = Pillow.new("P", (2, 1))
    palette.putpalette([0, 0, 0, 50, 60, 70])
    palette.putpixel((1, 0), 1)
    read = np.asarray(on_white(stored(palette, transparency=0)))
    assert read.tolist() == [[[255, 255, 255], [50, 60, 70]]]
    grey = Pillow.fromarray(np.array([[[40, 51]]], np.uint8), "LA")
    assert np.asarray(on_white(stored(grey))).tolist() == [[[212, 212, 212]]]


def test_opaque_layer_changes_nothing():
    picture = noise(5, 4, "RGBA")
    picture.putalpha(255)
    expected = np.asarray(picture)[:, :, :3]
    assert np.array_equal(np.asarray(on_white(stored(picture))), expected)


def test_rotated_pictures_stand_upright():
    exif = Pillow.Exif()
    exif[0x0112] = 6
    picture = noise(6, 4, "RGBA")
    upright = on_white(stored(picture, exif=exif))
    assert upright.size == (4, 6)
    straight = on_white(stored(picture.transpose(Pillow.Transpose.ROTATE_270)))
    assert np.array_equal(np.asarray(upright), np.asarray(straight))


def test_very_long_pictures_are_refused():
    with pytest.raises(PictureError, match="1 x 3000 pixels would become 512 x 1536000"):
        encoder_input(stored(noise(1, 3000)), 512)


def test_bytes_that_are_no_picture():
    with pytest.raises(PictureError):
        encoder_input(Image.of(b"nothing"), 64)
