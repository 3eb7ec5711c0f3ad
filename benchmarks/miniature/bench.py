"""Known-answer tests of the mini models: the bars of the miniature world, by one command.

    plait bench miniature --out runs/bench
    plait bench miniature --weights tiny --scenes 12 --queries 6 --only captions

Says whether the chain from query to table carries meaning on a world whose truth is known.
It says nothing about how good the published models are whose architectures are used.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plait.benchmarks.bench_program import (
    announce,
    as_json,
    bench_program,
    exit_status,
    write_forms,
)
from plait.benchmarks.miniature import outputs
from plait.benchmarks.miniature.captions import measure_captions
from plait.benchmarks.miniature.drawings import measure_native, measure_t2is
from plait.benchmarks.miniature.edits import measure_edits
from plait.benchmarks.miniature.measures import BenchPart, BenchSettings, Say
from plait.benchmarks.refused_choices import ChoosingCommand
from plait.benchmarks.results.table import ResultTable, markdown_page
from plait.benchmarks.runs.config import with_settings
from plait.generators.base import WeightsName
from plait.generators.errors import PlaitError
from plait.generators.extras import require_extra
from plait.generators.names import unknown

CAVEAT = (
    "Small models trained on drawn shapes: these numbers show whether the chain carries "
    "meaning, and say nothing about the published models of the same architecture."
)
Measure = Callable[[BenchSettings, Say], BenchPart | Sequence[BenchPart]]
app = bench_program()


def main(arguments: Sequence[str], console: Console) -> int:
    """Measure, print, and write files; the exit status."""
    words = list(arguments)
    return exit_status(app, words, "plait bench miniature", (words, console))


@app.command(cls=ChoosingCommand)
def miniature(
    context: typer.Context,
    weights: Annotated[WeightsName, typer.Option(help="Weights of all models.")] = "mini",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="models.NAME.key=value; repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this part; repeatable.")
    ] = None,
    scenes: Annotated[
        int, typer.Option(min=1, help="Scenes to caption and to draw.")
    ] = 200,
    queries: Annotated[int, typer.Option(min=1, help="Queries of every run.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of queries and noise.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for runs and miniature.{json,md}.")
    ] = Path("runs/bench-miniature"),
) -> None:
    """Whether the mini models, scorers and judges reach their bars on known truth."""
    _, console = context.find_root().obj
    require_extra("models", "plait bench miniature")
    wrong = [name for name in only or () if name not in PARTS]
    if wrong:
        raise unknown("part", wrong[0], PARTS)
    changes = with_settings({}, set_ or ())
    if other := [key for key in changes if key != "models"]:
        raise unknown("setting", other[0], ["models.NAME.key=value"])
    settings = BenchSettings(
        weights=weights,
        models=changes.get("models", {}),
        out=out.expanduser().resolve(),
        scenes=scenes,
        queries=queries,
        seed=seed,
    )
    _report(settings, only or [*PARTS], console)


def _report(settings: BenchSettings, names: Sequence[str], console: Console) -> None:
    def say(line: str) -> None:
        console.print(line, soft_wrap=True, style="dim")

    parts: list[BenchPart] = []
    for name in names:
        for part in measure(name, settings, say):
            parts.append(part)
            for table in part.all_tables:
                console.print(table.rich)
        # Written after every part: a measurement that is stopped keeps what it has.
        places = write(parts, settings)
    console.print(summary(parts))
    for place in places:
        announce(console, place)


def measure(name: str, settings: BenchSettings, say: Say) -> Sequence[BenchPart]:
    """Return the parts that `name` measures; one that says why, where it cannot."""
    try:
        made = PARTS[name](settings, say)
        return [made] if isinstance(made, BenchPart) else made
    except PlaitError as error:
        return [BenchPart.not_there(name, str(error))]
    except Exception as error:
        # Whatever a library raises, the other parts are still measured.
        say(traceback.format_exc())
        return [BenchPart.not_there(name, f"{type(error).__name__}: {error}")]


def summary(parts: Sequence[BenchPart]) -> str:
    """Return how many bars are reached."""
    counts = dict.fromkeys(("reached", "not reached", "not there"), 0)
    for part in parts:
        for bar in part.bars:
            if bar.aim or not bar.there:
                counts[bar.state] += 1
    return ", ".join(f"{n} {state}" for state, n in counts.items())


def write(parts: Sequence[BenchPart], settings: BenchSettings) -> list[Path]:
    """Write the results as JSON and Markdown; return their paths."""
    about = {"weights": settings.weights, "models": settings.models, "seed": settings.seed}
    content = about | {"caveat": CAVEAT, "parts": [part.as_json() for part in parts]}
    tables: list[ResultTable] = []
    for part in parts:
        tables += part.all_tables
    title = f"The miniature world, {settings.weights} weights"
    page = markdown_page(title, (CAVEAT, summary(parts)), tables)
    forms = {"json": as_json(content), "md": page}
    return write_forms(settings.out, "miniature", forms)


PARTS: Mapping[str, Measure] = {
    "captions": measure_captions,
    "artists": measure_t2is,
    "edits": measure_edits,
    "native": measure_native,
    "corruptions": outputs.measure_corruptions,
    "systems": outputs.measure_systems,
    "critic": outputs.measure_critic,
}
"""By the name that `--only` takes, in the order of the report."""
