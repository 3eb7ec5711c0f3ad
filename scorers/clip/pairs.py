"""Which text belongs to which picture of a document.

The rule: a picture belongs to all text since the picture before it. Pictures with no
text between them share one text. A document that opens with pictures gives them the
text that follows, up to the next picture. A document without text has pairs without
text, which are counted and not scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from generators.document import Document, Image


@dataclass(frozen=True, slots=True)
class Pair:
    """A picture and the text it should show."""

    position: int
    """Which picture of the document it is, from 0."""
    image: Image
    text: str
    """Empty when the document holds no text."""


def pairs_of(document: Document, clean: Callable[[str], str] = str.strip) -> list[Pair]:
    """One pair per picture, in order.

    Text that `clean` leaves empty is no text: it parts no pictures. Several runs of
    text in a row are joined by line breaks, as in `Document.text`.
    """
    pairs: list[Pair] = []
    runs = _runs(document, clean)
    for i, run in enumerate(runs):
        if isinstance(run, str):
            continue
        beside = runs[i - 1] if i else runs[1] if len(runs) > 1 else ""
        assert isinstance(beside, str)
        pairs += [Pair(len(pairs) + k, image, beside) for k, image in enumerate(run)]
    return pairs


def _runs(document: Document, clean: Callable[[str], str]) -> list[str | list[Image]]:
    """The document as texts and groups of pictures that take turns."""
    kept = (s if isinstance(s, Image) else clean(s.text) for s in document.segments)
    grouped = groupby((k for k in kept if k), key=lambda k: isinstance(k, str))
    return [_run(group) for _, group in grouped]


def _run(group: Iterable[str | Image]) -> str | list[Image]:
    items = list(group)
    texts = [item for item in items if isinstance(item, str)]
    return "\n".join(texts) if texts else [i for i in items if isinstance(i, Image)]
