"""How a worker's process ended: Ray sees its connection close, the kernel knows more.

A worker is not a child of the driver but of Ray, so the driver cannot wait for it. It holds
a file descriptor of each worker's process on its own machine (pidfd) and asks the kernel
with that, on Linux 6.15 and later.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import struct
import sys
import time
from collections.abc import Mapping
from typing import Any

from plait.cluster.lock import self_description

if sys.platform == "linux":
    import fcntl

# Of include/uapi/linux/pidfd.h: PIDFD_GET_INFO, since Linux 6.13, tells with
# PIDFD_INFO_EXIT, since 6.15, how a process ended that its parent has asked about.
_GET_INFO = 0xC040FF0B
_EXIT = 1 << 3
_INFO = struct.Struct("Q52xi")
"""Its mask, fields that are of no use here, and the status."""
_REAPED_WITHIN_S = 1.0
_ASKED_EVERY_S = 0.02

_SILENT = "connection error code 2. End of file"
"""What Ray says of each process that ends without taking leave, whatever the cause."""
UNKNOWN = (
    "the worker's process has ended, and Ray does not know how: it was killed, as where "
    "memory is short, or code that is not Python crashed"
)
_MEMORY = re.compile(r"Memory on the node .*? was (\S+ used / \S+ limit)")
_EXIT_CODE = re.compile(r"exits with an exit code (\d+)")
_ACTOR = re.compile(r"^\s*actor_id: (\w+)$", re.MULTILINE)


class LocalExits:
    """Remembers processes of this machine while they live, to ask how they ended."""

    def __init__(self) -> None:
        self._handles: dict[str, int] = {}
        """By actor, what the kernel knows its process by."""

    def follow(self, actor: str, process: Mapping[str, Any]) -> None:
        """Remember the process of an actor, by its `self_description`.

        One of another system, such as another container, is none of ours.
        """
        here = self_description()
        if all(process[name] == here[name] for name in ("host", "boot", "namespace")):
            with contextlib.suppress(OSError, AttributeError):  # not everywhere
                self._handles[actor] = os.pidfd_open(process["pid"])

    def status(self, actor: str) -> int | None:
        """Return how the process of an actor ended, as `os.waitpid` gives it.

        None where that is not known. It is asked about once, and then forgotten.
        """
        handle = self._handles.pop(actor, None)
        if handle is None:
            return None
        try:
            return _exit_status(handle)
        finally:
            os.close(handle)

    def close(self) -> None:
        """Forget all processes."""
        while self._handles:
            os.close(self._handles.popitem()[1])


def _exit_status(handle: int) -> int | None:
    """How a process has ended, as `os.waitpid` gives it; None where nobody can tell."""
    until = time.monotonic() + _REAPED_WITHIN_S
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    ended.poll(_REAPED_WITHIN_S * 1000)
    while time.monotonic() < until:
        info = bytearray(_INFO.pack(_EXIT, 0))
        try:
            fcntl.ioctl(handle, _GET_INFO, info)
        except OSError:
            return None  # of an older kernel
        mask, status = _INFO.unpack(info)
        if mask & _EXIT:
            return int(status)
        time.sleep(_ASKED_EVERY_S)  # its parent has not asked yet
    return None


def reason_of(text: str, exits: LocalExits | None = None) -> str | None:
    """Return how a worker ended, of which Ray says `text`; None where that says enough."""
    memory = _MEMORY.search(text)
    if memory:
        return f"Ray has killed the worker because memory was short: {memory[1]}"
    if "receives a SIGTERM" in text:
        return _in_words(signal.SIGTERM)
    code = _EXIT_CODE.search(text)
    if code:
        return _in_words(int(code[1]) << 8)  # as `os.waitpid` gives it
    if _SILENT not in text:
        return None
    actor = _ACTOR.search(text)
    status = exits.status(actor[1]) if exits is not None and actor else None
    return UNKNOWN if status is None else _in_words(status)


def _in_words(status: int) -> str:
    """What a status of `os.waitpid` says of a worker's end."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"the worker was killed (signal {-code})"
    return f"the worker's process ended itself (exit status {code})"
