"""How many jobs are expected: exactly where keys are known, else as in runs before."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest
from forecast_helpers import TWO_CPUS, write_manifest
from trial import filled, plan_of, sample

from benchmarks.runs.forecast.sources import Sources
from benchmarks.runs.forecast.work import StageWork, work_of
from cluster.counts import count
from cluster.plan import Plan
from cluster.store import Store
from generators.base import Kind


def plan(queries: int, most: int = 4) -> Plan:
    """A writer of at most `most` pictures, an artist, and a scorer."""
    made = plan_of([sample(i) for i in range(queries)])
    return replace(made, systems=[replace(made.systems[0], max_images=most)])


def expected(of: Plan, root: Path) -> dict[str, StageWork]:
    counts = count(of, Store(root))
    return {w.spec.name: w for w in work_of(of, counts, Sources.at(root, TWO_CPUS))}


def test_without_runs_before_the_most_is_counted_and_said(tmp_path: Path) -> None:
    work = expected(plan(6), tmp_path / "new")
    assert (work["writer"].known, work["writer"].jobs) == (6, 6)
    assert (work["painter0"].known, work["painter0"].jobs) == (0, 24)
    assert (work["measure"].jobs, work["measure"].bound) == (6, True)
    assert (work["painter0"].bound, work["writer"].bound) == (True, False)


def test_runs_before_tell_how_many_pictures_and_judgements_follow(tmp_path: Path) -> None:
    done = plan(4)
    filled(done, tmp_path / "before")
    name = done.systems[0].name
    write_manifest(
        tmp_path / "before",
        done.stages,
        counts={"planned": 8, "missing": 0},
        pictures_per_document={name: 1.5},
    )
    work = expected(plan(6), tmp_path / "new")
    assert work["painter0"].jobs == pytest.approx(9.0)
    assert work["measure"].jobs == pytest.approx(3.0)  # four judged of eight documents
    assert not any(w.bound for w in work.values())


def test_judgements_of_scorers_that_share_a_stage_are_shared_between_them(
    tmp_path: Path,
) -> None:
    done, next_ = plan(4), plan(6)
    filled(done, tmp_path / "before")
    counts = {"planned": 8, "missing": 0}
    write_manifest(tmp_path / "before", done.stages, counts=counts)
    (first,) = next_.scorers
    second = copy(first)
    second.name = "second"
    both = replace(next_, scorers=[first, second])
    once, twice = (expected(p, tmp_path / "new")["measure"].jobs for p in (next_, both))
    # Four records of eight documents, whichever scorer asked for them.
    assert once == pytest.approx(3.0)
    assert twice == pytest.approx(3.0)


def test_what_follows_waits_for_what_feeds_it(tmp_path: Path) -> None:
    of = plan(6, most=1)
    write, paint = of.systems[0].stages
    work = expected(of, tmp_path / "new")
    assert [(f.feeder, f.jobs) for f in work["painter0"].flows] == [(write.digest, 6.0)]
    assert [(f.feeder, f.jobs) for f in work["measure"].flows] == [(paint.digest, 6.0)]
    assert work["writer"].rank < work["painter0"].rank < work["measure"].rank


def test_records_that_are_there_are_not_made_again(tmp_path: Path) -> None:
    root = tmp_path / "run"
    filled(plan(4), root, Kind.DRAFT)
    work = expected(plan(4), root)
    assert "writer" not in work
    assert (work["painter0"].known, work["painter0"].jobs) == (4, 4)
    filled(plan(4), root)
    assert expected(plan(4), root) == {}
