"""Controls: answers worse than the ground truth by construction, to validate a judge.

Each is made from the ground truth (`Sample.reference`) and nothing else, so a judge that
reads images, their places, the question and the text must put `gt` above all of them
(`benchmarks.results.validity` checks whether it does):

    gt:shuffled-images   every image in the place of another image
    gt:no-images         the text alone
    gt:other-answer      the ground truth of another query of the same field
    gt:repeated-text     every text replaced by the first one

A control that cannot be made from a sample, or would equal the ground truth, skips it with
a reason. A control depends on the seed and on the samples of the task set, not on their
order nor on which of them a run selects: where another sample's content is needed, samples
are ordered in a ring by a digest of seed and id, and use the next suitable one. Adding or
removing a sample of a task set changes the answers of its neighbours only.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from generators.base import Skip
from generators.document import Document, Image, Malformed, Sample, Text
from generators.names import unknown
from generators.system import System

TRUTH = "gt"
PREFIX = f"{TRUTH}:"

Place = tuple[str, str]
"""The position of a sample in a ring: the digest it is sorted by, and its id."""


@dataclass(frozen=True)
class Pool:
    """All samples of a task set that have a ground truth, in rings."""

    samples: Sequence[Sample | Malformed]
    seed: int = 0

    def others(self, sample: Sample) -> Iterator[Document]:
        """Ground truths of other samples, of its field before all of its category.

        Each round starts after the sample's own place in the ring.
        """
        for group in ((sample.category, sample.field), (sample.category, None)):
            ring = self._rings.get(group, [])
            start = bisect_right(ring, self._place(sample), key=lambda e: e[0])
            for step in range(len(ring)):
                (_, id), truth = ring[(start + step) % len(ring)]
                if id != sample.id:
                    yield truth

    def _place(self, sample: Sample) -> Place:
        return _lot(self.seed, sample.id), sample.id

    @cached_property
    def _rings(self) -> Mapping[tuple[str, str | None], list[tuple[Place, Document]]]:
        rings: dict[tuple[str, str | None], list[tuple[Place, Document]]] = {}
        for sample in self.samples:
            if not isinstance(sample, Sample) or sample.reference is None:
                continue
            for group in ((sample.category, sample.field), (sample.category, None)):
                entry = self._place(sample), sample.reference
                rings.setdefault(group, []).append(entry)
        return {g: sorted(ring, key=lambda e: e[0]) for g, ring in rings.items()}


def _lot(seed: int, *names: str) -> str:
    """A digest to sort by, the same in every process."""
    text = "\n".join((str(seed), *names))
    return hashlib.sha256(text.encode()).hexdigest()


def shuffled_images(sample: Sample, truth: Document, pool: Pool) -> Document | Skip:
    """Return every image in the place of another image; texts stay.

    Where there is no such order (one image, or one that fills over half of the places)
    all images come in turn from the next other ground truth that holds images which
    this one does not.
    """
    if not truth.images:
        return Skip("the ground truth holds no picture")
    moved = _moved(truth.images, sample.id, pool.seed) or _borrowed(sample, truth, pool)
    if not moved:
        return Skip("no other sample of the category holds another picture")
    pictures = iter(moved)
    segments = (next(pictures) if isinstance(s, Image) else s for s in truth.segments)
    return Document(tuple(segments))


def _moved(pictures: Sequence[Image], id: str, seed: int) -> list[Image] | None:
    """The images, none in a place of an equal one; None where there is no such order.

    Places are ordered with equal images together, then turned on by as many as there
    are of the most frequent one: each then lands on another image's place.
    """
    turn = max(Counter(p.digest for p in pictures).values())
    if 2 * turn > len(pictures):
        return None
    places = sorted(
        range(len(pictures)), key=lambda i: (_lot(seed, id, pictures[i].digest), i)
    )
    moved = list(pictures)
    for here, there in zip(places, places[turn:] + places[:turn], strict=True):
        moved[here] = pictures[there]
    return moved


def _borrowed(sample: Sample, truth: Document, pool: Pool) -> list[Image] | None:
    own = {p.digest for p in truth.images}
    for other in pool.others(sample):
        if foreign := [p for p in other.images if p.digest not in own]:
            return [foreign[i % len(foreign)] for i in range(len(truth.images))]
    return None


def no_images(sample: Sample, truth: Document, pool: Pool) -> Document | Skip:
    """Return the texts alone."""
    if not truth.images:
        return Skip("the ground truth holds no picture")
    texts = tuple(s for s in truth.segments if isinstance(s, Text))
    if not any(t.text for t in texts):
        return Skip("the ground truth holds no text")
    return Document(texts)


def other_answer(sample: Sample, truth: Document, pool: Pool) -> Document | Skip:
    """Return the next other ground truth with different content, images included.

    Answers that differ only in case, blanks and punctuation have the same content.
    """
    own = _content(truth)
    others = (other for other in pool.others(sample) if _content(other) != own)
    return next(others, Skip("no other sample of the category has another answer"))


def _content(document: Document) -> tuple[str, ...]:
    words = re.sub(r"[\W_]+", "", document.text).casefold() or document.text
    return (words, *(p.digest for p in document.images))


def repeated_text(sample: Sample, truth: Document, pool: Pool) -> Document | Skip:
    """Return every text replaced by the first one, at its place; images stay."""
    texts = [s for s in truth.segments if isinstance(s, Text) and s.text]
    if len({t.text for t in texts}) < 2:
        return Skip("the ground truth holds no two different texts")
    segments = (texts[0] if isinstance(s, Text) else s for s in truth.segments)
    return Document(tuple(segments))


Control = Callable[[Sample, Document, Pool], Document | Skip]
"""From a sample, its ground truth and all samples: the answer, or why there is none."""

CONTROLS: Mapping[str, Control] = {
    f"{PREFIX}shuffled-images": shuffled_images,
    f"{PREFIX}no-images": no_images,
    f"{PREFIX}other-answer": other_answer,
    f"{PREFIX}repeated-text": repeated_text,
}
"""By the name of the system."""


def is_control(name: str) -> bool:
    """Return whether `name` names a control, known or not."""
    return name.startswith(PREFIX)


def control(name: str, samples: Sequence[Sample | Malformed], seed: int) -> System:
    """The system `name` over all samples of a task set; UsageError names the valid ones."""
    if name not in CONTROLS:
        raise unknown("control", name, CONTROLS)
    pool = Pool(samples, seed)
    known = (s for s in samples if isinstance(s, Sample))
    answers = {s.id: _answer(CONTROLS[name], s, pool) for s in known}
    return System(name=name, draft=None, answers=answers)


def _answer(make: Control, sample: Sample, pool: Pool) -> Document | Skip:
    if sample.reference is None:
        return Skip("the sample has no ground truth")
    return make(sample, sample.reference, pool)
