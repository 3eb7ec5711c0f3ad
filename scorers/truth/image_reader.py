"""From an image to what it shows: palette, connected components, moments.

The reader knows the palette and the grid of places, but not how items are drawn: shapes are
told by moments of the plane figures alone. It says that something is not clear, and never
guesses. Images of any size from 48 pixels are read at 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plait.scorers.truth.reading import Illegible, ItemReading, Reading
from plait.scorers.truth.scene import BACKGROUNDS, COLOURS, Rgb

if TYPE_CHECKING:
    from PIL.Image import Image as Pillow

Pixels = NDArray[np.floating[Any]]

SIDE = 64
"""Images are resized to so many pixels; all lengths below are in them."""
LEAST_SIDE = 48
_BORDER = 2
"""Pixels along the edges that show the background."""
_PLAIN = 0.8
"""Least share of the border that must have the background's colour."""
_BACKGROUND_WITHIN = 12.0
"""Distance in Lab from a background's colour; the nearest two are 25 apart."""
_COLOUR_WITHIN = 30.0
_COLOUR_MARGIN = 0.65
"""Distance in Lab from an item's colour, and at most so much of that to the second."""
_FOREGROUND = 30.0
"""Distance in Lab from the background from which a pixel belongs to an item."""
_SOFT_EDGE = 3
"""Pixels around an item in which its edge may fade."""
_SPECK = 12.0
_WHOLE = 60.0
"""Areas in pixels: below the first a speck that does not count, from the second an item."""
_LONGEST = 36
"""Pixels; the longest item has 30."""
_MOST_ITEMS = 8
_MIDDLE = 6.0
"""Pixels beside the middle lines in which an item's centre has no clear place."""
_SIZES: Mapping[str, tuple[float, float]] = {"small": (6.3, 9.5), "large": (11.0, 15.5)}
"""Radius in pixels of the circle around an item, lowest and highest."""
_GYRATION = {"circle": 0.71, "square": 0.70, "triangle": 0.565, "star": 0.585}
"""Radius of gyration of the figures, in radii of the circle around them."""
_FIGURES: Mapping[str, tuple[float, float, float, float]] = {
    "circle": (0.159, 0.0, 0.0, 0.0),
    "square": (0.167, 0.0, -0.0167, 0.0),
    "triangle": (0.192, 0.0675, 0.0, 0.0),
    "star": (0.205, 0.0, 0.0, 0.034),
}
"""Moments of a disc, a square, an equilateral triangle and a five-pointed star, as
`_moments` gives them; the star's last is that of one whose points are a little worn."""
_WEIGHTS = np.array([0.5, 1.0, 3.0, 2.0])
"""Figures are then about equally far apart; the spread, which blur widens, counts least."""
_FIGURE_WITHIN = 0.045
_FIGURE_MARGIN = 0.7
"""Weighted distance from a figure, and at most so much of that to the second."""


def read_image(image: Pillow) -> Reading | Illegible:
    """Return what an RGB image shows.

    An attribute that is not clear is None. An image without a plain background, of too few
    pixels or with too many things on it is Illegible.
    """
    pixels = _at_side(image)
    if isinstance(pixels, Illegible):
        return pixels
    lab = _lab(pixels)
    plain = _plain_colour(lab)
    distances = np.inf if plain is None else _distances(plain, BACKGROUNDS)
    if plain is None or np.min(distances) > _BACKGROUND_WITHIN:
        return Illegible("the image has no plain background of a known colour")
    background = [*BACKGROUNDS][int(np.argmin(distances))]
    blobs = list(_blobs(pixels, lab, plain))
    if len(blobs) > _MOST_ITEMS:
        return Illegible(f"the image shows {len(blobs)} things; at most {_MOST_ITEMS}")
    return Reading.of(background, map(_item, blobs))


def _at_side(image: Pillow) -> Pixels | Illegible:
    """Return RGB values (SIDE, SIDE, 3) from 0 to 1, or why the image is not read."""
    from PIL.Image import Resampling

    width, height = image.size
    if min(width, height) < LEAST_SIDE:
        return Illegible(f"the image has {width} x {height} pixels; at least {LEAST_SIDE}")
    if abs(width - height) > 0.05 * max(width, height):
        return Illegible(f"the image has {width} x {height} pixels and is not square")
    image = image.convert("RGB")
    if image.size != (SIDE, SIDE):
        image = image.resize((SIDE, SIDE), Resampling.BICUBIC)
    return np.asarray(image, dtype=np.float64) / 255


def _lab(pixels: Pixels) -> Pixels:
    """Return pixels (..., 3) in CIELAB, where a distance is about what people see."""
    from skimage.color import rgb2lab

    lab: Pixels = rgb2lab(pixels)
    return lab


def _distances(lab: Pixels, palette: Mapping[str, Rgb]) -> Pixels:
    """Return the distances (..., colours) of colours (..., 3) from those of a palette."""
    colours = _lab(np.array([[*palette.values()]]) / 255)[0]
    distances: Pixels = np.linalg.norm(lab[..., None, :] - colours, axis=-1)
    return distances


def _plain_colour(lab: Pixels) -> Pixels | None:
    """Return the colour (3,) of the border; None where that is not mostly of one colour."""
    inner = np.zeros(lab.shape[:2], dtype=bool)
    inner[_BORDER:-_BORDER, _BORDER:-_BORDER] = True
    border = lab[~inner]
    median: Pixels = np.median(border, axis=0)
    near = np.linalg.norm(border - median, axis=-1) < _FOREGROUND
    return median if near.mean() >= _PLAIN else None


