"""The tables of a leaderboard as values; `leaderboard_pages` lays them out.

`rows` are those of `benchmarks.results.leaderboard.leaderboard`, `pairs` its differences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.results.board import PENALTY, RAW, Board
from benchmarks.results.numbers import NumberForm
from benchmarks.results.table import ResultTable, TableCell, TableColumn
from benchmarks.results.validity import checks
from benchmarks.results.wording import (
    AVERAGES,
    COUNTS,
    LeaderboardRow,
    cell_text,
    counts_shown,
    direction_of,
    headline,
    kind_text,
    matrix,
    order_notes,
    placing,
    reason_text,
    result_cell,
    title_of,
)
from scorers.base import Scorer
from scorers.judging.judge import CriterionMean


def headline_table(board: Board, rows: Sequence[LeaderboardRow]) -> ResultTable:
    """One average per scorer, and the outcomes: what fits into a terminal."""
    shown = {s.name: headline(rows, s.name) for s in board.scorers}
    columns = [TableColumn("system", numeric=False)]
    for scorer in board.scorers:
        heading = f"{scorer.name} ({scorer.scale}), {AVERAGES[shown[scorer.name]]}"
        columns.append(TableColumn(heading, direction_of(scorer), numeric=True))
    columns.append(TableColumn("answers and judgements", numeric=False))
    lines = [
        [
            TableCell(row["system"]),
            *(result_cell(row["scores"][s][average]) for s, average in shown.items()),
            TableCell(_outcomes(row)),
        ]
        for row in rows
    ]
    notes = order_notes(board, rows)
    return ResultTable(title=title_of(board), columns=columns, rows=lines, notes=notes)


def _outcomes(row: LeaderboardRow) -> str:
    others = [k for k in COUNTS if k not in ("planned", "done")]
    counted = [f"{row[k]:,} {COUNTS[k]}" for k in others if row[k] or k == "failed"]
    return ", ".join([f"{row['done']:,} of {row['planned']:,} done", *counted])


def scorer_table(
    board: Board, rows: Sequence[LeaderboardRow], scorer: Scorer
) -> ResultTable:
    """Both averages and every category of one scorer, with counts."""
    scores = [(row["system"], row["scores"][scorer.name]) for row in rows]
    counted = counts_shown([s["avg_micro"] for _, s in scores])
    better = direction_of(scorer)
    columns = [TableColumn("system")]
    for name in (*AVERAGES.values(), *board.category_names):
        columns.append(TableColumn(name, better, numeric=True))
    columns += [TableColumn(name) for name in counted.values()]
    lines = [
        [
            TableCell(name),
            *(result_cell(s[average]) for average in AVERAGES),
            *(result_cell(s["categories"][c]) for c in board.category_names),
            *(TableCell(str(s["avg_micro"][k])) for k in counted),
        ]
        for name, s in scores
    ]
    return ResultTable(
        title=f"{scorer.name} ({scorer.scale}, {better} is better)",
        columns=columns,
        rows=lines,
        notes=_missing_averages(scores),
    )


def _missing_averages(scores: Sequence[tuple[str, LeaderboardRow]]) -> list[str]:
    """Why an average or its interval is missing, one line per system and average."""
    return [
        f"{system}, {average}: {s[name]['reason']}"
        for system, s in scores
        for name, average in AVERAGES.items()
        if "reason" in s[name]
    ]


def ranked_table(
    board: Board, rows: Sequence[LeaderboardRow], scorer: Scorer
) -> ResultTable:
    """Every category, then the average; the best system first: a paper's main table.

    Systems without an average come last and have no rank; equal systems share a rank.
    """
    average, better = headline(rows, scorer.name), direction_of(scorer)
    place = placing(rows, scorer)
    columns = [TableColumn("#", numeric=True), TableColumn("system", numeric=False)]
    for name in (*board.category_names, AVERAGES[average]):
        columns.append(TableColumn(name, better, numeric=True))
    places = [place(row) for row in rows]
    lines = []
    for row in sorted(rows, key=place):
        scores, own = row["scores"][scorer.name], place(row)
        rank = "" if own == math.inf else str(1 + sum(p < own for p in places))
        cells = [result_cell(scores["categories"][c]) for c in board.category_names]
        cells = [TableCell(rank), TableCell(row["system"]), *cells]
        lines.append([*cells, result_cell(scores[average])])
    title = f"{scorer.name} ({scorer.scale}, {better} is better), {title_of(board)}"
    return ResultTable(title=title, columns=columns, rows=lines)


def released_table(rows: Sequence[LeaderboardRow], scorer: str) -> ResultTable | None:
    """Raw scores as the released scorer prints them; None where none is printed."""
    printed = [
        (row["system"], row["scores"][scorer]["as_released"])
        for row in rows
        if "as_released" in row["scores"][scorer]
    ]
    if not printed:
        return None
    lines = [
        [name, *("-" if cell is None else str(cell) for cell in cells.values())]
        for name, cells in printed
    ]
    return ResultTable.of("As released", ["system", *printed[0][1]], lines)


def field_table(
    board: Board, rows: Sequence[LeaderboardRow], scorer: Scorer
) -> ResultTable:
    """The mean of every field."""
    better = direction_of(scorer)
    columns = [TableColumn(f, better, numeric=True) for f in board.field_names]
    means = [(row["system"], row["scores"][scorer.name]["fields"]) for row in rows]
    lines = [
        [TableCell(name), *(result_cell(by_field[f]) for f in board.field_names)]
        for name, by_field in means
    ]
    return ResultTable(
        title="By field", columns=[TableColumn("system"), *columns], rows=lines
    )


@dataclass(frozen=True, slots=True)
class Profile:
    """One judge's verdicts on one category."""

    category: str
    criteria: tuple[str, ...]
    systems: Mapping[str, Mapping[str, CriterionMean]]
    """By system, by criterion; a criterion without any verdict read is left out."""


