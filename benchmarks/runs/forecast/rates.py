"""How fast each stage of a plan is and what its records take, from the best source.

The sources, the best first: the run itself, runs beside it, a prior from published sizes.
Times are taken from the same kind of hardware only; tokens, images and bytes from anywhere.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.benchmarks.runs.forecast.machines import Machine
from plait.benchmarks.runs.forecast.prior import PROCESS_S, load_of, seconds_of
from plait.benchmarks.runs.run_directory import read_manifest, stage_facts
from plait.cluster.manifest import LOADS, TAKEOVERS, TIMING
from plait.cluster.parts import StoreError, parts_in, read_part, stage_folders
from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.work import FigureRange

IMAGES = "pictures_per_document"
"""The manifest's entry."""
OTHER_WORK = "other_work"
"""The manifest's entry on what else the machine did when the run began."""
_MOST_OTHER = 0.2
"""Share of CPUs or of a GPU from which a run was measured beside other work."""
_MOST_RUNS = 40
"""So many runs beside the planned one are looked at, the latest ones."""
_MOST_POOLED = 5
"""Of these, the records of so many are taken together for one stage."""
_MOST_RECORDS = 5000
"""So many records of one stage and run are read."""
_SAME = ("identity", "weights", "settings")
"""What stages of an earlier version have in common with today's, besides their kind."""
_USED = ("input_tokens", "output_tokens", "images", "cost", "disk_bytes")


# -------------------------------------------------------------------------------- rates


