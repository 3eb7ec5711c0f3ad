"""Images of scenes read back: right on drawn ones, right or unclear on damaged ones."""

from __future__ import annotations

import io
import random
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from plait.scorers.truth.drawing import SIDE, draw
from plait.scorers.truth.image_reader import read_image
from plait.scorers.truth.reading import Illegible, Reading
from plait.scorers.truth.scene import BACKGROUNDS, COLOURS, Scene, SceneItem, random_scene

Picture = Image.Image
ATTRIBUTES = ("size", "colour", "shape")


def scenes(number: int) -> list[Scene]:
    splits = ("train", "test")
    return [random_scene(random.Random(i), splits[i % 2]) for i in range(number)]


def reading(picture: Picture) -> Reading:
    found = read_image(picture)
    assert isinstance(found, Reading), found
    return found


def noisy(picture: Picture, deviation: float = 8) -> Picture:
    pixels = np.asarray(picture, dtype=float)
    pixels = pixels + np.random.default_rng(0).normal(0, deviation, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).round().astype(np.uint8))


def as_jpeg(picture: Picture, quality: int = 75) -> Picture:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return Image.open(file)


def blurred(picture: Picture, sigma: float = 1) -> Picture:
    return picture.filter(ImageFilter.GaussianBlur(sigma))


def sized(side: int) -> Callable[[Picture], Picture]:
    return lambda picture: picture.resize((side, side), Image.Resampling.BICUBIC)


def is_wrong(found: Reading | Illegible, scene: Scene) -> bool:
    """Whether anything is stated that is not so, or an item is missing or too many."""
    if isinstance(found, Illegible):
        return False
    if found.background not in (None, scene.background):
        return True
    if sorted(map(str, (i.place for i in found.items))) != sorted(
        i.place for i in scene.items
    ):
        return True
    return any(
        getattr(found.at(item.place), name) not in (None, getattr(item, name))
        for item in scene.items
        for name in ATTRIBUTES
    )


def shares(number: int, damage: Callable[[Picture], Picture]) -> tuple[float, float]:
    """Shares of scenes read in full, and read wrong."""
    right = wrong = 0
    for seed, scene in enumerate(scenes(number)):
        found = read_image(damage(draw(scene, seed)))
        right += isinstance(found, Reading) and found.scene == scene
        wrong += is_wrong(found, scene)
    return right / number, wrong / number


def as_drawn(picture: Picture) -> Picture:
    return picture


def test_drawn_scenes_are_read() -> None:
    assert shares(60, as_drawn) == (1, 0)


@pytest.mark.parametrize(
    ("damage", "least"),
    [
        (blurred, 0.995),
        (noisy, 0.98),
        (as_jpeg, 0.97),
        (sized(512), 0.995),
        (sized(48), 0.995),
        (lambda picture: as_jpeg(blurred(noisy(picture))), 0.8),
        (lambda picture: noisy(picture, 16), 0.9),
    ],
    ids=["blur", "noise", "JPEG", "512", "48", "all", "much noise"],
)
def test_damaged_pictures_are_read_right_or_not_at_all(
    damage: Callable[[Picture], Picture], least: float
) -> None:
    right, wrong = shares(50, damage)
    assert right >= least
    assert wrong == 0


def drawn(*items: SceneItem, background: str = "white") -> Picture:
    return draw(Scene.of(background, items), 0)


def regular(corners: int, radius: float, inner: float | None = None) -> Picture:
    """A regular polygon or star at the bottom right, drawn without the drawing code."""
    finer, many = 8, corners if inner is None else 2 * corners
    picture = Image.new("RGB", (SIDE * finer, SIDE * finer), BACKGROUNDS["pink"])
    angles = 2 * np.pi * np.arange(many) / many + (np.pi / 4 if corners == 4 else 0)
    radii = np.where(np.arange(many) % 2, radius if inner is None else inner, radius)
    x, y = 48 + radii * np.sin(angles), 48 - radii * np.cos(angles)
    outline = list(zip(finer * x, finer * y, strict=True))
    ImageDraw.Draw(picture).polygon(outline, fill=COLOURS["blue"])
    return picture.resize((SIDE, SIDE), Image.Resampling.BOX)


@pytest.mark.parametrize(
    ("picture", "size", "shape"),
    [
        (regular(64, 13), "large", "circle"),
        (regular(64, 8), "small", "circle"),
        (regular(4, 16), "large", "square"),
        (regular(3, 14.5), "large", "triangle"),
        (regular(3, 9), "small", "triangle"),
        (regular(5, 15, 6.3), "large", "star"),
        (regular(5, 9.2, 3.9), "small", "star"),
        (regular(6, 13), "large", "circle"),
        (regular(64, 3.2), None, None),
        (regular(64, 10.2), None, "circle"),
        (regular(3, 14, 3), None, None),
    ],
)
def test_figures_are_told_without_knowing_how_they_are_drawn(
    picture: Picture, size: str | None, shape: str | None
) -> None:
    (item,) = reading(picture).items
    assert (item.size, item.shape) == (size, shape)


@pytest.mark.parametrize(
    ("picture", "reason"),
    [
        (Image.new("RGB", (47, 64)), "47 x 64 pixels; at least 48"),
        (Image.new("RGB", (100, 64)), "is not square"),
        (Image.new("RGB", (64, 64), (90, 140, 90)), "no plain background"),
        (noisy(Image.new("RGB", (64, 64), (128, 128, 128)), 90), "no plain background"),
        (Image.linear_gradient("L"), "no plain background"),
    ],
)
def test_what_is_no_picture_of_this_world_is_unreadable(
    picture: Picture, reason: str
) -> None:
    found = read_image(picture)
    assert isinstance(found, Illegible)
    assert reason in found.reason
