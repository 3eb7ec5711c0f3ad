"""What a user sees while a run is under way: one live line per stage, or few words."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from cluster.counts import StageCount
from cluster.options import StageProgress
from cluster.run import Watcher

_COLUMNS = ("stage", "", "done", "failed", "skipped", "rate", "left", "state")


class Display(Watcher):
    """Draws on a terminal; where there is none, says only what matters."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None

    def starting(self, counts: Sequence[StageCount]) -> None:
        """Say what is there and what is to be done."""
        done = sum(c.done for c in counts)
        to_run = sum(c.to_run for c in counts)
        if not to_run:
            self.console.print(f"{done:,} records are there; nothing is missing.")
            return
        self.console.print(
            f"{done:,} records are there, at most {to_run:,} to make. Starting Ray ..."
        )
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=False)
            self._live.start()

    def turn(self, stages: Sequence[StageProgress]) -> None:
        """Draw where every stage stands."""
        if self._live is not None:
            self._live.update(self._table(stages))

    def notice(self, text: str) -> None:
        """Print above the live lines."""
        self.console.print(f"[yellow]note[/yellow] {_escaped(text)}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self, stages: Sequence[StageProgress]) -> Table:
        table = Table(box=None, padding=(0, 1), header_style="dim")
        for name in _COLUMNS:
            numeric = name in ("done", "failed", "skipped", "rate", "left")
            table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
        for stage in stages:
            table.add_row(*self._cells(stage))
        return table

    def _cells(self, stage: StageProgress) -> list[str | ProgressBar]:
        ended = sum(stage.outcomes.values())
        total = stage.total
        failed = stage.outcomes.get("failed", 0)
        rate = stage.fresh / stage.seconds if stage.seconds > 0 else 0.0
        left = (total - ended) / rate if rate else 0.0
        return [
            stage.name,
            ProgressBar(total=max(total, 1), completed=ended, width=24),
            f"{ended:,}/{total:,}",
            f"[red]{failed:,}[/red]" if failed else "0",
            f"{stage.outcomes.get('skipped', 0):,}",
            f"{rate:.2f}/s" if rate else "-",
            _duration(left) if left and ended < total else "-",
            f"{stage.state} ({stage.workers})" if stage.workers else stage.state,
        ]


def _duration(seconds: float) -> str:
    form = "%H:%M:%S" if seconds >= 3600 else "%M:%S"
    return time.strftime(form, time.gmtime(min(seconds, 86399)))


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
