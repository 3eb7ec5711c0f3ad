"""The commands that compare: scores and people, runs, pairs of answers, judges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from benchmarks.terminal import progress
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
    from benchmarks.studies.agreement import AgreementSettings, agreement_report, tables

    content = agreement_report(
        scores, human, scorers=scorers, settings=AgreementSettings(**settings)
    )
    for table in tables(content):
        console.print(table.rich)
    _write(content, out, console)
    return FINISHED


def _write(content: Mapping[str, Any], out: Path | None, console: Console) -> None:
    if out is not None:
        write_whole(out, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        console.print(f"written to {out}", soft_wrap=True)


def diff(
    first: Path,
    second: Path,
    systems: tuple[str | None, str | None],
    answers: int | None,
    out: Path | None,
    console: Console,
) -> int:
    """Show the paired differences between two runs; write them as JSON to `out`.

    Texts and images are those of at most `answers` queries.
    """
    from benchmarks.studies.diff import remarks, run_difference

    with progress(console, "comparing answers") as show:
        content, tables = run_difference(
            first, second, *systems, answers=answers, on_progress=show
        )
    for table in tables:
        console.print(table.rich)
    for line in remarks(content):
        console.print(line, soft_wrap=True)
    _write(content, out, console)
    return FINISHED


def compare(root: Path, values: Mapping[str, Any], console: Console) -> int:
    """Have pairs of a run's documents judged; `values` are fields of `CompareOptions`."""
    from benchmarks.studies import compare as pairwise

    if values["weights"] not in (None, *get_args(WeightsName)):
        raise unknown("weights", values["weights"], get_args(WeightsName))
    rubric, mode = parse_rubric(values["rubric"]).absolute, parse_mode(values["mode"])
    options = pairwise.CompareOptions(**{**values, "rubric": rubric, "mode": mode})
    return pairwise.compare(root, options, console)


def bias(root: Path, rubric: str | None, console: Console) -> int:
    """Show the bias of a run's judges."""
    from benchmarks.studies.bias import bias as show_bias

    return show_bias(root, console, rubric=parse_rubric(rubric))
