"""`--data miniature[:N]`: the first N queries of the test split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.tasks.miniature.queries import queries
from benchmarks.tasks.miniature.samples import sample_of
from benchmarks.tasks.reading.images import ImageCache
from generators.document import Image, Sample
from generators.errors import UsageError
from generators.keys import digest

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


def samples(n: int, cache: Path | None = None) -> list[Sample]:
    """Return the first `n` queries; images lie under `cache`, where one is given.

    More queries begin with the same. Raises TaskError where `cache` cannot be written.
    """
    folder = ImageCache(cache / NAME) if cache else None

    def keep(image: Image) -> Image:
        return folder.add(image.read()) if folder else image

    return [sample_of(query, keep) for query in queries(n, SEED, "test")]


def digest_of(samples: Sequence[Sample]) -> str:
    """Return names the contents of samples, images by their bytes."""
    rows = [(s.id, s.category, s.field, s.turns, s.reference, s.criteria) for s in samples]
    return digest(rows)
