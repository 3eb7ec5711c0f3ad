"""Photographs that scikit-image and scikit-learn ship, and under which terms."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from PIL import Image as Pillow

from sample_authoring.query import Figure

_SIDE = 420
"""Longest side of a picture in the sample set, in pixels."""
Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Photo:
    """A photograph with what its package says of it."""

    package: str
    path: str
    author: str
    licence: str
    source: str


_CC0 = "CC0 1.0"
_CC_BY = "CC BY 2.0 (https://creativecommons.org/licenses/by/2.0/)"
_FREE = "no known copyright restrictions"
_SKIMAGE = "scikit-image, docstring of skimage.data"


def _skimage(name: str, author: str, licence: str, function: str, where: str = "") -> Photo:
    source = f"{_SKIMAGE}.{function}" + (f"; {where}" if where else "")
    return Photo(
        package="skimage",
        path=f"data/{name}",
        author=author,
        licence=licence,
        source=source,
    )


def _sklearn(name: str, author: str, where: str) -> Photo:
    return Photo(
        package="sklearn",
        path=f"datasets/images/{name}",
        author=author,
        licence=_CC_BY,
        source=f"scikit-learn, sklearn/datasets/images/README.txt; {where}",
    )


PHOTOS = {
    "astronaut": _skimage(
        "astronaut.png",
        "NASA (Eileen Collins, Great Images database)",
        f"public domain, {_FREE}",
        "astronaut",
        "https://flic.kr/p/r9qvLn",
    ),
    "brick": _skimage(
        "brick.png", "CC0Textures", _CC0, "brick", "https://cc0textures.com (Bricks25)"
    ),
    "camera": _skimage("camera.png", "Lav Varshney", _CC0, "camera"),
    "chelsea": _skimage("chelsea.png", "Stefan van der Walt", _CC0, "chelsea"),
    "coffee": _skimage(
        "coffee.png",
        "Rachel Michetti, courtesy of Pikolo Espresso Bar",
        _CC0,
        "coffee",
    ),
    "coins": _skimage(
        "coins.png",
        "Brooklyn Museum Collection (Greek coins from Pompeii)",
        _FREE,
        "coins",
        "https://www.brooklynmuseum.org/opencollection/archives/image/51611",
    ),
    "grass": _skimage("grass.png", "linolafett (DeviantArt)", _CC0, "grass"),
    "gravel": _skimage(
        "gravel.png", "CC0Textures", _CC0, "gravel", "https://cc0textures.com (Gravel04)"
    ),
    "horse": _skimage(
        "horse.png",
        "Andreas Preuss (marauder)",
        _CC0,
        "horse",
        "http://openclipart.org/detail/158377/horse-by-marauder",
    ),
    "hubble": _skimage(
        "hubble_deep_field.jpg",
        "NASA (Hubble eXtreme Deep Field)",
        "public domain",
        "hubble_deep_field",
        "http://hubblesite.org/newscenter/archive/releases/2012/37/image/a/",
    ),
    "retina": _skimage(
        "retina.jpg",
        "Mikael Haggstrom",
        f"{_CC0}, public domain",
        "retina",
        "https://commons.wikimedia.org/wiki/File:Fundus_photograph_of_normal_left_eye.jpg",
    ),
    "rocket": _skimage(
        "rocket.jpg",
        "SpaceX (launch of DSCOVR on Falcon 9)",
        "public domain",
        "rocket",
        "https://www.flickr.com/photos/spacexphotos/16511594820/in/photostream/",
    ),
    "china": _sklearn(
        "china.jpg",
        "danielbuechele",
        "https://www.flickr.com/photos/danielbuechele/6061409035/sizes/z/in/photostream/",
    ),
    "flower": _sklearn(
        "flower.jpg",
        "vultilion (by the photograph's address; the README's text names danielbuechele)",
        "https://www.flickr.com/photos/vultilion/6056698931/sizes/z/in/photostream/",
    ),
}


PARTS: dict[str, Box] = {
    "astronaut-helmet": (272, 332, 512, 512),
    "astronaut-model": (330, 10, 470, 290),
    "brick-close": (120, 200, 330, 400),
    "camera-skyline": (310, 90, 512, 245),
    "chelsea-eyes": (110, 60, 360, 180),
    "chelsea-face": (120, 40, 400, 290),
    "chelsea-nose": (150, 170, 360, 300),
    "china-lake": (330, 180, 590, 330),
    "china-tower": (70, 20, 380, 310),
    "coffee-cup": (150, 5, 420, 215),
    "coffee-spoon": (280, 200, 470, 345),
    "coins-face": (182, 165, 246, 225),
    "coins-figure": (298, 8, 368, 76),
    "flower-petals": (210, 130, 400, 300),
    "flower-second": (260, 330, 480, 427),
    "grass-meadow": (60, 60, 360, 300),
    "horse-head": (230, 0, 400, 150),
    "hubble-galaxies": (420, 380, 760, 640),
    "retina-macula": (520, 520, 880, 880),
    "retina-nerve": (100, 450, 470, 850),
    "rocket-pad": (150, 80, 480, 420),
}
"""What is cut out of them: left, top, right, bottom in pixels of the photograph."""


def photo(name: str) -> Figure:
    """The photograph `name`, or the part of one, at the size of the sample set."""
    about = PHOTOS[source_of(name)]
    with files(about.package).joinpath(about.path).open("rb") as file:
        picture = _on_white(Pillow.open(file))
    if name in PARTS:
        picture = picture.crop(PARTS[name])
    factor = _SIDE / max(picture.size)
    width, height = (round(side * factor) for side in picture.size)
    return Figure(f"{name}.jpg", picture.resize((width, height), Pillow.Resampling.LANCZOS))


def source_of(name: str) -> str:
    """The photograph that `name` is or is a part of."""
    return name.partition("-")[0]


def _on_white(picture: Pillow.Image) -> Pillow.Image:
    if picture.mode != "RGBA":
        return picture.convert("RGB")
    white = Pillow.new("RGBA", picture.size, "white")
    return Pillow.alpha_composite(white, picture).convert("RGB")
