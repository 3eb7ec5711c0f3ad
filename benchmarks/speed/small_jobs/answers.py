"""The answers of one way: written by the scripts, read from a run, and compared.

A script writes `texts.json` {writer: {query: text}}, `scores.json` {writer: {artist:
{query: score}}} and `pictures/WRITER/ARTIST/QUERY.png`.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from generators.base import Outcome, Result
from generators.document import Candidate, Document, Draft, Image, Score, Text
from generators.pictures import Drawing, decode

GREY_LEVELS = 2
"""By how much a pixel of 8 bits may differ where batches are of another size."""
SCORE_TOLERANCE = 0.01
"""By how much CLIPScore (0 to 2.5) may differ, for pictures within `GREY_LEVELS`."""


@dataclass
class JobFolder:
    """Where a script writes its answers."""

    root: Path
    scores: dict[str, dict[str, dict[str, float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )

    def save_picture(self, drawing: Drawing, writer: str, artist: str, query: str) -> Image:
        """Write a picture as PNG; the picture as it was written."""
        path = _picture(self.root, writer, artist, query)
        path.parent.mkdir(parents=True, exist_ok=True)
        image = drawing.encoded()
        path.write_bytes(image.read())
        return image

    def save_score(self, value: float | None, writer: str, artist: str, query: str) -> None:
        """Keep a score; None where the picture has none."""
        if value is not None:
            self.scores[writer][artist][query] = value

    def save(self, texts: Mapping[tuple[str, str], str]) -> None:
        """Write the texts, by writer and query, and the scores."""
        by_writer: dict[str, dict[str, str]] = defaultdict(dict)
        for (writer, query), text in texts.items():
            by_writer[writer][query] = text
        for name, values in (("texts", by_writer), ("scores", self.scores)):
            (self.root / f"{name}.json").write_text(json.dumps(values, indent=1))


def _picture(root: Path, writer: str, artist: str, query: str) -> Path:
    folder = writer.replace("/", "_").replace(":", "_")
    return root / "pictures" / folder / artist / f"{query}.png"


def text_of(outcome: Outcome[Draft]) -> str | None:
    """The text that an LVLM wrote; None where it cannot take the query."""
    return outcome.value.text if isinstance(outcome, Result) else None


def value_of(outcome: Outcome[Score]) -> float | None:
    """A score; None where there is none."""
    return outcome.value.value if isinstance(outcome, Result) else None


def candidate(text: str, picture: Image) -> Candidate:
    """The document that CLIPScore judges."""
    return Candidate(Document((Text(text), picture)))


Pairing = tuple[str, str, str]
"""Writer, artist, query."""


@dataclass(frozen=True, kw_only=True)
class JobAnswers:
    """All answers of one way."""

    texts: Mapping[tuple[str, str], str]
    pictures: Mapping[Pairing, Any]
    """uint8 (height, width, 3)."""
    scores: Mapping[Pairing, float]


def answers_of_script(root: Path) -> JobAnswers:
    """What a script has written."""
    texts = json.loads((root / "texts.json").read_text())
    scores = {
        (writer, artist, query): value
        for writer, by_artist in json.loads((root / "scores.json").read_text()).items()
        for artist, values in by_artist.items()
        for query, value in values.items()
    }
    files = {names: _picture(root, *names) for names in scores}
    return JobAnswers(
        texts={(w, q): text for w, values in texts.items() for q, text in values.items()},
        pictures={names: _pixels(file.read_bytes()) for names, file in files.items()},
        scores=scores,
    )


def answers_of_run(root: Path) -> JobAnswers:
    """What `plait run` has stored."""
    from benchmarks.runs.run_data import RunData

    run = RunData.at(root)
    texts: dict[tuple[str, str], str] = {}
    pictures: dict[Pairing, Any] = {}
    scores: dict[Pairing, float] = {}
    for answer in run.answers:
        writer, _, artist = answer.system.partition("+")
        if answer.document is None:
            continue
        document = answer.document.plain
        texts[writer, answer.query.id] = document.text
        value = answer.scores["clipscore"].value
        if document.images and value is not None:
            names = (writer, artist, answer.query.id)
            pictures[names] = _pixels(run.read(document.images[0]))
            scores[names] = value
    return JobAnswers(texts=texts, pictures=pictures, scores=scores)


def _pixels(data: bytes) -> Any:
    return np.asarray(decode(data))


@dataclass(frozen=True, slots=True)
class AnswerAgreement:
    """How many answers of one kind two ways have in common."""

    kind: str
    answers: int
    """That either way has."""
    equal: int
    """That both have, within the tolerance."""
    largest: float
    """Largest difference of a pixel or a score; 0 for texts."""

    def __str__(self) -> str:
        return f"{self.equal:,} of {self.answers:,} {self.kind}"


def agreements(one: JobAnswers, other: JobAnswers) -> tuple[AnswerAgreement, ...]:
    """Texts that are equal, pictures and scores that are equal within their tolerances."""
    pictures = _differences(one.pictures, other.pictures, _pixel_difference)
    scores = _differences(one.scores, other.scores, lambda a, b: abs(a - b))
    texts = _differences(one.texts, other.texts, lambda a, b: float(a != b))
    return (
        _agreement("texts", texts, 0.0),
        _agreement("pictures", pictures, GREY_LEVELS),
        _agreement("scores", scores, SCORE_TOLERANCE),
    )


def _differences(
    one: Mapping[Any, Any],
    other: Mapping[Any, Any],
    difference: Callable[[Any, Any], float],
) -> list[float]:
    """The difference of each answer; infinite where one of the two has none."""
    both = one.keys() & other.keys()
    alone = len(one.keys() ^ other.keys())
    return [difference(one[k], other[k]) for k in both] + [math.inf] * alone


def _pixel_difference(one: Any, other: Any) -> float:
    if one.shape != other.shape:
        return math.inf
    return float(np.abs(one.astype(np.int16) - other).max())


def _agreement(kind: str, differences: list[float], tolerance: float) -> AnswerAgreement:
    equal = sum(d <= tolerance for d in differences)
    return AnswerAgreement(kind, len(differences), equal, max(differences, default=0.0))