def profiles(board: Board, scorer: str) -> list[Profile]:
    """By category; empty where the scorer gives no verdicts on criteria."""
    where = board.rulings(scorer) & ~board.column["criterion"].is_(RAW)
    verdicts: dict[str, dict[str, dict[str, list[float]]]] = {}
    columns = ("category", "system", "criterion", "value")
    for category, system, criterion, verdict in board.rows(where, *columns):
        systems = verdicts.setdefault(category, {})
        systems.setdefault(system, {}).setdefault(criterion, []).append(verdict)
    return [_profile(category, systems) for category, systems in verdicts.items()]


def _profile(
    category: str, verdicts: Mapping[str, Mapping[str, Sequence[float]]]
) -> Profile:
    systems = {
        name: {c: CriterionMean(sum(own[c]) / len(own[c]), len(own[c])) for c in own}
        for name, own in verdicts.items()
    }
    criteria = dict.fromkeys(c for own in verdicts.values() for c in own)
    # The penalty is not a criterion and comes last.
    return Profile(category, tuple(sorted(criteria, key=PENALTY.__eq__)), systems)


def criteria_tables(board: Board, scorer: str) -> Iterator[ResultTable]:
    """How often each criterion is met, one table per category."""
    for profile in profiles(board, scorer):
        lines = [
            [system, *(_share(means.get(name)) for name in profile.criteria)]
            for system, means in profile.systems.items()
        ]
        title = f"{profile.category}, by criterion"
        yield ResultTable.of(title, ["system", *profile.criteria], lines)


def _share(mean: CriterionMean | None) -> str:
    """How often a criterion is met, in percent."""
    return "-" if mean is None else f"{100 * mean.mean:.0f}% n={mean.n}"


def matrix_table(
    board: Board, rows: Sequence[LeaderboardRow], scorer: str
) -> ResultTable | None:
    """LVLM by text-to-image model; None where fewer than two systems are composed."""
    composed = matrix(board, rows, scorer)
    if composed is None:
        return None
    average, cells = composed
    artists = list(dict.fromkeys(a for line in cells.values() for a in line))
    lines = [
        [writer, *(cell_text(line[a]) if a in line else "" for a in artists)]
        for writer, line in cells.items()
    ]
    title = f"LVLM x text-to-image model ({AVERAGES[average]})"
    return ResultTable.of(title, ["", *artists], lines)


def pairs_table(pairs: Sequence[LeaderboardRow]) -> ResultTable:
    """Paired differences of one scorer."""
    lines = []
    for p in pairs:
        form = NumberForm.of(p["scale"], signed=True)
        ends = form.interval(p["ci95"]) or p.get("reason", "")
        lines.append([p["a"], p["b"], form.number(p["mean"]), ends, str(p["n"])])
    head = ["a", "b", "a - b", "95% interval", "n"]
    return ResultTable.of("Paired differences", head, lines)


def controls_table(board: Board) -> ResultTable | None:
    """Every scorer against every control; None where there is no control."""
    results = [check.as_json() for check in checks(board)]
    if not results:
        return None
    head = ["scorer", "control", "ground truth", "control's mean", "difference", "order"]
    lines = [
        [
            *(c["scorer"], c["control"], cell_text(c["gt"]), cell_text(c["mean"])),
            *(cell_text(c["difference"], signed=True), c["order"]),
        ]
        for c in results
    ]
    return ResultTable.of("Controls", head, lines)


def counts_table(rows: Sequence[LeaderboardRow]) -> ResultTable:
    """Every system's answers by outcome."""
    counted = counts_shown(rows)
    lines = [
        [r["system"], r["weights"] or "none", str(r["n"]), *(str(r[k]) for k in counted)]
        for r in rows
    ]
    head = ["system", "weights", "queries", *counted.values()]
    return ResultTable.of("Outcomes", head, lines)


def reasons_table(rows: Sequence[LeaderboardRow]) -> ResultTable | None:
    """The most frequent reasons of every system; None where nothing failed."""
    lines = [
        [row["system"], str(r["count"]), kind_text(r), reason_text(r)]
        for row in rows
        for r in row["reasons"]
    ]
    if not lines:
        return None
    return ResultTable.of("Reasons", ["system", "count", "outcome", "reason"], lines)
