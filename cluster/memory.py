"""Memory that this process has freed, and the system has not."""

from __future__ import annotations

import contextlib
import ctypes


def release_memory() -> None:
    """Give freed memory back to the system, where the C library can be told to (glibc)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
