"""What a run prints while it is under way, on a terminal and without one."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from trial import writer

from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.display import Display
from plait.cluster.counts import StageCount
from plait.cluster.watcher import RunProgress, StageProgress, WorkerFailure


class Screen:
    """A display of a run whose time is set by hand."""

    def __init__(self, *, terminal: bool) -> None:
        self.now = 0.0
        self.file = io.StringIO()
        console = PlainConsole(file=self.file, force_terminal=terminal, width=120)
        self.display = Display(console)

    def after(self, seconds: float, *stages: StageProgress) -> str:
        """What is printed by a turn that comes `seconds` after the last."""
        self.now += seconds
        before = len(self.file.getvalue())
        self.display.turn(progress(*stages, elapsed_s=self.now))
        return self.file.getvalue()[before:]


def progress(*stages: StageProgress, **values: Any) -> RunProgress:
    usual: dict[str, Any] = {"state": "running", "elapsed_s": 0.0}
    return RunProgress(stages=stages, **(usual | values))


def stage(name: str = "writer", **values: Any) -> StageProgress:
    usual: dict[str, Any] = {
        "total": 200,
        "outcomes": {"done": 39, "failed": 1},
        "made": 40,
        "workers": 2,
        "state": "running",
        "seconds": 20.0,
    }
    return StageProgress(name=name, **(usual | values))


def test_without_a_terminal_a_line_for_each_stage_at_work_comes_every_half_minute() -> None:
    screen = Screen(terminal=False)
    assert screen.after(29, stage()) == ""
    usage = {"input_tokens": 1000.0, "output_tokens": 250.0, "cost": 0.25}
    printed = screen.after(2, stage(usage=usage), stage("painter", state="done"))
    assert printed.splitlines() == [
        "elapsed 0:00:31, 1,250 tokens, cost 0.25",
        "  writer: 39 of 200 done, 1 failed, 2.00/s, 0:01:20 left, running (2)",
    ]
    assert screen.after(28, stage()) == ""
    assert screen.after(2, stage())


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [(False, "12 of 16 done, 3 failed, 1 not applicable, "), (True, " 12/16 ")],
)
def test_done_is_only_what_is_done_as_in_the_summary(terminal: bool, shown: str) -> None:
    screen = Screen(terminal=terminal)
    screen.display.starting([StageCount(writer(), requests=16, distinct=16)])
    outcomes = {"done": 12, "failed": 3, "not_applicable": 1}
    printed = screen.after(31, stage(outcomes=outcomes, total=16))
    screen.display.close()
    assert shown in printed + screen.file.getvalue()


def test_what_can_wait_is_done_once_workers_compute() -> None:
    done = threading.Semaphore(0)
    display = Display(PlainConsole(file=io.StringIO()), meanwhile=done.release)
    display.turn(progress(stage(state="loading")))
    assert not done.acquire(timeout=0.05)
    for _ in range(2):
        display.turn(progress(stage(state="loading"), stage(state="running")))
    assert done.acquire(timeout=60)
    assert not done.acquire(timeout=0.05)


def test_deaths_are_printed_as_they_happen() -> None:
    screen = Screen(terminal=False)
    failure = WorkerFailure(
        at="2026-01-01T00:00:00Z",
        stage="writer",
        host="node7",
        kind="died",
        reason="killed [9]",
        records=4,
    )
    screen.display.worker_failed(failure)
    assert screen.file.getvalue() == (
        "lost worker of writer on node7 died: killed [9] (4 records in flight)\n"
    )
