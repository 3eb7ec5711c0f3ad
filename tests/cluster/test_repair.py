"""A run over damaged parts makes their records again and ends as if nothing had been."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from store_helpers import damage
from trial import Measuring, Witness, board, painter, plan_of, run, sample

from cluster import run as runs
from cluster.plan import EngineOptions, Plan
from cluster.run import execute
from cluster.store import Store, StoreError
from generators.base import StageSpec

pytestmark = pytest.mark.usefixtures("worker_threads")


def finished(root: Path) -> tuple[Plan, str]:
    plan = plan_of([sample(i) for i in range(6)], paint=[painter(0)])
    assert run(plan, root).counts["scored"] == 6
    return plan, board(plan, root)


def part_of(root: Path, spec: StageSpec) -> Path:
    (part,) = Store(root).parts(spec)
    return part


def forget(root: Path, specs: Sequence[StageSpec]) -> None:
    for spec in specs:
        part_of(root, spec).unlink()


def test_a_scorer_that_meets_a_damaged_picture_has_it_made_again(tmp_path: Path) -> None:
    """Not a final failure of the scorer, and not a score of a broken image."""
    plan, before = finished(tmp_path)
    paint, measure = plan.systems[0].stages[-1], plan.scorers[0].stages[0]
    damaged = part_of(tmp_path, paint)
    forget(tmp_path, [measure])
    damage(damaged, "image.bytes")
    witness = Witness()
    result = run(plan, tmp_path, witness)
    assert (result.failed, result.counts["scored"]) == (0, 6)
    assert board(plan, tmp_path) == before
    assert damaged.with_suffix(".unreadable").exists()
    assert any("set aside" in n and damaged.name in n for n in witness.notices)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["status"], manifest["counts"]["missing"]) == ("finished", 0)


@pytest.mark.parametrize("column", ["segments", "notes", "usage"])
def test_damaged_text_is_written_again(tmp_path: Path, column: str) -> None:
    plan, before = finished(tmp_path)
    damaged = part_of(tmp_path, plan.systems[0].stages[0])
    damage(damaged, column)
    witness = Witness()
    result = execute(plan, tmp_path, EngineOptions(), {"config": {}}, witness, notes=True)
    assert (result.made, result.counts["scored"], result.counts["missing"]) == (6, 6, 0)
    assert board(plan, tmp_path) == before
    assert any(damaged.name in n for n in witness.notices)


@pytest.mark.slow
def test_all_damaged_parts_of_a_run_are_found_at_once(tmp_path: Path) -> None:
    plan, before = finished(tmp_path)
    stages = [*plan.systems[0].stages, *Measuring().stages]
    damaged = [part_of(tmp_path, spec) for spec in stages]
    for part, column in zip(damaged, ("usage", "notes", "notes"), strict=True):
        damage(part, column)
    witness = Witness()
    assert run(plan, tmp_path, witness).made == 18
    assert not any("intact" in notice for notice in witness.notices)
    assert board(plan, tmp_path) == before
    assert all(part.with_suffix(".unreadable").exists() for part in damaged)


@pytest.mark.slow
def test_a_disk_that_damages_what_is_made_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = finished(tmp_path)
    draft = plan.systems[0].stages[0]
    make = runs._Work._make_missing

    def made_and_damaged(self: runs._Work, *, announce: bool) -> None:
        make(self, announce=announce)
        damage(part_of(tmp_path, draft), "usage")

    monkeypatch.setattr(runs._Work, "_make_missing", made_and_damaged)
    with pytest.raises(StoreError, match="check the disk"):
        run(plan, tmp_path)
