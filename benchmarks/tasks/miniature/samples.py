"""Samples of the miniature world: queries with their images drawn."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.tasks.miniature.queries import MiniatureQuery, Parts
from generators.document import Content, Document, Image, Sample, Text, Turn
from generators.pictures import encode
from scorers.truth.drawing import draw

Keeper = Callable[[Image], Image]
"""Puts a drawn image where every worker can read it."""


def sample_of(query: MiniatureQuery, keep: Keeper = lambda image: image) -> Sample:
    """Return the query as systems are asked it; its answer is the ground truth."""
    return Sample(
        id=query.id,
        category=query.category,
        field=query.field,
        turns=(Turn("user", content_of(query.question, keep)),),
        reference=Document(content_of(query.answer, keep)),
        criteria=query.criteria,
        wants_images=query.wants_images,
    )


def content_of(parts: Parts, keep: Keeper = lambda image: image) -> Content:
    """Texts, and images of 64 x 64 pixels as PNG."""
    return tuple(
        Text(part) if isinstance(part, str) else keep(encode(draw(part.scene, part.seed)))
        for part in parts
    )
