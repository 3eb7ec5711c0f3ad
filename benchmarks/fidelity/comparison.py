"""The answers of two ways compared, query by query, and summed up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.fidelity.answers import Documents, WayAnswers
from benchmarks.fidelity.pictures import PictureDifference, PictureMeter
from benchmarks.fidelity.texts import TextDifference, text_difference
from cluster.plan import outcome_name
from generators.base import Failure, Outcome, Result
from generators.document import Document, Image, Sample, Text
from generators.pictures import PictureError


@dataclass(frozen=True, kw_only=True)
class DocumentPair:
    """The answers of two ways to one query."""

    sample: Sample
    reference: Outcome[Document]
    other: Outcome[Document]
    text: TextDifference | None = None
    """None where neither answer holds text."""
    pictures: tuple[PictureDifference, ...] = ()
    """Of the pictures in order, as far as both answers have them."""
    unpaired: int = 0
    """Pictures that only one of the answers has."""
    same_shape: bool = True
    """Whether text and pictures follow each other in the same order."""
    lost: str = ""
    """Why there is nothing to compare; empty where both are documents."""

    @property
    def same_outcome(self) -> bool:
        """Whether both were answered, or both failed, or both were skipped."""
        return outcome_name(self.reference) == outcome_name(self.other)

    @property
    def distance(self) -> float:
        """How bad the pair looks, from 0 for equal answers; orders the gallery."""
        if self.lost:
            return 3.0 if not self.same_outcome else 0.0
        text = 0.0 if self.text is None else 1.0 - self.text.prefix
        pictures = (_picture_distance(p) for p in self.pictures)
        return float(not self.same_shape) + max(text, *pictures, 0.0)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "query": self.sample.id,
            "outcomes": [outcome_name(self.reference), outcome_name(self.other)],
            "lost": self.lost,
            "text": None
            if self.text is None
            else {"equal": self.text.equal, **asdict(self.text)},
            "pictures": [asdict(picture) for picture in self.pictures],
            "unpaired_pictures": self.unpaired,
            "same_shape": self.same_shape,
        }


def _picture_distance(picture: PictureDifference) -> float:
    """From 0 for equal pictures to 1; by structure where pixels differ."""
    if not picture.same_size:
        return 1.0
    dissimilar = 0.0 if picture.ssim is None else (1.0 - picture.ssim) / 2
    return max(dissimilar, (picture.mean_difference or 0.0) / 255)


def compared(
    samples: Sequence[Sample], one: Documents, other: Documents, meter: PictureMeter
) -> tuple[DocumentPair, ...]:
    """One pair per sample: the answers of `one`, the reference, and of `other`."""
    rows = zip(samples, one, other, strict=True)
    return tuple(_pair(sample, first, second, meter) for sample, first, second in rows)


def _pair(
    sample: Sample, one: Outcome[Document], other: Outcome[Document], meter: PictureMeter
) -> DocumentPair:
    lost = "; ".join(filter(None, (_loss("reference", one), _loss("this way", other))))
    if not isinstance(one, Result) or not isinstance(other, Result):
        return DocumentPair(sample=sample, reference=one, other=other, lost=lost)
    first, second = one.value, other.value
    try:
        pictures = _pictures(first, second, meter)
    except PictureError as error:
        lost = f"a picture cannot be compared: {error}"
        return DocumentPair(sample=sample, reference=one, other=other, lost=lost)
    has_text = any(isinstance(s, Text) for s in (*first.segments, *second.segments))
    return DocumentPair(
        sample=sample,
        reference=one,
        other=other,
        text=text_difference(first.text, second.text) if has_text else None,
        pictures=pictures,
        unpaired=abs(len(first.images) - len(second.images)),
        same_shape=_shape(first) == _shape(second),
    )


def _loss(what: str, outcome: Outcome[Document]) -> str:
    if isinstance(outcome, Result):
        return ""
    return f"{what} {outcome_name(outcome)}: {outcome.reason}"


def _pictures(
    one: Document, other: Document, meter: PictureMeter
) -> tuple[PictureDifference, ...]:
    pairs = zip(one.images, other.images, strict=False)
    return tuple(meter(first, second) for first, second in pairs)


def _shape(document: Document) -> tuple[bool, ...]:
    return tuple(isinstance(segment, Image) for segment in document.segments)


# --------------------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class FidelityFigure:
    """One measure over all pairs: its value, and how it is spread."""

    value: float
    n: int
    quartiles: tuple[float, float, float]
    least: float
    most: float

    @classmethod
    def of(
        cls, values: Sequence[float], headline: Callable[[Any], Any]
    ) -> FidelityFigure | None:
        """None where there is nothing to measure: a figure is never made up."""
        if not values:
            return None
        data = np.asarray(values, dtype=np.float64)
        low, middle, high = (float(q) for q in np.quantile(data, (0.25, 0.5, 0.75)))
        ends = float(data.min()), float(data.max())
        return cls(float(headline(data)), len(data), (low, middle, high), *ends)


Figures = Mapping[str, FidelityFigure | None]
"""By the names of `MEASURES`; None where nothing could be measured."""
Values = Callable[[DocumentPair], Iterable[float | bool | None]]


def _of_text(name: str) -> Values:
    return lambda pair: () if pair.text is None else (getattr(pair.text, name),)


def _of_pictures(name: str) -> Values:
    return lambda pair: (getattr(picture, name) for picture in pair.pictures)


MEASURES: Mapping[str, tuple[Values, Callable[[Any], Any]]] = {
    "outcome.equal": (lambda pair: (pair.same_outcome,), np.mean),
    "document.same_shape": (lambda pair: () if pair.lost else (pair.same_shape,), np.mean),
    "text.equal": (_of_text("equal"), np.mean),
    "text.prefix": (_of_text("prefix"), np.mean),
    "text.first_difference": (_of_text("first_difference"), np.median),
    "picture.same_size": (_of_pictures("same_size"), np.mean),
    "picture.identical": (_of_pictures("identical"), np.mean),
    "picture.equal_pixels": (_of_pictures("equal_pixels"), np.mean),
    "picture.mean_difference": (_of_pictures("mean_difference"), np.mean),
    "picture.largest_difference": (_of_pictures("largest_difference"), np.max),
    "picture.ssim": (_of_pictures("ssim"), np.mean),
    "picture.clip_distance": (_of_pictures("clip_distance"), np.mean),
    "picture.lpips": (_of_pictures("lpips"), np.mean),
}
"""Name -> values of a pair, and which statistic of all values is the headline."""


def figures_of(pairs: Sequence[DocumentPair]) -> Figures:
    """Every measure over all pairs."""
    return {
        name: FidelityFigure.of(_known(pairs, values), headline)
        for name, (values, headline) in MEASURES.items()
    }


def _known(pairs: Sequence[DocumentPair], values: Values) -> list[float]:
    return [float(v) for pair in pairs for v in values(pair) if v is not None]


@dataclass(frozen=True, kw_only=True)
class WayFidelity:
    """How far one way agrees with the reference, and with itself."""

    answers: WayAnswers
    pairs: tuple[DocumentPair, ...] = ()
    """With the reference; empty for the reference itself and for a way with a problem."""
    figures: Figures | None = None
    repeated: tuple[DocumentPair, ...] = ()
    """The first round with every later one."""
    repeat_figures: Figures | None = None
    """Of the way with itself; None where it was run once."""

    @property
    def label(self) -> str:
        """The way's label."""
        return self.answers.way.label

    @property
    def lost(self) -> int:
        """Queries on which there is nothing to compare."""
        return sum(bool(pair.lost) for pair in self.pairs)

    @property
    def unpaired(self) -> int:
        """Pictures that only one of two answers has."""
        return sum(pair.unpaired for pair in self.pairs)

    @property
    def failures(self) -> list[Failure]:
        """Failed answers of all rounds."""
        outcomes = (o for documents in self.answers.rounds for o in documents)
        return [outcome for outcome in outcomes if isinstance(outcome, Failure)]


def fidelity_of(
    answers: WayAnswers,
    reference: WayAnswers,
    samples: Sequence[Sample],
    meter: PictureMeter,
) -> WayFidelity:
    """The figures of one way; the reference is only compared with itself."""
    if answers.problem:
        return WayFidelity(answers=answers)
    own = answers is not reference
    pairs = compared(samples, reference.first, answers.first, meter) if own else ()
    later = answers.rounds[1:]
    repeated = tuple(
        pair for one in later for pair in compared(samples, answers.first, one, meter)
    )
    return WayFidelity(
        answers=answers,
        pairs=pairs,
        figures=figures_of(pairs) if own else None,
        repeated=repeated,
        repeat_figures=figures_of(repeated) if later else None,
    )
