"""`trace.json` keeps the rules of Chrome's trace event format."""

from __future__ import annotations

import json

import pytest
from trace_helpers import (
    SECOND,
    each,
    read_chrome,
    session,
    slices_of,
    threads_of,
    worker,
)

from cluster.tracing.chrome import trace_text
from cluster.tracing.sessions import Interval


def test_a_worker_is_a_thread_of_its_node_and_its_batches_are_slices() -> None:
    trace = read_chrome(trace_text([session(worker("writer", each(1, 3), end=10), end=10)]))
    computed = slices_of(trace, "compute")
    assert [(e["ts"], e["dur"], e["args"]["records"]) for e in computed] == [
        (i * SECOND, SECOND, 4) for i in range(3)
    ]
    (wait,) = slices_of(trace, "wait")
    assert (wait["ts"], wait["dur"]) == (3 * SECOND, 7 * SECOND)
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names == ["driver on driver", "host"]
    assert threads_of(trace) == ["driver", "writer #0"]


def test_calls_that_overlap_have_threads_of_their_own() -> None:
    calls = [(0, 3), (1, 4), (2, 5), (3, 6)]
    trace = read_chrome(trace_text([session(worker("remote", calls, slots=4))]))
    names = threads_of(trace)
    assert names == ["driver", "remote #0", "remote #0 /1", "remote #0 /2"]
    assert len(slices_of(trace, "compute")) == 4


def test_sessions_follow_each_other_without_the_time_between_them() -> None:
    """The second one began ten days later; its first batch follows after a second."""
    first = session(worker("a", each(1, 5), end=5), end=5)
    later = 10**18 + 10 * 86_400 * 10**9
    second = session(worker("a", each(1, 5), end=5), end=5, start_ns=later)
    trace = read_chrome(trace_text([first, second]))
    assert [e["ts"] for e in slices_of(trace, "compute")][5] == 6 * SECOND
    instants = [e for e in trace["traceEvents"] if e["ph"] == "i"]
    assert ["started 2001-09-19T01:46:40Z" in e["name"] for e in instants] == [False, True]
    assert [s["at_us"] for s in trace["otherData"]["sessions"]] == [0, 6 * SECOND]


def test_queues_are_counters_and_lost_batches_and_loading_are_slices() -> None:
    trace = worker("a", each(1, 2, begin=3), ready=3, end=9)
    trace.states["loading"] = SECOND
    trace.opening = [
        Interval("server", SECOND, 2 * SECOND),
        Interval("load", 2 * SECOND, 3 * SECOND),
    ]
    trace.lost = [Interval("lost", 4 * SECOND, 9 * SECOND, 4)]
    whole = session(trace, end=9)
    whole.queues = [(0, {"a": 7}), (5 * SECOND, {"a": 0})]
    chrome = read_chrome(trace_text([whole]))
    for name in ("start process", "start server", "load", "lost"):
        assert len(slices_of(chrome, name)) == 1, name
    counters = [e["args"]["jobs"] for e in chrome["traceEvents"] if e["ph"] == "C"]
    assert counters == [7, 0]


def test_no_time_between_loading_and_the_first_batch_is_left_blank() -> None:
    trace = worker("a", each(1, 2, begin=6), ready=5, end=9)
    trace.states["loading"] = SECOND
    trace.opening = [Interval("load", SECOND, 3 * SECOND)]
    chrome = read_chrome(trace_text([session(trace, end=9)]))
    own = [e for e in chrome["traceEvents"] if e["ph"] == "X" and e["pid"] > 1]
    names = {(e["name"], e["ts"] // SECOND, e["dur"] // SECOND) for e in own}
    assert {("load", 1, 2), ("get ready", 3, 2), ("wait", 5, 1)} <= names
    assert sum(e["dur"] for e in own) == 9 * SECOND


def test_names_of_any_script_are_written() -> None:
    chrome = read_chrome(trace_text([session(worker('писатель "1"\n', each(1, 1)))]))
    assert 'писатель "1"\n #0' in threads_of(chrome)


@pytest.mark.parametrize(
    "change",
    [
        lambda events: events.append(dict(events[-1], ts=-1)),
        lambda events: events.append(dict(events[-1], dur=None)),
        lambda events: events.append(dict(events[-1], tid=99)),
        lambda events: events.append(dict(events[-1], ts=events[-1]["ts"] - 5, dur=10)),
        lambda events: events.append(dict(events[-1], ph="?")),
    ],
)
def test_the_reader_of_these_tests_refuses_what_breaks_a_rule(change) -> None:
    content = json.loads(trace_text([session(worker("a", each(1, 3)))]))
    computed = [e for e in content["traceEvents"] if e["name"] == "compute"]
    content["traceEvents"] = [
        *(e for e in content["traceEvents"] if e["name"] != "compute"),
        *computed,
    ]
    change(content["traceEvents"])
    with pytest.raises(AssertionError):
        read_chrome(json.dumps(content))