class Origin(StrEnum):
    """Where a rate comes from, the best source first."""

    OWN = "this run"
    BESIDE = "runs next to it"
    PRIOR = "estimate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRates:
    """What is known of one stage."""

    seconds: FigureRange | None = None
    """Seconds of one worker for one record; None where no source knows it."""
    origin: Origin = Origin.UNKNOWN
    """Of `seconds`."""
    detail: str = ""
    """The source in words: how many records of which runs."""
    other_work: float | None = 0.0
    """Share of the CPUs, or of the busiest GPU, that other work took when the runs that
    `seconds` are from began; None where they do not say it."""
    load_s: FigureRange | None = None
    """Seconds from the start of a worker's process until it is ready."""
    takeover_s: FigureRange | None = None
    """The same where the process has hosted another stage; None for as long."""
    usage: Mapping[str, FigureRange] = field(default_factory=dict)
    """By name of `_USED`, what one record uses on average, as far as it is known."""

    @property
    def disturbed(self) -> bool:
        """Whether `seconds` were measured beside other work."""
        return _is_much(self.other_work)

    @classmethod
    def prior(cls, spec: StageSpec, machine: Machine) -> Self:
        """Return what the published sizes of a stage's model say of it."""
        seconds = seconds_of(spec, machine)
        return cls(
            seconds=seconds,
            origin=Origin.PRIOR if seconds else Origin.UNKNOWN,
            load_s=load_of(spec),
            usage=spec.work.usage if spec.work else {},
        )


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Measured batches of one stage."""

    records: np.ndarray[Any, np.dtype[np.float64]]
    """Of each batch."""
    seconds: np.ndarray[Any, np.dtype[np.float64]]
    usage: Mapping[str, float] = field(default_factory=dict)
    """Sums over all records."""
    warm_up_s: float = 0.0
    """By which a first batch, which is left out, was longer than others of its size."""

    @classmethod
    def pool(cls, parts: Iterable[Batches]) -> Batches:
        """Return the batches of several runs together."""
        parts = [*parts]
        return cls(
            records=np.concatenate([part.records for part in parts]),
            seconds=np.concatenate([part.seconds for part in parts]),
            usage=_sums(part.usage for part in parts),
        )

    def predict(self, new: float) -> FigureRange | None:
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
        from scipy.special import stdtrit

        rates = self.seconds / self.records
        # Batches weigh as their records do; n / (n - 1) makes the estimate unbiased.
        spread = np.average((rates - mean) ** 2, weights=self.records)
        variance = spread * n / (n - 1)
        # Of the difference between the mean seen and that of the batches to come.
        error = np.sqrt(variance * (1 / n + 1 / max(new, 1.0)))
        half = float(stdtrit(n - 1, 0.95) * error)
        low = max(mean - half, rates.min())
        high = min(mean + half, rates.max())
        return FigureRange(mean, float(low), float(high))


# ------------------------------------------------------------------------- earlier runs


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredRun:
    """What a run directory says that later runs can be forecast from."""

    root: AnyPath
    manifest: Mapping[str, Any]
    _read: dict[str, Batches | None] = field(default_factory=dict)
    """By the stage's folder, what has been read."""

    @classmethod
    def among(cls, roots: Iterable[AnyPath]) -> list[MeasuredRun]:
        """Read the runs at `roots`, without those whose manifest cannot be read."""
        runs = []
        for root in roots:
            with contextlib.suppress(UsageError):
                runs.append(cls(root=root, manifest=read_manifest(root)))
        return runs

    @property
    def machine(self) -> Machine:
        """The machine that its command was issued on."""
        return Machine.from_hardware(self.manifest.get("hardware") or {})

    @property
    def address(self) -> Any:
        """The address of its Ray, if it was not its own."""
        return self.manifest["config"].get("address")

    def entry(self, name: str) -> Mapping[str, Any]:
        """Return an entry of the manifest, empty where there is none."""
        return self.manifest.get(name) or {}

    @property
    def overhead_s(self) -> float | None:
        """Seconds of its last command without workers: Ray's start and end, reading."""
        match self.entry(TIMING):
            case {"seconds": float(seconds), "scheduling_seconds": float(scheduling)}:
                return max(0.0, seconds - scheduling)
        return None

    @property
    def documents(self) -> int:
        """Documents that came to an end."""
        counts = self.entry("counts")
        return int(counts.get("planned", 0)) - int(counts.get("missing", 0))

    def other_work(self, spec: StageSpec) -> float | None:
        """Return the share of what a stage runs on that other work took; None if unknown.

        An endpoint's is its provider's affair.
        """
        if spec.placement.remote:
            return 0.0
        share = self.entry(OTHER_WORK).get("gpus" if spec.placement.num_gpus else "cpus")
        return None if share is None else float(share)

    def loads(self, spec: StageSpec, name: str) -> list[float]:
        """Return seconds until workers were ready, `LOADS` or `TAKEOVERS`.

        Those are of workers in new processes, and in ones that have hosted another stage.
        """
        times = self.entry(TIMING).get(name) or {}
        return times.get(self.folder_of(spec)) or []

    def folder_of(self, spec: StageSpec) -> str | None:
        """Return the stage's folder; None where the run has none.

        It has the stage's digest, or in runs of old versions its name and settings.
        """
        stages = self.entry("stages")
        name, _, digest = spec.folder.rpartition("-")
        for folder in stages:
            if folder.endswith(f"-{digest}"):
                return folder
        for folder, recorded in stages.items():
            if folder.rpartition("-")[0] == name and _is_same_stage(spec, recorded):
                return folder
        return None

    def batches(self, spec: StageSpec) -> Batches | None:
        """Return the batches of a stage, without failed records; None without any."""
        folder = self.folder_of(spec)
        if folder is None:
            return None
        if folder not in self._read:
            self._read[folder] = _batches_in(self.root, folder)
        return self._read[folder]


def _is_same_stage(spec: StageSpec, recorded: Mapping[str, Any]) -> bool:
    """Return whether a stage that a manifest records computes the same as `spec`."""
    if not spec.was_of_kind(recorded.get("kind", "")):
        return False
    facts = stage_facts(spec)
    return all(recorded.get(fact) == facts[fact] for fact in _SAME)


