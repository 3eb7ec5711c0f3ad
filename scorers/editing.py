"""What scorers of edited images share: the original, the edit and the instruction."""

from __future__ import annotations

from typing import NamedTuple

from plait.generators.base import NotApplicable, Unscored
from plait.generators.document import Document, Image, Query, Text


class Edit(NamedTuple):
    """An image and what was made of it."""

    original: Image
    edited: Image
    instruction: str


def edit_of(query: Query, document: Document) -> Edit | Unscored:
    """Return the edit that an answer is; Unscored where it holds several images.

    The query is one that `without_original` does not refuse, the answer holds an image.
    """
    if len(document.images) != 1:
        return Unscored(f"an edit is one image; the answer holds {len(document.images)}")
    question = Document(query.question)
    (original,) = question.images
    texts = [part.text for part in query.question if isinstance(part, Text)]
    return Edit(original, document.images[0], "".join(texts))


def without_original(query: Query) -> NotApplicable | None:
    """Return why a query asks for no edit of one image; None where it does."""
    images = sum(isinstance(segment, Image) for segment in query.question)
    if images == 1:
        return None
    return NotApplicable(f"the query shows {images or 'no'} images, not one to edit")
