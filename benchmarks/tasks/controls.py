"""Controls: answers worse than the ground truth by construction, to validate a judge.

Each is made from the ground truth (`Query.reference`) and nothing else, so a judge that
reads images, their places, the question and the text must put `gt` above all of them
(`plait.benchmarks.results.validity` checks whether it does):

    gt:shuffled-images   every image in the place of another image
    gt:no-images         the text alone
    gt:other-answer      the ground truth of another query of the same field
    gt:repeated-text     every text replaced by the first one

A control that cannot be made of a query, or would equal the ground truth, skips it with
a reason. A control depends on the seed and on the queries of the task set, not on their
order nor on which of them a run selects: where another query's content is needed, queries
are ordered in a ring by a digest of seed and id, and use the next suitable one. Adding or
removing a query of a task set changes the answers of its neighbours only.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from operator import itemgetter

from plait.generators.base import Skip
from plait.generators.document import Document, Image, Malformed, Query, Text
from plait.generators.given import GivenAnswers
from plait.generators.names import unknown

TRUTH = "gt"
PREFIX = f"{TRUTH}:"

Place = tuple[str, str]
"""The position of a query in a ring: the digest it is sorted by, and its id."""
Ring = list[tuple[Place, Document]]


@dataclass(frozen=True)
class Pool:
    """All queries of a task set that have a ground truth, in rings."""

    queries: Sequence[Query | Malformed]
    seed: int = 0

    def others(self, query: Query) -> Iterator[Document]:
        """Ground truths of other queries, of its field before all of its category.

        Each round starts after the query's own place in the ring.
        """
        for group in ((query.category, query.field), (query.category, None)):
            ring = self._rings.get(group, [])
            start = bisect_right(ring, self._place(query), key=itemgetter(0))
            for (_, id), truth in ring[start:] + ring[:start]:
                if id != query.id:
                    yield truth

    def _place(self, query: Query) -> Place:
        """Return a place that does not depend on which other queries there are."""
        return _lot(self.seed, query.id), query.id

    @cached_property
    def _rings(self) -> Mapping[tuple[str, str | None], Ring]:
        rings: dict[tuple[str, str | None], Ring] = defaultdict(list)
        for query in self.queries:
            if isinstance(query, Query) and query.reference is not None:
                entry = self._place(query), query.reference
                rings[query.category, query.field].append(entry)
                rings[query.category, None].append(entry)
        for ring in rings.values():
            # By place alone: documents cannot be ordered.
            ring.sort(key=itemgetter(0))
        return rings


def _lot(seed: int, *names: str) -> str:
    """Return a digest to sort by, the same in every process."""
    text = "\n".join((str(seed), *names))
    return hashlib.sha256(text.encode()).hexdigest()


def shuffle_images(query: Query, truth: Document, pool: Pool) -> Document | Skip:
    """Return every image in the place of another image; texts stay.

    Where there is no such order (one image, or one that fills over half of the places)
    all images come in turn from the next other ground truth that holds images which
    this one does not.
    """
    if not truth.images:
        return Skip("the ground truth holds no image")
    moved = _move(truth.images, query.id, pool.seed)
    if moved is None:
        moved = _foreign_images(query, truth, pool)
    if not moved:
        return Skip("no other query of the category holds another image")
    images = cycle(moved)
    segments = []
    for segment in truth.segments:
        segments.append(next(images) if isinstance(segment, Image) else segment)
    return Document(tuple(segments))


def _foreign_images(query: Query, truth: Document, pool: Pool) -> list[Image]:
    """Return those of the next other ground truth that `truth` lacks; empty for none."""
    own = {image.digest for image in truth.images}
    for other in pool.others(query):
        foreign = [image for image in other.images if image.digest not in own]
        if foreign:
            return foreign
    return []


def _move(images: Sequence[Image], id: str, seed: int) -> list[Image] | None:
    """The images, none in a place of an equal one; None where there is no such order.

    Places are ordered with equal images together, then turned on by as many as there
    are of the most frequent one: each then lands on another image's place.
    """
    turn = max(Counter(image.digest for image in images).values())
    if 2 * turn > len(images):
        return None
    # Equal images have one lot, so that they stand together.
    lots = [_lot(seed, id, image.digest) for image in images]
    places = sorted(range(len(images)), key=lots.__getitem__)
    moved = list(images)
    for here, there in zip(places, places[turn:] + places[:turn], strict=True):
        moved[here] = images[there]
    return moved


def no_images(query: Query, truth: Document, pool: Pool) -> Document | Skip:
    """Return the texts alone."""
    if not truth.images:
        return Skip("the ground truth holds no image")
    texts = [segment for segment in truth.segments if isinstance(segment, Text)]
    if not any(text.text for text in texts):
        return Skip("the ground truth holds no text")
    return Document(tuple(texts))


def other_answer(query: Query, truth: Document, pool: Pool) -> Document | Skip:
    """Return the next other ground truth with different content, images included.

    Answers that differ only in case, blanks and punctuation have the same content.
    """
    own = _content(truth)
    for other in pool.others(query):
        if _content(other) != own:
            return other
    return Skip("no other query of the category has another answer")


def _content(document: Document) -> tuple[str, ...]:
    """Return what tells an answer from others: its letters, and its images' digests."""
    # A text of punctuation alone stands as it is.
    words = re.sub(r"[\W_]+", "", document.text).casefold() or document.text
    return (words, *(image.digest for image in document.images))


def repeat_text(query: Query, truth: Document, pool: Pool) -> Document | Skip:
    """Return every text replaced by the first one, at its place; images stay."""
    texts = []
    for segment in truth.segments:
        if isinstance(segment, Text) and segment.text:
            texts.append(segment)
    if len({text.text for text in texts}) < 2:
        return Skip("the ground truth holds no two different texts")
    segments = []
    for segment in truth.segments:
        segments.append(texts[0] if isinstance(segment, Text) else segment)
    return Document(tuple(segments))


Control = Callable[[Query, Document, Pool], Document | Skip]
"""From a query, its ground truth and all queries: the answer, or why there is none."""

CONTROLS: Mapping[str, Control] = {
    f"{PREFIX}shuffled-images": shuffle_images,
    f"{PREFIX}no-images": no_images,
    f"{PREFIX}other-answer": other_answer,
    f"{PREFIX}repeated-text": repeat_text,
}


def is_reference(name: str) -> bool:
    """Return whether a system is the ground truth or one of its controls."""
    return name == TRUTH or is_control(name)


def is_control(name: str) -> bool:
    """Return whether `name` names a control, known or not."""
    return name.startswith(PREFIX)


def control(name: str, queries: Sequence[Query | Malformed], seed: int) -> GivenAnswers:
    """The system `name` over all queries of a task set; UsageError names the valid ones."""
    if name not in CONTROLS:
        raise unknown("control", name, CONTROLS)
    make = CONTROLS[name]
    pool = Pool(queries, seed)
    no_truth = Skip("the query has no ground truth")
    answers: dict[str, Document | Skip] = {}
    for query in queries:
        if isinstance(query, Query):
            truth = query.reference
            answers[query.id] = no_truth if truth is None else make(query, truth, pool)
    return GivenAnswers(name=name, answers=answers)
