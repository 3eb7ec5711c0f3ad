"""`plait ctl`: shows a run under way, or asks something of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

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
    folders = driver_folders(root)
    if shard is not None:
        folders = [folder for folder in folders if folder == shard.folder(root)]
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
    # All are asked at once: each may take as long as `wait_s`.
    with ThreadPoolExecutor(len(folders)) as pool:
        replies = [*pool.map(lambda folder: _hear(folder, request, wait_s), folders)]
    if as_json:
        states = []
        for reply in replies:
            if isinstance(reply.said, RunState):
                states.append(reply.said.model_dump(mode="json"))
        console.print(json.dumps(states, indent=2))
    else:
        for folder, reply in zip(folders, replies, strict=True):
            _show("" if folder == root else folder.name, reply.said, console)
    errors = [reply.error for reply in replies if reply.error is not None]
    if errors:
        raise type(errors[0])("\n".join(dict.fromkeys(map(str, errors))))
    return 0


class _Reply(NamedTuple):
    """What was heard of one driver."""

    said: RunState | str | None
    """Its answer to a request, or its state: the last one known where it has failed."""
    error: PlaitError | None = None


def _hear(folder: AnyPath, request: Request | None, wait_s: float) -> _Reply:
    """Return what a driver answers to a request, or its state where nothing is asked."""
    state = read_state(folder)
    if state is None:
        return _Reply(None, ControlError(f"{folder}: the driver has ended"))
    try:
        if request is None:
            return _Reply(next_state(folder, state, wait_s))
        return _Reply(ask(folder, state.driver, request, wait_s))
    except PlaitError as error:
        return _Reply(state if request is None else None, error)


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
    named = dict(zip(names, values, strict=True))
    return validate(Request, {"action": action, **named}, "")