@dataclass(frozen=True, slots=True)
class _Blob:
    """A connected component with soft edges."""

    coverage: Pixels
    """(side, side): how much of each pixel it covers, about 0 to 1."""
    lab: Pixels
    """The colour of its middle."""

    @property
    def area(self) -> float:
        """In pixels."""
        return float(self.coverage.sum())


def _blobs(pixels: Pixels, lab: Pixels, plain: Pixels) -> Iterator[_Blob]:
    """Yield what lies on the background of the colour `plain`, specks left out."""
    from skimage.measure import label
    from skimage.segmentation import expand_labels

    far = np.linalg.norm(lab - plain, axis=-1) > _FOREGROUND
    base = np.median(pixels[~far], axis=0)
    labels = label(_cut(far), connectivity=1)
    wide = expand_labels(labels, _SOFT_EDGE)
    for number in range(1, labels.max() + 1):
        core = labels == number
        middle = _middle(core, pixels - base)
        colour = np.median(pixels[middle], axis=0) - base
        # A pixel of an edge is a mixture: how far it is on the way to the item's colour.
        share = (pixels - base) @ colour / (colour @ colour)
        coverage = np.where(wide == number, share, 0)
        blob = _Blob(coverage, np.median(lab[middle], axis=0))
        if blob.area >= _SPECK:
            yield blob


def _cut(far: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Cut items that touch, which are longer than one, where places meet."""
    from skimage.measure import label, regionprops

    labels = label(far, connectivity=1)
    meet = slice(SIDE // 2 - 1, SIDE // 2 + 1)
    cut = far.copy()
    for region in regionprops(labels):
        top, left, bottom, right = region.bbox
        if right - left > _LONGEST:
            cut[:, meet] &= labels[:, meet] != region.label
        if bottom - top > _LONGEST:
            cut[meet] &= labels[meet] != region.label
    return cut


def _middle(core: NDArray[np.bool_], above: Pixels) -> NDArray[np.bool_]:
    """Return the quarter of a core that differs most from the background.

    `above` is that difference (side, side, 3). Soft edges are mixtures of both.
    """
    direction = np.median(above[core], axis=0)
    strength = above @ direction
    return core & (strength >= np.quantile(strength[core], 0.75))


def _item(blob: _Blob) -> ItemReading:
    x, y = _centre(blob.coverage)
    place = _place(x, y)
    if blob.area < _WHOLE:
        return ItemReading(place=place, colour=_colour(blob.lab))
    moments = _moments(blob.coverage)
    shape = _shape(moments)
    size = _size(float(np.sqrt(moments[0] * blob.area)), shape)
    return ItemReading(place, size, _colour(blob.lab), shape)


def _size(gyration: float, shape: str | None) -> str | None:
    """Return the size by the figure; of an unclear one what all figures would say.

    `gyration` is the radius of gyration in pixels.
    """
    shapes = [*_GYRATION] if shape is None else [shape]
    sizes = {_size_of(gyration / _GYRATION[name]) for name in shapes}
    return sizes.pop() if len(sizes) == 1 else None


def _size_of(radius: float) -> str | None:
    """Return the size of an item by the circle around it; None between two sizes."""
    for name, (low, high) in _SIZES.items():
        if low <= radius <= high:
            return name
    return None


def _centre(coverage: Pixels) -> tuple[float, float]:
    """Return the centre of mass, in pixels from the left and from the top."""
    along = np.arange(SIDE) + 0.5
    area = coverage.sum()
    of_columns = coverage.sum(0)
    of_rows = coverage.sum(1)
    return float(of_columns @ along / area), float(of_rows @ along / area)


def _place(x: float, y: float) -> str | None:
    """Return the quarter of the image; None near a middle line."""
    middle = SIDE / 2
    if min(abs(x - middle), abs(y - middle)) < _MIDDLE:
        return None
    row = "top" if y < middle else "bottom"
    column = "left" if x < middle else "right"
    return f"{row} {column}"


def _colour(lab: Pixels) -> str | None:
    """Return the nearest colour; None where it is far, or another one nearly as near."""
    distances = _distances(lab, COLOURS)
    first, second = np.sort(distances)[:2]
    if first > _COLOUR_WITHIN or first > _COLOUR_MARGIN * second:
        return None
    return [*COLOURS][int(distances.argmin())]


def _moments(coverage: Pixels) -> Pixels:
    """Return (4,): spread, and what repeats in a third, a fourth and a fifth of a turn.

    The first is the squared radius of gyration by area. Entry n - 2 is the real part of the
    sum of z ** n by area ** (1 + n / 2), where z points from the centre and up is 1: it is
    signed, so that a figure upside down is another one. Harmonic moments do not change by a
    blur that is the same in all directions, nor by soft edges.
    """
    x, y = _centre(coverage)
    along = np.arange(SIDE) + 0.5
    area = coverage.sum()
    # (side, side): where each pixel lies.
    z = (y - along)[:, None] + 1j * (along - x)[None, :]
    moments = [(coverage * abs(z) ** 2).sum() / area**2]
    for n in (3, 4, 5):
        moments.append((coverage * z**n).sum().real / area ** (1 + n / 2))
    return np.array(moments)


def _shape(moments: Pixels) -> str | None:
    """Return the nearest figure; None where it is far, or another one nearly as near."""
    distances = []
    for name, ideal in _FIGURES.items():
        distance = float(np.linalg.norm(_WEIGHTS * (moments - ideal)))
        distances.append((distance, name))
    (first, name), (second, _) = sorted(distances)[:2]
    if first > _FIGURE_WITHIN or first > _FIGURE_MARGIN * second:
        return None
    return name
