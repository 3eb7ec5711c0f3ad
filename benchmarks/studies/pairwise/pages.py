"""A comparison written down and shown: `compare-PROTOCOL-NAME.{json,md}`, the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.results.board import MINI
from benchmarks.results.numbers import NumberForm
from benchmarks.results.reasons import kind_text, reason_text
from benchmarks.results.table import ResultTable, markdown_page
from benchmarks.studies.pairwise.judgements import (
    Judged,
    QuestionsAsked,
    anything_read,
    failures_of,
)
from benchmarks.studies.pairwise.match import ResolvedComparison
from cluster.run import RunResult
from generators.base import RANDOM, StageSpec
from generators.files import write_whole
from generators.mini.table import ABOUT
from scorers.pairwise.games import PairStanding, Standings
from scorers.statistics.estimate import Estimate

_JUDGED = "no question judged"
_IN_TERMINAL = 5
"""Reasons shown in a terminal."""
_PARTS = {"overall": "All questions", "category": "By category", "field": "By field"}
_ENDS = {
    **dict.fromkeys(("win_rate", "tie_rate", "lose_rate", "score"), (0.0, 100.0)),
    "reward": (-100.0, 100.0),
    "visual_factuality": (0.0, 10.0),
    "visual_factuality_gap": (-10.0, 10.0),
}
"""Of the values that have a scale."""


def explain_missing(table: Standings) -> Standings:
    """`table` where missing values name questions that were read in one order only."""
    return replace(table, rows=tuple(replace(r, values=_values(r)) for r in table.rows))


def _values(row: PairStanding) -> Mapping[str, Estimate]:
    values = dict(row.values)
    for name, value in values.items():
        read = "factuality_read" if name.startswith("visual_factuality") else "read"
        if value.reason == _JUDGED and row.counts.get(read):
            values[name] = replace(value, reason="no question read in both orders")
    return values


def reasons_table(
    why: Mapping[str, Sequence[Mapping[str, Any]]], failures: str
) -> ResultTable:
    """Why pairs and replies have no verdict, the most frequent reasons first.

    `failures` is the file that names every one of them.
    """
    rows = [(pair, reason) for pair, reasons in why.items() for reason in reasons]
    rows.sort(key=lambda one: -one[1]["count"])
    return ResultTable.of(
        "Reasons",
        ["pair", "count", "outcome", "reason"],
        [[p, f"{r['count']:,}", kind_text(r), reason_text(r)] for p, r in rows],
        [f"each one is named in {failures}"],
    )


def brief(table: ResultTable, place: Path) -> ResultTable:
    """The first lines, and where the others are."""
    more = len(table.rows) - _IN_TERMINAL
    notes = [f"and {more} more in {place.name}"] if more > 0 else []
    notes += table.notes
    return replace(table, rows=table.rows[:_IN_TERMINAL], notes=notes)


def tables(table: Standings) -> Iterator[ResultTable]:
    """One table per part of the table and set of values, overall ones first."""
    for part, title in _PARTS.items():
        rows = [row for row in table.rows if row.part == part]
        for names in dict.fromkeys(tuple(row.values) for row in rows):
            if names:
                yield _part(title, [r for r in rows if tuple(r.values) == names], names)


def _part(title: str, rows: Sequence[PairStanding], names: Sequence[str]) -> ResultTable:
    grouped = any(row.group for row in rows)
    counts = any(row.counts for row in rows)
    head = [*(["group"] if grouped else []), "system", "against", *names]
    return ResultTable.of(
        title,
        [*head, "replies"] if counts else head,
        [_line(row, names, grouped, counts) for row in rows],
    )


def _line(
    row: PairStanding, names: Sequence[str], grouped: bool, counts: bool
) -> list[str]:
    line = [row.group] if grouped else []
    line += [row.system or "(all)", row.opponent or "-"]
    line += [NumberForm(ends=_ENDS.get(n)).counted(row.values[n]) for n in names]
    return [*line, counts_text(row)] if counts else line


def counts_text(row: PairStanding) -> str:
    """`40 questions, 78 read, 2 unread`: what was judged, and what is missing."""
    always = ("questions", "read")
    names = [n for n in row.counts if n in always or (row.counts[n] and n in _MISSING)]
    return ", ".join(f"{row.counts[n]:,} {n.replace('_', ' ')}" for n in names)


_MISSING = (
    "unjudged",
    "unread",
    "failed",
    "skipped",
    "not_applicable",
    "one_order",
    "no_order",
    "factuality_unread",
    "factuality_failed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """The outcome of a comparison."""

    match: ResolvedComparison
    judged: Judged
    table: Standings
    run: RunResult
    asked: QuestionsAsked
    why: Mapping[str, list[dict[str, Any]]]
    """Of pairs and replies without a verdict; see `reasons_of`."""

    @property
    def name(self) -> str:
        """Names what it depends on, so that different comparisons have different files."""
        return f"compare-{self.match.protocol.name}-{self.match.name}"

    @property
    def failures(self) -> str:
        """The file that names every pair and reply without a verdict."""
        return f"{self.name}-failures.csv"


def write(comparison: ComparisonResult, root: Path) -> Path:
    """Write the comparison's files; the path of its page."""
    about, why = comparison.match.about(), comparison.why
    counts, table = dict(comparison.run.counts), comparison.table.as_json()
    content = about | {"counts": counts, "table": table, "reasons": dict(why)}
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(root / f"{comparison.name}.json", text + "\n")
    shown = [
        *tables(comparison.table),
        *([reasons_table(why, comparison.failures)] if why else []),
    ]
    write_whole(root / comparison.failures, failures_of(comparison.judged))
    place = root / f"{comparison.name}.md"
    write_whole(place, markdown_page(_title(about), _remarks(comparison), shown))
    return place


