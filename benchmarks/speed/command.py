"""Measure one stage at several batch sizes, without Ray and without a store.

    plait bench stage --system anole --weights tiny --batches 1,4,16
    plait bench stage --system sdxl-turbo --weights dummy --batches 1,2,4,8

The stage is loaded in this process and computes the same queries of the bundled sample set
as the original program's loop does, where there is one, and at each batch size. `dummy`
weights have the full size and need no download. Ray need not be installed; `--scenario`
needs MLPerf's LoadGen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from plait.benchmarks.bench_program import announce, bench_program, exit_status, numbers_of
from plait.benchmarks.refused_choices import ChoosingCommand
from plait.benchmarks.runs.config import merge, parse_setting
from plait.benchmarks.speed.loadgen import Scenario
from plait.benchmarks.tasks.controls import CONTROLS
from plait.benchmarks.terminal import console
from plait.generators.base import WeightsName
from plait.generators.extras import require_extra

Part = Literal["draft", "condition", "render"]

app = bench_program()


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and write files where `--out` says; return the exit status."""
    return exit_status(app, arguments, "plait bench stage")


@app.command(cls=ChoosingCommand)
def stage(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="As --system.", show_default=False)
    ] = None,
    system: Annotated[
        str | None, typer.Option(help="A system, an LVLM or a text-to-image model.")
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(help="A scorer, such as judge:mmie-score.")
    ] = None,
    part: Annotated[Part, typer.Option(help="Which stage of the system.")] = "draft",
    weights: Annotated[WeightsName, typer.Option(help="Weights of the model.")] = "dummy",
    batches: Annotated[
        str, typer.Option(help="Batch sizes, separated by commas.")
    ] = "1,2,4,8",
    queries: Annotated[int, typer.Option(min=1, help="Queries of the sample set.")] = 16,
    answers: Annotated[
        int,
        typer.Option(
            min=1,
            max=1 + len(CONTROLS),
            help="Answers per query, for a scorer: the ground truth, then controls.",
        ),
    ] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of each variant.")] = 3,
    upstream: Annotated[
        bool, typer.Option(help="Also time the original program's loop.")
    ] = True,
    eager: Annotated[
        bool, typer.Option(help="Also time each batch size without CUDA graphs.")
    ] = False,
    scenario: Annotated[
        list[Scenario] | None,
        typer.Option(help="Also let MLPerf's LoadGen run this scenario."),
    ] = None,
    min_duration: Annotated[
        float, typer.Option(min=0.1, help="Seconds that LoadGen runs at least.")
    ] = 10.0,
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Profile one call of the largest batch: a trace for Perfetto, written "
            "here, and a table of where the time goes."
        ),
    ] = None,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0.0, help="Dollars per hour of the device.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, a setting of the model.")
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="A .json or .md file, or a folder for both; repeatable."),
    ] = None,
) -> None:
    """Measure one stage at several batch sizes, without Ray and without a store."""
    if [name, system, scorer].count(None) != 2:
        raise typer.BadParameter("name either a --system or a --scorer", ctx=context)
    require_extra("models", "plait bench stage")
    from plait.benchmarks.speed.measurement import StageRequest, take_measurement

    request = StageRequest(
        system=name or system,
        scorer=scorer,
        part=part,
        weights=weights,
        batches=numbers_of(batches, "--batches", "1,2,4,8"),
        queries=queries,
        answers=answers,
        rounds=rounds,
        upstream=upstream,
        eager=eager,
        settings=reduce(merge, map(parse_setting, set_ or ()), {}),
        price_per_hour=price_per_hour,
        scenarios=tuple(dict.fromkeys(scenario or ())),
        min_duration_s=min_duration,
        profile=profile,
    )
    command = context.find_root().obj or []
    raise typer.Exit(_report(take_measurement(request, command), out or ()))


def _report(measurement: Any, outs: Sequence[Path]) -> int:
    out = console()
    for line in measurement.conditions[1:]:
        out.print(line, soft_wrap=True)
    for table in measurement.tables:
        out.print(table.rich)
    for place in outs:
        for written in measurement.write(place):
            announce(out, written)
    failed = any(speed.failures for speed in measurement.speeds)
    failed_in_loadgen = any(run["failures"] for run in measurement.loadgen)
    return 1 if failed or failed_in_loadgen else 0
