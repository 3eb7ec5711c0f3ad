"""`plait bias`: the bias of a run's judges, from their judgements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.results.numbers import NumberForm
from benchmarks.results.table import ResultTable, markdown_page
from benchmarks.runs.experiment import reopen
from benchmarks.studies.bias import observations, scores
from benchmarks.studies.bias.observations import Section
from benchmarks.studies.bias.scores import Scored
from benchmarks.studies.bias.verdicts import (
    lengths,
    positions,
    repeatability,
    rewording,
    self_preference,
)
from cluster.store import Store
from generators.files import write_whole
from scorers.judging.sources import OWN_WORDING, RubricSource

NAME = "bias"
_REMARK = (
    "Means with 95% intervals by question; n is the number of questions. From "
    "recorded judgements only; no judge is asked."
)


def bias(root: Path, console: Console, *, rubric: RubricSource = OWN_WORDING) -> int:
    """Write `bias.{json,md}` of the run in `root` and show the tables.

    `rubric` is `official:PATH` to include judgements by the released MMIE rubrics.
    UsageError when `root` is not a run.
    """
    tables = sections(root, rubric=rubric)
    content = {section.name: section.as_json() for section in tables}
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(root / f"{NAME}.json", text + "\n")
    shown = [_table(section) for section in tables]
    write_whole(root / f"{NAME}.md", markdown_page("Bias of the judges", [_REMARK], shown))
    for table in shown:
        console.print(table.rich)
    console.print(_REMARK, soft_wrap=True)
    console.print(f"bias {root / f'{NAME}.md'}", soft_wrap=True)
    return 0


def sections(root: Path, *, rubric: RubricSource = OWN_WORDING) -> Sequence[Section]:
    """All tables, from comparisons and from scores of the run in `root`."""
    scored = Scored.of(reopen(root), Store(root, strict=True))
    rulings = observations.load(root)
    preferred = {
        j: m for j, lines in rulings.items() if (m := observations.preferences_of(lines))
    }
    preferred |= scored.preferences()
    return (
        positions(rulings),
        lengths(preferred),
        self_preference(preferred),
        repeatability(rulings, scores.repeated(scored)),
        rewording(rulings, scores.reworded(scored, rubric)),
    )


def _table(section: Section) -> ResultTable:
    form = NumberForm.of_measure
    return ResultTable.of(
        section.title,
        ["judge", "measure", "value", "judgements"],
        [
            [f.judge, f.measure, form(f.measure).counted(f.estimate), f"{f.judgements:,}"]
            for f in section.findings
        ],
        notes=[f"not available: {reason}" for reason in section.absent],
    )
