r"""How far the answers of one model change with the way it is run.

    plait bench fidelity sdxl-turbo --weights tiny \
        --way "batch 1: batch_size=1" --way "batch 8: batch_size=8" \
        --way "bf16: batch_size=1 dtype=bfloat16" --out fidelity

All ways answer the same queries with the same seeds, one way after another, in this
process or at their endpoints; the first is the reference. Every way is run twice, so that
one which does not even repeat itself is told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks.bench_program import (
    announce,
    as_json,
    bench_program,
    exit_status,
    write_forms,
)
from benchmarks.fidelity.config import FidelityConfig, load_config
from benchmarks.fidelity.ways import Way
from benchmarks.runs.config import with_settings
from generators.base import Weights

app = bench_program()


def main(arguments: Sequence[str], console: Console) -> int:
    """Measure, print, and write files where `--out` says; the exit status."""
    words = list(arguments)
    return exit_status(app, words, "plait bench fidelity", (words, console))


@app.command()
def fidelity(
    system: Annotated[
        str | None,
        typer.Argument(
            help="An LVLM, a text-to-image model, a native or composite system."
        ),
    ] = None,
    way: Annotated[
        list[str] | None,
        typer.Option(
            help="'LABEL: key=value ...', a way of running it: settings of the model, "
            "system=NAME, weights=KIND. May be repeated; the first is the reference."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with [[ways]] and the options below.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value, for every way that runs the system itself."),
    ] = None,
    weights: Annotated[
        Weights | None, typer.Option(help="Weights of all ways that name none.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="The queries, as for `plait run`; default: sample.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="File with one prompt a line, instead of --data.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="At most this many queries, stratified.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling and noise.")] = None,
    repeats: Annotated[
        int | None, typer.Option(help="How often each way is run; default: 2.")
    ] = None,
    scorer: Annotated[
        list[str] | None,
        typer.Option(help="Also compare scores, such as bleu or clipscore; repeatable."),
    ] = None,
    clip: Annotated[
        str | None,
        typer.Option(help="CLIP model of the distance between pictures, or off."),
    ] = None,
    lpips: Annotated[
        str | None, typer.Option(help="Also measure LPIPS, with alex, vgg or squeeze.")
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(
            help="'[LABEL: ]MEASURE>=NUMBER', such as 'text.equal>=0.99'; exit status 1 "
            "where it is not met. May be repeated."
        ),
    ] = None,
    worst: Annotated[
        int | None, typer.Option(help="Pairs of each way on the page; default: 6.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for fidelity.{json,md,tex,csv,html}.")
    ] = None,
    *,
    context: typer.Context,
) -> None:
    """How far the answers of one model change with the way it is run."""
    words, console = context.find_root().obj
    given: dict[str, Any] = {
        "system": system,
        "ways": tuple(_table(Way.parsed(text)) for text in way or ()),
        "settings": with_settings({}, set_ or ()),
        "prompts": prompts,
        "scorers": tuple(scorer or ()),
        "gates": tuple(gate or ()),
    }
    given |= {"weights": weights, "data": data, "limit": limit, "seed": seed}
    given |= {"repeats": repeats, "clip": clip, "lpips": lpips, "worst": worst}
    asked = load_config(config, given)
    required = "clip" in asked.model_fields_set
    raise typer.Exit(_measure(asked, out, words, console, required=required))


def _table(way: Way) -> dict[str, Any]:
    """A way as `[[ways]]` holds it."""
    named = {"name": way.label, "system": way.system, "weights": way.weights}
    return {k: v for k, v in named.items() if v is not None} | dict(way.settings)


def _measure(
    config: FidelityConfig,
    out: Path | None,
    command: Sequence[str],
    console: Console,
    *,
    required: bool,
) -> int:
    # Imported here, so that a mistake in the options is answered at once.
    from benchmarks.fidelity.measure import measured
    from benchmarks.fidelity.tables import tables_of

    def say(line: str) -> None:
        console.print(escape(line), soft_wrap=True)

    report = measured(config, command, say, clip_required=required)
    for table in tables_of(report):
        console.print(table.rich)
    if out is not None:
        from benchmarks.fidelity.page import page_of

        page = page_of(report, config.worst)
        for place in write(report, page, out):
            announce(console, place)
    return 1 if report.failed else 0


def write(report: Any, page: str, out: Path) -> list[Path]:
    """Write the report in every form; the paths."""
    from benchmarks.fidelity.tables import tables_of
    from benchmarks.results.table import markdown_page

    tables = tables_of(report)
    forms = {
        "json": as_json(report.as_json()),
        "md": markdown_page(report.title, (), tables),
        "tex": "\n".join(table.latex for table in tables),
        "csv": "\n".join(f"{table.title}\n{table.csv}" for table in tables),
        "html": page,
    }
    return write_forms(out, "fidelity", forms)
