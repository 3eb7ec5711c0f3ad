"""How fast one stage is at several batch sizes, without Ray and without a store.

    plait bench stage --system anole --weights tiny --batches 1,4,16
    python -m benchmarks.speed.stage --system sdxl-turbo --weights dummy --batches 1,2,4,8

The stage is loaded in this process and computes the same queries of the bundled sample set
in every way: as the original program's loop does, where there is one, and at each batch
size. `dummy` weights have the full size and need no download. It needs only torch and the
stage's own library.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from benchmarks.runs.config import merged, parsed_setting
from benchmarks.speed.workload import Workload, of_scorer, of_system, whole
from benchmarks.tasks.controls import CONTROLS
from cluster.manifest import environment
from generators.base import StageSpec, Weights
from generators.errors import UsageError
from generators.files import write_whole
from pipelines.systems import Models

WHOLE = "all"
"""The part that is every part."""
Part = Literal["draft", "condition", "render", "all"]

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)


@dataclass(frozen=True, kw_only=True)
class StageMeasurement:
    """What to measure, as the options name it."""

    system: str | None
    scorer: str | None
    part: Part
    weights: Weights
    batches: tuple[int, ...]
    queries: int
    answers: int
    upstream: bool
    settings: dict[str, Any]

    @property
    def models(self) -> Models:
        """The settings are those of the system's model."""
        overrides = {} if self.system is None else {self.system: self.settings}
        return Models(weights=self.weights, overrides=overrides)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON where `--out` says; the exit status."""
    return exit_status(app, arguments, "plait bench stage")


def exit_status(
    program: typer.Typer, arguments: Sequence[str] | None, name: str, about: Any = None
) -> int:
    """Run `program` as the command `name`; 0 unless something failed.

    Its context's object is `about`, by default the arguments.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        program(args=words, prog_name=name, obj=words if about is None else about)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@app.command()
def stage(
    context: typer.Context,
    system: Annotated[
        str | None, typer.Option(help="A system, an LVLM or a text-to-image model.")
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(help="A scorer, such as judge:mmie-score.")
    ] = None,
    part: Annotated[Part, typer.Option(help="Which stage of the system.")] = "draft",
    weights: Annotated[Weights, typer.Option(help="Weights of the model.")] = "dummy",
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
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, a setting of the model.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write the figures to, as JSON.")
    ] = None,
) -> None:
    """How fast one stage is at several batch sizes, without Ray and without a store."""
    if (system is None) == (scorer is None):
        raise typer.BadParameter("name either a --system or a --scorer", ctx=context)
    request = StageMeasurement(
        system=system,
        scorer=scorer,
        part=part,
        weights=weights,
        batches=_sizes(batches),
        queries=queries,
        answers=answers,
        upstream=upstream,
        settings=_settings(set_ or ()),
    )
    command = context.find_root().obj or []
    raise typer.Exit(_report(request, rounds, out, command))


def _report(
    request: StageMeasurement, rounds: int, out: Path | None, command: Sequence[str]
) -> int:
    from benchmarks.speed.device import copy_bandwidth, device_name
    from benchmarks.speed.measure import measure
    from benchmarks.speed.output import Report

    title, settings, ways, inputs, spec = _measured(request)
    report = Report(measure(ways, inputs, rounds), copy_bandwidth())
    print(f"{title} on {device_name()}")
    print(
        f"{len(inputs)} inputs, median of {rounds} rounds; a copy reads and writes "
        f"{report.bandwidth / 1e9:.1f} GB/s"
    )
    print(report.table())
    if out is not None:
        about = environment() | {"device": device_name(), "measured": title}
        about |= {"settings": settings, "bandwidth": report.bandwidth}
        about |= {"command": list(command)}
        about |= {} if spec is None else {"spec": _named(spec)}
        written = {"about": about, "speeds": report.data()}
        write_whole(out, json.dumps(written, indent=1) + "\n")
    return 1 if any(speed.failures for speed in report.speeds) else 0


def _named(spec: StageSpec) -> dict[str, Any]:
    """What the measured stage is, for programs that look its speed up."""
    names = ("name", "kind", "identity", "weights")
    return {n: getattr(spec, n) for n in names} | {"settings": dict(spec.settings)}


def _measured(
    request: StageMeasurement,
) -> tuple[str, Any, Any, Sequence[Any], StageSpec | None]:
    """A title, the settings, the ways to compute, the inputs and the stage if it is one."""
    from benchmarks.speed.measure import in_batches, loaded_stage, ways_of

    sizes = list(request.batches)
    if request.part == WHOLE and request.system is not None:
        system, samples = whole(request.system, request.models, request.queries)
        title = f"{request.system}, whole documents ({request.weights})"
        return title, request.settings, in_batches(system, sizes), samples, None
    workload = _workload(request)
    spec = workload.spec
    loaded = loaded_stage(spec, sizes)
    ways = ways_of(spec, loaded, sizes, request.upstream)
    title = f"{spec.name} ({spec.identity}, {spec.weights})"
    return title, dict(spec.settings), ways, workload.inputs, spec


def _workload(request: StageMeasurement) -> Workload:
    if request.scorer is not None:
        asked = (request.queries, request.answers)
        return of_scorer(request.scorer, request.weights, request.settings, *asked)
    return of_system(request.system or "", request.part, request.models, request.queries)


def _sizes(batches: str) -> tuple[int, ...]:
    sizes = batches.split(",")
    if not all(size.strip().isdecimal() and int(size) for size in sizes):
        raise UsageError(f"--batches {batches!r} must be sizes such as 1,2,4,8")
    return tuple(int(size) for size in sizes)


def _settings(written: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for text in written:
        settings = merged(settings, parsed_setting(text))
    return settings


if __name__ == "__main__":
    sys.exit(main())