def show(comparison: ComparisonResult, place: Path, console: Console) -> None:
    """The same in the terminal, without groups and with the most frequent reasons."""
    for table in tables(comparison.table):
        if table.columns[0].heading != "group":
            console.print(table.rich)
    if comparison.why:
        console.print(brief(reasons_table(comparison.why, comparison.failures), place).rich)
    for remark in _remarks(comparison):
        console.print(remark, soft_wrap=True)
    console.print(f"{comparison.asked} in {comparison.run.seconds:.0f} s")
    if comparison.run.interrupted:
        console.print("Stopped. Run the same command again to continue.")
    console.print(f"comparison {place}", soft_wrap=True)


def _title(about: Mapping[str, Any]) -> str:
    against = f" against {about['baseline']}" if about["baseline"] else ""
    whose = "our" if about["rubric"] == "own" else "the released"
    judged = f"{about['mode']} mode, {whose} wording, judged by {about['judge']}"
    return f"Comparison by {about['protocol']}{against}, {judged}"


_OUR_WORDING = (
    "Warning: the judge was asked in this project's wording, so these numbers are not "
    "comparable with published ones; --rubric official:PATH asks in the released wording."
)


def _remarks(comparison: ComparisonResult) -> list[str]:
    remarks = [
        "Values with 95% intervals by question. Unread and failed replies are "
        "counted and do not enter any value."
    ]
    if comparison.match.protocol.mode == "official":
        remarks = ["Numbers as the released program computes them."]
        if comparison.match.options.rubric.path is None:
            remarks.append(_OUR_WORDING)
    if not anything_read(comparison.judged):
        remarks.append("Warning: no reply was read, so there are no numbers.")
    if random := _of_weights(comparison.match, RANDOM):
        remarks.append(
            f"Warning: made with random weights ({random}): the numbers mean nothing."
        )
    if mini := _of_weights(comparison.match, (MINI,)):
        remarks.append(f"Warning: weights ({mini}) {ABOUT}.")
    return remarks


def _of_weights(match: ResolvedComparison, chosen: Sequence[str]) -> str:
    """`tiny: anole, gpt; dummy: ...`: which systems, or the judge, used `chosen` kinds."""
    parts: dict[str, Sequence[StageSpec]] = {n: s.stages for n, s in match.systems.items()}
    parts[f"judge {match.series.judge}"] = [match.judge.chat]
    kinds = []
    for kind in chosen:
        named = [n for n, own in parts.items() if any(s.weights == kind for s in own)]
        kinds += [f"{kind}: {', '.join(named)}"] if named else []
    return "; ".join(kinds)
