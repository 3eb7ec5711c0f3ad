"""`plait ctl`: shows a run under way, or asks something of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.runs.display import progress_table, worker_table
from benchmarks.runs.run_directory import read_manifest
from cluster.control import ControlError, Request, RunState, ask, next_state, read_state
from generators.errors import UsageError
from generators.names import unknown, validated

_VALUES = {
    "pause": (),
    "resume": (),
    "stop": (),
    "budget": ("max_cost",),
    "workers": ("stage", "workers"),
}
"""What each request is followed by."""


def control(
    root: Path, words: Sequence[str], wait_s: float, console: Console, *, as_json: bool
) -> int:
    """Show the state of the run at `root`, or ask what `words` say and show the answer."""
    request = request_of(words) if words else None
    state = read_state(root)
    if state is None:
        status = read_manifest(root).get("status")
        raise ControlError(
            f"{root}: no records are being made; the status of the run is {status!r}"
        )
    if request is not None:
        console.print(ask(root, state.driver, request, wait_s), soft_wrap=True)
        return 0
    try:
        state = next_state(root, state, wait_s)
    finally:  # the last one known, before what is wrong with it
        _show(state, console, as_json=as_json)
    return 0


def request_of(words: Sequence[str]) -> Request:
    """What `pause` or `workers writer 4` ask; UsageError."""
    action, *values = words
    if action not in _VALUES:
        raise unknown("request", action, _VALUES)
    names = _VALUES[action]
    if len(values) != len(names):
        needed = " ".join([action, *map(str.upper, names)])
        raise UsageError(f"{action} is asked as `{needed}`; got `{' '.join(words)}`")
    return validated(
        Request, {"action": action, **dict(zip(names, values, strict=True))}, ""
    )


def _show(state: RunState, console: Console, *, as_json: bool) -> None:
    if as_json:
        console.print(state.model_dump_json(indent=2), soft_wrap=True)
        return
    console.print(progress_table(state.progress))
    console.print(worker_table(state.progress.workers))
