"""The rates of every stage of a plan, each from the best source that knows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.runs.forecast.benched import BenchFile, bench_rates, benched_elsewhere
from benchmarks.runs.forecast.machine import Machine, same_hardware
from benchmarks.runs.forecast.measured import (
    MeasuredRun,
    StageRecords,
    load_span,
    loads_of,
    pooled,
    records_of,
    runs_beside,
)
from benchmarks.runs.forecast.published import elsewhere, published_rates
from benchmarks.runs.forecast.rates import (
    FigureRange,
    Origin,
    StageRates,
    Usage,
    predicted,
)
from generators.base import StageSpec

_MOST_POOLED = 5
"""Runs beside the planned one whose records of one stage are taken together."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where rates are looked up for one plan."""

    machine: Machine
    address: str | None = None
    own: MeasuredRun | None = None
    """The planned run, where it has been started before."""
    beside: Sequence[MeasuredRun] = ()
    files: Sequence[BenchFile] = ()
    _records: dict[tuple[Path, str], StageRecords | None] = field(
        default_factory=dict, repr=False
    )

    @classmethod
    def at(
        cls,
        root: Path,
        machine: Machine,
        address: str | None = None,
        files: Iterable[Path] = (),
    ) -> Sources:
        """The sources for a run at `root`; UsageError for a file that is not one."""
        return cls(
            machine=machine,
            address=address,
            own=MeasuredRun.at(root),
            beside=runs_beside(root),
            files=[BenchFile.read(file) for file in files],
        )

    # ------------------------------------------------------------------ of a stage

    def rates(self, spec: StageSpec, new: float) -> StageRates:
        """What is known of a stage that is to make `new` records."""
        candidates = list(self._candidates(spec, new))
        timed = next((c for c in candidates if c.seconds is not None), StageRates())
        used = next((c for c in candidates if c.usage != Usage()), StageRates())
        loaded = next((c for c in candidates if c.load_s is not None), StageRates())
        return replace(
            timed,
            load_s=loaded.load_s,
            takeover_s=loaded.takeover_s,
            usage=used.usage,
            usage_origin=used.usage_origin,
            elsewhere="" if timed.seconds else "; ".join(self._elsewhere(spec)),
        )

    def _candidates(self, spec: StageSpec, new: float) -> Iterator[StageRates]:
        if self.own is not None:
            yield self._measured([self.own], spec, new, Origin.OWN)
        yield self._measured(self.beside, spec, new, Origin.BESIDE)
        yield bench_rates(self.files, spec, self.machine, new) or StageRates()
        yield published_rates(spec, self.machine) or StageRates()

    def _measured(
        self, runs: Sequence[MeasuredRun], spec: StageSpec, new: float, origin: Origin
    ) -> StageRates:
        """Usage from all runs; times from those on hardware of the same kind."""
        known = [(run, r) for run in runs if (r := self._read(run, spec)) is not None]
        alike = [(run, r) for run, r in known if self._is_alike(run, spec)][:_MOST_POOLED]
        warm_up_s = max((records.warm_up_s for _, records in alike), default=0.0)
        loads = loads_of((run for run in runs if self._is_alike(run, spec)), spec)
        load_s, takeover_s = (load_span(times, warm_up_s) for times in loads)
        if not known:
            return StageRates(load_s=load_s, takeover_s=takeover_s)
        usage = pooled([records for _, records in known[:_MOST_POOLED]]).usage
        shared = {
            "load_s": load_s,
            "takeover_s": takeover_s,
            "usage": usage,
            "usage_origin": origin,
        }
        if not alike:
            return StageRates(**shared)  # type: ignore[arg-type]
        together = pooled([records for _, records in alike])
        new_batches = new / max(spec.placement.batch_size, 1)
        return StageRates(
            seconds=predicted(together.batches, new_batches),
            origin=origin,
            detail=_detail(alike, together),
            **shared,  # type: ignore[arg-type]
        )

    def _read(self, run: MeasuredRun, spec: StageSpec) -> StageRecords | None:
        folder = run.folder_of(spec)
        if folder is None:
            return None
        if (run.root, folder) not in self._records:
            self._records[run.root, folder] = records_of(run.root, folder)
        return self._records[run.root, folder]

    def _is_alike(self, run: MeasuredRun, spec: StageSpec) -> bool:
        """Whether the stage ran there on hardware like that of the plan.

        What an endpoint needs depends on the endpoint alone; the nodes of a cluster are
        those of its address.
        """
        remote = spec.placement.endpoint is not None and spec.placement.server is None
        same_cluster = self.address is not None and run.address == self.address
        if remote or (same_cluster and not self.machine.described):
            return True
        return run.address is None and same_hardware(
            spec.placement.num_gpus, run.machine, self.machine
        )

    def _elsewhere(self, spec: StageSpec) -> Iterator[str]:
        runs = (self.own, *self.beside)
        known = [run for run in runs if run is not None and self._read(run, spec)]
        yield from dict.fromkeys(f"measured on {run.machine}" for run in known)
        yield from benched_elsewhere(self.files, spec)
        if text := elsewhere(spec):
            yield text

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
            if run.address == self.address and same_hardware(0.0, run.machine, self.machine)
        )
        return FigureRange.over(seconds for seconds in alike if seconds is not None)

    def pictures(self, system: str) -> float | None:
        """Pictures of one document of `system`; None where no run knows."""
        known = (run.pictures.get(system) for run in self._runs())
        return next((float(n) for n in known if n is not None), None)

    def judged(self, spec: StageSpec) -> float | None:
        """Records of a scorer's stage for one document; None where no run knows."""
        for run in self._runs():
            records = self._read(run, spec) if run.documents else None
            if records is not None:
                return records.records / run.documents
        return None

    def _runs(self) -> Iterator[MeasuredRun]:
        yield from (run for run in (self.own, *self.beside) if run is not None)


def _detail(
    known: Sequence[tuple[MeasuredRun, StageRecords]], together: StageRecords
) -> str:
    names = [run.root.name for run, _ in known]
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{together.records:,} records of {names[0]}{others}"
