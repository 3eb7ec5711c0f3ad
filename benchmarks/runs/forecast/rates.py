"""How fast each stage of a plan is and what its records take, from the best source.

The sources, the best first: the run itself, runs beside it, published figures. Times are
taken from the same kind of hardware only; tokens, images and bytes from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from benchmarks.runs.forecast.machine import Machine
from benchmarks.runs.forecast.published import PUBLISHED, published_seconds
from benchmarks.runs.run_directory import read_manifest, stage_facts
from cluster.manifest import LOADS, TAKEOVERS, TIMING
from cluster.parts import StoreError, parts_in, read_part, stage_folders
from generators.base import StageSpec
from generators.errors import UsageError

PICTURES = "pictures_per_document"
"""The manifest's entry."""
_MOST_RUNS, _MOST_POOLED, _MOST_RECORDS = 40, 5, 5000
"""Runs beside the planned one that are looked at, the latest ones; of these, runs whose
records of one stage are taken together; records of one stage and run that are read."""
_SAME = ("kind", "identity", "weights", "settings")
"""What stages of an earlier version have in common with today's."""
_USED = ("input_tokens", "output_tokens", "images", "cost", "disk_bytes")


class Origin(StrEnum):
    """Where a rate comes from, the best source first."""

    OWN = "this run"
    BESIDE = "runs beside it"
    PUBLISHED = "published"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FigureRange:
    """A figure and the range in which it is expected."""

    mean: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> FigureRange:
        """Return a figure without a spread."""
        return cls(value, value, value)

    @classmethod
    def over(cls, values: Iterable[float]) -> FigureRange | None:
        """Return the mean of `values`, from the least to the largest; None without any."""
        known = list(values)
        return cls(sum(known) / len(known), min(known), max(known)) if known else None

    def __add__(self, other: FigureRange) -> FigureRange:
        return FigureRange(
            self.mean + other.mean, self.low + other.low, self.high + other.high
        )

    def __mul__(self, factor: float) -> FigureRange:
        return FigureRange(self.mean * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRates:
    """What is known of one stage."""

    seconds: FigureRange | None = None
    """Seconds of one worker for one record; None where no source knows it."""
    origin: Origin = Origin.UNKNOWN
    """Of `seconds`."""
    detail: str = ""
    """The source in words: how many records, which run, file or page."""
    load_s: FigureRange | None = None
    """Seconds from the start of a worker's process until it is ready."""
    takeover_s: FigureRange | None = None
    """The same where the process has hosted another stage; None for as long."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """By name of `_USED`, what one record uses on average, as far as it is known."""
    elsewhere: str = ""
    """Where else the stage was measured, on hardware that says nothing about this one."""


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Measured batches of one stage."""

    records: np.ndarray[Any, np.dtype[np.float64]]
    """Of each batch."""
    seconds: np.ndarray[Any, np.dtype[np.float64]]
    usage: Mapping[str, float] = field(default_factory=dict)
    """Sums over all records."""

    @classmethod
    def pooled(cls, parts: Sequence[Batches]) -> Batches:
        """Return the batches of several runs together."""
        total: dict[str, float] = {}
        for part in parts:
            for name, amount in part.usage.items():
                total[name] = total.get(name, 0.0) + amount
        return cls(
            records=np.concatenate([p.records for p in parts]),
            seconds=np.concatenate([p.seconds for p in parts]),
            usage=total,
        )

    @property
    def each(self) -> dict[str, float]:
        """What one record used on average."""
        return {name: amount / self.records.sum() for name, amount in self.usage.items()}

    def predicted(self, new: float) -> FigureRange | None:
        """Return seconds per record over `new` further batches; None without any.

        The range is a 90 % prediction interval of the mean from the spread between
        batches, at most from the fastest to the slowest batch.
        """
        n = len(self.records)
        if not self.records.sum():
            return None
        mean = float(self.seconds.sum() / self.records.sum())
        if n < 2:
            return FigureRange.exact(mean)
        rates = self.seconds / self.records
        variance = np.average((rates - mean) ** 2, weights=self.records) * n / (n - 1)
        t = stdtrit(n - 1, 0.95)
        half = float(t * np.sqrt(variance * (1 / n + 1 / max(new, 1.0))))
        low, high = max(mean - half, rates.min()), min(mean + half, rates.max())
        return FigureRange(mean, float(low), float(high))


# ------------------------------------------------------------------------- earlier runs


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredRun:
    """What a run directory says that later runs can be forecast from."""

    root: Path
    machine: Machine
    address: str | None
    manifest: Mapping[str, Any]

    @classmethod
    def at(cls, root: Path) -> MeasuredRun | None:
        """Read the run at `root`; None where there is no manifest that can be read."""
        try:
            manifest = read_manifest(root)
        except UsageError:
            return None
        machine = Machine.from_hardware(manifest.get("hardware") or {})
        address = manifest["config"].get("address")
        return cls(root=root, machine=machine, address=address, manifest=manifest)

    @classmethod
    def beside(cls, root: Path) -> list[MeasuredRun]:
        """Read the latest runs in folders beside `root`, the latest first."""
        manifests = [m for m in root.parent.glob("*/manifest.json") if m.parent != root]
        latest = sorted(manifests, key=lambda m: m.stat().st_mtime, reverse=True)
        runs = (cls.at(manifest.parent) for manifest in latest[:_MOST_RUNS])
        return [run for run in runs if run is not None]

    def _timing(self, name: str) -> Any:
        return (self.manifest.get(TIMING) or {}).get(name)

    @property
    def overhead_s(self) -> float | None:
        """Seconds of its last command without workers: Ray's start and end, reading."""
        seconds, scheduling = self._timing("seconds"), self._timing("scheduling_seconds")
        known = seconds is not None and scheduling is not None
        return max(0.0, seconds - scheduling) if known else None

    @property
    def documents(self) -> int:
        """Documents that came to an end."""
        counts = self.manifest.get("counts") or {}
        return int(counts.get("planned", 0)) - int(counts.get("missing", 0))

    def pictures(self, system: str) -> float | None:
        """Return how many images a document of `system` has, where that is known."""
        return (self.manifest.get(PICTURES) or {}).get(system)

    def loads(self, spec: StageSpec) -> tuple[list[float], list[float]]:
        """Return seconds until workers were ready: in new processes, in others."""
        folder = self.folder_of(spec)
        new, others = ((self._timing(n) or {}).get(folder, []) for n in (LOADS, TAKEOVERS))
        return new, others

    def folder_of(self, spec: StageSpec) -> str | None:
        """Return the stage's folder: of its digest, or of its settings in old versions."""
        stages: Mapping[str, Any] = self.manifest.get("stages") or {}
        name, _, digest = spec.folder.rpartition("-")
        facts = stage_facts(spec)
        exact = [folder for folder in stages if folder.endswith(f"-{digest}")]
        alike = (
            folder
            for folder, recorded in stages.items()
            if folder.rpartition("-")[0] == name
            and all(recorded.get(n) == facts[n] for n in _SAME)
        )
        return next((folder for folder in (*exact, *alike)), None)

    def batches(self, spec: StageSpec) -> Batches | None:
        """Return the batches of a stage, without failed records; None without any."""
        folder = self.folder_of(spec)
        return None if folder is None else _batches_in(self.root, folder)


@lru_cache(maxsize=1024)
def _batches_in(root: Path, folder: str) -> Batches | None:
    """Read the batches from the parts of a stage, whatever its name was.

    Records of one batch have the same time and the same share of its seconds. A first
    batch that is much slower than the others was warming up, and is left out.
    """
    digest = folder[folder.rindex("-") :]
    tables, size, read = [], 0, 0
    for part in (
        p for f in stage_folders(root) if f.name.endswith(digest) for p in parts_in(f)
    ):
        if read < _MOST_RECORDS:
            try:
                tables.append(read_part(part, ["outcome", "seconds", "at", "usage"]))
            except (StoreError, OSError):
                continue
            read, size = read + len(tables[-1]), size + part.stat().st_size
    table = pa.concat_tables(tables) if tables else None
    done = table and table.filter(pc.not_equal(table["outcome"], "failed"))
    if not done:
        return None
    groups = done.group_by(["at", "seconds"]).aggregate([([], "count_all")]).sort_by("at")
    records = groups["count_all"].to_numpy().astype(float)
    seconds = groups["seconds"].fill_null(0.0).to_numpy() * records
    each = seconds / records
    first = int(len(each) > 2 and each[0] > 1.5 * each[1:].max())
    share = float(records[first:].sum() / len(done))
    usage = _sums(map(json.loads, done["usage"].fill_null("{}").to_pylist()))
    usage["disk_bytes"] = size * len(done) / read
    scaled = {name: amount * share for name, amount in usage.items() if name in _USED}
    return Batches(records=records[first:], seconds=seconds[first:], usage=scaled)


def _sums(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for row in rows:
        for name, amount in row.items():
            total[name] = total.get(name, 0.0) + amount
    return total


# ------------------------------------------------------------------------------ sources


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where rates are looked up for one plan."""

    machine: Machine
    address: str | None = None
    own: MeasuredRun | None = None
    """The planned run, where it has been started before."""
    beside: Sequence[MeasuredRun] = ()

    @classmethod
    def at(cls, root: Path, machine: Machine, address: str | None = None) -> Sources:
        """Return the sources for a run at `root`."""
        own, beside = MeasuredRun.at(root), MeasuredRun.beside(root)
        return cls(machine=machine, address=address, own=own, beside=beside)

    @property
    def runs(self) -> list[MeasuredRun]:
        """All earlier runs, the planned one first."""
        return [*([self.own] if self.own else []), *self.beside]

    def rates(self, spec: StageSpec, new: float) -> StageRates:
        """Return what is known of a stage that is to make `new` records."""
        candidates = list(self._candidates(spec, new))
        timed = next((c for c in candidates if c.seconds is not None), StageRates())
        loaded = next((c for c in candidates if c.load_s is not None), StageRates())
        return replace(
            timed,
            load_s=loaded.load_s,
            takeover_s=loaded.takeover_s,
            usage=next((c.usage for c in candidates if c.usage), {}),
            elsewhere="" if timed.seconds else "; ".join(self._elsewhere(spec)),
        )

    def _candidates(self, spec: StageSpec, new: float) -> Iterator[StageRates]:
        if self.own is not None:
            yield self._measured([self.own], spec, new, Origin.OWN)
        yield self._measured(self.beside, spec, new, Origin.BESIDE)
        yield self._published(spec)

    def _measured(
        self, runs: Sequence[MeasuredRun], spec: StageSpec, new: float, origin: Origin
    ) -> StageRates:
        """Return usage from all runs, and times from those on hardware of the same kind."""
        alike = [run for run in runs if self._is_alike(run, spec)]
        loads = [run.loads(spec) for run in alike]
        new_s, other_s = ([s for pair in loads for s in pair[i]] for i in (0, 1))
        rates = StageRates(
            load_s=FigureRange.over(new_s or other_s),
            takeover_s=FigureRange.over(other_s or new_s),
        )
        known = [(run, b) for run in runs if (b := run.batches(spec)) is not None]
        if not known:
            return rates
        usage = Batches.pooled([b for _, b in known[:_MOST_POOLED]]).each
        rates = replace(rates, usage={n: v for n, v in usage.items() if n in _USED})
        timed = [(run, b) for run, b in known if run in alike][:_MOST_POOLED]
        if not timed:
            return rates
        together = Batches.pooled([b for _, b in timed])
        others = f" and {len(timed) - 1} more" if len(timed) > 1 else ""
        name = timed[0][0].root.name
        return replace(
            rates,
            seconds=together.predicted(new / max(spec.placement.batch_size, 1)),
            origin=origin,
            detail=f"{together.records.sum():,.0f} records of {name}{others}",
        )

    def _published(self, spec: StageSpec) -> StageRates:
        seconds, detail = published_seconds(spec, self.machine.gpu)
        if not seconds:
            return StageRates()
        return StageRates(
            seconds=FigureRange.over(seconds),
            origin=Origin.PUBLISHED,
            detail=detail,
            usage={"images": 1.0},
        )

    def _is_alike(self, run: MeasuredRun, spec: StageSpec) -> bool:
        """Return whether the stage ran there on hardware like that of the plan.

        What an endpoint needs depends on the endpoint alone; the nodes of a cluster are
        those of its address.
        """
        same_cluster = self.address is not None and run.address == self.address
        if spec.placement.remote or (same_cluster and not self.machine.described):
            return True
        alike = run.machine.runs_like(self.machine, spec.placement.num_gpus)
        return run.address is None and alike

    def _elsewhere(self, spec: StageSpec) -> Iterator[str]:
        known = [f"measured on {r.machine}" for r in self.runs if r.batches(spec)]
        yield from dict.fromkeys(known)
        if gpus := dict.fromkeys(figure.gpu for figure in PUBLISHED if figure.is_of(spec)):
            yield f"published for {', '.join(gpus)}"

    # -------------------------------------------------------------------- of a run

    @property
    def overhead_s(self) -> FigureRange | None:
        """Seconds of a command without workers: Ray's start and end, reading back.

        Of the run itself where it is known, else of those beside it.
        """
        if self.own is not None and self.own.overhead_s is not None:
            return FigureRange.exact(self.own.overhead_s)
        alike = (
            run.overhead_s
            for run in self.beside
            if run.address == self.address and run.machine.runs_like(self.machine, 0.0)
        )
        return FigureRange.over(seconds for seconds in alike if seconds is not None)

    def pictures(self, system: str) -> float | None:
        """Return how many images a document of `system` has; None where no run knows."""
        known = (run.pictures(system) for run in self.runs)
        return next((float(n) for n in known if n is not None), None)

    def judged(self, spec: StageSpec) -> float | None:
        """Return records of a scorer's stage for one document; None where no run knows."""
        for run in self.runs:
            if run.documents and (batches := run.batches(spec)) is not None:
                return float(batches.records.sum()) / run.documents
        return None