def _batches_in(root: AnyPath, folder: str) -> Batches | None:
    """Read the batches from the parts of a stage, whatever its name was.

    A first batch that is much slower than the others was warming up, and is left out.
    """
    table, size = _read_records(root, folder)
    if table is None:
        return None
    done = table.filter(pc.not_equal(table["outcome"], "failed"))
    if not len(done):
        return None
    # Records of one batch have the same time and the same share of its seconds.
    by_batch = done.group_by(["at", "seconds"]).aggregate([([], "count_all")])
    by_batch = by_batch.sort_by("at")
    records = by_batch["count_all"].to_numpy().astype(float)
    each = by_batch["seconds"].fill_null(0.0).to_numpy()
    seconds = each * records
    usage = _sums(json.loads(text) for text in done["usage"].fill_null("{}").to_pylist())
    usage["disk_bytes"] = size * len(done) / len(table)
    warm_up_s = 0.0
    if len(each) > 2 and each[0] > 1.5 * each[1:].max():
        warm_up_s = float(seconds[0] - records[0] * each[1:].mean())
        records = records[1:]
        seconds = seconds[1:]
    # Usage was summed over all batches: of the first one it is left out by its share.
    share = float(records.sum() / len(done))
    return Batches(
        records=records,
        seconds=seconds,
        usage={name: usage[name] * share for name in _USED if name in usage},
        warm_up_s=warm_up_s,
    )


def _read_records(root: AnyPath, folder: str) -> tuple[pa.Table | None, int]:
    """Return the first records of a stage and the size of their parts in bytes.

    Parts that cannot be read are passed over; None where none can.
    """
    digest = folder[folder.rindex("-") :]
    # Records of one digest may lie in several folders, where the stage's name has changed.
    parts: list[AnyPath] = []
    for place in stage_folders(root):
        if place.name.endswith(digest):
            parts += parts_in(place)
    tables = []
    records = 0
    size = 0
    for part in parts:
        if records >= _MOST_RECORDS:
            break
        try:
            table = read_part(part, ["outcome", "seconds", "at", "usage"])
        except (StoreError, OSError):
            continue
        tables.append(table)
        records += len(table)
        size += part.stat().st_size
    return (pa.concat_tables(tables) if tables else None), size


