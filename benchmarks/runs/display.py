"""Progress of a run: a live table on a terminal, else lines every 30 seconds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from plait.cluster.counts import StageCount
from plait.cluster.watcher import (
    RunProgress,
    StageProgress,
    Watcher,
    WorkerFailure,
    WorkerProgress,
)

_COLUMNS = ("stage", "", "done", "failed", "skipped", "rate", "left", "state")
_WORKER_COLUMNS = ("worker of", "node", "state", "records")
_NUMERIC = ("done", "failed", "skipped", "rate", "left", "records")
_LINES_EVERY_S = 30.0
_AT_WORK = ("running", "loading", "waiting")


class Display(Watcher):
    """A live table on a terminal; elsewhere, lines with the progress of every stage."""

    def __init__(
        self, console: Console, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """`meanwhile` is called in a thread, once, when workers have begun to compute.

        From then on the command itself has little to do.
        """
        self.console = console
        self._meanwhile = meanwhile
        self._printed = 0.0
        """In which interval of the run lines were last printed."""
        self._live: Live | None = None

    def starting(self, counts: Sequence[StageCount]) -> None:
        """Print how many records exist and how many are to be made."""
        done = sum(tally.done for tally in counts)
        to_run = sum(tally.to_run for tally in counts)
        if not to_run:
            self.console.print(f"{done:,} records exist; nothing is missing.")
            return
        self.console.print(
            f"{done:,} records exist, at most {to_run:,} to make. Starting workers ..."
        )
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=False)
            self._live.start()

    def turn(self, progress: RunProgress) -> None:
        """Update the table, or print the progress of every stage every 30 seconds."""
        computing = any(stage.state == "running" for stage in progress.stages)
        if self._meanwhile is not None and computing:
            threading.Thread(target=self._meanwhile, daemon=True).start()
            # Called once.
            self._meanwhile = None
        if self._live is not None:
            self._live.update(progress_table(progress))
        elif not self.console.is_terminal:
            self._print_lines(progress)

    def notice(self, text: str) -> None:
        """Print above the live lines."""
        self.console.print(Text("note", "yellow"), text)

    def worker_failed(self, failure: WorkerFailure) -> None:
        """Print above the live lines."""
        self.console.print(Text("lost", "yellow"), str(failure))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print_lines(self, progress: RunProgress) -> None:
        """Print the progress of stages at work, unless this interval has had its lines."""
        interval = progress.elapsed_s // _LINES_EVERY_S
        if interval == self._printed:
            return
        self._printed = interval
        lines = [_summary(progress)]
        for stage in progress.stages:
            if stage.state in _AT_WORK:
                lines.append(f"  {_line(stage)}")
        self.console.print("\n".join(lines))


def progress_table(progress: RunProgress) -> RenderableType:
    """Return all stages, and a line on the whole run."""
    rows = [_cells(stage) for stage in progress.stages]
    summary = Text(_summary(progress), "dim")
    return Group(_table(_COLUMNS, rows), summary)


def worker_table(workers: Iterable[WorkerProgress]) -> RenderableType:
    """Return all workers."""
    rows = []
    for worker in workers:
        rows.append([worker.stage, worker.node, worker.state, f"{worker.records:,}"])
    return _table(_WORKER_COLUMNS, rows)


def _summary(progress: RunProgress) -> str:
    """`elapsed 0:12:30, 1,200 tokens, cost 0.35, 12.4 of 50 spent, paused`."""
    usage: Counter[str] = Counter()
    for stage in progress.stages:
        usage.update(stage.usage)
    parts = [f"elapsed {duration(progress.elapsed_s)}"]
    tokens = usage["input_tokens"] + usage["output_tokens"]
    if tokens:
        parts.append(f"{tokens:,.0f} tokens")
    if usage["cost"]:
        parts.append(f"cost {usage['cost']:,.4g}")
    if progress.max_cost is not None:
        parts.append(f"{progress.spent:,.4g} of {progress.max_cost:,g} spent")
    if progress.state != "running":
        parts.append(progress.state)
    return ", ".join(parts)


def _line(stage: StageProgress) -> str:
    """`draft-anole: 120 of 400 done, 3 failed, 2.10/s, 0:02:12 left, running (2)`."""
    rate, left_s = _pace(stage)
    done = stage.outcomes.get("done", 0)
    parts = [f"{done:,} of {stage.total:,} done"]
    for name, number in stage.outcomes.items():
        if name != "done" and number:
            parts.append(f"{number:,} {name.replace('_', ' ')}")
    if rate:
        parts.append(f"{rate:.2f}/s")
    if left_s:
        parts.append(f"{duration(left_s)} left")
    parts.append(_state(stage))
    return f"{stage.name}: {', '.join(parts)}"


def _table(columns: Iterable[str], rows: Iterable[Iterable[RenderableType]]) -> Table:
    """Return a table without lines, numbers on the right."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in columns:
        justify = "right" if name in _NUMERIC else "left"
        # The bars, which have no name, give way where the terminal is narrow.
        table.add_column(name, justify=justify, no_wrap=bool(name))  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    return table


def _cells(stage: StageProgress) -> list[RenderableType]:
    """Return the row of a stage, as `_COLUMNS` has it."""
    done = stage.outcomes.get("done", 0)
    failed = stage.outcomes.get("failed", 0)
    rate, left_s = _pace(stage)
    return [
        stage.name,
        ProgressBar(total=max(stage.total, 1), completed=_count_ended(stage), width=24),
        f"{done:,}/{stage.total:,}",
        Text(f"{failed:,}", "red" if failed else ""),
        f"{stage.outcomes.get('skipped', 0):,}",
        f"{rate:.2f}/s" if rate else "-",
        duration(left_s) if left_s else "-",
        _state(stage),
    ]


def _count_ended(stage: StageProgress) -> int:
    return sum(stage.outcomes.values())


def _pace(stage: StageProgress) -> tuple[float, float]:
    """Return records a second, and seconds left at that rate; 0 where not known."""
    rate = stage.made / stage.seconds if stage.seconds > 0 else 0.0
    left = stage.total - _count_ended(stage)
    return rate, left / rate if rate else 0.0


def _state(stage: StageProgress) -> str:
    """`running (2), 8 in batches`."""
    state = f"{stage.state} ({stage.workers})" if stage.workers else stage.state
    return f"{state}, {stage.waiting:,} in batches" if stage.waiting else state


def duration(seconds: float) -> str:
    """`0:02:05`, `3:04:05` or `2d 03:04:05`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}"
