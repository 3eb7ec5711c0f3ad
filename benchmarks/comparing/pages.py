"""A comparison written down and shown: `compare-PROTOCOL-NAME.{json,md}`, the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from benchmarks.comparing.match import Match
from benchmarks.comparing.replies import Asked, Judged, anything_read
from benchmarks.comparing.shown import brief, grids, reasons_grid
from benchmarks.results.board import RANDOM
from benchmarks.results.grid import page
from cluster.run import RunResult
from generators.base import StageSpec
from generators.files import write_whole
from scorers.pairwise.table import Standings


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a comparison came to."""

    match: Match
    judged: Judged
    table: Standings
    result: RunResult
    asked: Asked
    why: Mapping[str, list[dict[str, Any]]]
    """Of pairs and replies without a verdict; see `reasons_of`."""

    @property
    def name(self) -> str:
        """Holds what it depends on, so that different ones stand side by side."""
        return f"compare-{self.match.protocol.name}-{self.match.name}"


def write(found: Found, root: Path) -> Path:
    """Write the comparison's files; the path of its page."""
    about, why = found.match.about(), found.why
    counts, table = dict(found.result.counts), found.table.as_json()
    content = about | {"counts": counts, "table": table, "reasons": dict(why)}
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(root / f"{found.name}.json", text + "\n")
    shown = [*grids(found.table), *([reasons_grid(why)] if why else [])]
    place = root / f"{found.name}.md"
    write_whole(place, page(_title(about), _remarks(found), shown))
    return place


def show(found: Found, place: Path, console: Console) -> None:
    """The same in the terminal, without groups and with the most frequent reasons."""
    for grid in (g for g in grids(found.table) if g.head[0] != "group"):
        console.print(grid.rich)
    if found.why:
        console.print(brief(reasons_grid(found.why), place).rich)
    for remark in _remarks(found):
        console.print(escape(remark), soft_wrap=True)
    console.print(f"{found.asked} in {found.result.seconds:.0f} s")
    if found.result.interrupted:
        console.print("Stopped. Issue the same command again to go on from here.")
    console.print(f"comparison {escape(str(place))}", soft_wrap=True)


def _title(about: Mapping[str, Any]) -> str:
    against = f" against {about['baseline']}" if about["baseline"] else ""
    whose = "our" if about["rubric"] == "own" else "the released"
    judged = f"{about['mode']} mode, {whose} wording, judged by {about['judge']}"
    return f"Comparison by {about['protocol']}{against}, {judged}"


_OUR_WORDING = (
    "Attention: the judge was asked in this project's wording, so these numbers are not "
    "comparable with published ones; --rubric official:PATH asks in the released wording."
)


def _remarks(found: Found) -> list[str]:
    remarks = [
        "Values with 95% bootstrap intervals by question. Unread and failed replies are "
        "counted and enter no value."
    ]
    if found.match.protocol.mode == "official":
        remarks = ["Numbers as the released program computes them."]
        if found.match.wanted.rubric.path is None:
            remarks.append(_OUR_WORDING)
    if not anything_read(found.judged):
        remarks.append("Attention: no reply was read, so there are no numbers.")
    if random := _random_weights(found.match):
        remarks.append(
            f"Attention: made with random weights ({random}): numbers mean nothing."
        )
    return remarks


def _random_weights(match: Match) -> str:
    """`tiny: anole, gpt; dummy: ...`: which systems, or the judge, ran on them."""
    parts: dict[str, Sequence[StageSpec]] = {n: s.stages for n, s in match.systems.items()}
    parts[f"judge {match.series.judge}"] = [match.judge.chat]
    told = []
    for kind in RANDOM:
        made = [n for n, own in parts.items() if any(s.weights == kind for s in own)]
        told += [f"{kind}: {', '.join(made)}"] if made else []
    return "; ".join(told)
