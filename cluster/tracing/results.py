"""What a run keeps of its trace: `trace.json`, and summaries in the manifest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.tracing.chrome import write_trace
from cluster.tracing.journal import append_phase
from cluster.tracing.sessions import read_sessions
from cluster.tracing.spans import CLOCK
from cluster.tracing.summary import summarise

WRITING = "writing tables and page"
_MOST_SUMMARIES = 20
"""Sessions that the manifest tells of: the last ones. The trace has them all."""


def traced(root: Path, notice: Callable[[str], None]) -> dict[str, Any]:
    """Write `trace.json`; the manifest's entry, empty where the run has no trace.

    A run that has made its records is not failed by its trace: `notice` is called with the
    reason why there is none.
    """
    try:
        sessions = read_sessions(root)
        if not sessions:
            return {}
        write_trace(root, sessions)
        last = sessions[-_MOST_SUMMARIES:]
        return {"trace": {"sessions": [summarise(s).as_json() for s in last]}}
    except Exception as error:
        notice(f"the trace of the run cannot be written: {type(error).__name__}: {error}")
        return {}


class WritingTables:
    """Times the writing of tables and page, which follows the last session."""

    def __init__(self, root: Path) -> None:
        self._root, self._begin = root, CLOCK.now()

    def end(self, notice: Callable[[str], None]) -> None:
        """Add it to the trace."""
        append_phase(self._root, WRITING, self._begin)
        traced(self._root, notice)
