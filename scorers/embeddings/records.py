"""How scorers ask for vectors, and read them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from plait.generators.base import Job, Outcome, Result
from plait.generators.document import Embedding

if TYPE_CHECKING:
    import numpy as np

    Vectors = np.ndarray[Any, np.dtype[np.float64]]


def values_of(
    jobs: Sequence[Job],
) -> Generator[list[Job], list[Outcome[Any]], list[Any] | Outcome[Any]]:
    """Return the values that stages give, or the first outcome that has none."""
    values = []
    for outcome in (yield [*jobs]):
        if not isinstance(outcome, Result):
            return outcome
        values.append(outcome.value)
    return values


def vectors(embeddings: Iterable[Embedding]) -> Vectors:
    """Return vectors (embeddings, width) in double precision."""
    import numpy as np

    rows = [np.frombuffer(embedding.vector, "<f4") for embedding in embeddings]
    return np.stack(rows).astype(float)


def directions(embeddings: Iterable[Embedding]) -> Vectors:
    """Return the vectors (embeddings, width), each divided by its length."""
    import numpy as np

    rows = vectors(embeddings)
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
