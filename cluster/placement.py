"""Which nodes can host a worker: free resources, and deaths while loading; without Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cluster.stage_queue import StageQueue
from generators.base import Placement, StageSpec

_ROUNDING = 1e-6
_BATCHES_PER_WORKER = 16
"""Batches that must wait for each worker before another one is worth starting,"""
_RECORDS_PER_WORKER = 128
"""or fewer batches of so many records, but two."""
_BATCHES_AT_HAND = 2
"""Batches, where a process at hand only has to load the stage."""
IDLE_BEFORE_EVICTION_S = 1.0
"""How long a worker that may get more work is idle before it gives way to a stage that
has none."""
MOST_DEATHS = 3
"""Deaths while loading, on one node that lives on, after which a stage is not loadable."""


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of each resource that the scheduler counts."""

    cpus: float = 0.0
    gpus: float = 0.0
    memory: float = 0.0
    """Host memory in bytes."""

    @classmethod
    def of_node(cls, resources: Mapping[str, float]) -> "Resources":
        """From a node's resources as Ray names them."""
        names = ("CPU", "GPU", "memory")
        return cls(*(float(resources.get(name, 0.0)) for name in names))

    @classmethod
    def of_placement(cls, placement: Placement) -> "Resources":
        """The resources that one replica takes."""
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
        """Whether `free` has at least this much of everything."""
        return min((free - self)._amounts) >= -_ROUNDING

    def gains(self, free: "Resources", offered: "Resources") -> bool:
        """Whether `offered` has some of what `free` lacks for this."""
        pairs = zip((self - free)._amounts, offered._amounts, strict=True)
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
    """The free resources of each node; `used` are (node, amount)."""
    free = {n.id: n.total for n in nodes}
    for node, need in used:
        if node in free:
            free[node] = free[node] - need
    return free


def best_node(need: Resources, free: Mapping[str, Resources]) -> str | None:
    """The fullest node on which `need` fits, to keep wide gaps for wide models."""
    fitting = [node for node, resources in free.items() if need.fits(resources)]
    return min(fitting, key=lambda n: (free[n].gpus, free[n].cpus, n), default=None)


def may_follow(former: StageSpec, later: StageSpec) -> bool:
    """Whether a process that has hosted one stage may load the other after it."""
    same = Resources.of_placement(former.placement) == Resources.of_placement(
        later.placement
    )
    return former.shares_process and later.shares_process and same


def worth_another(
    placement: Placement,
    pending: float,
    workers: int,
    batch_size: int,
    *,
    at_hand: bool = False,
) -> bool:
    """Whether `pending` jobs are enough for one more worker beside `workers`.

    `at_hand` says that a process which has imported its libraries would become it.
    """
    if placement.remote or (placement.workers is not None and workers >= placement.workers):
        return False
    batches = 1
    if placement.workers is None and at_hand:
        batches = _BATCHES_AT_HAND
    elif placement.workers is None:
        batches = max(2, min(_BATCHES_PER_WORKER, _RECORDS_PER_WORKER // batch_size))
    return pending > batches * batch_size * placement.concurrency * workers


@dataclass
class LoadingDeaths:
    """Deaths of workers that were still loading, to see when the stage is the cause.

    A model too large for a machine's memory kills its worker on any machine, at every
    attempt. What Ray could not even start (a package that is missing there) fails on that
    node however often it is tried.
    """

    _counts: Counter[tuple[StageQueue, str]] = field(default_factory=Counter)
    _reasons: dict[StageQueue, str] = field(default_factory=dict)
    _barred: set[tuple[StageQueue, str]] = field(default_factory=set)

    def add(self, stage: StageQueue, node: str, reason: str) -> None:
        """A worker of `stage` died on `node`, which lives on, before it was ready."""
        self._counts[stage, node] += 1
        self._reasons[stage] = reason

    def bar(self, stage: StageQueue, node: str, reason: str) -> None:
        """No worker of `stage` can ever be started on `node`."""
        self._barred.add((stage, node))
        self._reasons[stage] = reason

    def clear(self, stage: StageQueue) -> None:
        """A worker of `stage` has loaded: its earlier deaths no longer count."""
        for key in [key for key in self._counts if key[0] is stage]:
            del self._counts[key]

    def barred(self, stage: StageQueue) -> set[str]:
        """Nodes where no worker of the stage can be started."""
        return {node for other, node in self._barred if other is stage}

    def unloadable(
        self, hosts: Callable[[StageQueue], Collection[str]]
    ) -> dict[StageQueue, str]:
        """Stages that cannot be loaded, with the reason.

        `hosts` gives the nodes that are alive and large enough for a stage. One on which
        it died too often is enough, since they all load the same.
        """
        reasons: dict[StageQueue, str] = {}
        for stage, reason in self._reasons.items():
            possible = set(hosts(stage))
            if possible and possible <= self.barred(stage):
                reasons[stage] = reason
            elif any(self._counts[stage, node] >= MOST_DEATHS for node in possible):
                reasons[stage] = f"{reason}, {MOST_DEATHS} times in a row while loading"
        return reasons
