"""What the commands that compare do: scores and people, runs, pairs of answers, judges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.markup import escape

from generators.base import WeightsName
from generators.files import write_whole
from generators.names import unknown
from scorers.judging.sources import parse_mode, parse_rubric

FINISHED = 0


def agreement(
    scores: Path,
    human: Path,
    scorers: Sequence[str],
    settings: Mapping[str, Any],
    out: Path | None,
    console: Console,
) -> int:
    """Show how far scores agree with people's; write it as JSON to `out`."""
    from benchmarks.studies.agreement import AgreementSettings, agreement_report

    report = agreement_report(
        scores, human, scorers=scorers, settings=AgreementSettings(**settings)
    )
    for table in report.tables:
        console.print(table)
    if out is not None:
        write_whole(out, json.dumps(report.content, indent=2, ensure_ascii=False) + "\n")
        console.print(f"written to {escape(str(out))}", soft_wrap=True)
    return FINISHED


def diff(
    first: Path,
    second: Path,
    systems: tuple[str | None, str | None],
    out: Path | None,
    console: Console,
) -> int:
    """Show the paired differences between two runs; write them as JSON to `out`."""
    from benchmarks.studies.differences import remarks, run_difference

    difference = run_difference(first, second, *systems)
    console.print(difference.table.rich)
    for line in remarks(difference):
        console.print(escape(line), soft_wrap=True)
    if out is not None:
        write_whole(
            out, json.dumps(difference.as_json(), indent=2, ensure_ascii=False) + "\n"
        )
        console.print(f"written to {escape(str(out))}", soft_wrap=True)
    return FINISHED


def compare(root: Path, values: Mapping[str, Any], console: Console) -> int:
    """Have pairs of a run's documents judged; `values` are fields of `CompareOptions`."""
    from benchmarks.studies import pairwise

    if values["weights"] not in (None, *get_args(WeightsName)):
        raise unknown("weights", values["weights"], get_args(WeightsName))
    rubric, mode = parse_rubric(values["rubric"]).absolute, parse_mode(values["mode"])
    options = pairwise.CompareOptions(**{**values, "rubric": rubric, "mode": mode})
    return pairwise.compare(root, options, console)


def bias(root: Path, rubric: str | None, console: Console) -> int:
    """Show the bias of a run's judges."""
    from benchmarks.studies.bias import bias as show_bias

    return show_bias(root, console, rubric=parse_rubric(rubric))
