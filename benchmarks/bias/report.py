"""`plait bias`: what a run's judgements say of its judges."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from benchmarks.bias import matchups, scores
from benchmarks.bias.findings import Section
from benchmarks.bias.preferences import lengths, self_preference
from benchmarks.bias.scores import Scored, joined
from benchmarks.bias.verdicts import positions, repeatability, rewording
from benchmarks.results.grid import Grid, estimate_text, page
from benchmarks.runs.experiment import reopen
from cluster.store import Store
from generators.files import write_whole
from scorers.judging.rubric import OWN_WORDING, RubricSource

NAME = "bias"
_REMARK = (
    "Means with 95% bootstrap intervals by question; n is the number of questions. From "
    "the judgements that are recorded; nothing is asked."
)


def bias(root: Path, console: Console, *, rubric: RubricSource = OWN_WORDING) -> int:
    """Write `bias.{json,md}` of the run in `root` and show the tables.

    `rubric` is `official:PATH` where judgements by the released MMIE rubrics are to be
    looked for. UsageError when `root` is no run.
    """
    found = sections(root, rubric=rubric)
    content = {section.name: section.as_json() for section in found}
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(root / f"{NAME}.json", text + "\n")
    shown = [_grid(section) for section in found]
    write_whole(root / f"{NAME}.md", page("Bias of the judges", [_REMARK], shown))
    for grid in shown:
        console.print(grid.rich)
    console.print(_REMARK, soft_wrap=True)
    console.print(f"bias {escape(str(root / f'{NAME}.md'))}", soft_wrap=True)
    return 0


def sections(root: Path, *, rubric: RubricSource = OWN_WORDING) -> Sequence[Section]:
    """All tables, from comparisons and from scores of the run in `root`."""
    scored = Scored.of(reopen(root), Store(root))
    rulings = matchups.load(root)
    preferred = {j: m for j, told in rulings.items() if (m := matchups.matchups(told))}
    preferred |= scored.matchups()
    return (
        positions(rulings),
        lengths(preferred),
        self_preference(preferred),
        joined(repeatability(rulings), scores.repeated(scored)),
        joined(rewording(rulings), scores.reworded(scored, rubric)),
    )


def _grid(section: Section) -> Grid:
    return Grid(
        title=section.title,
        head=["judge", "measure", "value", "judgements"],
        lines=[
            [f.judge, f.measure, estimate_text(f.estimate), f"{f.judgements:,}"]
            for f in section.findings
        ],
        notes=[f"not available: {reason}" for reason in section.absent],
    )
