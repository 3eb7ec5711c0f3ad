"""Payloads differ in their last digits from batch to batch; keys of images do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trial import (
    CONDITIONER,
    LIGHT,
    Measuring,
    as_asked,
    board,
    painter,
    run,
    sample,
    system_of_stages,
    writer,
)

from plait.cluster.plan import Plan, lookup_in
from plait.cluster.store import Store
from plait.cluster.walks import read
from plait.generators.base import Job, StageSpec
from plait.generators.document import ImageRequest, Payload
from plait.generators.keys import digest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("worker_threads")]

WRITER = writer(pictures=2)
NOISY_WRITER = replace(WRITER, target="stages:NoisyWriter")
NOISY_CONDITIONER = replace(CONDITIONER, target="stages:NoisyConditioner")
CHAINS = {
    "states": (NOISY_WRITER, None),
    "conditioned prompts": (WRITER, NOISY_CONDITIONER),
    "conditioned states": (NOISY_WRITER, NOISY_CONDITIONER),
}
SAMPLES = 3
PICTURES = 2 * SAMPLES


def plan_of(chain: str, noise: int = 1) -> Plan:
    """Another noise stands for another size of batches: neither enters a key."""

    def noisy(spec: StageSpec) -> StageSpec:
        options = {"noise": noise} if "Noisy" in spec.target else {}
        return replace(spec, options=options, placement=replace(LIGHT, batch_size=noise))

    draft, condition = CHAINS[chain]
    system = system_of_stages(
        name=chain,
        draft=noisy(draft),
        condition=condition and noisy(condition),
        render=painter(),
        max_images=2,
    )
    samples = [sample(i) for i in range(SAMPLES)]
    return Plan(systems=[system], queries=samples, scorers=[Measuring()], prompt=as_asked)


def noisy_stages(plan: Plan) -> list[StageSpec]:
    return [spec for spec in plan.stages if "Noisy" in spec.target]


def payloads(root: Path, specs: Sequence[StageSpec]) -> list[bytes]:
    parts = [part for spec in specs for part in Store(root).parts(spec)]
    cells = [pq.read_table(part)["payload"].to_pylist() for part in parts]
    return sorted(data for column in cells for cell in column for data in cell)


@pytest.mark.parametrize("chain", CHAINS)
def test_payloads_that_are_made_again_find_their_pictures(
    tmp_path: Path, chain: str
) -> None:
    plan = plan_of(chain)
    run(plan, tmp_path)
    before, lost = board(plan, tmp_path), noisy_stages(plan)
    states = payloads(tmp_path, lost)
    assert len(Store(tmp_path).rows(painter())) == PICTURES
    records = sum(len(Store(tmp_path).rows(spec)) for spec in lost)
    for part in (part for spec in lost for part in Store(tmp_path).parts(spec)):
        part.unlink()
    assert run(plan_of(chain, noise=2), tmp_path).made == records
    assert {*payloads(tmp_path, lost)}.isdisjoint(states)
    assert board(plan, tmp_path) == before


def jobs_of(plan: Plan, store: Store) -> list[Job]:
    """The jobs of a finished run."""
    jobs: list[Job] = []
    look = lookup_in(store)
    for walk in plan.walks():
        read(walk, lambda job: jobs.append(job) or look(job))
    return jobs


def former_key(job: Job) -> str:
    """The key of earlier versions, which had the digest of a payload's bytes in it."""
    request = job.input
    if isinstance(request, ImageRequest) and request.payload is not None:
        request = replace(request, payload=Payload(request.payload.digest))
    return digest(job.spec.digest, request)


def as_formerly(plan: Plan, root: Path) -> Store:
    """The store of a finished run, as an earlier version would have written it."""
    store = Store(root)
    former = {job.key: former_key(job) for job in jobs_of(plan, store)}
    for spec in plan.stages:
        for part in store.parts(spec):
            table = pq.read_table(part)
            keys = pa.array([former[key] for key in table["key"].to_pylist()])
            part.unlink()
            store.commit(spec, table.set_column(0, table.schema.field("key"), keys))
    return Store(root)


@pytest.mark.parametrize("chain", CHAINS)
def test_a_run_with_keys_of_earlier_versions_is_not_made_again(
    tmp_path: Path, chain: str
) -> None:
    plan = plan_of(chain)
    run(plan, tmp_path)
    before, today = board(plan, tmp_path), set(Store(tmp_path).rows(painter()))
    store = as_formerly(plan, tmp_path)
    assert today.isdisjoint(store.rows(painter()))
    jobs = jobs_of(plan, store)
    assert {store.key_of(job) for job in jobs} == {former_key(job) for job in jobs}
    assert board(plan, tmp_path) == before
    assert run(plan, tmp_path).made == 0

    for part in store.parts(painter()):
        part.unlink()
    assert run(plan, tmp_path).made == PICTURES
    assert board(plan, tmp_path) == before
    assert set(Store(tmp_path).rows(painter())) == today
