"""A series of measurements, each made by a command in a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence

import typer

from generators.names import unknown


def make_all(
    only: Sequence[str] | None, known: Collection[str], make: Callable[[str], int]
) -> list[str]:
    """Make the measurements `only`, or all `known` ones; the names of those that failed.

    Args:
        only: Names, in the order in which they are made.
        known: The names that there are.
        make: Makes one, and gives the exit status of its command.

    Raises:
        UsageError: For a name that is not known, before anything is measured.
    """
    names = list(only or known)
    for name in names:
        if name not in known:
            raise unknown("measurement", name, known)
    return [name for name in names if _timed(name, make)]


def _timed(name: str, make: Callable[[str], int]) -> int:
    print(f"== {name}", flush=True)
    began = time.monotonic()
    status = make(name)
    print(f"== {name}: {time.monotonic() - began:.0f} s, exit status {status}", flush=True)
    return status


def conclude(failed: Sequence[str]) -> None:
    """Name what failed and end with status 1; nothing where all went well.

    Raises:
        typer.Exit: Where something failed.
    """
    if failed:
        print(f"with failures: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)
