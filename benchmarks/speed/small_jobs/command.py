r"""A small job three ways, each timed as a whole process, and the answers compared.

    plait bench small-jobs --queries 40,400 --rounds 3 --out small-jobs.json

4 LVLMs x 4 text-to-image models with tiny weights, scored by CLIPScore: `careful.py` and
`naive.py` are scripts without an engine, `plait` is `plait run`. The ways take turns, round
by round. `--quickstart` also times `plait run --data sample`, the first run of a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.bench_program import (
    announce,
    bench_program,
    check_outs,
    exit_status,
    numbers_of,
    write_outs,
)
from benchmarks.speed.small_jobs.timing import WAYS
from generators.names import unknown

app = bench_program()


def main(arguments: Sequence[str], console: Console) -> int:
    """Measure, print, and write files where `--out` says; the exit status."""
    words = list(arguments)
    return exit_status(app, words, "plait bench small-jobs", (words, console))


@app.command()
def small_jobs(
    context: typer.Context,
    queries: Annotated[
        str, typer.Option(help="Numbers of queries, separated by commas.")
    ] = "40,400",
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of each way.")] = 3,
    way: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(WAYS)}; may be repeated. Default: all."),
    ] = None,
    quickstart: Annotated[
        bool, typer.Option(help="Also time `plait run --data sample` with tiny weights.")
    ] = True,
    out: Annotated[
        list[Path] | None, typer.Option(help="A .json or .md file; may be repeated.")
    ] = None,
) -> None:
    """A small job by scripts and by plait, side by side."""
    words, console = context.find_root().obj
    sizes, ways = numbers_of(queries, "--queries", "40,400"), _ways(way or tuple(WAYS))
    check_outs(out or ())

    from benchmarks.speed.small_jobs.report import SmallJobsReport
    from benchmarks.speed.small_jobs.timing import measured

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False)

    measurement = measured(sizes, rounds, ways, quickstart=quickstart, say=say)
    report = SmallJobsReport(measurement, ("small-jobs", *words))
    for table in report.tables:
        console.print(table.rich)
    write_outs(out or (), report.data, lambda: report.markdown)
    for place in out or ():
        announce(console, place)
    raise typer.Exit(0 if report.answers_equal else 1)


def _ways(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in WAYS:
            raise unknown("way", name, WAYS)
    return tuple(dict.fromkeys(names))
