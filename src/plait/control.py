"""`plait ctl`: shows a run under way, or asks something of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from plait.benchmarks.runs.display import progress_table, worker_table
from plait.benchmarks.runs.run_directory import read_manifest
from plait.cluster.control import (
    ControlError,
    Request,
    RunState,
    ask,
    driver_folders,
    next_state,
    read_state,
)
from plait.cluster.shard import Shard
from plait.generators.batches import handed_batches
from plait.generators.buckets import AnyPath
from plait.generators.errors import PlaitError, UsageError
from plait.generators.names import unknown, validate

_VALUES = {
    "pause": (),
    "resume": (),
    "stop": (),
    "budget": ("max_cost",),
    "workers": ("stage", "workers"),
}
"""What each request is followed by."""


def control(
    root: AnyPath,
    words: Sequence[str],
    wait_s: float,
    console: Console,
    *,
    shard: Shard | None = None,
    as_json: bool = False,
) -> int:
    """Show the state of the run at `root`, or ask what `words` say and show the answer.

    Of all drivers of the run, or of the one that has `shard`. Raises ControlError or
    UsageError after all have been heard, where one of them did not do as it was asked.
    """
    request = request_of(words) if words else None
    folders = [f for f in driver_folders(root) if not shard or f == shard.folder(root)]
    if not folders:
        status = read_manifest(root).get("status")
        where = f"{root}, shard {shard}" if shard else root
        lines = [f"{where}: nothing is running; the status of the run is {status!r}"]
        for batch in handed_batches(root):
            lines.append(
                f"{len(batch.requests):,} requests of {batch.stage_name} wait in batch "
                f"{batch.id or batch.name}, handed in {batch.made}"
            )
        raise ControlError("\n".join(lines))
    with ThreadPoolExecutor(len(folders)) as pool:
        heard = list(pool.map(lambda folder: _hear(folder, request, wait_s), folders))
    states = [said for said, _ in heard if isinstance(said, RunState)]
    if as_json:
        known = [state.model_dump(mode="json") for state in states]
        console.print(json.dumps(known, indent=2))
    else:
        for folder, (said, _) in zip(folders, heard, strict=True):
            _show("" if folder == root else folder.name, said, console)
    if errors := [error for _, error in heard if error is not None]:
        raise type(errors[0])("\n".join(dict.fromkeys(map(str, errors))))
    return 0


def _hear(
    folder: AnyPath, request: Request | None, wait_s: float
) -> tuple[RunState | str | None, PlaitError | None]:
    """Return what a driver answers or its state, the last one known where it has failed."""
    state = read_state(folder)
    if state is None:
        return None, ControlError(f"{folder}: the driver has ended")
    try:
        if request is None:
            return next_state(folder, state, wait_s), None
        return ask(folder, state.driver, request, wait_s), None
    except PlaitError as error:
        return state if request is None else None, error


def _show(shard: str, said: RunState | str | None, console: Console) -> None:
    if isinstance(said, RunState):
        if shard:
            console.print(f"shard {shard}:")
        console.print(progress_table(said.progress))
        console.print(worker_table(said.progress.workers))
    elif said is not None:
        console.print(f"shard {shard}: {said}" if shard else said)


def request_of(words: Sequence[str]) -> Request:
    """Return what `pause` or `workers writer 4` ask; UsageError."""
    action, *values = words
    if action not in _VALUES:
        raise unknown("request", action, _VALUES)
    names = _VALUES[action]
    if len(values) != len(names):
        needed = " ".join([action, *map(str.upper, names)])
        raise UsageError(f"{action} takes the form `{needed}`; got `{' '.join(words)}`")
    return validate(
        Request, {"action": action, **dict(zip(names, values, strict=True))}, ""
    )
