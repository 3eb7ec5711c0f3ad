"""Live control of a run by files in its directory: from any node that sees it, no port.

Below the folder of its own that a driver has, which is the run directory or a shard's:

    .control/state.json         what the driver does, written whole every few seconds
    .control/DRIVER-ID.request  what somebody asks of the driver
    .control/DRIVER-ID.answer   what it answers

A request is taken by removing it, and withdrawn in the same way: one of the two succeeds
(in a bucket both may, and the driver obeys what nobody waits for any more).
It names the driver that it is for, so it cannot reach a later one. Clocks are not compared:
a driver lives as long as its state changes. Folders are listed before files in them are
read, because opening a folder makes a client of NFS ask the server for what is new.
"""

from __future__ import annotations

import contextlib
import errno
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plait.cluster.lock import age_s, is_dead, self_description
from plait.cluster.shard import FOLDER as SHARDS
from plait.cluster.watcher import RunProgress
from plait.generators.buckets import AnyPath, matching, unlink_all
from plait.generators.errors import PlaitError, UsageError
from plait.generators.files import write_whole

FOLDER = ".control"
_STATE = "state.json"
_EVERY_S = 2.0
"""How often the driver writes its state and looks for requests."""
_POLL_S = 0.1
"""How often whoever asks looks for an answer."""
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class ControlError(PlaitError, RuntimeError):
    """No driver is there, or it did not answer."""


class Request(BaseModel):
    """What somebody asks of a run under way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["pause", "resume", "stop", "budget", "workers"]
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    stage: str | None = None
    workers: int | None = Field(default=None, ge=1)


class Answer(BaseModel):
    """What the driver says to a request."""

    refused: bool = False
    text: str


class RunState(BaseModel):
    """What the driver of a run last wrote."""

    driver: str
    """Tells it from every other driver."""
    process: Mapping[str, Any]
    """As `plait.cluster.lock` describes it."""
    written: int
    """How often the driver has written its state."""
    progress: RunProgress


class Control:
    """The driver's side; made while it holds its lock, with the folder of its own."""

    def __init__(self, own: AnyPath) -> None:
        self._folder = own / FOLDER
        with contextlib.suppress(OSError):  # of drivers that were killed
            unlink_all([*self._folder.iterdir()])
            self._folder.rmdir()
        self._driver = uuid.uuid4().hex
        self._process = self_description()
        self._written = 0
        self._interval = -1.0

    def turn(self, progress: RunProgress, obey: Callable[[Request], str]) -> None:
        """Every two seconds of the run, write its state and answer requests.

        `obey` returns an answer, or raises UsageError. That files cannot be written does
        not stop the run: it is seen by whoever reads them.
        """
        interval = progress.elapsed_s // _EVERY_S
        if interval == self._interval:
            return
        self._interval = interval
        self._written += 1
        state = RunState(
            driver=self._driver,
            process=self._process,
            written=self._written,
            progress=progress,
        )
        self._write(_STATE, state)
        for name, text in self._take_requests().items():
            try:
                answer = Answer(text=obey(Request.model_validate_json(text)))
            except (ValidationError, UsageError) as error:
                answer = Answer(refused=True, text=str(error))
            self._write(name, answer)

    def close(self) -> None:
        """Say that no requests are taken any more; whoever asks removes what is his."""
        with contextlib.suppress(OSError):
            (self._folder / _STATE).unlink()
            self._folder.rmdir()

    def _take_requests(self) -> dict[str, bytes]:
        """Remove all requests; return each under the name of its answer."""
        taken = {}
        with contextlib.suppress(OSError):
            for path in matching(self._folder, f"{self._driver}-*.request"):
                with contextlib.suppress(FileNotFoundError):  # withdrawn
                    text = path.read_bytes()
                    path.unlink()
                    taken[path.with_suffix(".answer").name] = text
        return taken

    def _write(self, name: str, content: BaseModel) -> None:
        with contextlib.suppress(OSError):
            write_whole(self._folder / name, content.model_dump_json(), durable=False)


def driver_folders(root: AnyPath) -> list[AnyPath]:
    """The own folders of the drivers that make records of a run, or died while they did."""
    found: list[AnyPath] = []
    for place in ("", f"{SHARDS}/*/"):
        states = matching(root, f"{place}{FOLDER}/{_STATE}")
        found += [path.parent.parent for path in states]
    return found


def read_state(own: AnyPath) -> RunState | None:
    """Return what the driver last wrote; None where no records are being made."""
    return _read(own / FOLDER / _STATE, RunState)


def next_state(own: AnyPath, known: RunState, wait_s: float) -> RunState:
    """The state that is written after `known`; ControlError where none is in `wait_s`."""

    def look() -> RunState | None:
        state = _of_driver(own, known.driver)
        return state if state.written != known.written else None

    state = _poll(look, wait_s)
    if state is None:
        raise ControlError(_silence(own, "write its state", wait_s))
    return state


def ask(own: AnyPath, driver: str, request: Request, wait_s: float) -> str:
    """Return the answer of the driver to a request, which is withdrawn where none comes.

    Raises:
        ControlError: Where the driver does not answer within `wait_s`, or has ended.
        UsageError: Where it refuses.
    """
    path = own / FOLDER / f"{driver}-{uuid.uuid4().hex}.request"
    reply = path.with_suffix(".answer")

    def look() -> Answer | None:
        try:
            _of_driver(own, driver)
        except ControlError:  # its last act may have been to answer
            answer = _read(reply, Answer)
            if answer is not None:
                return answer
            raise
        return _read(reply, Answer)

    write_whole(path, request.model_dump_json(exclude_none=True), durable=False)
    try:
        answer = _poll(look, wait_s)
        if answer is None:
            try:
                path.unlink()
            except FileNotFoundError:  # it was taken just now
                answer = _poll(look, wait_s)
    finally:
        path.unlink(missing_ok=True)
        reply.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # where the driver has ended
    if answer is None:
        raise ControlError(_silence(own, "answer", wait_s))
    if answer.refused:
        raise UsageError(answer.text)
    return answer.text


def _of_driver(own: AnyPath, driver: str) -> RunState:
    """Return the state of the driver; ControlError where it has ended."""
    state = read_state(own)
    if state is None or state.driver != driver:
        raise ControlError(f"{own}: the driver has ended")
    if is_dead(state.process):
        process = "process {pid} on {host}".format_map(state.process)
        raise ControlError(
            f"{own}: the driver ({process}) has died; run the same command again to go on"
        )
    return state


def _silence(own: AnyPath, what: str, wait_s: float) -> str:
    text = f"{own}: the driver did not {what} within {wait_s:g} s"
    with contextlib.suppress(OSError):  # which needs to write
        text += f"; it last wrote its state {age_s(own / FOLDER / _STATE):.0f} s ago"
    return text


def _poll(look: Callable[[], T | None], wait_s: float) -> T | None:
    """Look again and again until something is found; None where nothing is in `wait_s`."""
    until = time.monotonic() + wait_s
    found = look()
    while found is None and time.monotonic() < until:
        time.sleep(_POLL_S)
        found = look()
    return found


def _read(path: AnyPath, model: type[M], *, again: bool = True) -> M | None:
    """Return what a file holds; None where there is none, ControlError for other text."""
    # The folder is listed before, so that a client of NFS asks the server for it anew.
    next(path.parent.glob("*"), None)
    try:
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ControlError(f"{path} cannot be read: {error}") from None
    except OSError as error:
        # On NFS, a file that was replaced when it had just been opened.
        if error.errno != errno.ESTALE or not again:
            raise
        return _read(path, model, again=False)
