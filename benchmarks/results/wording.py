"""How numbers, counts and reasons are worded in tables."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.results.board import Board
from benchmarks.results.numbers import NumberForm, estimate_of
from benchmarks.results.reasons import FAILURES
from benchmarks.results.table import TableCell
from scorers.base import Direction, Scorer

LeaderboardRow = Mapping[str, Any]
Cell = Mapping[str, Any]

# Headings by the names of `benchmarks.results.leaderboard`.
COUNTS = {
    "planned": "answers",
    "done": "done",
    "failed": "failed",
    "skipped": "skipped",
    "missing": "not made",
    "unscored": "unscored",
    "not_applicable": "n/a",
    "failed_scores": "failed scores",
    "skipped_scores": "skipped scores",
}
_ONLY_IF_ANY = ("missing", "failed_scores", "skipped_scores")
AVERAGES = {"avg_fixed": "fixed weights", "avg_micro": "per query"}


ABOUT_FAILURES = f"Every answer and judgement without a value is named in {FAILURES}."
ABOUT_CONTROLS = (
    "Answers made worse on purpose from the ground truth. A scorer can be trusted where "
    "it ranks the ground truth above them (order right: the whole interval of the "
    "difference is above 0). Blind: equal on every query, as from a scorer that ignores "
    "what the control changes."
)
"""What controls are for."""
_ABSENT = re.compile(r"(?P<problem>.+?)(?: in (?P<part>.+))? \(n=(?P<n>\d+)(?P<rule>.*)\)")
"""Why a mean has no interval, as `scorers.statistics.means` words it."""


def direction_of(scorer: Scorer) -> Direction:
    """Which values of a scorer are better."""
    return scorer.direction


def cell_text(cell: Cell, *, signed: bool = False) -> str:
    """`23.41 [21.90, 24.80] n=37`, or why there is no mean; `signed` for differences."""
    return result_cell(cell, signed=signed).full


def result_cell(cell: Cell, *, signed: bool = False) -> TableCell:
    """The mean, with the interval and n as its details."""
    if cell.get("reason") == "not applicable":
        return TableCell("n/a")
    form = NumberForm.of(cell["scale"], signed=signed)
    return TableCell.of(estimate_of(cell), form, counted=True)


def absent_intervals(cells: Iterable[tuple[str, Cell]]) -> str:
    """Which of the named means have no interval, and why; empty where all have one.

    `No interval for art and health: too few values (n=1 to 3, fewer than 5).`
    """
    names: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    sizes: dict[tuple[str, str], set[int]] = defaultdict(set)
    for name, cell in cells:
        reason = cell.get("reason", "")
        if cell["mean"] is None or cell["ci95"] or reason in ("", "not applicable"):
            continue
        parts = _ABSENT.fullmatch(reason)
        why = (parts["problem"], parts["rule"]) if parts else (reason, "")
        part = parts and parts["part"]
        names[why][f"{name} (because of {part})" if part else name] = None
        sizes[why] |= {int(parts["n"])} if parts else set()
    groups = [f"{_listed([*names[why]])}: {_why(why, sizes[why])}" for why in names]
    return f"No interval for {'; for '.join(groups)}." if groups else ""


def _listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _why(problem: tuple[str, str], sizes: set[int]) -> str:
    """`too few values (n=1 to 3, fewer than 5)`."""
    if not sizes:
        return problem[0]
    ends = " to ".join(f"{n}" for n in sorted({min(sizes), max(sizes)}))
    return f"{problem[0]} (n={ends}{problem[1]})"


def counts_shown(rows: Sequence[LeaderboardRow]) -> dict[str, str]:
    """The counts worth a column, with their headings."""
    shown = (k for k in COUNTS if k not in _ONLY_IF_ANY or any_of(rows, k))
    return {k: COUNTS[k] for k in shown}


def any_of(rows: Sequence[LeaderboardRow], count: str) -> bool:
    """Whether any row counts at least one."""
    return any(row[count] for row in rows)


def title_of(board: Board) -> str:
    """Heading of every table: which queries, and how many repeats."""
    queries = f"{board.n:,} {'query' if board.n == 1 else 'queries'}"
    repeats = f" x {board.rounds} repeats" if board.rounds > 1 else ""
    return f"{board.selection or queries}{repeats}"


def interval_methods(rows: Sequence[LeaderboardRow]) -> list[str]:
    """How the intervals of a leaderboard were computed, as its cells state."""
    cells = [cell for row in rows for s in row["scores"].values() for cell in cells_of(s)]
    return sorted({str(c["method"]) for c in cells if c["ci95"] and c.get("method")})


def cells_of(scores: LeaderboardRow) -> list[Cell]:
    """Every mean of one system by one scorer."""
    averages = [scores[name] for name in AVERAGES]
    return [*averages, *scores["categories"].values(), *scores["fields"].values()]


def _by(methods: Sequence[str]) -> str:
    return f" ({', '.join(methods)})" if methods else ""


def legend(board: Board, rows: Sequence[LeaderboardRow] = ()) -> str:
    """What the averages are, how intervals are computed, and how judges are asked."""
    weights = ", ".join(f"{name} {n:,}" for name, n in board.categories.items())
    fixed = (
        f"Fixed weights: category means weighted by {weights}, over the categories that a "
        "scorer applies to. "
        if weights
        else ""
    )
    judges = [f"{s.name}: {s.manner}." for s in board.scorers if s.manner]
    more = " ".join([*judges, *order_notes(board, rows)])
    return (
        f"Means with 95% intervals by query{_by(interval_methods(rows))}; n is the number "
        f"of scored queries. {fixed}Per query: mean over all scored queries. {more}"
    ).strip()


def headline(rows: Sequence[LeaderboardRow], scorer: str) -> str:
    """The average to show where there is room for one, the same for all rows.

    `avg_fixed` where any row has it, else `avg_micro`.
    """
    fixed = any(row["scores"][scorer]["avg_fixed"]["mean"] is not None for row in rows)
    return "avg_fixed" if fixed else "avg_micro"


def placing(
    rows: Sequence[LeaderboardRow], scorer: Scorer
) -> Callable[[LeaderboardRow], float]:
    """What orders rows by a scorer's headline: the best first, those without it last."""
    average = headline(rows, scorer.name)
    sign = -1 if direction_of(scorer) == "higher" else 1

    def place(row: LeaderboardRow) -> float:
        mean = row["scores"][scorer.name][average]["mean"]
        return math.inf if mean is None else float(sign * mean)

    return place


