"""Machines that a run is forecast for, as the user or their own hardware describes them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from plait.cluster.manifest import hardware
from plait.cluster.placement import Node, Resources
from plait.generators.errors import UsageError

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
    first = _words_of(one)
    second = _words_of(other)
    return bool(first and second) and (first <= second or second <= first)


def _words_of(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower())) - _BRANDS
