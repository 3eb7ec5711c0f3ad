"""Every kind of encoded image becomes the RGB pixels a person would see."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from paths import CHECKOUT
from picture_helpers import NOISE, png_header, saved
from PIL import Image as Pillow

from plait.generators.document import Image
from plait.generators.images import (
    MAX_PIXELS,
    BombError,
    Drawing,
    ImageError,
    decode,
    encode,
    image_of,
)

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def pixels(data):
    image = decode(data)
    assert image.mode == "RGB"
    return np.asarray(image)


def halves():
    """Red on the left, blue on the right."""
    image = Pillow.new("RGB", (32, 16), "red")
    image.paste("blue", (16, 0, 32, 16))
    return image


def ends(seen):
    """The colours on the left and on the right of `halves`."""
    return tuple(map(int, seen[8, 2])), tuple(map(int, seen[8, -3]))


# Where red is once the image is turned, per EXIF orientation: a point of its middle.
RED_AT = {1: (8, 2), 2: (8, -3), 3: (8, -3), 4: (8, 2)}
RED_AT |= {5: (2, 8), 6: (2, 8), 7: (-3, 8), 8: (-3, 8)}


@pytest.mark.parametrize("orientation", RED_AT)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied(form, orientation):
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if form == "WEBP" else {}
    seen = pixels(saved(halves(), form, exif=exif, **options))
    assert seen.shape[:2] == ((16, 32) if orientation < 5 else (32, 16))
    red, _, blue = seen[RED_AT[orientation]]
    assert red > 200
    assert blue < 60


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "rest",
    [
        "0f010b0001000000490000001a01040002000000080000001a010200010000001a000000",
        "6987080004000000400000001a010a00640000001a000000",
        "ffff",
    ],
)
def test_broken_exif_does_not_hide_the_image_or_its_orientation(rest):
    """An orientation of 6, followed by entries that Pillow cannot write back."""
    entries = bytes.fromhex("120103000100000006000000" + rest) + bytes(4)
    count = struct.pack("<H", len(entries) // 12)
    exif = b"Exif\0\0II*\0\x08\0\0\0" + count + entries
    seen = pixels(saved(halves(), "JPEG", exif=exif))
    assert seen.shape == (32, 16, 3)
    assert seen[2, 8, 0] > 200


@pytest.mark.parametrize(
    ("form", "mode", "colour", "shown"),
    [
        # 200 * 128/255 + 255 * 127/255 = 227.4; 255 * 127/255 = 127
        ("PNG", "RGBA", (200, 0, 0, 128), (227, 127, 127)),
        ("PNG", "RGBA", (0, 0, 0, 0), WHITE),
        # 100 * 128/255 + 127 = 177.2
        ("PNG", "LA", (100, 128), (177, 177, 177)),
        ("PNG", "1", 0, (0, 0, 0)),
        ("PNG", "1", 1, WHITE),
        # Cyan and magenta ink make blue; no ink at all is white paper.
        ("JPEG", "CMYK", (255, 255, 0, 0), BLUE),
        ("JPEG", "CMYK", (0, 0, 0, 0), WHITE),
    ],
)
def test_transparency_lies_over_white_and_ink_on_paper(form, mode, colour, shown):
    seen = pixels(saved(Pillow.new(mode, (16, 16), colour), form))
    assert seen[8, 8] == pytest.approx(shown, abs=4 if mode == "CMYK" else 1)


def test_palettes_and_transparent_colours():
    palette = halves().quantize(4)
    red = palette.getpixel((0, 0))
    assert ends(pixels(saved(palette, "PNG"))) == (RED, BLUE)
    assert ends(pixels(saved(palette, "PNG", transparency=red))) == (WHITE, BLUE)
    assert ends(pixels(saved(halves(), "PNG", transparency=RED))) == (WHITE, BLUE)


@pytest.mark.parametrize(
    ("form", "values", "shown"),
    [
        ("PNG", np.uint16([[0, 257, 32896, 65535]]), [0, 1, 128, 255]),
        ("TIFF", np.uint16([[0, 257, 32896, 65535]]), [0, 1, 128, 255]),
        ("PNG", np.uint16([[0, 100, 200, 255]]), [0, 0, 1, 1]),
        ("TIFF", np.float32([[0, 0.5, 1]]), [0, 128, 255]),
        ("TIFF", np.float32([[-10, 0, 10]]), [0, 128, 255]),
        ("TIFF", np.float32([[np.nan, 1]]), [0, 255]),
        ("TIFF", np.int32([[0, 10**6]]), [0, 255]),
    ],
)
def test_wide_numbers_keep_their_scale(form, values, shown):
    """65535 is white however dark the image; numbers without a scale take their range."""
    assert pixels(saved(Pillow.fromarray(values), form))[0, :, 0].tolist() == shown


def test_animated_gif_shows_its_first_frame():
    frames = [Pillow.new("P", (8, 8)), Pillow.new("P", (8, 8))]
    for frame, colour in zip(frames, (RED, BLUE), strict=True):
        frame.putpalette([*colour] * 256)
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)
    assert Pillow.open(io.BytesIO(data)).n_frames == 2
    assert tuple(pixels(data)[0, 0]) == RED


def noise(form, part=1):
    data = saved(Pillow.fromarray(NOISE), form)
    return data[: len(data) // part]


@pytest.mark.parametrize(
    "data",
    [b"", b"no picture", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF"]
    + [noise(form) for form in ("EPS", "PCX", "ICO")]
    + [noise(form, 2) for form in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")],
)
def test_other_bytes_are_refused(data):
    """Truncated files, and formats that Pillow would pass to other programs."""
    with pytest.raises(ImageError):
        decode(data)


@pytest.mark.parametrize("size", [(9000, MAX_PIXELS // 9000 + 1), (50_000, 50_000)])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bombs_are_refused_before_they_go_off(size):
    with pytest.raises(BombError, match=f"{MAX_PIXELS:,}"):
        decode(png_header(*size))


@pytest.mark.processes
def test_pillow_warns_nobody_of_bombs(tmp_path):
    (tmp_path / "x.png").write_bytes(png_header(9000, MAX_PIXELS // 9000 + 1))
    program = (
        "import pathlib, sys\nfrom plait.generators.images import BombError, decode\n"
        "try: decode(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "except BombError: print('refused')"
    )
    command = [sys.executable, "-W", "always", "-c", program, str(tmp_path / "x.png")]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("refused\n", "")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<html>", "no known image format"),
    ],
)
def test_files_that_hold_no_image_say_why(data, said):
    with pytest.raises(ImageError, match=said):
        decode(data)


def test_decoding_from_several_threads_leaves_the_warning_filters_alone():
    data = noise("PNG")
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: pixels(data), range(64)))
    assert all((r == NOISE).all() for r in results)
    assert warnings.filters == before


def test_what_is_drawn_is_stored_without_loss():
    for image in (Drawing(NOISE).encoded(), encode(Pillow.fromarray(NOISE))):
        assert isinstance(image, Image)
        assert (pixels(image) == NOISE).all()


FLAT = np.full((2, 3, 3), (10, 200, 30), np.uint8)


@pytest.mark.parametrize(
    ("picture", "shown"),
    [
        (Pillow.fromarray(FLAT), (10, 200, 30)),
        (Pillow.new("RGBA", (3, 2), (255, 0, 0, 0)), (255, 255, 255)),
        (Pillow.new("L", (3, 2), 7), (7, 7, 7)),
        (FLAT, (10, 200, 30)),
        (FLAT / 255, (10, 200, 30)),
        (FLAT[:, :, 1], (200, 200, 200)),
        (FLAT[:, :, :1], (10, 10, 10)),
        (np.zeros((2, 3, 4), np.uint8), (255, 255, 255)),
    ],
)
def test_people_have_images_in_many_forms(picture, shown):
    decoded = decode(image_of(picture))
    assert (decoded.size, decoded.getpixel((1, 1))) == ((3, 2), shown)


def test_files_and_their_bytes_stay_as_they_are(tmp_path):
    file = tmp_path / "a.jpg"
    Pillow.fromarray(FLAT).save(file)
    assert image_of(file) == image_of(file.read_bytes()) == Image.of(file.read_bytes())


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (FLAT.astype(np.int64), "int64"),
        (FLAT.astype(np.float32), "from 10 to 200"),
        (np.full((2, 2), np.nan), "nan"),
        (np.zeros((3, 20, 20), np.uint8), r"shape \(3, 20, 20\)"),
        (np.zeros((0, 4), np.uint8), "shape"),
        (b"no image", "format"),
        (Path("nowhere.png"), "nowhere.png.*No such file"),
    ],
)
def test_what_is_no_image_is_refused_by_its_form(picture, said):
    with pytest.raises(ImageError, match=said):
        image_of(picture)
