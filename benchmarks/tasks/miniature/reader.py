"""`--data miniature[:N]`: the first N queries of the test split, their images drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from plait.benchmarks.tasks.miniature.queries import MiniatureQuery, Parts, queries
from plait.benchmarks.tasks.reading.images import ImageCache
from plait.generators.document import Content, Document, Image, Query, Text, Turn
from plait.generators.errors import UsageError
from plait.generators.images import encode
from plait.generators.keys import digest
from plait.scorers.truth.drawing import draw

NAME = "miniature"
QUERIES = 40
"""How many, where the name tells no number."""
SEED = 0


def is_miniature(data: str) -> bool:
    """Whether `data` is `miniature`, or `miniature:N` and no path of that name exists."""
    named = data == NAME or data.startswith(f"{NAME}:")
    return named and (data == NAME or not Path(data).expanduser().exists())


def number_of(data: str) -> int:
    """N of `miniature:N`; UsageError where it is not a whole number of at least 1."""
    if data == NAME:
        return QUERIES
    number = data.partition(":")[2]
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise UsageError(
            f"data {data!r}: {number!r} is not a valid number of queries; give a whole "
            f"number of at least 1, such as {NAME}:{QUERIES}"
        )
    return int(number)


def read_queries(n: int, cache: Path | None = None) -> list[Query]:
    """Return the first `n` queries; images lie under `cache`, where one is given.

    More queries begin with the same. Raises TaskError where `cache` cannot be written.
    """
    folder = ImageCache(cache / NAME) if cache else None

    def keep(image: Image) -> Image:
        return folder.add(image.read()) if folder else image

    return [sample_of(query, keep) for query in queries(n, SEED, "test")]


def digest_of(queries: Sequence[Query]) -> str:
    """Return what names the contents of queries, images by their bytes."""
    rows = [(s.id, s.category, s.field, s.turns, s.reference, s.criteria) for s in queries]
    return digest(rows)


Keeper = Callable[[Image], Image]
"""Puts a drawn image where every worker can read it."""


def sample_of(query: MiniatureQuery, keep: Keeper = lambda image: image) -> Query:
    """Return the query as systems are asked it; its answer is the ground truth."""
    return Query(
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
