"""`plait bench`: what its commands are called; each is imported when it runs."""

from __future__ import annotations

from typing import Any

import typer

from benchmarks.options import with_pairing_options
from benchmarks.terminal import console

bench = typer.Typer(help="Measure speed, pairings, and models whose truth is known.")
_PASSED_ON: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}
"""Of commands that read their own options, as they do when run as modules."""


@bench.command("stage", **_PASSED_ON)
def stage_command(context: typer.Context) -> None:
    """Measure one stage at several batch sizes, without Ray."""
    from benchmarks.speed import command

    raise typer.Exit(command.main(context.args))


@bench.command("miniature", **_PASSED_ON)
def miniature_command(context: typer.Context) -> None:
    """Test models, scorers and judges on a world whose truth is known.

    Whether the mini models reach their bars, with intervals.
    """
    from benchmarks.miniature import bench as measured

    raise typer.Exit(measured.main(context.args, console()))


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
