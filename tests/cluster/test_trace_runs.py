"""What the trace of a run holds: sessions, batches that raise, spans from elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from trace_helpers import read_chrome, slices_of, threads_of
from trial import LIGHT, plan_of, run, sample, writer

from cluster.run import MANIFEST
from cluster.tracing.chrome import TRACE
from cluster.tracing.journal import JOURNAL
from cluster.tracing.sessions import read_sessions
from cluster.tracing.summary import summarise

pytestmark = pytest.mark.usefixtures("worker_threads")

ONE = replace(LIGHT, workers=1)


def test_a_run_that_makes_nothing_adds_no_session(tmp_path: Path) -> None:
    plan = plan_of([sample(i) for i in range(4)])
    assert run(plan, tmp_path).traced
    before = (tmp_path / JOURNAL).read_bytes()
    assert not run(plan, tmp_path).traced
    assert (tmp_path / JOURNAL).read_bytes() == before
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    assert len(manifest["trace"]["sessions"]) == 1


def test_further_queries_are_a_further_session(tmp_path: Path) -> None:
    run(plan_of([sample(i) for i in range(4)]), tmp_path)
    run(plan_of([sample(i) for i in range(8)]), tmp_path)
    sessions = read_sessions(tmp_path)
    made = [summarise(s).stages["writer"].records for s in sessions]
    assert made == [4, 4]
    trace = read_chrome((tmp_path / TRACE).read_text())
    first, second = (s["at_us"] for s in trace["otherData"]["sessions"])
    assert second > first + sessions[0].end
    assert any("(session 2)" in name for name in threads_of(trace))


def test_batches_that_raise_are_named(tmp_path: Path) -> None:
    samples = [sample(0), sample(1, "!raise")]
    run(plan_of(samples, write=writer(replace(ONE, batch_size=1))), tmp_path)
    computed = slices_of(read_chrome((tmp_path / TRACE).read_text()), "compute")
    raised = [e for e in computed if e["args"].get("status") == "raised"]
    assert len(raised) == 1


def test_workers_that_share_no_folder_send_their_spans_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.workers.TOKEN_FOLDER", "seen by no worker")
    run(plan_of([sample(i) for i in range(4)]), tmp_path)
    (session,) = read_sessions(tmp_path)
    phases = [b.phases for w in session.workers for b in w.batches]
    assert phases
    assert all(None not in times for times in phases)
    assert all(w.host and w.ready for w in session.workers)
