"""Every kind of encoded picture becomes the RGB pixels a person would see."""

from __future__ import annotations

import io
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from picture_helpers import NOISE, png_header, saved
from PIL import Image as Pillow

from generators.document import Image
from generators.pictures import (
    MAX_PIXELS,
    BombError,
    Drawing,
    PictureError,
    decode,
    encode,
)


def pixels(data):
    picture = decode(data)
    assert picture.mode == "RGB"
    return np.asarray(picture)


def halves(left, right, mode="RGB", size=(32, 16)):
    """A picture of two colours side by side."""
    picture = Pillow.new(mode, size, left)
    picture.paste(right, (size[0] // 2, 0, *size))
    return picture


# Where the top left corner of the stored picture belongs, per EXIF orientation: the
# turned picture shows red on this side.
SIDE_OF_RED = {
    1: "left",
    2: "right",
    3: "right",
    4: "left",
    5: "top",
    6: "top",
    7: "bottom",
    8: "bottom",
}


@pytest.mark.parametrize("orientation", SIDE_OF_RED)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied(form, orientation):
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if form == "WEBP" else {}
    data = saved(halves("red", "blue"), form, exif=exif, **options)
    seen = pixels(data).astype(int)
    assert seen.shape[:2] == ((16, 32) if orientation < 5 else (32, 16))
    side = {
        "left": seen[8, 2] if orientation < 5 else None,
        "right": seen[8, -3] if orientation < 5 else None,
        "top": seen[2, 8] if orientation > 4 else None,
        "bottom": seen[-3, 8] if orientation > 4 else None,
    }[SIDE_OF_RED[orientation]]
    assert side is not None
    assert side[0] > 200
    assert side[2] < 60


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "rest",
    [
        "0f010b0001000000490000001a01040002000000080000001a010200010000001a000000",
        "6987080004000000400000001a010a00640000001a000000",
        "ffff",
    ],
)
def test_broken_exif_does_not_hide_the_picture_or_its_orientation(rest):
    """An orientation of 6, followed by entries that Pillow cannot write back."""
    entries = bytes.fromhex("120103000100000006000000" + rest) + bytes(4)
    count = struct.pack("<H", len(entries) // 12)
    exif = b"Exif\0\0II*\0\x08\0\0\0" + count + entries
    seen = pixels(saved(halves("red", "blue"), "JPEG", exif=exif)).astype(int)
    assert seen.shape == (32, 16, 3)
    assert seen[2, 8, 0] > 200


def test_transparency_lies_over_white():
    half = Pillow.new("RGBA", (4, 4), (200, 0, 0, 128))
    # 200 * 128/255 + 255 * 127/255 = 227.4; 255 * 127/255 = 127
    assert pixels(saved(half, "PNG"))[0, 0] == pytest.approx((227, 127, 127), abs=1)
    gone = Pillow.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert (pixels(saved(gone, "PNG")) == 255).all()
    grey = Pillow.new("LA", (4, 4), (100, 128))
    # 100 * 128/255 + 127 = 177.2
    assert (abs(pixels(saved(grey, "PNG")).astype(int) - 177) <= 1).all()


def test_palette_with_and_without_transparency():
    palette = halves("red", "blue").quantize(4)
    seen = pixels(saved(palette, "PNG"))
    assert tuple(seen[8, 2]) == (255, 0, 0)
    assert tuple(seen[8, -3]) == (0, 0, 255)
    red = palette.getpixel((0, 0))
    seen = pixels(saved(palette, "PNG", transparency=red))
    assert tuple(seen[8, 2]) == (255, 255, 255)
    assert tuple(seen[8, -3]) == (0, 0, 255)


def test_a_transparent_colour_of_an_rgb_png():
    seen = pixels(saved(halves("red", "blue"), "PNG", transparency=(255, 0, 0)))
    assert tuple(seen[8, 2]) == (255, 255, 255)
    assert tuple(seen[8, -3]) == (0, 0, 255)


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bit_grey_keeps_its_scale(form):
    values = np.array([[0, 257, 128 * 257, 65535]], np.uint16)
    assert pixels(saved(Pillow.fromarray(values), form))[0, :, 0].tolist() == [
        0,
        1,
        128,
        255,
    ]
    dark = np.array([[0, 100, 200, 255]], np.uint16)
    assert pixels(saved(Pillow.fromarray(dark), form))[0, :, 0].tolist() == [0, 0, 1, 1]


def test_floats_and_wide_integers():
    unit = np.array([[0, 0.5, 1]], np.float32)
    assert pixels(saved(Pillow.fromarray(unit), "TIFF"))[0, :, 0].tolist() == [0, 128, 255]
    wild = np.array([[-10, 0, 10]], np.float32)
    assert pixels(saved(Pillow.fromarray(wild), "TIFF"))[0, :, 0].tolist() == [0, 128, 255]
    hole = np.array([[np.nan, 1]], np.float32)
    assert pixels(saved(Pillow.fromarray(hole), "TIFF"))[0, :, 0].tolist() == [0, 255]
    wide = np.array([[0, 10**6]], np.int32)
    assert pixels(saved(Pillow.fromarray(wide), "TIFF"))[0, :, 0].tolist() == [0, 255]


def test_one_bit():
    picture = Pillow.new("1", (4, 2), 1)
    picture.putpixel((0, 0), 0)
    seen = pixels(saved(picture, "PNG"))
    assert seen[0, :2].tolist() == [[0, 0, 0], [255, 255, 255]]


def test_cmyk_jpeg():
    # Cyan and magenta ink make blue; no ink at all is white paper.
    blue = Pillow.new("CMYK", (16, 16), (255, 255, 0, 0))
    assert pixels(saved(blue, "JPEG"))[8, 8] == pytest.approx((0, 0, 255), abs=4)
    paper = Pillow.new("CMYK", (16, 16), (0, 0, 0, 0))
    assert (pixels(saved(paper, "JPEG")) > 250).all()


def test_animated_gif_shows_its_first_frame():
    frames = [Pillow.new("P", (8, 8)), Pillow.new("P", (8, 8))]
    frames[0].putpalette([255, 0, 0] * 256)
    frames[1].putpalette([0, 0, 255] * 256)
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)
    assert Pillow.open(io.BytesIO(data)).n_frames == 2
    assert tuple(pixels(data)[0, 0]) == (255, 0, 0)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_truncated_files_are_refused(form):
    data = saved(Pillow.fromarray(NOISE), form)
    decode(data)
    with pytest.raises(PictureError, match=r"decoded|format"):
        decode(data[: len(data) // 2])


@pytest.mark.parametrize(
    "data", [b"", b"no picture", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF"]
)
def test_other_bytes_are_refused(data):
    with pytest.raises(PictureError):
        decode(data)


@pytest.mark.parametrize("form", ["EPS", "PCX", "ICO"])
def test_formats_that_are_not_meant_are_refused(form):
    data = saved(Pillow.fromarray(NOISE), form)
    with pytest.raises(PictureError, match="no known picture format"):
        decode(data)


@pytest.mark.parametrize("side", [MAX_PIXELS // 9000 + 1, 50_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bombs_are_refused_before_they_go_off(side):
    with pytest.raises(BombError, match="pixels; at most"):
        decode(png_header(9000 if side < 50_000 else side, side))


def test_decoding_from_several_threads_leaves_the_warning_filters_alone():
    data = saved(Pillow.fromarray(NOISE), "PNG")
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: pixels(data), range(64)))
    assert all((r == NOISE).all() for r in results)
    assert warnings.filters == before


def test_what_is_drawn_is_stored_without_loss():
    assert (pixels(Drawing(NOISE).encoded().read()) == NOISE).all()
    image = encode(Pillow.fromarray(NOISE))
    assert isinstance(image, Image)
    assert (np.asarray(decode(image)) == NOISE).all()
