"""What a run keeps of its trace: `trace.json`, and summaries in the manifest."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster.tracing.journal import ROWS
from cluster.tracing.sessions import Session, read_sessions
from cluster.tracing.summary import summarise
from generators.files import write_whole

TRACE = "trace.json"
_GAP_US = 1_000_000
"""Between two sessions on the axis of the trace."""
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
        write_whole(root / TRACE, trace_text(sessions), durable=False)
        last = sessions[-_MOST_SUMMARIES:]
        return {"trace": {"sessions": [summarise(s).as_json() for s in last]}}
    except Exception as error:
        notice(f"the trace of the run cannot be written: {type(error).__name__}: {error}")
        return {}


def trace_text(sessions: Sequence[Session]) -> str:
    """Return the trace in Chrome's format, for ui.perfetto.dev and chrome://tracing.

    Sessions follow each other on one axis, without the time between them.
    """
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    lines, starts, at, former = [], [], 0, 0
    for number, session in enumerate(sessions, 1):
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(session.start_ns / 1e9))
        starts.append({"started": started, "at_us": at, "status": session.status})
        suffix = f" (session {number})" if len(sessions) > 1 else ""
        driver = {"ph": "M", "ts": 0, "pid": 1, "tid": 1}
        names = [
            driver
            | {"name": "process_name", "args": {"name": f"driver on {session.host}"}},
            driver | {"name": "thread_name", "args": {"name": "driver"}},
        ]
        for event in [*names, *session.events]:
            place = {"pid": event["pid"] + former, "tid": event["tid"] + former}
            if event["ph"] == "M":
                place["args"] = {"name": event["args"]["name"] + suffix}
            lines.append(encode(event | place | {"ts": event["ts"] + at}))
        at += session.end + _GAP_US
        former += ROWS * (len(session.workers) + 1)
    about = encode({"tool": "plait", "sessions": starts})
    events = ",\n".join(lines)
    return f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[\n{events}\n]}}\n'
