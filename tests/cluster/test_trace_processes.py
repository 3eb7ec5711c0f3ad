"""The trace of processes: of a stage that sleeps, of workers that die."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from trace_helpers import read_chrome, slices_of, threads_of
from trial import LIGHT, painter, plan_of, run, sample, writer

from cluster.run import MANIFEST
from cluster.tracing.chrome import TRACE
from cluster.tracing.sessions import read_sessions

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_address")]

ONE = replace(LIGHT, workers=1)


def test_a_sleeping_stage_is_seen_asleep_and_bounds_the_run(tmp_path: Path) -> None:
    slow = painter(0, replace(ONE, batch_size=1), sleep_s=0.3)
    plan = plan_of([sample(i) for i in range(12)], write=writer(ONE), paint=[slow])
    result = run(plan, tmp_path)
    assert result.traced

    trace = read_chrome((tmp_path / TRACE).read_text())
    names = threads_of(trace)
    assert any(name.startswith("painter0 #") for name in names)
    assert any(name.startswith("writer #") for name in names)
    for name in ("start process", "load", "read", "compute", "write", "making records"):
        assert slices_of(trace, name), name

    (session,) = read_sessions(tmp_path)
    (asleep,) = (w for w in session.workers if w.stage == "painter0")
    computed = [p.busy / 1e6 for b in asleep.batches if (p := b.phases[1])]
    assert sum(b.records for b in asleep.batches) == 12
    assert all(0.3 <= seconds < 2 for seconds in computed)
    assert any(part.name == "load" for part in asleep.opening)

    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (summary,) = manifest["trace"]["sessions"]
    assert summary["bounding"] == "painter0"
    assert summary["stages"]["painter0"]["compute_s"] >= 12 * 0.3
    assert summary["one_more_saves_s"] > 0.5


def test_a_worker_that_dies_leaves_its_spans(tmp_path: Path) -> None:
    samples = [sample(0), sample(1), sample(2, "!kill")]
    place = replace(ONE, batch_size=1)
    run(plan_of(samples, write=writer(place)), tmp_path)
    (session,) = read_sessions(tmp_path)
    writers = [w for w in session.workers if w.stage == "writer"]
    assert len(writers) > 1
    assert sum(b.records for w in writers for b in w.batches) == 2
    assert sum(lost.records for w in writers for lost in w.lost) >= 3
    assert all(w.begin <= w.end <= session.end for w in writers)
    lost = slices_of(read_chrome((tmp_path / TRACE).read_text()), "lost")
    assert all(e["args"]["records"] for e in lost)
    assert lost
