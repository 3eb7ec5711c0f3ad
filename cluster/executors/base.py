"""What the engine asks of the place where its workers run.

`on_ray` runs jobs on one machine or a cluster, `local` runs the same in this process, and
`simulated` runs it on a virtual clock. Scheduler, allocation, attribution of deaths and
store know only what is declared here.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, Protocol

from plait.cluster.executors.node_watch import NodeWatch
from plait.cluster.placement import Node
from plait.generators.base import Placement
from plait.generators.errors import PlaitError

ExecutorName = Literal["ray", "local"]
Ref = Any
"""The answer to a call, once there is one; hashable."""


class ClusterError(PlaitError, RuntimeError):
    """The cluster cannot be reached or cannot host a stage."""


class HostLost(Exception):
    """A host has ended, or its node; the text says why, as users read it."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        """`refused`: it could not be started, for a reason that will not pass."""
        super().__init__(reason)
        self.refused = refused


class Host(Protocol):
    """A process that hosts a `Worker`, as the driver holds it."""

    @property
    def node(self) -> Node:
        """Where it was started."""

    def call(self, method: str, *args: Any, control: bool = False) -> Ref:
        """Start a method of the worker; with `control`, beside those that compute."""

    def kill(self) -> None:
        """End the process at once."""


class Executor(ABC):
    """Starts hosts on nodes, and says what becomes of both."""

    fixed: bool = True
    """Whether nodes neither come nor go, as where there is one machine."""
    signs: NodeWatch | None = None
    """Of life that nodes give; None where they cannot be lost without the driver."""

    def most_workers(self, placement: Placement) -> int | None:
        """How many workers of one stage are of use; None for all there is room for."""
        return None

    def now(self) -> float:
        """Seconds on the clock by which the engine goes."""
        return time.monotonic()

    @abstractmethod
    def nodes(self) -> list[Node]:
        """Return the nodes that are taken to be alive, with all the resources of each."""

    def held_by_others(self) -> list[str]:
        """Return what other programs hold of the cluster, in words, as far as is known."""
        return []

    @abstractmethod
    def start(self, placement: Placement, node: Node, given: tuple[Any, ...]) -> Host:
        """Start a host with the resources of `placement`; `Worker` is made of `given`."""

    @abstractmethod
    def wait(self, refs: Collection[Ref], timeout_s: float) -> list[Ref]:
        """Return those of `refs` that are ready, waiting at most `timeout_s` for the first.

        Without any, the whole time: a run that waits for resources keeps no core busy.
        """

    @abstractmethod
    def wait_for_all(self, refs: Sequence[Ref], timeout_s: float) -> None:
        """Wait until all of `refs` are ready, for at most `timeout_s`."""

    @abstractmethod
    def result(self, ref: Ref) -> Any:
        """Return the value of a ready reference; HostLost where the host has ended."""

    def watch(self, nodes: Iterable[Node]) -> None:
        """Watch whether these nodes give signs of life, and no others."""
        if self.signs is not None:
            self.signs.follow(nodes)

    def silent_s(self, node: str) -> float:
        """Seconds since a watched node last gave a sign; 0 for one that answers."""
        return 0.0 if self.signs is None else self.signs.silent_s(node)

    def has_outlived(self, node: str, died_at: float) -> bool | None:
        """Whether the node lives on after one of its hosts ended; see `NodeWatch`."""
        return True if self.signs is None else self.signs.has_outlived(node, died_at)

    def close(self) -> None:
        """Watch no node any more."""
        if self.signs is not None:
            self.signs.close()
