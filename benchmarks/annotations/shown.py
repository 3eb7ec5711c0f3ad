"""Agreement with people as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.results.table import ResultTable, TableCell, TableColumn
from scorers.statistics.coefficients import COEFFICIENTS

TITLES = {name: c.title for name, c in COEFFICIENTS.items()} | {
    "consistency": "Consistency %",
    "decided": "both decided %",
    "all": "all %",
}
Cells = Mapping[str, Mapping[str, Any]]


def tables(content: Mapping[str, Any]) -> list[ResultTable]:
    """One table per judge, and one of the people among themselves."""
    shown = [_judge(judge) for judge in content["judges"]]
    if content["people"]:
        title = "people: each with the mean of the others"
        if content["form"] == "vote":
            title = "people: every two"
        people = ((TableCell(who), cells) for who, cells in content["people"].items())
        shown.append(_table(title, "", people))
    return shown


def _judge(judge: Mapping[str, Any]) -> ResultTable:
    rows: Iterable[tuple[TableCell, Cells]]
    if "groups" in judge:
        rows = ((_group(g), g["coefficients"]) for g in judge["groups"])
    elif "mae" in judge["agreement"]:
        rows = [(TableCell("the mean of the people"), judge["agreement"])]
    else:
        rows = ((TableCell(who), cells) for who, cells in judge["agreement"].items())
    return _table(_title(judge), _caption(judge["counts"]), rows)


def _title(judge: Mapping[str, Any]) -> str:
    mapped = f", mapped from {judge['scale']}" if judge.get("rescaled") else ""
    return f"{judge['judge']}{mapped}: agreement with people"


def _group(group: Mapping[str, Any]) -> TableCell:
    names = [group["category"] or "all categories", group["kind"]]
    queries = f"{group['pairs']:,} answers to {group['queries']:,} queries"
    return TableCell(", ".join(n for n in names if n), queries)


def _caption(counts: Mapping[str, Any]) -> str:
    """Every annotated document by what became of it."""
    parts = [f"{counts['matched']:,} of {counts['annotated']:,} annotated answers"]
    for name in ("no_score", "unmatched"):
        parts += [f"{n:,} {why}" for why, n in counts[name].items()]
    parts.append(f"{counts['not_annotated']:,} more not annotated")
    examples = [" of ".join(map(str, e[:2])) for e in counts["unmatched_examples"]]
    named = f" (unmatched: {'; '.join(examples)})" if examples else ""
    return ", ".join(parts) + named


def _table(
    title: str, caption: str, rows: Iterable[tuple[TableCell, Cells]]
) -> ResultTable:
    lines = list(rows)
    names = list(lines[0][1]) if lines else []
    cells = [cell for _, by_name in lines for cell in by_name.values()]
    reasons = dict.fromkeys(c["reason"] for c in cells if "reason" in c)
    return ResultTable(
        title=title,
        columns=[TableColumn(""), *(TableColumn(TITLES[n], numeric=True) for n in names)],
        rows=[[who, *(_cell(by_name[n]) for n in names)] for who, by_name in lines],
        notes=[note for note in (caption, *(f"- {reason}" for reason in reasons)) if note],
    )


def _cell(estimate: Mapping[str, Any]) -> TableCell:
    if estimate["value"] is None:
        return TableCell("-")
    ends = estimate["ci95"]
    interval = "" if ends is None else "[{:.3f}, {:.3f}]".format(*ends)
    return TableCell(f"{estimate['value']:.3f}", interval, estimate["value"])
