"""What the commands of `plait bench` share: how they are set up and what they write."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from plait.generators.errors import UsageError
from plait.generators.files import write_whole

_ENDINGS = (".json", ".md")


def bench_program() -> typer.Typer:
    """Return a program that reads its own options and leaves its errors to `plait`."""
    return typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )


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
        return status_of(end)
    return 0


def status_of(end: SystemExit) -> int:
    """Return the exit status that Python gives a process which ends so: 1 for a message."""
    return end.code if isinstance(end.code, int) else int(end.code is not None)


def as_json(content: Mapping[str, Any]) -> str:
    """Figures as a file holds them; what JSON does not know is written as text."""
    return json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n"


def write_forms(folder: Path, name: str, forms: Mapping[str, str]) -> list[Path]:
    """Write `folder`/`name`.ENDING for the text of each ending; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    places = []
    for ending, text in forms.items():
        place = folder / f"{name}.{ending}"
        write_whole(place, text)
        places.append(place)
    return places


def check_outs(outs: Sequence[Path]) -> None:
    """UsageError for a file that is neither .json nor .md; asked before measuring."""
    for place in outs:
        if place.suffix not in _ENDINGS:
            raise UsageError(f"--out {str(place)!r} must end in {' or '.join(_ENDINGS)}")


def write_outs(
    outs: Sequence[Path], data: Callable[[], Mapping[str, Any]], page: Callable[[], str]
) -> None:
    """Write `data` into every .json file of checked `outs`, `page` into every other."""
    for place in outs:
        write_whole(place, as_json(data()) if place.suffix == ".json" else page())


def numbers_of(text: str, option: str, example: str) -> tuple[int, ...]:
    """Return the numbers from 1 on of `text`, such as 1,2,4, each once; UsageError else."""
    numbers = text.split(",")
    if not all(number.strip().isdecimal() and int(number) for number in numbers):
        raise UsageError(f"{option} {text!r} must be numbers such as {example}")
    return tuple(dict.fromkeys(map(int, numbers)))


def announce(console: Console, place: Path) -> None:
    """Print where results are."""
    console.print(f"written to {place}")
