"""Where commands print."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from plait.benchmarks.plain_console import PlainConsole

LONG = 500
"""Progress is shown of tasks of more steps than this."""


def console() -> PlainConsole:
    """Return the terminal, or a file or pipe in which tables are not cut."""
    from plait.benchmarks.plain_console import PlainConsole

    # A file or a pipe has no width of its own, and 80 columns would cut tables.
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return PlainConsole(width=160 if piped else None)


def command_text(*words: object) -> str:
    """Return a command as a shell takes it: paths may hold spaces."""
    return shlex.join(map(str, words))


@contextmanager
def progress(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """Takes (done, total) of a task: a bar with the time left, or one line in a file."""
    from rich.progress import Progress

    terminal = console.is_terminal
    with Progress(console=console, transient=True, disable=not terminal) as bar:
        task = bar.add_task(what, visible=False)

        def show(done: int, total: int) -> None:
            if not terminal and not bar.tasks[task].completed and total > LONG:
                console.print(f"{what}: {total:,}")
            bar.update(task, completed=done, total=total, visible=total > LONG)

        yield show
