"""The stage that reads a document and its ground truth, and compares them.

One record serves all scorers of truth. Its own value is the share of the document's texts
and images that could be read; `parts` holds what each scorer says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait.generators.base import Failure, Outcome, Result, Unscored, Weights
from plait.generators.document import Candidate, Document, Score
from plait.generators.images import ImageError, decode
from plait.scorers.base import NO_IMAGE, NO_TRUE_IMAGE, NO_TRUTH
from plait.scorers.clipscore import pairs_of
from plait.scorers.truth.comparison import (
    AttributeCounts,
    compare_scene,
    compare_scenes,
    compare_texts,
)
from plait.scorers.truth.image_reader import read_image
from plait.scorers.truth.reading import Illegible, Reading
from plait.scorers.truth.scorers import (
    NOT_APPLICABLE,
    OTHER_WORLD,
    SHOWN,
    UNSCORED,
    TruthSettings,
)
from plait.scorers.truth.text_reader import TextReading, read_text, reason_without_truth


class _NoValue(Exception):
    """Why a scorer has no value, as `parts` holds it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.part = {name: reason}


class TruthReader:
    """Reads documents and compares them with their ground truth and within themselves."""

    def __init__(self, *, weights: Weights | None = None, **settings: Any) -> None:
        TruthSettings(**settings)

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """Return one score per document; an image that cannot be decoded is a Failure."""
        return [self._outcome(candidate) for candidate in inputs]

    def _outcome(self, candidate: Candidate) -> Outcome[Score]:
        try:
            own = _Readings(candidate.document)
            true = None if candidate.reference is None else _Readings(candidate.reference)
        except ImageError as error:
            return Failure(f"an image of the document or of its ground truth: {error}")
        if not candidate.document.segments:
            return Unscored("the document is empty")
        parts: dict[str, Any] = {}
        for name, compare in _COMPARISONS.items():
            parts[name] = _part(compare, own, true)
        parts[SHOWN] = [_show(image) for image in own.images]
        return Result(Score(own.share, parts), {"images": len(own.images)})


def _part(compare: _Compare, own: _Readings, true: _Readings | None) -> dict[str, Any]:
    """Return what one scorer says, or why it has no value."""
    try:
        counts = compare(own, true)
    except _NoValue as reason:
        return reason.part
    whole = sum(counts, AttributeCounts())
    each = [100 * count.f1 for count in counts]
    return {"value": 100 * whole.f1, **whole.as_json(), "each": each}


def _show(image: Reading | Illegible) -> str:
    return f"unreadable: {image.reason}" if isinstance(image, Illegible) else str(image)


class _Readings:
    """A document as it is read: its text as one, and every image."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.text = read_text(document.text)
        self.has_text = bool(document.text.strip())
        self.images = [read_image(decode(image)) for image in document.images]

    @property
    def share(self) -> float:
        """How much of the text (all as one) and the images could be read, 0 to 1."""
        readings: list[object] = [*self.images]
        if self.has_text:
            readings.append(self.text)
        if not readings:
            return 0.0
        unread = sum(isinstance(reading, Illegible) for reading in readings)
        return (len(readings) - unread) / len(readings)

    def readable_text(self) -> TextReading:
        """Return the text; _NoValue where it is unreadable."""
        if isinstance(self.text, Illegible):
            raise _NoValue(UNSCORED, f"unreadable text: {self.text.reason}")
        return self.text

    def readable_images(self) -> list[Reading]:
        """Return all images; _NoValue where one is unreadable."""
        return [_readable(number, image) for number, image in enumerate(self.images, 1)]


def _readable(number: int, image: Reading | Illegible) -> Reading:
    if isinstance(image, Illegible):
        raise _NoValue(UNSCORED, f"unreadable image {number}: {image.reason}")
    return image


def _of_world(true: _Readings | None) -> _Readings:
    """Return the truth; _NoValue where there is none of the miniature world."""
    if true is None:
        raise _NoValue(NOT_APPLICABLE, NO_TRUTH)
    for image in true.images:
        if isinstance(image, Illegible):
            raise _NoValue(NOT_APPLICABLE, f"{OTHER_WORLD}: {image.reason}")
    if why := reason_without_truth(true.text):
        raise _NoValue(NOT_APPLICABLE, f"{OTHER_WORLD}: {why}")
    return true


def _text(own: _Readings, true: _Readings | None) -> list[AttributeCounts]:
    known = _of_world(true)
    if not own.has_text:
        raise _NoValue(UNSCORED, "the document holds no text")
    return compare_texts(own.readable_text(), known.readable_text())


def _image(own: _Readings, true: _Readings | None) -> list[AttributeCounts]:
    known = _of_world(true)
    if not known.images:
        raise _NoValue(NOT_APPLICABLE, NO_TRUE_IMAGE)
    if not own.images:
        raise _NoValue(UNSCORED, NO_IMAGE)
    return compare_scenes(own.readable_images(), known.readable_images())


def _match(own: _Readings, true: _Readings | None) -> list[AttributeCounts]:
    if not own.images:
        raise _NoValue(UNSCORED, NO_IMAGE)
    pairs = zip(pairs_of(own.document), own.images, strict=True)
    counts = []
    for number, (pair, image) in enumerate(pairs, start=1):
        shown = _readable(number, image)
        counts.append(compare_scene(shown, _describe(number, pair.text)))
    return counts


def _describe(number: int, text: str) -> Reading:
    """Return the last scene of the text beside an image; _NoValue where it has none."""
    said = read_text(text)
    if isinstance(said, Illegible):
        raise _NoValue(UNSCORED, f"unreadable text beside image {number}: {said.reason}")
    if not said.scenes:
        raise _NoValue(UNSCORED, f"the text beside image {number} describes no scene")
    return said.scenes[-1]


def _answer(own: _Readings, true: _Readings | None) -> list[AttributeCounts]:
    """Return text and images together; what is missing of either is missed."""
    known = _of_world(true)
    texts = compare_texts(own.readable_text(), known.readable_text())
    return texts + compare_scenes(own.readable_images(), known.readable_images())


_Compare = Callable[[_Readings, _Readings | None], list[AttributeCounts]]
_COMPARISONS: dict[str, _Compare] = {
    "text": _text,
    "image": _image,
    "match": _match,
    "answer": _answer,
}
