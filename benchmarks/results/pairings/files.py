"""pairings.{json,md,csv,tex} of a run whose systems form a matrix."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.results.board import Board
from benchmarks.results.pairings.comparison import (
    CellDifference,
    PairingCosts,
    Pairings,
    PairingScores,
    pairings_of,
)
from benchmarks.results.pairings.tables import cost_measure, tables_of
from benchmarks.results.table import csv_text, latex_page, markdown_page
from benchmarks.results.wording import title_of
from generators.files import write_whole
from scorers.statistics.estimate import Estimate

FILES = tuple(f"pairings.{form}" for form in ("json", "md", "csv", "tex"))


def write_pairings(board: Board, root: Path) -> list[Pairings]:
    """Write the files where there is a matrix; what they hold. Equal in, equal bytes."""
    pairings = pairings_of(board)
    if pairings:
        content = {
            "weights": board.weights,
            "warning": board.warning,
            "matrices": [as_json(p) for p in pairings],
        }
        plain = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        write_whole(root / "pairings.json", plain + "\n")
        write_whole(root / "pairings.md", _markdown(board, pairings))
        write_whole(root / "pairings.csv", _csv(board, pairings))
        write_whole(root / "pairings.tex", _latex(board, pairings))
    return pairings


def as_json(pairings: Pairings) -> dict[str, Any]:
    """One matrix as plain data; estimates as in leaderboard.json."""
    matrix = pairings.matrix
    return {
        "protocol": matrix.protocol,
        "lvlms": list(matrix.writers),
        "t2is": list(matrix.artists),
        "systems": [[s.name for s in row] for row in matrix.systems],
        "left_aside": list(matrix.left_aside),
        "queries": pairings.queries,
        "scores": {s.scorer: _scores(pairings, s) for s in pairings.scores},
        "cost": None if pairings.costs is None else _costs(pairings.costs),
    }


def _scores(pairings: Pairings, scores: PairingScores) -> dict[str, Any]:
    model, measure = scores.model, cost_measure(pairings)
    frontier = pairings.frontier(scores, measure) if measure else []
    return {
        "scale": scores.scale,
        "direction": scores.direction,
        "shared_queries": model.n,
        "left_out": dict(scores.left_out),
        "mean": _plain(model.mean),
        "cells": [[_plain(e) for e in row] for row in model.cells],
        "lvlm_effects": [_plain(e) for e in model.writers],
        "t2i_effects": [_plain(e) for e in model.artists],
        "interaction": [[_plain(e) for e in row] for row in model.interaction],
        "variance_shares": None if model.shares is None else asdict(model.shares),
        "differences": [_difference(d) for d in scores.differences],
        "frontier": {"against": measure, "systems": frontier},
    }


def _plain(estimate: Estimate) -> dict[str, Any]:
    return estimate.as_json("mean")


def _difference(difference: CellDifference) -> dict[str, Any]:
    return {
        "a": difference.a,
        "b": difference.b,
        **_plain(difference.estimate),
        "sd": difference.sd,
        "detectable": difference.detectable,
        "queries_needed": difference.needed,
    }


def _costs(costs: PairingCosts) -> dict[str, Any]:
    return {
        "queries": costs.queries,
        "per_document": {
            name: {measure: _plain(e) for measure, e in own.items()}
            for name, own in costs.cells.items()
        },
        "sharing": asdict(costs.sharing),
    }


def _markdown(board: Board, pairings: Sequence[Pairings]) -> str:
    remarks = [f"Warning: {board.warning}." if board.warning else ""]
    remarks += [p.matrix.shape + f", protocol {p.matrix.protocol}" for p in pairings]
    tables = [table for p in pairings for table in tables_of(p)]
    return markdown_page(f"Pairings: {title_of(board)}", remarks, tables)


def _latex(board: Board, pairings: Sequence[Pairings]) -> str:
    tables = (table for p in pairings for table in tables_of(p))
    warning = board.warning, board.brief_warning
    return latex_page(f"Pairings: {title_of(board)}", tables, *warning)


_HEAD = ("protocol", "scorer", "part", "lvlm", "t2i", "mean", "ci95_low", "ci95_high", "n")


def _csv(board: Board, pairings: Sequence[Pairings]) -> str:
    """One line per estimate: cells, effects, interactions, and costs by measure."""
    mark = board.mark.values()
    rows = ([p.matrix.protocol, *line, *mark] for p in pairings for line in _lines(p))
    return csv_text([*_HEAD, *board.mark], rows)


def _lines(pairings: Pairings) -> Iterator[list[Any]]:
    writers, artists = pairings.matrix.writers, pairings.matrix.artists
    for s in pairings.scores:
        yield [s.scorer, "mean", "", "", *_ends(s.model.mean)]
        for w, writer in enumerate(writers):
            yield [s.scorer, "lvlm effect", writer, "", *_ends(s.model.writers[w])]
        for a, artist in enumerate(artists):
            yield [s.scorer, "t2i effect", "", artist, *_ends(s.model.artists[a])]
        for part, rows in (("cell", s.model.cells), ("interaction", s.model.interaction)):
            for writer, row in zip(writers, rows, strict=True):
                for artist, estimate in zip(artists, row, strict=True):
                    yield [s.scorer, part, writer, artist, *_ends(estimate)]
    for writer, systems in zip(writers, pairings.matrix.systems, strict=True):
        for artist, system in zip(artists, systems, strict=True):
            own = {} if pairings.costs is None else pairings.costs.cells[system.name]
            for measure, estimate in own.items():
                yield ["", f"cost: {measure}", writer, artist, *_ends(estimate)]


def _ends(estimate: Estimate) -> list[Any]:
    plain = _plain(estimate)
    low, high = plain["ci95"] or ("", "")
    mean = "" if plain["mean"] is None else plain["mean"]
    return [mean, low, high, plain["n"]]
