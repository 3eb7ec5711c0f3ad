"""The leaderboard: one row per system, paired differences, and the files that hold them.

board = experiment.board(Store(root))
write_leaderboard(board, root)      # leaderboard.{json,csv,md,tex}, failures.csv
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from benchmarks.results.board import (
    DOCUMENT_OUTCOMES,
    SCORE_OUTCOMES,
    Board,
    Group,
    weights_of,
)
from benchmarks.results.leaderboard_pages import latex, markdown, terminal
from benchmarks.results.pairings.files import write_pairings
from benchmarks.results.reasons import FAILURES, failures_csv, reasons
from benchmarks.results.standings import Standing, as_released, standing
from generators.files import write_whole
from scorers.statistics.estimate import Estimate

__all__ = ["Board", "differences", "leaderboard", "terminal_table", "write_leaderboard"]

COUNTS = ("planned", *DOCUMENT_OUTCOMES, *SCORE_OUTCOMES)


@lru_cache(maxsize=2)
def leaderboard(board: Board) -> list[dict[str, Any]]:
    """One row per system: counts, and for every scorer each mean with its interval.

    Counts are of answers (queries x repeats) and judgements; the `n` of a mean is the
    number of queries that have a score, the row's `n` that of all queries. `avg_fixed`
    weights category means by the published counts, as the paper's AVG does (MMIE, Tables
    1, 3 and 4); `avg_micro` is the mean over all scored queries.
    """
    why, standings = reasons(board), _standings(board)
    rows = [_row(board, i, standings) for i in range(len(board.systems))]
    return [row | {"reasons": why[row["system"]]} for row in rows]


@lru_cache(maxsize=2)
def _standings(board: Board) -> list[Standing]:
    return [standing(board, s.name) for s in board.scorers]


def _row(board: Board, i: int, standings: list[Standing]) -> dict[str, Any]:
    system = board.systems[i]
    judged = [s.scorer for s in standings]
    counts = _counts(board, system.name, board.groups, judged, board.answers)
    return {
        "system": system.name,
        "weights": weights_of(system),
        "n": board.n,
        "repeats": board.rounds,
        **counts,
        "scores": {s.scorer: _scores(board, i, s) for s in standings},
    }


def _scores(board: Board, i: int, results: Standing) -> dict[str, Any]:
    scorer = next(s for s in board.scorers if s.name == results.scorer)
    system = board.systems[i].name

    def cell(
        means: list[Estimate], groups: Iterable[Group], planned: int | None = None
    ) -> dict[str, Any]:
        counts = _counts(board, system, groups, [results.scorer], planned)
        return {**means[i].as_json("mean"), "scale": scorer.scale, **counts}

    groups = board.groups
    printed = as_released(board, scorer, system)
    return {
        "scale": scorer.scale,
        "direction": scorer.direction,
        **({"manner": scorer.manner} if scorer.manner else {}),
        **({"as_released": printed} if printed else {}),
        "avg_fixed": cell(results.fixed, (g for g in groups if g[0] in results.weighted)),
        "avg_micro": cell(results.micro, groups, board.answers),
        "categories": {
            name: cell(means, (g for g in groups if g[0] == name))
            for name, means in results.categories.items()
        },
        "fields": {
            name: cell(means, (g for g in groups if g[1] == name))
            for name, means in results.fields.items()
        },
    }


def _counts(
    board: Board,
    system: str,
    groups: Iterable[Group],
    scorers: list[str],
    planned: int | None = None,
) -> dict[str, int]:
    """Answers of one system in `groups` by outcome, and judgements of `scorers`."""
    tally, asked = Counter[tuple[str, str]](), 0
    for group in groups:
        tally.update(board.tallies[system, *group])
        asked += board.groups[group] * board.rounds
    planned = asked if planned is None else planned
    counts = {name: tally["", name] for name in DOCUMENT_OUTCOMES}
    counts["missing"] = planned - sum(counts.values())
    judged = {name: sum(tally[s, name] for s in scorers) for name in SCORE_OUTCOMES}
    return {"planned": planned} | counts | judged


def differences(board: Board) -> list[dict[str, Any]]:
    """Mean of `a` - `b` over the queries both have a score of, per scorer and pair."""
    about = {s.name: {"scale": s.scale, "direction": s.direction} for s in board.scorers}
    return [
        {"scorer": s.scorer, "a": a, "b": b, **e.as_json("mean"), **about[s.scorer]}
        for s in _standings(board)
        for a, b, e in s.differences
    ]


def write_leaderboard(board: Board, root: Path) -> None:
    """Write leaderboard.{json,csv,md,tex}, differences.json and failures.csv.

    And pairings.{json,csv,md,tex} where systems form a matrix. Equal boards, equal bytes.
    """
    rows, pairs = leaderboard(board), differences(board)
    write_whole(root / "leaderboard.json", _as_json(rows))
    write_whole(root / "leaderboard.csv", _as_csv(rows))
    write_whole(root / "leaderboard.md", markdown(board, rows, pairs))
    write_whole(root / "leaderboard.tex", latex(board, rows))
    write_whole(root / "differences.json", _as_json(pairs))
    write_whole(root / FAILURES, failures_csv(board))
    write_pairings(board, root)


def terminal_table(board: Board) -> RenderableType:
    """The leaderboard for a terminal."""
    return terminal(board, leaderboard(board))


def _as_json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _as_csv(rows: list[dict[str, Any]]) -> str:
    """One line per system, scorer and group."""
    head = [
        "system",
        "weights",
        "scorer",
        "scale",
        "direction",
        "part",
        "group",
        "mean",
        "ci95_low",
    ]
    head += ["ci95_high", "n", *COUNTS, "method", "reason"]
    file = io.StringIO()
    writer = csv.DictWriter(file, head, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        about = {"system": row["system"], "weights": row["weights"] or ""}
        writer.writerows(about | line for line in _csv_lines(row))
    return file.getvalue()


def _csv_lines(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not row["scores"]:
        yield {"n": row["n"]} | {name: row[name] for name in COUNTS}
    for scorer, scores in row["scores"].items():
        cells = [
            ("avg_fixed", "", scores["avg_fixed"]),
            ("avg_micro", "", scores["avg_micro"]),
        ]
        cells += [("category", name, c) for name, c in scores["categories"].items()]
        cells += [("field", name, c) for name, c in scores["fields"].items()]
        for part, group, cell in cells:
            low, high = cell["ci95"] or ("", "")
            line = {k: v for k, v in cell.items() if k != "ci95" and v is not None}
            line |= {"scorer": scorer, "direction": scores["direction"]}
            line |= {"part": part, "group": group}
            yield line | {"ci95_low": low, "ci95_high": high}
