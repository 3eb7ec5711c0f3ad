"""How fast each stage of a plan is and what its records take, from the best source.

The sources, the best first: the run itself, runs beside it, published figures. Times are
taken from the same kind of hardware only; tokens, images and bytes from anywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.runs.run_directory import read_manifest, stage_facts
from cluster.manifest import LOADS, TAKEOVERS, TIMING, hardware
from cluster.parts import StoreError, parts_in, read_part, stage_folders
from cluster.placement import Node, Resources
from generators.base import StageSpec
from generators.errors import UsageError

IMAGES = "pictures_per_document"
"""The manifest's entry."""
_MOST_RUNS, _MOST_POOLED, _MOST_RECORDS = 40, 5, 5000
"""Runs beside the planned one that are looked at, the latest ones; of these, runs whose
records of one stage are taken together; records of one stage and run that are read."""
_LOADING = (LOADS, TAKEOVERS)
"""Of workers in new processes, and in those that have hosted another stage."""
_SAME = ("kind", "identity", "weights", "settings")
"""What stages of an earlier version have in common with today's."""
_USED = ("input_tokens", "output_tokens", "images", "cost", "disk_bytes")


# ----------------------------------------------------------------------------- machines


_FORM = re.compile(
    r"(?:(?P<nodes>\d+)x)?(?P<gpus>\d+)x(?P<name>[^,]*[A-Za-z][^,]*)(?:,(?P<cpus>\d+)cpu)?"
)
_BRANDS = {"nvidia", "geforce", "tesla", "amd", "instinct"}
_PLENTY = 2.0**50
"""Host memory of a described node in bytes, which is not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Nodes of one kind."""

    nodes: int = 1
    cpus: int
    gpus: int = 0
    """Of one node."""
    gpu: str = ""
    """Name of the GPUs; empty where there are none."""
    described: bool = False
    """Whether the user described it, rather than the machine itself."""

    @classmethod
    def from_hardware(cls, about: Mapping[str, Any]) -> Self:
        """Read a manifest's entry `hardware`, where GPUs have their driver's version."""
        gpus = about.get("gpus") or []
        name = gpus[0].partition(",")[0].strip() if gpus else ""
        return cls(cpus=about.get("cpus") or os.cpu_count() or 1, gpus=len(gpus), gpu=name)

    @classmethod
    def of(cls, text: str | None) -> Self:
        """Return the machines `[NODESx]GPUSxNAME[,CPUScpu]`; this one for None.

        UsageError for any other text.
        """
        if text is None:
            return cls.from_hardware(hardware())
        match = _FORM.fullmatch(text.strip())
        if match is None or not int(match["nodes"] or 1):
            raise UsageError(
                f"--on {text!r} is not of the form [NODESx]GPUSxNAME[,CPUScpu], such as "
                "8xH100 or 2x8xA100,64cpu"
            )
        gpus = int(match["gpus"])
        return cls(
            nodes=int(match["nodes"] or 1),
            cpus=int(match["cpus"] or max(os.cpu_count() or 1, 4 * gpus)),
            gpus=gpus,
            gpu=match["name"].strip(),
            described=True,
        )

    @property
    def resources(self) -> list[Node]:
        """The nodes as the scheduler counts them."""
        total = Resources(float(self.cpus), float(self.gpus), _PLENTY)
        return [Node(str(i), total) for i in range(self.nodes)]

    def runs_like(self, other: Machine, num_gpus: float) -> bool:
        """Return whether a worker with `num_gpus` GPUs is as fast on both."""
        if num_gpus:
            return bool(self.gpus and other.gpus) and same_gpu(self.gpu, other.gpu)
        return self.cpus == other.cpus and bool(self.gpus) == bool(other.gpus)

    def __str__(self) -> str:
        gpus = f"{self.gpus} x {self.gpu}, " if self.gpus else ""
        nodes = f"{self.nodes} nodes, each " if self.nodes > 1 else ""
        return f"{nodes}{gpus}{self.cpus} CPUs"


def same_gpu(one: str, other: str) -> bool:
    """Return whether two names are of one GPU: `A100` is `NVIDIA A100-SXM4-80GB`."""
    first, second = (
        set(re.findall(r"[a-z0-9]+", n.lower())) - _BRANDS for n in (one, other)
    )
    return bool(first and second) and (first <= second or second <= first)


