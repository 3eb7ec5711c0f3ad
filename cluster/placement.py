"""Where workers fit: pure arithmetic over nodes, so that it can be tested without Ray."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from generators.base import Placement

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Need:
    """An amount of each resource that the scheduler counts."""

    cpus: float = 0.0
    gpus: float = 0.0
    memory: float = 0.0
    """Host memory in bytes."""

    @classmethod
    def of_resources(cls, resources: Mapping[str, float]) -> "Need":
        """From Ray's own naming."""
        names = ("CPU", "GPU", "memory")
        return cls(*(float(resources.get(name, 0.0)) for name in names))

    @classmethod
    def of_placement(cls, placement: Placement) -> "Need":
        """What one replica takes."""
        memory = placement.memory_gib * 2**30
        return cls(placement.num_cpus, placement.num_gpus, memory)

    def __add__(self, other: "Need") -> "Need":
        return Need(
            self.cpus + other.cpus, self.gpus + other.gpus, self.memory + other.memory
        )

    def __sub__(self, other: "Need") -> "Need":
        return Need(
            self.cpus - other.cpus, self.gpus - other.gpus, self.memory - other.memory
        )

    def fits(self, room: "Need") -> bool:
        """Whether `room` has at least this much of everything."""
        return min((room - self)._amounts) >= -_ROUNDING

    def gains(self, room: "Need", offered: "Need") -> bool:
        """Whether `offered` has some of what `room` lacks for this."""
        pairs = zip((self - room)._amounts, offered._amounts, strict=True)
        return any(lacking > _ROUNDING and some > 0 for lacking, some in pairs)

    @property
    def _amounts(self) -> tuple[float, float, float]:
        return self.cpus, self.gpus, self.memory

    def __str__(self) -> str:
        parts = [f"{self.gpus:g} GPU"] if self.gpus else []
        parts += [f"{self.cpus:g} CPU"] if self.cpus else []
        parts += [f"{self.memory / 2**30:g} GiB"] if self.memory else []
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster and all it has."""

    id: str
    total: Need


def free_room(nodes: Iterable[Node], taken: Iterable[tuple[str, Need]]) -> dict[str, Need]:
    """What is left on each node once the placed replicas are counted."""
    room = {n.id: n.total for n in nodes}
    for node, need in taken:
        if node in room:
            room[node] = room[node] - need
    return room


def best_node(need: Need, room: Mapping[str, Need]) -> str | None:
    """The fullest node on which `need` fits, to keep wide gaps for wide models."""
    fitting = [n for n, free in room.items() if need.fits(free)]
    return min(fitting, key=lambda n: (room[n].gpus, room[n].cpus, n), default=None)
