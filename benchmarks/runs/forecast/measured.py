"""Rates from the records of run directories: their Parquet parts and manifests."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.runs.forecast.machine import Machine
from benchmarks.runs.forecast.rates import FigureRange, MeasuredBatch, Usage
from benchmarks.runs.run_directory import read_manifest
from cluster.manifest import LOADS, TAKEOVERS, TIMING
from cluster.parts import StoreError, parts_in, read_part, stage_folders
from generators.base import StageSpec
from generators.errors import UsageError

_MOST_RUNS = 40
"""Runs beside the planned one that are looked at, the latest ones."""
_MOST_RECORDS = 5000
"""Records of one stage and run that are read."""
_WARM_UP = 1.5
"""A first batch that is so much slower than all others was warming up."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """What the manifest of a run says that later runs can be forecast from."""

    root: Path
    machine: Machine
    address: str | None
    stages: Mapping[str, Mapping[str, Any]]
    """The manifest's entries, by the stage's folder."""
    loads: Mapping[str, Sequence[float]]
    """Seconds from the start of a process until its worker was ready, by the stage's
    folder."""
    takeovers: Mapping[str, Sequence[float]]
    """The same where the process had hosted another stage, from then on."""
    overhead_s: float | None
    """Seconds of its last command in which there was no worker: Ray's start, reading."""
    documents: int
    """Documents that came to an end."""
    pictures: Mapping[str, float]
    """Pictures of one document, by system."""

    @classmethod
    def at(cls, root: Path) -> MeasuredRun | None:
        """The run at `root`; None where there is no manifest that can be read."""
        try:
            manifest = read_manifest(root)
        except UsageError:
            return None
        timing, hardware = _table(manifest, TIMING), _table(manifest, "hardware")
        counts, seconds = _table(manifest, "counts"), timing.get("seconds")
        scheduling = timing.get("scheduling_seconds")
        overhead = (
            None if seconds is None or scheduling is None else max(0, seconds - scheduling)
        )
        return cls(
            root=root,
            machine=Machine.from_hardware(hardware),
            address=manifest["config"].get("address"),
            stages=_table(manifest, "stages"),
            loads=timing.get(LOADS) or {},
            takeovers=timing.get(TAKEOVERS) or {},
            overhead_s=overhead,
            documents=counts.get("planned", 0) - counts.get("missing", 0),
            pictures=_table(manifest, "pictures_per_document"),
        )

    def folder_of(self, spec: StageSpec) -> str | None:
        """The stage's folder here; None where this run does not have it.

        Of the same digest, or of the same model and settings under an earlier version.
        """
        suffix, about = f"-{spec.digest[:12]}", _about(spec)
        same = [f for f in self.stages if f.endswith(suffix)]
        same += [
            folder
            for folder, facts in self.stages.items()
            if folder.rpartition("-")[0] == spec.folder.rpartition("-")[0]
            and all(facts.get(name) == value for name, value in about.items())
        ]
        return same[0] if same else None