def order_notes(board: Board, rows: Sequence[LeaderboardRow]) -> list[str]:
    """In which order the rows of a leaderboard are."""
    if len(rows) < 2 or not board.scorers:
        return []
    first = board.scorers[0].name
    average = AVERAGES[headline(rows, first)]
    return [f"Systems are in the order of {first}, {average}: the best first."]


def matrix(
    board: Board, rows: Sequence[LeaderboardRow], scorer: str
) -> tuple[str, dict[str, dict[str, Cell]]] | None:
    """LVLM x text-to-image model: which average, and its cells by row and column.

    None where no two systems are composed.
    """
    by_name = {row["system"]: row for row in rows}
    pairs = [(s, by_name[s.name]) for s in board.systems if s.writer and s.artist]
    if len(pairs) < 2:
        return None
    average = headline([r for _, r in pairs], scorer)
    cells: dict[str, dict[str, Cell]] = {}
    for system, row in pairs:
        line = cells.setdefault(str(system.writer), {})
        line.setdefault(str(system.artist), row["scores"][scorer][average])
    return average, cells


def kind_text(reason: LeaderboardRow) -> str:
    """`failed: out of memory`."""
    parts = (str(reason["outcome"]).replace("_", " "), reason["fault"])
    return ": ".join(p for p in parts if p)


def reason_text(reason: LeaderboardRow) -> str:
    """The reason, and how many others of its shape were counted with it."""
    if not reason["outcome"]:
        return f"{reason['reason']} of {reason['kinds']:,} kinds"
    more = reason["alike"] - 1
    return f"{reason['reason']} (and {more:,} alike)" if more else str(reason["reason"])
