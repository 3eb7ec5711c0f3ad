"""Nodes and their resources: what a worker takes, and which node has room for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plait.generators.base import Placement

_ROUNDING = 1e-6
"""Shares of a GPU are fractions, whose sums are not exact."""


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of each resource that the scheduler counts."""

    cpus: float = 0.0
    gpus: float = 0.0
    memory: float = 0.0
    """Host memory in bytes."""

    @classmethod
    def of_placement(cls, placement: Placement) -> "Resources":
        """Return the resources that one replica takes."""
        memory = placement.memory_gib * 2**30
        return cls(placement.num_cpus, placement.num_gpus, memory)

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpus + other.cpus, self.gpus + other.gpus, self.memory + other.memory
        )

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpus - other.cpus, self.gpus - other.gpus, self.memory - other.memory
        )

    def fits(self, free: "Resources") -> bool:
        """Return whether `free` has at least this much of everything."""
        return (
            self.gpus <= free.gpus + _ROUNDING
            and self.cpus <= free.cpus + _ROUNDING
            and self.memory <= free.memory + _ROUNDING
        )

    def gains(self, free: "Resources", offered: "Resources") -> bool:
        """Return whether `offered` has some of what `free` lacks for this."""
        lacking = self - free
        return (
            (lacking.gpus > _ROUNDING and offered.gpus > 0)
            or (lacking.cpus > _ROUNDING and offered.cpus > 0)
            or (lacking.memory > _ROUNDING and offered.memory > 0)
        )

    def __str__(self) -> str:
        parts: list[str] = []
        if self.gpus:
            parts.append(f"{self.gpus:g} GPU")
        if self.cpus:
            parts.append(f"{self.cpus:g} CPU")
        if self.memory:
            parts.append(f"{self.memory / 2**30:g} GiB")
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster and all its resources."""

    id: str
    total: Resources
    address: str = ""
    """As other nodes reach it, and as it is named to users: host names need not differ."""
    port: int = 0
    """On which its raylet listens."""


def free_resources(
    nodes: Iterable[Node], used: Iterable[tuple[str, Resources]]
) -> dict[str, Resources]:
    """Return the free resources of each node; `used` are (node, amount)."""
    free = {node.id: node.total for node in nodes}
    for node_id, need in used:
        if node_id in free:  # else the node is gone
            free[node_id] = free[node_id] - need
    return free


def best_node(need: Resources, free: Mapping[str, Resources]) -> str | None:
    """Return the fullest node on which `need` fits, to keep wide gaps for wide models."""
    fitting = [node for node, resources in free.items() if need.fits(resources)]
    return min(fitting, key=lambda n: (free[n].gpus, free[n].cpus, n), default=None)
