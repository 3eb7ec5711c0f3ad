"""Official mode: request, limits, reading and averages of the released scorer.

After dataset.py and main.py of Lillianwei-h/MMIE@eb0fd6e, quirks included. What that
program drops silently is unscored here, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from generators.base import Unscored
from generators.buckets import AnyPath
from generators.content import joined
from generators.document import Content, Document, Image, Sample, Text
from scorers.judging.replies import RubricQuestion, RubricVerdict, Unreadable
from scorers.judging.rubrics import RUBRIC, TOP, Rubric
from scorers.judging.sources import read_published

MOST_IMAGES = 4
"""Queries with more images are dropped (dataset.py, `len(images) <= 4`)."""
_LAST = 2
"""The answer ends once an image has a number above this (dataset.py, `image_no>2`)."""
PLACEHOLDER = "<image>"
"""What InternVL's `chat` replaces by the images, one after another, wherever it occurs:
such letters in a question or an answer shift all images after them."""
FIRST_TRUTH = "gt_answer[0].text"
"""Metadata of a query: the first text of the ground truth as JSON, where it is none."""
_SCORE = re.compile(r"### Score.*?(-?\d+(\.\d+)?)", re.DOTALL)
"""main.py, `find_score`: the first number after the first such heading."""
DIGESTS = {
    "SA": "e49cdc6b2562f7c4e3bd991604b58da6ffade636e41475f699dcccf70a54c32e",
    "PBL": "c7d412eea004ba231ec61b9a0ccea9838b1a0d546ef5eb6e6a7fe8133317ead7",
    "MSR": "2af55d36a90e680764061b912ca3fa9f58103b0037b60ee827079a7289d22ddb",
}
"""SHA-256 of what `get_prompt` of prompts.py returns, by category."""
_FORM = f"### Score\n<an integer from 0 to {TOP}>"


def released_rubrics(file: AnyPath) -> dict[str, Rubric]:
    """Return the released rubrics by category, from the user's copy of prompts.py.

    UsageError where the file does not hold the released texts.
    """
    texts = read_published(file, DIGESTS)
    return {c: Rubric(f"official:{c}", text, _FORM) for c, text in texts.items()}


@dataclass(frozen=True, slots=True)
class Flattened:
    """Question and answer as text with placeholders, and the images in their order."""

    question: str
    answer: str
    images: tuple[Image, ...]
    left_out: int
    """Images of the answer beyond the limit."""
    cut: bool
    """Whether text of the answer follows the last image that is read."""


@dataclass
class _Flattening:
    images: list[Image] = field(default_factory=list)

    def text(self, segment: Text | Image) -> str:
        if isinstance(segment, Text):
            return f"{segment.text}\n"
        self.images.append(segment)
        return f"Image-{len(self.images) - 1}: {PLACEHOLDER}\n"


def flattened(question: Content, answer: Content) -> Flattened:
    """dataset.py, `get_dataset`: all of the question, and the answer as far as is read."""
    state = _Flattening()
    question_text = "".join(state.text(s) for s in question)
    written, read = "", 0
    for segment in answer:
        # A text is read before the limit is looked at, an image after.
        full = len(state.images) > _LAST
        if isinstance(segment, Text) or not full:
            written += state.text(segment)
            read += 1
        if full or len(state.images) > _LAST:
            break
    rest = answer[read:]
    return Flattened(
        question_text,
        written,
        tuple(state.images),
        left_out=sum(isinstance(s, Image) for s in rest),
        cut=any(isinstance(s, Text) for s in rest),
    )


def kind_of(id: str) -> str | None:
    """Return the rubric an id gets: prompts.py looks for the letters anywhere in it."""
    return next((kind for kind in ("SA", "PBL", "MSR") if kind in id), None)


@dataclass(frozen=True)
class Released:
    """Asks and reads as the released scorer does."""

    rubrics: Mapping[str, Rubric]

    def ask(self, query: Sample, document: Document) -> RubricQuestion | Unscored:
        """Return the question about one document, or why the released program has none."""
        flat = flattened(query.question, document.segments)
        if len(flat.images) > MOST_IMAGES:
            return Unscored(
                f"the released scorer drops queries with more than {MOST_IMAGES} images"
            )
        kind = query.metadata.get(RUBRIC) or kind_of(query.id)
        if kind is None:
            return Unscored("the released scorer stops at ids without SA, PBL or MSR")
        rubric = self.rubrics[kind]
        prompt = rubric.template.format(
            question=flat.question, answer=flat.answer, gt_answer=_truth(query)
        )
        content = _illustrated(prompt, flat.images)
        return RubricQuestion(rubric, content, left_out=flat.left_out, cut=flat.cut)

    def read(self, reply: str, rubric: Rubric) -> RubricVerdict | Unreadable:
        """Return the score that the released reader finds."""
        try:
            score = find_score(reply)
        except OverflowError:
            return Unreadable("the released scorer stops at a number beyond all floats")
        if score is None:
            return Unreadable("the released scorer finds no number after '### Score'")
        if not 0 <= score <= TOP:
            return Unreadable(f"the released scorer drops the score {score}")
        return RubricVerdict(score, "score", stated=score)


def first_truth(items: Sequence[Any]) -> dict[str, str]:
    """Return metadata with the text of `items[0]`, where the content would give another.

    `items` are a row's `gt_answer`, {"text": ..., "image": ...} each. The content made of
    them holds nothing of an item without both, so that the text of the next item would be
    taken for the first, and nothing at all where there are only empty texts.
    """
    rows = [item if isinstance(item, Mapping) else {} for item in items]
    text = rows[0].get("text") if rows else None
    return {} if _first_text(rows) == text else {FIRST_TRUTH: json.dumps(text)}


def _first_text(items: Sequence[Mapping[str, Any]]) -> Any:
    """Return the text that the content of `items` begins with; None where it has none."""
    if not any(item.get("text") or item.get("image") for item in items):
        return None
    for item in items:
        if item.get("text") is not None or item.get("image"):
            return item.get("text")
    return None


def _truth(query: Sample) -> str | None:
    """`gt_answer[0]["text"]` of the row; null is written `None`, as `str.format` does."""
    if (text := query.metadata.get(FIRST_TRUTH)) in ("null", '""'):
        return None if text == "null" else ""
    segments = query.reference.segments if query.reference else ()
    first = segments[0] if segments else None
    return first.text if isinstance(first, Text) else None


def _illustrated(prompt: str, images: tuple[Image, ...]) -> Content:
    """The prompt with its first placeholders replaced, in order; others stay letters."""
    pieces = prompt.split(PLACEHOLDER, len(images))
    segments: list[Text | Image] = [Text(pieces[0])]
    for image, piece in zip(images, pieces[1:], strict=True):
        segments += [image, Text(piece)]
    return joined(segments)


def find_score(reply: str) -> int | None:
    """main.py, `find_score`: rounded half to even. OverflowError as there."""
    match = _SCORE.search(reply)
    return None if match is None else round(float(match.group(1)))


@dataclass(frozen=True, slots=True)
class Averages:
    """What the released scorer prints, on the raw scale of 0 to 6."""

    n: int
    """Scores that could be read."""
    average: float | None
    """Over all of them (a micro average), rounded to 3 decimals."""
    kinds: Mapping[str, float | None]
    """By SA, PBL and MSR, rounded likewise."""


def averages(scores: Iterable[tuple[str, int]]) -> Averages:
    """main.py's last lines, for (query id, raw score of 0 to 6)."""
    pairs = list(scores)
    kinds = {
        kind: _average([score for id, score in pairs if kind_of(id) == kind])
        for kind in ("SA", "PBL", "MSR")
    }
    return Averages(len(pairs), _average([score for _, score in pairs]), kinds)


def _average(scores: list[int]) -> float | None:
    if not scores:
        return None
    # Imported here: planning a run needs no numpy.
    import numpy as np

    return float(np.round(np.mean(scores), 3))


def percent(average: float) -> float:
    """The paper's scale: its authors divide by 6 (MMIE, issue 10 of the repository)."""
    return average / TOP * 100
