"""Drivers of shards in one run directory, at once and one after another."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from store_helpers import rows_of_parts
from trial import LIGHT, board, drive, outcomes, plan_of, sample, system_of_stages, writer

from plait.cluster.lock import RunInUse
from plait.cluster.plan import Plan
from plait.cluster.run import MANIFEST, RUN_DIGEST, RunResult
from plait.cluster.shard import SHARD_FILE, Shard
from plait.cluster.tracing.sessions import read_sessions
from plait.cluster.usage import usage_of_stage
from plait.generators import spool
from plait.generators.base import Failure, Fault
from plait.generators.errors import UsageError
from plait.pipelines.composition import text_only

pytestmark = pytest.mark.contract

PLAN = plan_of([sample(i) for i in range(20)])


def shards(count: int) -> list[Shard]:
    return [Shard(number + 1, count) for number in range(count)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one driver makes."""
    root = tmp_path_factory.mktemp("whole")
    drive(PLAN, root)
    return root


@pytest.mark.parametrize(("count", "threads"), [(4, 4), (30, 1)])
def test_shards_make_together_what_one_driver_makes(
    tmp_path: Path, whole: Path, count: int, threads: int
) -> None:
    """Some of 30 shards have no query; those at once create the run directory together."""
    root, start = tmp_path / "run", threading.Barrier(threads)

    def one(shard: Shard) -> RunResult:
        if shard.number <= threads:
            start.wait()
        return drive(PLAN, root, shard)

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(one, shards(count)))
    planned = [result.counts["planned"] for result in results]
    assert sum(planned) == len(PLAN)
    assert planned == [len(PLAN.part(shard)) for shard in shards(count)]
    assert rows_of_parts(root) == rows_of_parts(whole)
    assert not list(root.glob("*.lock"))
    assert board(PLAN, root) == board(PLAN, whole)
    manifest = json.loads((root / MANIFEST).read_text())
    assert (manifest[RUN_DIGEST], manifest["status"]) == ("trial", "started")
    notes = [json.loads(path.read_text()) for path in root.glob(f"shards/*/{SHARD_FILE}")]
    assert [note["status"] for note in notes] == ["finished"] * count
    assert sum(note["counts"]["done"] for note in notes) == len(PLAN)
    assert sum(s.status == "finished" for s in read_sessions(root)) == sum(
        map(bool, planned)
    )


def test_queries_in_a_file_are_answered_as_those_in_memory(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MOST_IN_MEMORY", 4)
    plan = replace(PLAN, queries=spool.keep(PLAN.queries, "queries"))
    assert isinstance(plan.queries, spool.Spool)
    assert isinstance(plan.part(Shard(1, 2)).queries, spool.Selection)
    for name, own in {"one": [None], "two": shards(2)}.items():
        for shard in own:
            drive(plan, tmp_path / name, shard)
        assert rows_of_parts(tmp_path / name) == rows_of_parts(whole)
        assert board(plan, tmp_path / name) == board(PLAN, whole)


def test_a_shard_that_is_run_again_makes_only_what_is_missing(tmp_path: Path) -> None:
    first, second = shards(2)
    few = replace(PLAN, queries=PLAN.queries[:10])
    assert drive(few, tmp_path, first, run="few").made > 0
    before = rows_of_parts(tmp_path)
    assert drive(PLAN, tmp_path, first, joins="few").made > 0
    drive(PLAN, tmp_path, second)
    keys = Counter(rows_of_parts(tmp_path))
    assert all(keys[key] == 1 for key in before)
    assert drive(PLAN, tmp_path, second).made == 0
    assert drive(PLAN, tmp_path).made == 0


def test_the_end_of_a_run_compacts_and_makes_nothing(tmp_path: Path) -> None:
    for shard in shards(4):
        drive(PLAN, tmp_path, shard)
    parts = len(list(tmp_path.glob("stages/*/part-*")))
    noted = sorted(tmp_path.glob("shards/*/shard.json"))
    loaded = [json.loads(path.read_text())["timing"]["load_seconds"] for path in noted]
    result = drive(PLAN, tmp_path, makes=False)
    assert (result.made, result.counts["missing"]) == (0, 0)
    stages = len(PLAN.stages)
    assert len(list(tmp_path.glob("stages/*/part-*"))) == stages < parts
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    assert manifest["status"] == "finished"
    assert manifest["timing"]["load_seconds"] == {
        stage: [load for own in loaded for load in own[stage]] for stage in loaded[0]
    }
    assert {s["status"] for s in manifest["shards"].values()} == {"finished"}


def test_what_is_missing_at_the_end_of_a_run_stays_missing(tmp_path: Path) -> None:
    drive(PLAN, tmp_path, Shard(1, 2))
    left = len(PLAN.part(Shard(2, 2)))
    result = drive(PLAN, tmp_path, makes=False)
    assert (result.made, result.counts["missing"]) == (0, left)


@pytest.mark.parametrize("shard", [None, Shard(2, 2)])
def test_a_run_that_has_changed_since_it_was_planned_is_not_overwritten(
    tmp_path: Path, shard: Shard | None
) -> None:
    drive(PLAN, tmp_path, Shard(1, 2))
    with pytest.raises(RunInUse):
        drive(PLAN, tmp_path, shard, run="another")
    drive(PLAN, tmp_path, shard, run="another", joins="trial")
    assert json.loads((tmp_path / MANIFEST).read_text())[RUN_DIGEST] == "another"


PAID = {"cost": 1.0, "price_per_million_input": 1.0}


def paid_plan(**ceilings: float) -> Plan:
    remote = replace(LIGHT, endpoint="https://api", batch_size=1, concurrency=1)
    lvlm = replace(writer(remote), options=PAID | ceilings)
    plan = plan_of([sample(i) for i in range(40)], write=lvlm)
    text = system_of_stages(name="writer@text", draft=lvlm, render=None, compose=text_only)
    return replace(plan, systems=[text])


def test_shards_spend_no_more_than_their_parts_of_a_ceiling(tmp_path: Path) -> None:
    plan = paid_plan()
    for shard in shards(4) * 2:  # what a shard has spent counts when it is run again
        result = drive(plan, tmp_path, shard, max_cost=8.0)
        assert result.counts["done"] == 2
    failures = [o for o in outcomes(plan, tmp_path).values() if isinstance(o, Failure)]
    assert [failure.fault for failure in failures] == [Fault.BUDGET] * 32
    assert drive(plan, tmp_path, max_cost=10.0).counts["done"] == 10


def test_the_ceilings_of_a_model_are_divided(tmp_path: Path) -> None:
    plan, shard = paid_plan(max_total_tokens=10, max_cost=1.0), Shard(1, 4)
    (system,) = plan.part(shard).systems
    options = system.draft.options
    assert (options["max_total_tokens"], options["max_cost"]) == (2, 0.25)
    assert system.draft.digest == plan.systems[0].draft.digest
    drive(paid_plan(), tmp_path)
    own = usage_of_stage(tmp_path, system.draft, shard)["cost"]
    assert own == len(plan.part(shard).queries)
    assert usage_of_stage(tmp_path, system.draft)["cost"] == len(plan.queries)


def test_a_query_stays_in_its_shard() -> None:
    """Of every process and version, or its records would be made twice."""
    ids = ["SA-0", "PBL-1", "MSR-2", "\ud83d"]
    assert [[s.number for s in shards(7) if s.holds(i)] for i in ids] == [
        [5],
        [4],
        [6],
        [5],
    ]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "", "1/0", "-1/3", "1/3/5", "a/b"])
def test_a_shard_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Shard.of(text)
