"""Processes that a test has started, by a word of their command lines or by their ids."""

from __future__ import annotations

import contextlib
import os
import time

import psutil


def living(marker: object, *pids: int) -> list[psutil.Process]:
    """Those but this one, with `marker` in their command line or one of these ids."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            named = any(str(marker) in word for word in process.cmdline())
            ended = process.status() == psutil.STATUS_ZOMBIE
            if (named or process.pid in pids) and not ended and process.pid != os.getpid():
                found.append(process)
    return found


def all_end(marker: object, *pids: int) -> bool:
    """Whether none of them is there any more, within a minute."""
    until = time.monotonic() + 60
    while living(marker, *pids) and time.monotonic() < until:
        time.sleep(0.05)
    return not living(marker, *pids)
