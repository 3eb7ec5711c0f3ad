"""plait: run and judge models that answer with interleaved text and images.

    plait run                      answer the bundled sample set, score it, show the table
    plait plan CONFIG.toml         what a run would do
    plait report RUN               tables and page of a run directory

This module only reads the command line; what commands do stands in `benchmarks.commands`,
which is imported when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.runs.config import RunConfig

_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""What a machine says when files cannot be written, through no defect of ours."""

app = typer.Typer(
    help="Run and judge models that answer with interleaved text and images.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(help="Measure speed; every figure says how it was taken.")
app.add_typer(bench, name="bench")

Config = Annotated[Path | None, typer.Argument(help="TOML file; flags go over it.")]
Data = Annotated[
    str | None,
    typer.Option(help="'sample', a folder in MMIE's format, or hf:ORG/NAME@REVISION."),
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--system", help="For example anole or qwen2-vl-72b+sdxl-turbo@outline."),
]
Scorers = Annotated[
    list[str] | None,
    typer.Option("--scorer", help="For example clipscore or judge:gpt-4o."),
]
Mode = Annotated[
    str | None, typer.Option(help="How judges ask and read: corrected or official.")
]
Rubric = Annotated[
    str | None, typer.Option(help="What judges go by: own, or official:PATH/prompts.py.")
]
WeightsKind = Annotated[
    str | None, typer.Option(help="pretrained, dummy (full size, random) or tiny.")
]
Out = Annotated[Path | None, typer.Option(help="Run directory; issue again to resume.")]
Limit = Annotated[int | None, typer.Option(help="Only so many queries, stratified.")]
Ids = Annotated[Path | None, typer.Option(help="File with one sample id a line.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all sampling and noise.")]
Repeats = Annotated[int | None, typer.Option(help="Answers per query.")]
Address = Annotated[str | None, typer.Option(help="Ray cluster, such as auto.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, such as models.sdxl-turbo.steps=2."),
]
Remake = Annotated[
    bool, typer.Option(help="Make records of an earlier version of a stage again.")
]
Run = Annotated[Path, typer.Argument(help="A run directory.")]


@app.command()
def run(
    config: Config = None,
    data: Data = None,
    system: Systems = None,
    scorer: Scorers = None,
    weights: WeightsKind = None,
    out: Out = None,
    limit: Limit = None,
    ids: Ids = None,
    seed: Seed = None,
    repeats: Repeats = None,
    address: Address = None,
    mode: Mode = None,
    rubric: Rubric = None,
    set_: Settings = None,
    remake: Remake = False,
) -> None:
    """Answer queries with systems, score the answers, write table and page.

    Without arguments: the bundled sample set, one native and one composite system, tiny
    random weights. Issued again, it goes on where it was.
    """
    from benchmarks import commands

    raise typer.Exit(commands.run(_config(locals()), _console(), remake=remake))


@app.command()
def plan(
    config: Config = None,
    data: Data = None,
    system: Systems = None,
    scorer: Scorers = None,
    weights: WeightsKind = None,
    out: Out = None,
    limit: Limit = None,
    ids: Ids = None,
    seed: Seed = None,
    repeats: Repeats = None,
    address: Address = None,
    mode: Mode = None,
    rubric: Rubric = None,
    set_: Settings = None,
) -> None:
    """Show what `run` would do: jobs, what is shared and done, what is missing."""
    from benchmarks import commands

    raise typer.Exit(commands.plan(_config(locals()), _console()))


@app.command()
def score(
    run: Annotated[Path, typer.Argument(help="A run directory, or a folder of answers.")],
    scorer: Scorers = None,
    weights: WeightsKind = None,
    out: Out = None,
    address: Address = None,
    mode: Mode = None,
    rubric: Rubric = None,
    set_: Settings = None,
    remake: Remake = False,
) -> None:
    """Score a run's documents again, or answers in MMIE's official format.

    No system is run: what a run has not answered stays missing.
    """
    from benchmarks import commands

    flags: dict[str, Any] = {
        "weights": weights,
        "out": out,
        "address": address,
        "set": set_ or (),
    }
    flags |= {"mode": mode, "rubric": rubric, "remake": remake}
    raise typer.Exit(commands.score(run, scorer or (), flags, _console()))


@app.command()
def report(run: Run) -> None:
    """Write leaderboard.{json,csv,md} and report.html from the records."""
    from benchmarks import commands

    raise typer.Exit(commands.report(run, _console()))


@app.command()
def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    system: Annotated[str, typer.Option(help="Whose documents.")],
    format: Annotated[str, typer.Option(help="mmie or parquet.")] = "mmie",
) -> None:
    """Write one system's documents in the official scorer's format, or as Parquet."""
    from benchmarks import commands

    raise typer.Exit(commands.export(run, system, format, out, _console()))


@app.command()
def show(
    run: Run,
    sample: Annotated[str, typer.Argument(help="A sample's id.")],
    system: Annotated[str | None, typer.Option(help="Only this system.")] = None,
) -> None:
    """Show the exact prompts, replies, settings and seeds of one sample."""
    from benchmarks import commands

    raise typer.Exit(commands.show(run, sample, system, _console()))


