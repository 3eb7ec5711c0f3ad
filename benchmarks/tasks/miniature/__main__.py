"""`python -m benchmarks.tasks.miniature --out FOLDER -n N` writes a folder for `--data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.tasks.miniature.exports import export_samples
from benchmarks.tasks.miniature.reader import QUERIES, samples
from generators.errors import PlaitError


def main(
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="How many queries.")
    ] = QUERIES,
) -> None:
    """Write queries of the miniature world as a folder in MMIE's format."""
    try:
        export_samples(samples(number), out)
    except PlaitError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_status) from error
    typer.echo(f"{number:,} queries in {out}; read them with --data {out}")


if __name__ == "__main__":
    typer.run(main)