# -------------------------------------------------------------------------------- rates


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
    def over(cls, values: Iterable[float | None]) -> FigureRange | None:
        """Return the mean of the known `values` and their range; None without any."""
        known = [value for value in values if value is not None]
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
        return cls(
            records=np.concatenate([p.records for p in parts]),
            seconds=np.concatenate([p.seconds for p in parts]),
            usage=_sums(part.usage for part in parts),
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
        from scipy.special import stdtrit

        rates = self.seconds / self.records
        variance = np.average((rates - mean) ** 2, weights=self.records) * n / (n - 1)
        t = stdtrit(n - 1, 0.95)
        half = float(t * np.sqrt(variance * (1 / n + 1 / max(new, 1.0))))
        low, high = max(mean - half, rates.min()), min(mean + half, rates.max())
        return FigureRange(mean, float(low), float(high))


# -------------------------------------------------------------------- published figures


_SDXL = "stabilityai/stable-diffusion-xl-base-1.0"
_SD3 = "stabilityai/stable-diffusion-3-medium-diffusers"
_FLUX = "black-forest-labs/FLUX.1-dev"
_OPENJOURNEY = "prompthero/openjourney"
_DIFFUSION_FAST = "diffusers documentation, tutorials/fast_diffusion.md"
_FAL = "github.com/fal-ai/stable-diffusion-benchmarks (torch 2.1)"
_FAL_SD15 = f"{_FAL}, of Stable Diffusion 1.5, whose architecture Openjourney has"
_TORCHAO = "github.com/sayakpaul/diffusers-torchao"
_XDIT = "github.com/xdit-project/xDiT, docs/performance/flux.md"
_SD3_BLOG = "huggingface.co/blog/sd3"
_FLUX_FAST = "github.com/huggingface/flux-fast"


@dataclass(frozen=True, slots=True)
class PublishedSpeed:
    """One measurement that somebody else published."""

    model: str
    """Hub id of the model, or of one that has its architecture."""
    gpu: str
    steps: int
    side: int
    """Height and width, in pixels."""
    compiled: bool
    seconds: float
    """For one image."""
    source: str

    def is_of(self, spec: StageSpec) -> bool:
        """Return whether it is of this stage's model, compiled as there.

        Identities are `hub:ID@COMMIT`, or `ID` for dummy weights, which are as fast.
        """
        return (
            spec.stage == "text-to-image"
            and spec.weights in ("pretrained", "dummy")
            and spec.identity.removeprefix("hub:").partition("@")[0] == self.model
            and bool(spec.settings.get("compile")) == self.compiled
        )


PUBLISHED = (
    PublishedSpeed(_SDXL, "A100", 30, 1024, False, 3.31, _DIFFUSION_FAST),
    PublishedSpeed(_SDXL, "A100", 30, 1024, True, 2.54, _DIFFUSION_FAST),
    PublishedSpeed(_SDXL, "A100", 50, 1024, False, 5.93, _FAL),
    PublishedSpeed(_SDXL, "A100", 50, 1024, True, 5.14, _FAL),
    PublishedSpeed(_SD3, "A100", 28, 1024, False, 4.762, _SD3_BLOG),
    PublishedSpeed(_FLUX, "H100", 28, 1024, False, 6.57, _TORCHAO),
    PublishedSpeed(_FLUX, "H100", 28, 1024, True, 4.21, _TORCHAO),
    PublishedSpeed(_FLUX, "H100", 28, 1024, False, 6.71, _XDIT),
    PublishedSpeed(_FLUX, "H100", 28, 1024, True, 4.30, _XDIT),
    PublishedSpeed(_FLUX, "L20", 28, 1024, False, 24.94, _FLUX_FAST),
    PublishedSpeed(_OPENJOURNEY, "A100", 50, 512, False, 1.604, _FAL_SD15),
    PublishedSpeed(_OPENJOURNEY, "A100", 50, 512, True, 1.058, _FAL_SD15),
)


def published_rates(spec: StageSpec, gpu: str) -> StageRates:
    """Return the time of one image on `gpu` as published; nothing where none is known.

    Figures of other steps or sizes are scaled in proportion where there are no exact ones.
    """
    figures = [f for f in PUBLISHED if f.is_of(spec) and same_gpu(f.gpu, gpu)]
    asked = [spec.settings.get(name) for name in ("steps", "height", "width")]
    if not figures or not all(asked) or not spec.placement.num_gpus:
        return StageRates()
    steps, height, width = (int(value or 0) for value in asked)
    exact = [f for f in figures if f.steps == steps and f.side**2 == height * width]
    used = exact or figures
    words = list(dict.fromkeys(f.source for f in used))
    if not exact:
        words.append(
            f"scaled from {used[0].steps} steps at {used[0].side} x {used[0].side}"
        )
    work = steps * height * width
    return StageRates(
        seconds=FigureRange.over(f.seconds * work / (f.steps * f.side**2) for f in used),
        origin=Origin.PUBLISHED,
        detail=", ".join(words),
        usage={"images": 1.0},
    )


# ------------------------------------------------------------------------- earlier runs


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredRun:
    """What a run directory says that later runs can be forecast from."""

    root: Path
    manifest: Mapping[str, Any]

    @classmethod
    def among(cls, roots: Iterable[Path]) -> list[MeasuredRun]:
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
    def address(self) -> str | None:
        """The address of its Ray."""
        address: str | None = self.manifest["config"].get("address")
        return address

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

    def loads(self, spec: StageSpec, name: str) -> list[float]:
        """Return seconds until workers were ready, by a name of `_LOADING`."""
        seconds: list[float] = (self._timing(name) or {}).get(self.folder_of(spec), [])
        return seconds

    def folder_of(self, spec: StageSpec) -> str | None:
        """Return the stage's folder: of its digest, or of its settings in old versions."""
        stages: Mapping[str, Any] = self.manifest.get("stages") or {}
        name, _, digest = spec.folder.rpartition("-")
        facts = stage_facts(spec)
        exact = [folder for folder in stages if folder.endswith(f"-{digest}")]
        alike = [
            folder
            for folder, recorded in stages.items()
            if folder.rpartition("-")[0] == name
            and all(recorded.get(n) == facts[n] for n in _SAME)
        ]
        return next(iter(exact + alike), None)

    @cached_property
    def _read(self) -> dict[str, Batches | None]:
        """By the stage's folder, what has been read."""
        return {}

    def batches(self, spec: StageSpec) -> Batches | None:
        """Return the batches of a stage, without failed records; None without any."""
        if (folder := self.folder_of(spec)) is None:
            return None
        if folder not in self._read:
            self._read[folder] = _batches_in(self.root, folder)
        return self._read[folder]


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
    total = Counter[str]()
    for row in rows:
        total.update(row)
    return dict(total)


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
    def at(cls, root: Path, machine: Machine, address: str | None = None) -> Sources:
        """Return the sources for a run at `root`."""
        manifests = [m for m in root.parent.glob("*/manifest.json") if m.parent != root]
        latest = sorted(manifests, key=lambda m: m.stat().st_mtime, reverse=True)
        return cls(
            machine=machine,
            address=address,
            own=MeasuredRun.among([root]),
            beside=MeasuredRun.among(m.parent for m in latest[:_MOST_RUNS]),
        )

    @property
    def runs(self) -> list[MeasuredRun]:
        """All earlier runs, the planned one first."""
        return [*self.own, *self.beside]

    def rates(self, spec: StageSpec, new: float) -> StageRates:
        """Return what is known of a stage that is to make `new` records."""
        candidates = (
            self._measured(self.own, spec, new, Origin.OWN),
            self._measured(self.beside, spec, new, Origin.BESIDE),
            published_rates(spec, self.machine.gpu),
        )
        timed = next((c for c in candidates if c.seconds is not None), StageRates())
        loaded = next((c for c in candidates if c.load_s is not None), StageRates())
        return replace(
            timed,
            load_s=loaded.load_s,
            takeover_s=loaded.takeover_s,
            usage=next((c.usage for c in candidates if c.usage), {}),
            elsewhere="" if timed.seconds else "; ".join(self._elsewhere(spec)),
        )

    def _measured(
        self, runs: Sequence[MeasuredRun], spec: StageSpec, new: float, origin: Origin
    ) -> StageRates:
        """Return usage from all runs, and times from those on hardware of the same kind."""
        alike = [run for run in runs if self._is_alike(run, spec)]
        new_s, other_s = ([s for r in alike for s in r.loads(spec, n)] for n in _LOADING)
        rates = StageRates(
            load_s=FigureRange.over(new_s or other_s),
            takeover_s=FigureRange.over(other_s or new_s),
        )
        known = (b for run in runs if (b := run.batches(spec)))
        if pooled := list(islice(known, _MOST_POOLED)):
            rates = replace(rates, usage=Batches.pooled(pooled).each)
        named = ((r.root.name, b) for r in alike if (b := r.batches(spec)))
        timed = dict(islice(named, _MOST_POOLED))
        if not timed:
            return rates
        first, *others = timed
        together = Batches.pooled([*timed.values()])
        more = f" and {len(others)} more" if others else ""
        return replace(
            rates,
            seconds=together.predicted(new / max(spec.placement.batch_size, 1)),
            origin=origin,
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
        alike = (
            run
            for run in self.beside
            if run.address == self.address and run.machine.runs_like(self.machine, 0.0)
        )
        own, beside = ([r.overhead_s for r in runs] for runs in (self.own, alike))
        return FigureRange.over(own) or FigureRange.over(beside)

    def images(self, system: str) -> float | None:
        """Return how many images a document of `system` has; None where no run knows."""
        known = [(run.manifest.get(IMAGES) or {}).get(system) for run in self.runs]
        return next((float(n) for n in known if n is not None), None)

    def judged(self, spec: StageSpec) -> float | None:
        """Return records of a scorer's stage for one document; None where no run knows."""
        for run in self.runs:
            if run.documents and (batches := run.batches(spec)) is not None:
                return float(batches.records.sum()) / run.documents
        return None
