"""Queries of the miniature world as an ordinary folder in MMIE's format.

python -m plait.benchmarks.tasks.miniature --out FOLDER -n N
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from plait.benchmarks.tasks.miniature.reader import NAME, QUERIES, read_queries
from plait.benchmarks.tasks.mmie.categories import BENCHMARK
from plait.benchmarks.tasks.mmie.official import ImageFiles, items_of, write_rows
from plait.benchmarks.tasks.mmie.reader import CRITERIA, FILES
from plait.benchmarks.wording import quantity
from plait.generators.document import Image, Query
from plait.generators.errors import PlaitError


def main(
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="How many queries.")
    ] = QUERIES,
) -> None:
    """Write queries of the miniature world as a folder in MMIE's format."""
    try:
        export_queries(read_queries(number), out)
    except PlaitError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_status) from error
    typer.echo(f"{quantity(number, 'query')} in {out}; read them with --data {out}")


def export_queries(queries: Sequence[Query], out: Path) -> None:
    """Write `data.json` and `images/` into the folder `out`, for the MMIE reader.

    Raises TaskError when `out` holds anything: an export overwrites nothing.
    """
    write_rows(queries, _row, out, FILES[0], Image.read)


def _row(query: Query, images: ImageFiles) -> dict[str, Any]:
    answer = query.reference.segments if query.reference else ()
    return {
        "id": query.id,
        BENCHMARK: NAME,
        "category": query.category,
        "field": query.field,
        CRITERIA: query.criteria,
        "conversations": [
            {"from": speaker, "content": items_of(content, images)}
            for speaker, content in (("human", query.question), ("gpt", answer))
        ],
    }


if __name__ == "__main__":
    typer.run(main)
