"""`plait bench`: what its commands are called; each is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.options import with_pairing_options
from benchmarks.terminal import console

bench = typer.Typer(help="Measure speed, and what ways of running a model change.")
_PASSED_ON: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}
"""Of commands that read their own options, as they do when run as modules."""


@bench.command()
def orchestration(
    out: Annotated[
        list[Path] | None, typer.Option(help="A .json or .md file; may be repeated.")
    ] = None,
    batches: Annotated[int, typer.Option(min=1, help="Batches per measurement.")] = 100,
) -> None:
    """Measure the engine's overhead.

    Beside a plain loop, ray.util.ActorPool and Ray Data, with a stage that sleeps.
    """
    from benchmarks.speed import orchestration as measured

    raise typer.Exit(measured.main(out or (), batches, console()))


@bench.command("stage", **_PASSED_ON)
def stage_command(context: typer.Context) -> None:
    """Measure one stage at several batch sizes, without Ray."""
    from benchmarks.speed.stage import command as measured

    raise typer.Exit(measured.main(context.args))


@bench.command("decoding", **_PASSED_ON)
def decoding_command(context: typer.Context) -> None:
    """Measure how fast a small LVLM decodes, beside generate and a real server."""
    from benchmarks.speed.decoding import command as measured

    raise typer.Exit(measured.main(context.args, console()))


@bench.command("fidelity", **_PASSED_ON)
def fidelity_command(context: typer.Context) -> None:
    """Measure how answers change with the way a model is run.

    Batch sizes, precisions, servers and engines against each other, without Ray.
    """
    from benchmarks.fidelity import command

    raise typer.Exit(command.main(context.args, console()))


@bench.command("miniature", **_PASSED_ON)
def miniature_command(context: typer.Context) -> None:
    """Test models, scorers and judges on a world whose truth is known.

    Whether the mini models reach their bars, with intervals.
    """
    from benchmarks.miniature import bench as measured

    raise typer.Exit(measured.main(context.args, console()))


@bench.command("small-jobs", **_PASSED_ON)
def small_jobs_command(context: typer.Context) -> None:
    """Time a small job beside scripts without an engine.

    The same models on the same queries, as whole processes; the answers are compared.
    """
    from benchmarks.speed.small_jobs import command

    raise typer.Exit(command.main(context.args, console()))


@bench.command("pairings")
@with_pairing_options
def pairings_command(options: dict[str, Any]) -> int:
    """Compare every LVLM with every text-to-image model.

    Runs the matrix as `plait run` does, into a run directory that can be resumed, and shows
    scores, main effects, interactions and costs per document. Without names: all mini
    models, on queries about a miniature world. With a run directory and nothing else, the
    tables of that run are written and shown again.
    """
    from benchmarks import pairings

    return pairings.main(options, console())