def _sums(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of amounts by name."""
    total = Counter[str]()
    for row in rows:
        total.update(row)
    return dict(total)


def _by_other_work(shares: Mapping[MeasuredRun, float | None]) -> list[list[MeasuredRun]]:
    """Group runs, the best first: that had the machine, that do not say, that shared it."""
    free = []
    unknown = []
    beside = []
    for run, share in shares.items():
        if share is None:
            unknown.append(run)
        elif _is_much(share):
            beside.append(run)
        else:
            free.append(run)
    return [group for group in (free, unknown, beside) if group]


def _is_much(share: float | None) -> bool:
    return share is not None and share >= _MOST_OTHER


def _load_times(runs: Iterable[MeasuredRun], spec: StageSpec, name: str) -> list[float]:
    """Return the seconds until workers were ready, of all runs together."""
    seconds: list[float] = []
    for run in runs:
        seconds += run.loads(spec, name)
    return seconds


def _first_batches(
    runs: Iterable[MeasuredRun], spec: StageSpec
) -> Iterator[tuple[str, Batches]]:
    """Yield name and batches of the first `_MOST_POOLED` runs that have batches.

    Runs after these are not read.
    """
    found = 0
    for run in runs:
        batches = run.batches(spec)
        if batches is None:
            continue
        yield run.root.name, batches
        found += 1
        if found == _MOST_POOLED:
            return


def _usage_of_one(runs: Iterable[MeasuredRun], spec: StageSpec) -> dict[str, FigureRange]:
    """Return what a record of a stage used on average; empty without batches."""
    parts = [batches for _, batches in _first_batches(runs, spec)]
    if not parts:
        return {}
    pool = Batches.pool(parts)
    records = pool.records.sum()
    usage = {}
    for name, used in pool.usage.items():
        usage[name] = FigureRange.exact(used / records)
    return usage


# ------------------------------------------------------------------------------ sources


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where rates are looked up for one plan."""

    machine: Machine
    address: str | None = None
    own: Sequence[MeasuredRun] = ()
    """The planned run, where it has been started before."""
    beside: Sequence[MeasuredRun] = ()

    @classmethod
    def at(cls, root: AnyPath, machine: Machine, address: str | None = None) -> Sources:
        """Return the sources for a run at `root`."""
        # Of a bucket, whose folders are slow to list, only the run itself.
        beside = _latest_runs_beside(root) if isinstance(root, Path) else []
        return cls(
            machine=machine,
            address=address,
            own=MeasuredRun.among([root]),
            beside=MeasuredRun.among(beside),
        )

    @property
    def runs(self) -> list[MeasuredRun]:
        """All earlier runs, the planned one first."""
        return [*self.own, *self.beside]

    def rates(self, spec: StageSpec, new: float) -> StageRates:
        """Return what is known of a stage that is to make `new` records.

        Times, load times and usage are each from the best source that knows them.
        """
        own = self._rates_of(self.own, spec, new, Origin.OWN)
        beside = self._rates_of(self.beside, spec, new, Origin.BESIDE)
        prior = StageRates.prior(spec, self.machine)
        timed = StageRates()
        loaded = StageRates()
        usage: Mapping[str, FigureRange] = {}
        # From the worst source to the best, which has the last word.
        for rates in (prior, beside, own):
            if rates.seconds is not None:
                timed = rates
            if rates.load_s is not None:
                loaded = rates
            if rates.usage:
                usage = rates.usage
        return replace(
            timed, load_s=loaded.load_s, takeover_s=loaded.takeover_s, usage=usage
        )

    def _rates_of(
        self, runs: Sequence[MeasuredRun], spec: StageSpec, new: float, origin: Origin
    ) -> StageRates:
        """Return usage from all runs, and times from those on hardware of the same kind."""
        alike = [run for run in runs if self._is_alike(run, spec)]
        load_s = _load_times(alike, spec, LOADS)
        takeover_s = _load_times(alike, spec, TAKEOVERS)
        rates = StageRates(
            load_s=FigureRange.over(load_s or takeover_s),
            takeover_s=FigureRange.over(takeover_s or load_s),
            usage=_usage_of_one(runs, spec),
        )
        shares = {run: run.other_work(spec) for run in alike if run.batches(spec)}
        groups = _by_other_work(shares)
        if not groups:
            return rates
        best = groups[0]
        known_shares = []
        for run in best:
            share = shares[run]
            if share is not None:
                known_shares.append(share)
        batches_by_run = dict(_first_batches(best, spec))
        together = Batches.pool(batches_by_run.values())
        first, *others = batches_by_run
        more = f" and {len(others)} more" if others else ""
        return replace(
            rates,
            seconds=together.predict(new / max(spec.placement.batch_size, 1)),
            origin=origin,
            other_work=max(known_shares, default=None),
            detail=f"{together.records.sum():,.0f} records of {first}{more}",
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

    def compile_s(self, spec: StageSpec) -> float | None:
        """Return by how much the first batch was longer where the stage was compiled.

        None where no run on hardware of the same kind has such a batch.
        """
        compiled = replace(spec, settings={**spec.settings, "compile": True})
        for run in self.runs:
            batches = run.batches(compiled) if self._is_alike(run, spec) else None
            if batches is not None and batches.warm_up_s:
                return batches.warm_up_s
        return None

    @property
    def overhead_s(self) -> FigureRange:
        """Seconds of a command without workers: Ray's start and end, reading back.

        Of the run itself where it is known, else of those beside it, else a prior.
        """
        own = [run.overhead_s for run in self.own]
        beside = []
        for run in self.beside:
            is_alike = run.machine.runs_like(self.machine, num_gpus=0.0)
            if run.address == self.address and is_alike:
                beside.append(run.overhead_s)
        return FigureRange.over(own) or FigureRange.over(beside) or PROCESS_S

    def images(self, system: str) -> float | None:
        """Return how many images a document of `system` has; None where no run knows."""
        for run in self.runs:
            images = run.entry(IMAGES).get(system)
            if images is not None:
                return float(images)
        return None

    def records_per_document(self, spec: StageSpec) -> float | None:
        """Return records of a scorer's stage for one document; None where no run knows."""
        for run in self.runs:
            batches = run.batches(spec) if run.documents else None
            if batches is not None:
                return float(batches.records.sum()) / run.documents
        return None


def _latest_runs_beside(root: Path) -> list[Path]:
    """Return the runs in the same folder whose manifests were written last."""
    manifests = []
    for manifest in root.parent.glob("*/manifest.json"):
        if manifest.parent != root:
            manifests.append(manifest)
    manifests.sort(key=lambda manifest: manifest.stat().st_mtime, reverse=True)
    return [manifest.parent for manifest in manifests[:_MOST_RUNS]]
