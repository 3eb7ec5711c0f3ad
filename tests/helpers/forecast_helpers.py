"""Plans that are never run, stores with known times of records, and their forecasts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trial import plan_of, sample, system_of_stages

from plait.benchmarks.runs.forecast.forecast import Forecast
from plait.benchmarks.runs.forecast.machines import Machine
from plait.benchmarks.runs.forecast.rates import Sources
from plait.benchmarks.runs.forecast.simulation import StageWork
from plait.benchmarks.runs.run_directory import stage_facts
from plait.cluster.counts import count
from plait.cluster.plan import Plan
from plait.cluster.records import Item, encode
from plait.cluster.store import Store
from plait.generators.base import Kind, Placement, Result, StageSpec
from plait.generators.document import Draft, Request, Text

TWO_CPUS = Machine(cpus=2)


def stage(name: str, kind: Kind = Kind.DRAFT, **placement: Any) -> StageSpec:
    """A stage that is never loaded; one record a batch on one CPU unless said."""
    place = {"batch_size": 1, "num_cpus": 1.0} | placement
    return StageSpec(
        name=name, kind=kind, target=f"stages:{name}", placement=Placement(**place)
    )


def work(spec: StageSpec, known: float, *after: tuple[StageSpec, float]) -> StageWork:
    """`known` jobs, and those that follow the records of other stages."""
    return StageWork(
        spec=spec,
        known=known,
        flows={feeder.digest: jobs for feeder, jobs in after},
        feeders=frozenset(feeder.digest for feeder, _ in after),
    )


def drafts(spec: StageSpec, number: int) -> list[Item]:
    return [Item(f"{spec.name}-{i}", f"query {i}", Request(())) for i in range(number)]


def measured(
    root: Path,
    spec: StageSpec,
    batches: Sequence[tuple[int, float]],
    usage: Mapping[str, float] | None = None,
    **manifest: Any,
) -> Store:
    """A finished run whose batches of (records, seconds) took known times."""
    store = Store(root)
    items = iter(drafts(spec, sum(n for n, _ in batches)))
    for records, seconds in batches:
        batch = [next(items) for _ in range(records)]
        outcomes = [Result(Draft((Text("words"),)), usage or {}) for _ in batch]
        store.commit(spec, encode(spec.kind, batch, outcomes, seconds / records))
    write_manifest(root, [spec], **manifest)
    return store


def write_manifest(root: Path, specs: Sequence[StageSpec], **entries: Any) -> None:
    content = {
        "config": {"address": None},
        "hardware": {"cpus": 2, "gpus": []},
        "stages": {spec.folder: stage_facts(spec) for spec in specs},
    }
    root.mkdir(parents=True, exist_ok=True)
    (root / "manifest.json").write_text(json.dumps(content | entries))


def writing(spec: StageSpec, queries: int) -> Plan:
    """A plan of one system that only writes."""
    plan = plan_of([sample(i) for i in range(queries)], write=spec)
    systems = [system_of_stages(draft=spec, max_images=0)]
    return replace(plan, systems=systems, scorers=[])


def forecast_of(
    plan: Plan, root: Path, machine: Machine = TWO_CPUS, **options: Any
) -> Forecast:
    """The forecast of a plan whose run directory is `root`."""
    sources = Sources.at(root, machine)
    return Forecast.of(plan, count(plan, Store(root)), sources, **options)