def _table(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = manifest.get(name)
    return value if isinstance(value, Mapping) else {}


def _about(spec: StageSpec) -> dict[str, Any]:
    about = {n: getattr(spec, n) for n in ("kind", "identity", "weights", "settings")}
    return about | {"settings": dict(spec.settings)}


def runs_beside(root: Path) -> list[MeasuredRun]:
    """The latest runs in folders beside `root`, the latest first."""
    manifests = [m for m in root.parent.glob("*/manifest.json") if m.parent != root]
    latest = sorted(manifests, key=_modified, reverse=True)[:_MOST_RUNS]
    runs = (MeasuredRun.at(manifest.parent) for manifest in latest)
    return [run for run in runs if run is not None]


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@dataclass(frozen=True, kw_only=True)
class StageRecords:
    """What the records of one stage say, failures left out."""

    batches: Sequence[MeasuredBatch] = ()
    records: int = 0
    amounts: Mapping[str, float] = field(default_factory=dict)
    """Sums of usage over all records, by name."""
    disk_bytes: float = 0.0
    """Of these records, Parquet's own included."""
    warm_up_s: float = 0.0
    """By how much the first batch was slower than the others would have it."""

    @property
    def usage(self) -> Usage:
        """Of one record on average."""
        names = ("input_tokens", "output_tokens", "images", "cost")
        each = {n: self.amounts[n] / self.records for n in names if n in self.amounts}
        return Usage(**each, disk_bytes=self.disk_bytes / self.records)


def records_of(root: Path, folder: str) -> StageRecords | None:
    """The records in a stage's folder (and those with its digest); None without any."""
    suffix = folder[folder.rindex("-") :]
    folders = [f for f in stage_folders(root) if f.name.endswith(suffix)]
    rows: list[dict[str, Any]] = []
    disk_bytes = 0
    for part in sorted(part for f in folders for part in parts_in(f)):
        if len(rows) >= _MOST_RECORDS:
            break
        try:
            table = read_part(part, ["outcome", "seconds", "at", "usage"])
            disk_bytes += part.stat().st_size
        except (StoreError, OSError):
            continue
        rows += table.to_pylist()
    done = [row for row in rows if row["outcome"] != "failed"]
    if not done:
        return None
    batches, warm_up_s = _without_warm_up(_batches(done))
    return StageRecords(
        batches=batches,
        records=len(done),
        amounts=_amounts(done),
        disk_bytes=disk_bytes * len(done) / len(rows),
        warm_up_s=warm_up_s,
    )


@dataclass(frozen=True, slots=True)
class StageMade:
    """What one command made of a stage."""

    records: int
    seconds: float
    """In which its workers computed."""


def records_made(root: Path, folder: str, since_us: int) -> StageMade | None:
    """The records of a stage that are not older; None where its parts cannot be read."""
    suffix, records, seconds = folder[folder.rindex("-") :], 0, 0.0
    try:
        folders = [f for f in stage_folders(root) if f.name.endswith(suffix)]
        for part in (part for f in folders for part in parts_in(f)):
            for row in read_part(part, ["seconds", "at"]).to_pylist():
                if row["at"] >= since_us:
                    records, seconds = records + 1, seconds + (row["seconds"] or 0.0)
    except (StoreError, OSError):
        return None
    return StageMade(records, seconds)


def _batches(rows: Iterable[Mapping[str, Any]]) -> list[MeasuredBatch]:
    """The batches in the order in which they were computed.

    Records of one batch have the same time and the same share of its seconds.
    """
    grouped: dict[tuple[int, float], int] = defaultdict(int)
    for row in rows:
        grouped[row["at"], row["seconds"] or 0.0] += 1
    return [MeasuredBatch(n, n * share) for (_, share), n in sorted(grouped.items())]


def _without_warm_up(batches: list[MeasuredBatch]) -> tuple[list[MeasuredBatch], float]:
    """The batches after a slow first one, and by how much that was slower."""
    if len(batches) < 3:
        return batches, 0.0
    first, *others = batches
    slowest = max(batch.seconds / batch.records for batch in others)
    if first.seconds / first.records <= _WARM_UP * slowest:
        return batches, 0.0
    mean = sum(b.seconds for b in others) / sum(b.records for b in others)
    return others, first.seconds - first.records * mean


def _amounts(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for row in rows:
        for name, amount in json.loads(row["usage"] or "{}").items():
            total[name] += amount
    return dict(total)


def pooled(parts: Sequence[StageRecords]) -> StageRecords:
    """The records of several runs together."""
    total: dict[str, float] = defaultdict(float)
    for part in parts:
        for name, amount in part.amounts.items():
            total[name] += amount
    return StageRecords(
        batches=[batch for part in parts for batch in part.batches],
        records=sum(part.records for part in parts),
        amounts=total,
        disk_bytes=sum(part.disk_bytes for part in parts),
        warm_up_s=max(part.warm_up_s for part in parts),
    )


def loads_of(
    runs: Iterable[MeasuredRun], spec: StageSpec
) -> tuple[list[float], list[float]]:
    """Seconds in which workers of the stage became ready: in new processes, in others.

    A stage that new processes have never loaded takes at least as long there as in others,
    and the other way round at most.
    """
    folders = [(run, run.folder_of(spec) or "") for run in runs]
    new = [seconds for run, folder in folders for seconds in run.loads.get(folder, ())]
    others = [s for run, folder in folders for s in run.takeovers.get(folder, ())]
    return new or others, others or new


def load_span(loads: Iterable[float], warm_up_s: float) -> FigureRange | None:
    """The range of loads, with the slower first batch that follows one."""
    span = FigureRange.over(loads)
    return None if span is None else span + FigureRange.exact(warm_up_s)
