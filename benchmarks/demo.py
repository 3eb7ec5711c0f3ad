"""`plait demo`: a run told to a newcomer in five pictures."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from benchmarks import commands
from benchmarks.results.story.page import write_story
from benchmarks.runs.config import load_config
from benchmarks.runs.experiment import reopen
from cluster.store import BlobReader, Store


def demo(root: Path | None, console: Console) -> int:
    """Write story.html of a run, by default of the quickstart's; the exit status.

    The quickstart is run first where it has not been; a run that is there is not changed.
    """
    if root is None:
        config = load_config(None, {})
        if status := commands.run(config, console):
            return status
        root = config.root
    page = write_story(reopen(root).board(Store(root)), root, BlobReader())
    console.print(f"story {escape(str(page))}", soft_wrap=True)
    return commands.FINISHED
