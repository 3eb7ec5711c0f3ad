"""How fast one stage is at several batch sizes, without Ray and without a store.

    plait bench stage --system anole --weights tiny --batches 1,4,16
    plait bench stage --system sdxl-turbo --weights dummy --batches 1,2,4,8

The stage is loaded in this process and computes the same queries of the bundled sample set
in every way: as the original program's loop does, where there is one, and at each batch
size. `dummy` weights have the full size and need no download. It needs only torch and the
stage's own library; `--scenario` needs MLPerf's LoadGen.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from benchmarks.bench_program import bench_program, exit_status, numbers_of
from benchmarks.runs.config import merged, parsed_setting
from benchmarks.speed.instruments.speeds import Scenario
from benchmarks.tasks.controls import CONTROLS
from generators.base import WeightsName

Part = Literal["draft", "condition", "render", "all"]

app = bench_program()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON where `--out` says; the exit status."""
    return exit_status(app, arguments, "plait bench stage")


@app.command()
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
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of each way.")] = 3,
    upstream: Annotated[
        bool, typer.Option(help="Also time the original program's loop.")
    ] = True,
    scenario: Annotated[
        list[Scenario] | None,
        typer.Option(help="Also let MLPerf's LoadGen run this scenario."),
    ] = None,
    min_duration: Annotated[
        float, typer.Option(min=0.1, help="Seconds that LoadGen runs at least.")
    ] = 10.0,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0.0, help="Dollars per hour of the device.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, a setting of the model.")
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            help="A .json, .csv, .md or .svg file, or a folder for all four; repeatable."
        ),
    ] = None,
) -> None:
    """How fast one stage is at several batch sizes, without Ray and without a store."""
    named = [n for n in (name, system, scorer) if n is not None]
    if len(named) != 1:
        raise typer.BadParameter("name either a --system or a --scorer", ctx=context)
    from benchmarks.speed.stage.taking import StageMeasurement

    request = StageMeasurement(
        system=name or system,
        scorer=scorer,
        part=part,
        weights=weights,
        batches=numbers_of(batches, "--batches", "1,2,4,8"),
        queries=queries,
        answers=answers,
        rounds=rounds,
        upstream=upstream,
        settings=_settings(set_ or ()),
        price_per_hour=price_per_hour,
        scenarios=tuple(dict.fromkeys(scenario or ())),
        min_duration_s=min_duration,
    )
    command = context.find_root().obj or []
    raise typer.Exit(_report(request, out or (), command))


def _report(request: Any, outs: Sequence[Path], command: Sequence[str]) -> int:
    from benchmarks.speed.reporting.formats import loadgen_rows
    from benchmarks.speed.reporting.tables import columns
    from benchmarks.speed.stage.taking import taken

    measurement = taken(request, command)
    print(f"{measurement.title} on {measurement.place}")
    print(*measurement.conditions()[1:], sep="\n")
    print(measurement.report.table(), columns(measurement.figure_rows()), sep="\n\n")
    for name, reason in measurement.absent().items():
        print(f"not measured: {name}: {reason}")
    if measurement.loadgen:
        print(f"\nMLPerf LoadGen\n{columns(loadgen_rows(measurement.loadgen))}")
    for out in outs:
        print("wrote", *measurement.write(out))
    failed = any(speed.failures for speed in measurement.report.speeds)
    return 1 if failed or any(run["failures"] for run in measurement.loadgen) else 0


def _settings(written: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for text in written:
        settings = merged(settings, parsed_setting(text))
    return settings


if __name__ == "__main__":
    sys.exit(main())
