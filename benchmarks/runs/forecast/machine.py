"""The machines that a forecast is for: this one, or those that `--on` describes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from cluster.manifest import hardware
from cluster.placement import Node, Resources
from generators.errors import UsageError

_FORM = re.compile(
    r"(?:(?P<nodes>\d+)x)?(?P<gpus>\d+)x(?P<name>[^,]*[A-Za-z][^,]*)(?:,(?P<cpus>\d+)cpu)?"
)
_PLENTY_GIB = 2**20
"""Host memory of a described node, which is not asked for."""


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
        """From a manifest's entry `hardware`, where GPUs have their driver's version."""
        gpus = about.get("gpus") or []
        name = gpus[0].partition(",")[0].strip() if gpus else ""
        cpus = about.get("cpus") or os.cpu_count() or 1
        return cls(cpus=cpus, gpus=len(gpus), gpu=name)

    @property
    def resources(self) -> list[Node]:
        """The nodes as the scheduler counts them."""
        memory = float(_PLENTY_GIB * 2**30)
        total = Resources(float(self.cpus), float(self.gpus), memory)
        return [Node(str(i), total) for i in range(self.nodes)]

    def __str__(self) -> str:
        gpus = f"{self.gpus} x {self.gpu}, " if self.gpus else ""
        nodes = f"{self.nodes} nodes, each " if self.nodes > 1 else ""
        return f"{nodes}{gpus}{self.cpus} CPUs"


def this_machine() -> Machine:
    """The machine of this process."""
    return Machine.from_hardware(hardware())


def described(text: str) -> Machine:
    """The machines `[NODESx]GPUSxNAME[,CPUScpu]`; UsageError for anything else."""
    match = _FORM.fullmatch(text.strip())
    if match is None or not int(match["nodes"] or 1):
        raise UsageError(
            f"--on {text!r} is not of the form [NODESx]GPUSxNAME[,CPUScpu], such as "
            "8xH100 or 2x8xA100,64cpu"
        )
    gpus = int(match["gpus"])
    return Machine(
        nodes=int(match["nodes"] or 1),
        cpus=int(match["cpus"] or max(os.cpu_count() or 1, 4 * gpus)),
        gpus=gpus,
        gpu=match["name"].strip(),
        described=True,
    )


def same_gpu(one: str, other: str) -> bool:
    """Whether two names are of one kind of GPU: `A100` is `NVIDIA A100-SXM4-80GB`."""
    first, second = (set(re.findall(r"[a-z0-9]+", n.lower())) for n in (one, other))
    brands = {"nvidia", "geforce", "tesla", "amd", "instinct"}
    first, second = first - brands, second - brands
    return bool(first and second) and (first <= second or second <= first)


def same_hardware(stage_gpus: float, one: Machine, other: Machine) -> bool:
    """Whether a stage that takes `stage_gpus` GPUs runs alike on both."""
    if stage_gpus:
        return bool(one.gpus and other.gpus) and same_gpu(one.gpu, other.gpu)
    return one.cpus == other.cpus and bool(one.gpus) == bool(other.gpus)
