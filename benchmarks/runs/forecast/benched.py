"""Rates from files that `plait bench stage --out` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.runs.forecast.machine import Machine, same_gpu
from benchmarks.runs.forecast.rates import (
    FigureRange,
    MeasuredBatch,
    Origin,
    StageRates,
    Usage,
)
from benchmarks.runs.forecast.rates import predicted as predicted_seconds
from generators.base import StageSpec
from generators.errors import UsageError

_SPEC = ("name", "kind", "identity", "weights", "settings")


@dataclass(frozen=True, kw_only=True)
class BenchFile:
    """One measured stage."""

    path: Path
    spec: Mapping[str, Any]
    device: str
    cpus: int | None
    speeds: Sequence[Mapping[str, Any]]
    load_s: float | None
    """Of the model alone, without the start of a worker's process."""

    @classmethod
    def read(cls, path: Path) -> BenchFile:
        """The file at `path`; UsageError where it is not one of `bench stage`."""
        try:
            content = json.loads(path.read_text())
            about, speeds = content["about"], content["speeds"]
            spec = about["spec"]
            missing = [name for name in _SPEC if name not in spec]
        except OSError as error:
            raise UsageError(f"--rates {path}: {error.strerror or error}") from None
        except (ValueError, LookupError, TypeError):
            missing = list(_SPEC)
        if missing:
            raise UsageError(
                f"--rates {path} is not a valid file of rates: write one with "
                "`plait bench stage … --out FILE` for one stage of a system, or a scorer"
            )
        return cls(
            path=path,
            spec=spec,
            device=str(about.get("device", "")),
            cpus=(about.get("hardware") or {}).get("cpus"),
            speeds=speeds,
            load_s=_load_s(speeds),
        )

    def is_of(self, spec: StageSpec) -> bool:
        """Whether it measured this stage."""
        settings = json.loads(json.dumps(dict(spec.settings)))
        wanted = (spec.name, spec.kind.value, spec.identity, spec.weights, settings)
        return tuple(self.spec[name] for name in _SPEC) == wanted

    def is_on(self, spec: StageSpec, machine: Machine) -> bool:
        """Whether its device is what the stage would run on."""
        on_cpu = self.device.startswith("CPU")
        if spec.placement.num_gpus:
            return not on_cpu and same_gpu(self.device, machine.gpu)
        return on_cpu and self.cpus in (None, machine.cpus)

    def rates(self, spec: StageSpec, new: float) -> StageRates | None:
        """The rates at the batch size nearest to the stage's; None without any."""
        batches = {size: s for s in self.speeds if (size := _batch_size(s))}
        if not batches:
            return None
        size = min(batches, key=lambda n: (abs(n - spec.placement.batch_size), n))
        speed = batches[size]
        records = int(speed["records"])
        rounds = [MeasuredBatch(records, float(s)) for s in speed["seconds"]]
        return StageRates(
            seconds=predicted_seconds(rounds, new / max(records, 1)),
            origin=Origin.BENCH,
            detail=f"{self.path.name}, batch {size}, {len(rounds)} rounds of {records}; "
            "loads without the start of a process",
            load_s=None if self.load_s is None else FigureRange.exact(self.load_s),
            usage=_usage(speed, records),
            usage_origin=Origin.BENCH,
        )


def _load_s(speeds: Sequence[Mapping[str, Any]]) -> float | None:
    """The longest `load_time` among the figures; None where there is none."""
    figures = (speed.get("figures") or {} for speed in speeds)
    loads = [f["load_time"].get("value") for f in figures if "load_time" in f]
    return max((float(s) for s in loads if s is not None), default=None)


def _batch_size(speed: Mapping[str, Any]) -> int | None:
    """Of a way of computing: `batch 8`; None for the original program's loop."""
    kind, _, size = str(speed.get("way", "")).partition(" ")
    usable = kind == "batch" and size.isdecimal() and speed.get("records")
    return int(size) if usable else None


def _usage(speed: Mapping[str, Any], records: int) -> Usage:
    amounts = speed.get("usage") or {}
    names = ("input_tokens", "output_tokens", "images", "cost")
    return Usage(**{n: amounts[n] / records for n in names if n in amounts})


def bench_rates(
    files: Sequence[BenchFile], spec: StageSpec, machine: Machine, new: float
) -> StageRates | None:
    """The rates of a stage from the first file that measured it on such a device."""
    usable = (f for f in files if f.is_of(spec) and f.is_on(spec, machine))
    return next(filter(None, (file.rates(spec, new) for file in usable)), None)


def benched_elsewhere(files: Sequence[BenchFile], spec: StageSpec) -> Iterator[str]:
    """Devices on which files measured the stage."""
    yield from dict.fromkeys(f"measured on {f.device}" for f in files if f.is_of(spec))
