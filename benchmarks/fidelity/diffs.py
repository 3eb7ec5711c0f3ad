"""Two answers side by side: marked texts, pictures, and what differs between them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from PIL import Image as Pillow

from benchmarks.fidelity.comparison import DocumentPair
from benchmarks.fidelity.pictures import PictureDifference, Pixels, share_text
from benchmarks.results.report.gallery import thumbnail
from cluster.store import read_blob
from generators.base import Outcome, Result
from generators.document import Document, Image
from generators.pictures import PictureError, decode, encode

SIDE = 384
"""Longest side of a picture on the page, in pixels."""
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_MOST_WORDS = 3000
"""Longer texts are marked from the first difference on: aligning them takes long."""

Marked = tuple[tuple[bool, str], ...]
"""Runs of text, and whether the other text lacks them."""


@dataclass(frozen=True, slots=True)
class PictureSide:
    """A picture on the page: a data URL, or why there is none."""

    url: str
    caption: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AnswerSide:
    """One column of a card."""

    heading: str
    text: Marked
    pictures: tuple[PictureSide, ...]
    reason: str = ""
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class DifferenceCard:
    """A query, and the columns that are compared."""

    query: str
    question: str
    facts: tuple[str, ...]
    sides: tuple[AnswerSide, ...]


def card(pair: DocumentPair, labels: tuple[str, str]) -> DifferenceCard:
    """The card of one pair; its third column shows where pictures differ."""
    one, other = _document(pair.reference), _document(pair.other)
    first, second = marked(one.text, other.text)
    sides = [
        _side(labels[0], pair.reference, first),
        _side(labels[1], pair.other, second),
    ]
    if pair.pictures:
        pairs = zip(one.images, other.images, pair.pictures, strict=False)
        shown = tuple(_amplified(*three) for three in pairs)
        sides.append(AnswerSide("where they differ", (), shown))
    question = " ".join(getattr(s, "text", "[picture]") for s in pair.sample.question)
    return DifferenceCard(pair.sample.id, question, tuple(_facts(pair)), tuple(sides))


def _document(outcome: Outcome[Document]) -> Document:
    return outcome.value if isinstance(outcome, Result) else Document()


def _side(heading: str, outcome: Outcome[Document], text: Marked) -> AnswerSide:
    if not isinstance(outcome, Result):
        return AnswerSide(heading, (), (), outcome.reason)
    images = enumerate(outcome.value.images, 1)
    pictures = tuple(_picture(image, f"picture {number}") for number, image in images)
    return AnswerSide(heading, text, pictures)


def _facts(pair: DocumentPair) -> Iterator[str]:
    if pair.text is not None and pair.text.first_difference is not None:
        yield f"texts differ from character {pair.text.first_difference:,} on"
    if not pair.same_shape:
        yield "text and pictures follow each other differently"
    if pair.unpaired:
        yield f"{pair.unpaired} pictures in one answer only"
    if pair.lost:
        yield "not compared"


def _picture(image: Image, caption: str) -> PictureSide:
    try:
        return PictureSide(_url(read_blob(image)), caption)
    except Exception as error:
        # Whatever a store or a decoder raises, the page shows the reason.
        return PictureSide("", caption, str(error))


def _amplified(one: Image, other: Image, about: PictureDifference) -> PictureSide:
    """The absolute difference, brightened so that its largest value is white."""
    if not about.same_size:
        return PictureSide("", "pictures of different sizes", "nothing to subtract")
    try:
        first, second = (np.asarray(decode(i), dtype=np.int16) for i in (one, other))
    except PictureError as error:
        return PictureSide("", "difference", str(error))
    difference = np.abs(first - second)
    largest = max(int(difference.max()), 1)
    pixels = np.rint(difference * (255 / largest)).astype(np.uint8)
    data = base64.b64encode(encode(Pillow.fromarray(_pooled(pixels))).read()).decode()
    return PictureSide(f"data:image/png;base64,{data}", _caption(about, 255 / largest))


def _pooled(pixels: Pixels) -> Pixels:
    """The brightest of every block: a single pixel that differs stays visible."""
    height, width = pixels.shape[:2]
    block = -(-max(height, width) // SIDE)
    edges = ((0, -height % block), (0, -width % block), (0, 0))
    padded = np.pad(pixels, edges)
    rows, columns = padded.shape[0] // block, padded.shape[1] // block
    blocks = padded.reshape(rows, block, columns, block, 3)
    return np.asarray(blocks.max(axis=(1, 3)), dtype=np.uint8)


def _caption(about: PictureDifference, factor: float) -> str:
    if about.identical:
        return "every pixel is equal"
    parts = [
        f"difference x {factor:.3g}",
        f"equal pixels {share_text(about.equal_pixels or 0.0)}",
        f"mean {about.mean_difference:.3g}",
        f"largest {about.largest_difference:.0f}",
    ]
    more = {"SSIM": about.ssim, "CLIP distance": about.clip_distance, "LPIPS": about.lpips}
    parts += [f"{name} {value:.4g}" for name, value in more.items() if value is not None]
    return ", ".join(parts)


def _url(data: bytes) -> str:
    return "data:image/webp;base64," + base64.b64encode(thumbnail(data, SIDE)).decode()


def marked(one: str, other: str) -> tuple[Marked, Marked]:
    """Both texts as runs; what the other one lacks is marked."""
    first, second = _WORDS.findall(one), _WORDS.findall(other)
    if max(len(first), len(second)) > _MOST_WORDS:
        same = next(
            (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
            min(len(first), len(second)),
        )
        return _cut(first, same), _cut(second, same)
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    left: list[tuple[bool, str]] = []
    right: list[tuple[bool, str]] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        left.append((tag != "equal", "".join(first[a:b])))
        right.append((tag != "equal", "".join(second[c:d])))
    return _runs(left), _runs(right)


def _cut(words: list[str], at: int) -> Marked:
    return _runs([(False, "".join(words[:at])), (True, "".join(words[at:]))])


def _runs(parts: list[tuple[bool, str]]) -> Marked:
    return tuple(part for part in parts if part[1])
