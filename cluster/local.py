"""Stages in the current process: no Ray and no store, for notebooks and measurements.

    stages = LocalStages()
    document = drive(answer(system, sample, asking), stages.outcomes)

Needs neither Ray nor Arrow.
"""

from __future__ import annotations

import atexit
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from generators.base import (
    Job,
    Outcome,
    Result,
    ServerCommand,
    StageSpec,
    Walk,
    add_usage,
    imported,
)
from generators.checkpoints import on_this_machine
from generators.document import Blob, with_blobs
from generators.pictures import Drawing
from generators.secrets import know, without_keys_in
from generators.unicode import with_valid_text

_servers: dict[ServerCommand, Any] = {}
"""Running servers of this process, which stages of one command share."""
T = TypeVar("T")
R = TypeVar("R")
Read = Callable[[Blob], bytes]
"""How bytes that are not at hand are read."""
Answering = Callable[[Sequence[Job]], list[Outcome[Any]]]
"""Gives the outcomes of jobs, in order."""


def load_class(target: str) -> Callable[..., Any]:
    """The class that `module:Class` names; ValueError says what is wrong with it."""
    module, separator, name = target.partition(":")
    if not separator:
        raise ValueError(f"stage {target!r} is not of the form 'module:Class'")
    try:
        return imported(target)  # type: ignore[no-any-return]
    except AttributeError:
        raise ValueError(f"module {module!r} has no class {name!r}") from None


def load_stage(spec: StageSpec, **options: Any) -> Any:
    """The loaded stage of `spec`; `options` replace those of the spec.

    A server of its own is started, unless `options` name one, and ends with this process.
    """
    know(spec.secrets)
    make = load_class(spec.target)
    if spec.placement.server is not None and "base_url" not in options:
        options["base_url"] = _server_url(spec.placement.server)
    return make(**{**spec.settings, **on_this_machine(spec.options), **options})


def _server_url(command: ServerCommand) -> str:
    """The URL of a running server of this command; ServerError when it cannot be used."""
    from cluster.server_process import ServerProcess, bypass_proxies, log_path

    server: ServerProcess | None = _servers.get(command)
    if server is None or server.has_ended():
        bypass_proxies()
        folder = Path(tempfile.gettempdir()) / "plait"
        server = ServerProcess(command, log_path(folder, command.name))
        server.wait_ready()
        _servers[command] = server
    return server.url


@atexit.register
def stop_servers() -> None:
    """End the servers that stages of this process have started."""
    while _servers:
        _servers.popitem()[1].stop()


def read_file(blob: Blob) -> bytes:
    """The bytes of a blob that lies in a file of its own."""
    return Path(str(blob.place)).read_bytes()


def at_hand(blob: Blob, read: Read = read_file) -> Blob:
    """The blob with its bytes, which are read where they are not there yet."""
    return blob if blob.data is not None else replace(blob, data=read(blob))


class LocalStages:
    """Stages by their spec, each loaded when it is first asked."""

    def __init__(self, read: Read = read_file, *, in_batches: bool = False) -> None:
        """With `in_batches`, a stage is given at most its own batch size in one call."""
        self._read = read
        self._in_batches = in_batches
        self._loaded: dict[str, Any] = {}

    def stage(self, spec: StageSpec) -> Any:
        """The loaded stage."""
        if spec.digest not in self._loaded:
            self._loaded[spec.digest] = load_stage(spec)
        return self._loaded[spec.digest]

    def outcomes(self, jobs: Sequence[Job]) -> list[Outcome[Any]]:
        """The outcomes of jobs, as a worker would store them; what a stage raises.

        Jobs of one stage go to it together, in the order in which they come.
        """
        by_stage: dict[str, list[int]] = defaultdict(list)
        for i, job in enumerate(jobs):
            by_stage[job.spec.digest].append(i)
        made: dict[int, Outcome[Any]] = {}
        for places in by_stage.values():
            size = self._size(jobs[places[0]].spec, len(places))
            for start in range(0, len(places), size):
                batch = places[start : start + size]
                made.update(zip(batch, self._batch([jobs[i] for i in batch]), strict=True))
        return [made[i] for i in range(len(jobs))]

    def close(self) -> None:
        """Forget all stages; those that hold connections or threads are closed."""
        for stage in self._loaded.values():
            getattr(stage, "close", lambda: None)()
        self._loaded.clear()

    def _size(self, spec: StageSpec, jobs: int) -> int:
        # An endpoint takes as many at a time as it has requests in flight.
        placed = spec.placement
        return max(placed.batch_size, placed.concurrency) if self._in_batches else jobs

    def _batch(self, jobs: Sequence[Job]) -> list[Outcome[Any]]:
        inputs = [with_blobs(job.input, lambda b: at_hand(b, self._read)) for job in jobs]
        outcomes = without_keys_in(self.stage(jobs[0].spec)(inputs))
        return [_stored(outcome) for outcome in outcomes]


def _stored(outcome: Outcome[Any]) -> Outcome[Any]:
    """The outcome as records hold it: pictures are encoded, and text is valid."""
    if isinstance(outcome, Result) and isinstance(outcome.value, Drawing):
        outcome = replace(outcome, value=outcome.value.encoded())
    return with_valid_text(outcome)


def drive(walk: Generator[list[Job], list[Outcome[Any]], R], answering: Answering) -> R:
    """Follow a walk, or several that `cluster.walks.together` joins, to the end."""
    try:
        jobs = next(walk)
        while True:
            jobs = walk.send(answering(jobs))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def metered(walk: Walk[T], used: MutableMapping[str, float]) -> Walk[T]:
    """The same walk, which adds the usage of every outcome it is sent to `used`."""
    try:
        jobs = next(walk)
        while True:
            outcomes = yield jobs
            for outcome in outcomes:
                add_usage(used, getattr(outcome, "usage", {}))
            jobs = walk.send(outcomes)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
