"""Runs one server as its child; ends it, and all it has started, when its owner ends.

    python guardian.py STOP_TIMEOUT_S PROGRAM ARGUMENT...

A process of its own between a worker and its server, because a worker may be killed
without a chance to end anything. Its standard input is a pipe from the worker: a line
`stop` there, or the end of the pipe, ends the server. On its standard output it writes
`started PID` and then `exited STATUS`, or `failed REASON` where the program cannot be
started. The server writes to the guardian's standard error, which is its log.

Run by its path, with no package of plait imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

import psutil  # type: ignore[import-untyped]

_POLL_S = 0.1
_ORPHANED_TIMEOUT_S = 3.0
"""Between SIGTERM and SIGKILL where the worker is gone: another may need its GPU."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> None:
    """Start the server, wait for its end or the order to end it, and clear up."""
    stop_timeout_s = float(arguments[0])
    argv = arguments[1:]
    # No child of the worker's: Ray kills those together with the worker.
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stopping: list[object] = []  # signals that have come
    signal.signal(signal.SIGTERM, lambda *received: stopping.append(received))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        # Python would collect the exit status of a process that nothing here refers to.
        process = _start(argv)
    except OSError as error:
        _say(f"failed {error.strerror}: {argv[0]}")
        return
    server = process.pid
    _say(f"started {server}")
    status, ordered = _watch(server, stopping)
    if status is None:
        status = _end(server, stop_timeout_s if ordered else _ORPHANED_TIMEOUT_S)
    _kill_all(server)
    _say(f"exited {status}")


def _start(argv: list[str]) -> subprocess.Popen[bytes]:
    """The server, the leader of its own session and process group."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=2,
        stderr=2,
        start_new_session=True,
        # It must not outlive a guardian that was killed.
        preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
    )


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the process group alone is ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _watch(server: int, stopping: list[object]) -> tuple[int | None, bool]:
    """Wait until the server ends or is to be ended.

    Its exit status, None while it runs, and whether the worker ordered its end.
    """
    while True:
        status = _reap(server)
        if status is not None or stopping:
            return status, False
        with contextlib.suppress(InterruptedError):
            if select.select([0], [], [], _POLL_S)[0]:
                return None, os.read(0, 64).startswith(b"stop")


def _reap(server: int) -> int | None:
    """Collect children that have ended; the server's status where it is one of them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == server:
                return os.waitstatus_to_exitcode(status)
            if pid == 0:
                return None
    return None


def _end(server: int, timeout_s: float) -> int:
    """Ask the process group to end, and kill it after a time; the server's status."""
    _signal_group(server, signal.SIGTERM)
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        status = _reap(server)
        if status is not None:
            return status
        time.sleep(_POLL_S)
    _signal_group(server, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])


def _kill_all(server: int) -> None:
    _signal_group(server, signal.SIGKILL)
    # On Linux, descendants that have lost their parent are children of this process.
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(_POLL_S / 10)
        _reap(server)


def _signal_group(server: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server, number)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1:])
