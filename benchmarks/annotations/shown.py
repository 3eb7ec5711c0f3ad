"""Agreement as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.results.tables import printable
from scorers.agreement.coefficients import COEFFICIENTS

TITLES = {name: c.title for name, c in COEFFICIENTS.items()} | {
    "consistency": "Consistency %",
    "decided": "both decided %",
    "all": "all %",
}
Cells = Mapping[str, Mapping[str, Any]]


def tables(content: Mapping[str, Any]) -> list[Table]:
    """One table per judge, and one of the people among themselves."""
    found = [_judge(judge) for judge in content["judges"]]
    if content["people"]:
        title = "people: each with the mean of the others"
        if content["form"] == "vote":
            title = "people: every two"
        found.append(_table(title, "", content["people"].items()))
    return found


def _judge(judge: Mapping[str, Any]) -> Table:
    rows: Iterator[tuple[str, Cells]]
    if "groups" in judge:
        rows = ((_group(g), g["coefficients"]) for g in judge["groups"])
    elif "mae" in judge["agreement"]:
        rows = iter([("the mean of the people", judge["agreement"])])
    else:
        rows = iter(judge["agreement"].items())
    return _table(_title(judge), _caption(judge["counts"]), rows)


def _title(judge: Mapping[str, Any]) -> str:
    mapped = f", mapped from {judge['scale']}" if judge.get("rescaled") else ""
    return f"{judge['judge']}{mapped}: agreement with people"


def _group(group: Mapping[str, Any]) -> str:
    names = [group["category"] or "all categories", group["kind"]]
    queries = f"{group['pairs']:,} answers to {group['queries']:,} queries"
    return f"{', '.join(n for n in names if n)}\n{queries}"


def _caption(counts: Mapping[str, Any]) -> str:
    """Every annotated document by what became of it."""
    parts = [f"{counts['matched']:,} of {counts['annotated']:,} annotated answers"]
    for name in ("no_score", "unmatched"):
        parts += [f"{n:,} {why}" for why, n in counts[name].items()]
    parts.append(f"{counts['not_annotated']:,} more not annotated")
    examples = [" of ".join(map(str, e[:2])) for e in counts["unmatched_examples"]]
    named = f" (unmatched: {'; '.join(examples)})" if examples else ""
    return ", ".join(parts) + named


def _table(title: str, caption: str, rows: Any) -> Table:
    found = list(rows)
    names = list(found[0][1]) if found else []
    reasons = {
        c["reason"]: None for _, cells in found for c in cells.values() if "reason" in c
    }
    caption = "\n".join(filter(None, (caption, *(f"- {reason}" for reason in reasons))))
    table = Table(
        title=Text(printable(title)),
        caption=Text(printable(caption)) if caption else None,
        title_justify="left",
        caption_justify="left",
        box=None,
        padding=(0, 1),
    )
    table.add_column("", overflow="fold")
    for name in names:
        table.add_column(TITLES[name], justify="right")
    for who, cells in found:
        table.add_row(Text(who), *(_cell(cells[name]) for name in names))
    return table


def _cell(estimate: Mapping[str, Any]) -> Text:
    if estimate["value"] is None:
        return Text("-")
    low_high = estimate["ci95"]
    interval = "" if low_high is None else "[{:.3f}, {:.3f}]".format(*low_high)
    return Text.assemble((f"{estimate['value']:.3f}", "bold"), f"\n{interval}")