@app.command()
def verify(
    run: Run,
    repair: Annotated[
        bool, typer.Option("--repair", help="Set damaged parts aside.")
    ] = False,
) -> None:
    """Check every part and picture of a run, and say what a repair would make again.

    Changes nothing without --repair. Exit status 1 when something is damaged.
    """
    from benchmarks import integrity

    raise typer.Exit(integrity.verify_run(run.resolve(), _console(), repair=repair))


@app.command()
def agreement(
    scores: Annotated[Path, typer.Argument(help="A run directory, or a file of scores.")],
    human: Annotated[Path, typer.Argument(help="People's annotations, CSV or JSON.")],
    scorer: Scorers = None,
    scale: Annotated[str, typer.Option(help="Of people's scores.")] = "0-6",
    rescale: Annotated[
        bool, typer.Option(help="Map judges' scores to people's scale first.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Also write JSON here.")] = None,
) -> None:
    """How far scores agree with people: correlations, errors, kappa, with intervals."""
    from benchmarks import commands

    settings = {"human_scale": scale, "rescale": rescale}
    console = _console()
    raise typer.Exit(
        commands.agreement(scores, human, scorer or (), settings, out, console)
    )


@app.command()
def compare(
    run: Run,
    protocol: Annotated[str, typer.Option(help="creation, mllm-bench or probench.")],
    judge: Annotated[str, typer.Option(help="mmie-score, gpt-4o, hf:..., openai:...")],
    baseline: Annotated[
        str | None,
        typer.Option(help="A system, gt or published:NAME; without it, all pairs."),
    ] = None,
    system: Systems = None,
    mode: Mode = None,
    rubric: Rubric = None,
    weights: WeightsKind = None,
    judgings: Annotated[
        int, typer.Option(min=1, help="Times a judge that draws at random is asked.")
    ] = 1,
    address: Address = None,
    set_: Settings = None,
) -> None:
    """Have pairs of a run's documents judged by a published protocol, in both orders.

    Nothing is generated, and what has been judged is not asked again.
    """
    from benchmarks import commands

    told = {
        "protocol": protocol,
        "judge": judge,
        "baseline": baseline,
        "systems": tuple(system or ()),
        "mode": mode,
        "rubric": rubric,
        "weights": weights,
        "judgings": judgings,
        "address": address,
        "settings": tuple(set_ or ()),
    }
    raise typer.Exit(commands.compare(run.resolve(), told, _console()))


@app.command()
def bias(run: Run, rubric: Rubric = None) -> None:
    """How a run's judges lean: position, length, own family, repeats, wording."""
    from benchmarks import commands

    raise typer.Exit(commands.bias(run.resolve(), rubric, _console()))


@app.command("list")
def list_names(
    what: Annotated[
        str, typer.Argument(help="systems, scorers, data or weights.")
    ] = "systems",
) -> None:
    """List the names that can be used."""
    from benchmarks import catalogue

    raise typer.Exit(catalogue.show(what, _console()))


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Systems, models or scorers.")],
) -> None:
    """Download weights into the Hub cache, for nodes without a network."""
    from benchmarks import catalogue

    raise typer.Exit(catalogue.fetch(names, _console()))


@bench.command()
def orchestration(
    out: Annotated[
        Path | None, typer.Option(help="Also write the figures as JSON.")
    ] = None,
    batches: Annotated[int, typer.Option(help="Batches per measurement.")] = 100,
) -> None:
    """What the engine costs beside a loop, ray.util.ActorPool and Ray Data."""
    from benchmarks.speed import orchestration as measured

    raise typer.Exit(measured.main(out, batches, _console()))


@bench.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def stage(context: typer.Context) -> None:
    """How fast one stage is at several batch sizes, without Ray (--help for options)."""
    from benchmarks.speed import main as measured

    raise typer.Exit(measured.main(context.args))


def _config(arguments: dict[str, Any]) -> "RunConfig":
    from benchmarks.runs.config import load_config

    flags = {
        "data": arguments["data"],
        "systems": tuple(arguments["system"] or ()),
        "scorers": tuple(arguments["scorer"] or ()),
        **{k: arguments[k] for k in ("weights", "out", "limit", "ids", "seed", "repeats")},
        **{k: arguments[k] for k in ("address", "mode", "rubric")},
    }
    return load_config(arguments["config"], flags, arguments["set_"] or ())


def _console() -> "Console":
    from rich.console import Console

    # A file or a pipe has no width of its own, and 80 columns would cut tables.
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=160 if piped else None)


def main() -> None:
    """Entry point: errors that are the user's to mend are said without a traceback."""
    try:
        app()
    except Exception as error:
        status = _status_of(error)
        if status is None:
            raise
        print(f"plait: {error}", file=sys.stderr)
        sys.exit(status)


def _status_of(error: Exception) -> int | None:
    """2 for wrong use, 1 for a run that could not go on, None for a defect of ours."""
    from benchmarks.tasks.task_set import TaskError
    from cluster.lock import RunInUse
    from cluster.store import StoreError
    from generators.checkpoints import CheckpointError
    from generators.files import WriteError
    from generators.names import UsageError

    if isinstance(error, UsageError | TaskError | CheckpointError | RunInUse):
        return 2
    refused = isinstance(error, OSError) and error.errno in _REFUSALS
    broken = (
        isinstance(error, StoreError | WriteError) or type(error).__name__ == "ClusterError"
    )
    return 1 if broken or refused else None


if __name__ == "__main__":
    main()
