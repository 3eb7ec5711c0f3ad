"""MMIE's rubric judge: its question and its reader, in corrected mode and as released.

`Corrected` shows the whole answer in its own order and reads strictly. `Released` follows
dataset.py and main.py of Lillianwei-h/MMIE@eb0fd6e, quirks included; what that program
drops silently is unscored here, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from plait.generators.base import NotApplicable, Unscored
from plait.generators.buckets import AnyPath
from plait.generators.content import fill, join_texts
from plait.generators.document import Content, Document, Image, Query, Text
from plait.generators.released import read_published
from plait.scorers.judging.pages import Pages
from plait.scorers.judging.replies import (
    RubricQuestion,
    RubricVerdict,
    Unreadable,
    read_reply,
)
from plait.scorers.judging.rubrics import RELEASED, RUBRIC, TOP, Rubric, kind_of

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
DIGESTS = RELEASED["mmie"]
_FORM = f"### Score\n<an integer from 0 to {TOP}>"


@dataclass(frozen=True)
class Corrected:
    """Asks about whole documents and reads replies strictly."""

    rubrics: Mapping[str, Rubric]
    max_images: int | None = None

    def rubric_of(self, query: Query) -> Rubric | NotApplicable:
        """Return the rubric of a query; queries outside the rubrics have none."""
        rubric = self.rubrics.get(query.metadata.get(RUBRIC, query.category))
        if rubric is None:
            valid = ", ".join(self.rubrics)
            return NotApplicable(f"there are rubrics for {valid}, not {query.category!r}")
        return rubric

    def ask(self, query: Query, document: Document) -> RubricQuestion | NotApplicable:
        """Return the question about one document; queries outside the rubrics have none."""
        rubric = self.rubric_of(query)
        if isinstance(rubric, NotApplicable):
            return rubric
        pages = Pages(self.max_images)
        fields = {
            "question": pages.write(query.question),
            "answer": pages.write(document.segments),
            "gt_answer": pages.truth(query.reference),
        }
        content = fill(rubric.template, fields)
        return RubricQuestion(
            rubric, content, left_out=pages.left_out, neutralised=tuple(pages.neutralised)
        )

    def read(self, reply: str, rubric: Rubric) -> RubricVerdict | Unreadable:
        """Return the verdict of a reply in the rubric's form."""
        return read_reply(reply, rubric)


def read_released_rubrics(file: AnyPath) -> dict[str, Rubric]:
    """Return the released rubrics by category, from the user's copy of prompts.py.

    UsageError where the file does not hold the released texts.
    """
    rubrics = {}
    for category, text in read_published(file, DIGESTS).items():
        rubrics[category] = Rubric(f"official:{category}", text, _FORM)
    return rubrics


class Flattened(NamedTuple):
    """Question and answer as text with placeholders, and the images in their order."""

    question: str
    answer: str
    images: list[Image]
    rest: Content
    """What of the answer is not read."""


def flatten(question: Content, answer: Content) -> Flattened:
    """dataset.py, `get_dataset`: all of the question, and the answer as far as is read."""
    images: list[Image] = []

    def text(segment: Text | Image) -> str:
        if isinstance(segment, Text):
            return f"{segment.text}\n"
        images.append(segment)
        return f"Image-{len(images) - 1}: {PLACEHOLDER}\n"

    question_text = "".join(map(text, question))
    written = ""
    read = 0
    for segment in answer:
        # A text is read before the limit is looked at, an image after.
        full = len(images) > _LAST
        if isinstance(segment, Text) or not full:
            written += text(segment)
            read += 1
        if full or len(images) > _LAST:
            break
    return Flattened(question_text, written, images, answer[read:])


@dataclass(frozen=True)
class Released:
    """Asks and reads as the released scorer does."""

    rubrics: Mapping[str, Rubric]

    def rubric_of(self, query: Query) -> Rubric | Unscored:
        """Return the rubric of a query, which the released program tells by its id."""
        kind = query.metadata.get(RUBRIC) or kind_of(query.id)
        if kind is None:
            return Unscored("the released scorer stops at ids without SA, PBL or MSR")
        return self.rubrics[kind]

    def ask(self, query: Query, document: Document) -> RubricQuestion | Unscored:
        """Return the question about one document, or why the released program has none."""
        rubric = self.rubric_of(query)
        if isinstance(rubric, Unscored):
            return rubric
        flat = flatten(query.question, document.segments)
        if len(flat.images) > MOST_IMAGES:
            return Unscored(
                f"the released scorer drops queries with more than {MOST_IMAGES} images"
            )
        prompt = rubric.template.format(
            question=flat.question, answer=flat.answer, gt_answer=_truth(query)
        )
        # The first placeholders become images, in order; others stay letters.
        first, *pieces = prompt.split(PLACEHOLDER, len(flat.images))
        shown: list[Text | Image] = [Text(first)]
        for image, piece in zip(flat.images, pieces, strict=True):
            shown += [image, Text(piece)]
        return RubricQuestion(
            rubric,
            join_texts(shown),
            left_out=sum(isinstance(part, Image) for part in flat.rest),
            cut=any(isinstance(part, Text) for part in flat.rest),
        )

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
    # What the content begins with; there is none where all texts are empty.
    kept = [row for row in rows if row.get("text") is not None or row.get("image")]
    filled = any(row.get("text") or row.get("image") for row in kept)
    first = kept[0].get("text") if filled else None
    return {} if first == text else {FIRST_TRUTH: json.dumps(text)}


def _truth(query: Query) -> str | None:
    """`gt_answer[0]["text"]` of the row; null is written `None`, as `str.format` does."""
    if (text := query.metadata.get(FIRST_TRUTH)) in ("null", '""'):
        return None if text == "null" else ""
    segments = query.reference.segments if query.reference else ()
    first = segments[0] if segments else None
    return first.text if isinstance(first, Text) else None


def find_score(reply: str) -> int | None:
    """main.py, `find_score`: rounded half to even. OverflowError as there."""
    match = _SCORE.search(reply)
    return None if match is None else round(float(match.group(1)))
