"""Boards of pairings made by hand, with what their documents cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from report_helpers import Judge, board, evaluation, sample, system

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.costs import DocumentCost, RecordCost
from plait.generators.base import Failure, Fault, Kind, Skip


def scores_of(lvlms: int, t2is: int, queries: int, seed: int = 0):
    """(queries, writers, artists) scores between 0 and 6 with effects of every kind."""
    rng = np.random.default_rng(seed)
    effects = np.linspace(-0.8, 0.8, lvlms)[:, None] + np.linspace(-0.3, 0.3, t2is)
    effects[0, 0] += 0.6
    query = rng.normal(0, 0.6, (queries, 1, 1))
    noise = rng.normal(0, 0.5, (queries, lvlms, t2is))
    return (3 + effects + query + noise).clip(0, 6).round(2)


def pairing_board(
    scores,
    *,
    skipped: Mapping[tuple[int, int], Sequence[int]] | None = None,
    failed: Mapping[tuple[int, int], Sequence[int]] | None = None,
    costs: bool = True,
    others: Sequence[str] = (),
    **options,
) -> Board:
    """A board of `writer-W+artist-A`; `skipped` and `failed` queries by cell."""
    queries, lvlms, t2is = scores.shape
    cells = {(w, a): f"writer-{w}+artist-{a}" for w in range(lvlms) for a in range(t2is)}
    found = []
    for q in range(queries):
        for cell, name in cells.items():
            document = None
            if q in (skipped or {}).get(cell, ()):
                document = Skip("takes one picture only")
            if q in (failed or {}).get(cell, ()):
                document = Failure("out of memory", Fault.OUT_OF_MEMORY)
            score = None if document else float(scores[q][cell])
            found.append(evaluation(name, sample(q), score, document=document))
        found += [evaluation(name, sample(q), 1.0) for name in others]
    names = [*cells.values(), *others]
    return board(
        found,
        systems=[system(n) for n in names],
        scorers=options.pop("scorers", (Judge(),)),
        costs=costs_by_hand(queries, lvlms, t2is) if costs else None,
        **options,
    )


def costs_by_hand(queries: int, lvlms: int, t2is: int) -> list[DocumentCost]:
    """A text takes 1 + w seconds on a GPU, an image 2 + 3a on two; two images each."""
    documents = []
    for q, w, a in np.ndindex(queries, lvlms, t2is):
        text = {"seconds": 1.0 + w, "gpu_seconds": 1.0 + w}
        text |= {"input_tokens": 100.0, "output_tokens": 50.0 + w}
        seconds = 2.0 + 3 * a
        image = {"seconds": seconds, "gpu_seconds": 2 * seconds, "pictures": 1.0}
        records = {
            f"p{q}-{w}-{a}-{i}": RecordCost(f"artist-{a}", Kind.RENDER, image)
            for i in range(2)
        }
        records[f"t{q}-{w}"] = RecordCost(f"writer-{w}", Kind.DRAFT, text)
        documents.append(
            DocumentCost(
                system=f"writer-{w}+artist-{a}",
                query=f"Q-{q:04d}",
                repeat=0,
                done=True,
                records=records,
                requests={Kind.DRAFT: 1, Kind.RENDER: 2},
                seeds={i: 1000 * q + i for i in range(2)},
            )
        )
    return documents


def crossed(lvlms: str, t2is: str, protocol: str = "") -> list[str]:
    """The names of all pairings of two rows of letters, row by row."""
    return [f"{w}+{a}{protocol}" for w in lvlms for a in t2is]
