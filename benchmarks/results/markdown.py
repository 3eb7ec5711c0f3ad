"""The leaderboard as a page of Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.results.board import Board
from benchmarks.results.criteria import profiles
from benchmarks.results.markup import markdown_table, plain
from benchmarks.results.tables import (
    AVERAGES,
    CONTROLS_SAID,
    Row,
    cell_text,
    counts_shown,
    decimals,
    interval_text,
    kind_text,
    legend,
    matrix,
    reason_text,
    title_of,
)
from benchmarks.results.validity import checks
from scorers.judging.profile import CriterionMean

CHECKED = ("gt", "mean", "difference")
"""Estimates of one check of a scorer by a control."""


def markdown(board: Board, rows: Sequence[Row], pairs: Sequence[Row]) -> str:
    """The whole leaderboard as one Markdown page."""
    parts = [f"# Leaderboard: {title_of(board)}"]
    if board.warning:
        parts.append(f"> **Attention: {plain(board.warning)}**")
    parts += [legend(board)] if board.scorers else []
    for scorer in board.scorers:
        parts += _scorer_part(board, rows, scorer.name, scorer.scale)
        parts += _pairs_part([p for p in pairs if p["scorer"] == scorer.name])
    parts += _controls_part(board) + _counts_part(rows) + _reasons_part(rows)
    return "\n\n".join(parts) + "\n"


def _scorer_part(board: Board, rows: Sequence[Row], scorer: str, scale: str) -> list[str]:
    scores = [(row["system"], row["scores"][scorer]) for row in rows]
    head = ["system", *AVERAGES.values(), *board.category_names]
    lines = [
        [name, *(cell_text(s[average]) for average in AVERAGES)]
        + [cell_text(s["categories"][c]) for c in board.category_names]
        for name, s in scores
    ]
    counted = counts_shown([s["avg_micro"] for _, s in scores])
    tallies = [[str(s["avg_micro"][k]) for k in counted] for _, s in scores]
    lines = [line + tally for line, tally in zip(lines, tallies, strict=True)]
    heading = f"## {plain(scorer)} ({plain(scale)})"
    table = markdown_table([*head, *counted.values()], lines)
    fields = [
        [name, *(cell_text(s["fields"][f]) for f in board.field_names)]
        for name, s in scores
    ]
    parts = [heading, table, *_notes(scores), *_released_part(scores)]
    parts += ["### By field", markdown_table(["system", *board.field_names], fields)]
    parts += _criteria_part(board, scorer)
    return parts + _matrix_part(board, rows, scorer)


def _released_part(scores: Sequence[tuple[str, Row]]) -> list[str]:
    printed = [(name, s["as_released"]) for name, s in scores if "as_released" in s]
    if not printed:
        return []
    said = (
        "Raw scores from 0 to 6, averaged and rounded as the released scorer prints them."
    )
    lines = [
        [name, *("-" if cell is None else str(cell) for cell in found.values())]
        for name, found in printed
    ]
    head = ["system", *printed[0][1]]
    return ["### As released", said, markdown_table(head, lines)]


def _criteria_part(board: Board, scorer: str) -> list[str]:
    parts = []
    for found in profiles(board, scorer):
        lines = [
            [system, *(_share(means.get(name)) for name in found.criteria)]
            for system, means in found.systems.items()
        ]
        parts.append(f"### {plain(found.category)}, by criterion")
        parts.append(markdown_table(["system", *found.criteria], lines))
    return parts


def _share(mean: CriterionMean | None) -> str:
    """How often a criterion is met, in percent."""
    return "-" if mean is None else f"{100 * mean.mean:.0f}% n={mean.n}"


def _notes(scores: Iterable[tuple[str, Row]]) -> list[str]:
    """Why averages are missing, one line per system and average."""
    lines = [
        f"- {plain(system)}, {said}: {plain(s[average]['reason'])}"
        for system, s in scores
        for average, said in AVERAGES.items()
        if "reason" in s[average]
    ]
    return ["\n".join(lines)] if lines else []


def _matrix_part(board: Board, rows: Sequence[Row], scorer: str) -> list[str]:
    found = matrix(board, rows, scorer)
    if found is None:
        return []
    average, cells = found
    artists = list(dict.fromkeys(a for line in cells.values() for a in line))
    lines = [
        [writer, *(cell_text(line[a]) if a in line else "" for a in artists)]
        for writer, line in cells.items()
    ]
    return [
        f"### LVLM x text-to-image model ({AVERAGES[average]})",
        markdown_table(["", *artists], lines),
    ]


def _pairs_part(pairs: Sequence[Row]) -> list[str]:
    if not pairs:
        return []
    head = ["a", "b", "a - b", "95% interval", "n"]
    lines = [
        [p["a"], p["b"], _signed(p), interval_text(p) or p.get("reason", ""), str(p["n"])]
        for p in pairs
    ]
    said = "Mean over the queries that have a score of both systems."
    return ["### Paired differences", said, markdown_table(head, lines)]


def _signed(pair: Row) -> str:
    return "-" if pair["mean"] is None else f"{pair['mean']:+.{decimals(pair['scale'])}f}"


def _controls_part(board: Board) -> list[str]:
    found = [check.as_json() for check in checks(board)]
    if not found:
        return []
    head = ["scorer", "control", "ground truth", "control's mean", "difference", "order"]
    lines = [
        [c["scorer"], c["control"], *(cell_text(c[k]) for k in CHECKED), c["order"]]
        for c in found
    ]
    return ["## Controls", CONTROLS_SAID, markdown_table(head, lines)]


def _counts_part(rows: Sequence[Row]) -> list[str]:
    counted = counts_shown(rows)
    lines = [
        [r["system"], r["weights"] or "none", str(r["n"]), *(str(r[k]) for k in counted)]
        for r in rows
    ]
    head = ["system", "weights", "queries", *counted.values()]
    return ["## Outcomes", markdown_table(head, lines)]


def _reasons_part(rows: Sequence[Row]) -> list[str]:
    lines = [
        [row["system"], str(r["count"]), kind_text(r), reason_text(r)]
        for row in rows
        for r in row["reasons"]
    ]
    if not lines:
        return []
    return ["## Reasons", markdown_table(["system", "count", "outcome", "reason"], lines)]
