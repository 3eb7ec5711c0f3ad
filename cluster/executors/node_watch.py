"""Whether the nodes of a cluster can still be reached, known long before Ray says so.

Ray gives a node up only after about a minute of failed health checks, and reports the end
of its workers first. So the driver itself opens a connection to each node's raylet every
few seconds: one that is refused or takes too long says that the node, or the way to it, is
gone; one that is accepted says that a worker which has died did so alone.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from plait.cluster.placement import Node

_EVERY_S = 2.0
_LIMIT_S = 3.0
"""How long a connection may take to be accepted."""
SETTLING_S = 5.0
"""How long a node must outlive a worker before the worker is taken to have died alone: a
node that is shut down ends its workers first."""
UNWATCHED_SETTLING_S = 45.0
"""The same of a node that the driver cannot reach itself, so that only Ray knows."""


@dataclass
class _Signs:
    seen: float | None = None
    """When the last connection that was accepted was begun."""
    failing_since: float | None = None
    """When the first of the connections was begun that have failed since."""


class NodeWatch:
    """Watches nodes from a thread of its own, which begins with the first of them.

    Nodes that have never answered are not judged: between driver and nodes may lie a
    firewall.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self._nodes: Collection[Node] = ()
        self._signs: dict[str, _Signs] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def follow(self, nodes: Iterable[Node]) -> None:
        """Watch these nodes from now on, and no others."""
        self._nodes = {node.id: node for node in nodes}.values()
        idle = not self._thread.is_alive() and not self._stop.is_set()
        if self._nodes and idle:
            self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()

    def silent_s(self, node: str) -> float:
        """Seconds since the node last gave a sign; 0 for one that answers."""
        signs = self._signs.get(node, _Signs())
        if signs.seen is None or signs.failing_since is None:
            return 0.0
        return self.now() - signs.seen

    def has_outlived(self, node: str, died_at: float) -> bool | None:
        """Whether the node lives on after one of its workers died; None if not yet known.

        Args:
            node: Id of a node that Ray still takes to be alive.
            died_at: When the death was noticed, by `now`.
        """
        signs = self._signs.get(node, _Signs())
        if signs.seen is None:
            settled = self.now() - died_at > UNWATCHED_SETTLING_S
            return True if settled else None
        if signs.failing_since is not None:
            return False
        return True if signs.seen > died_at + SETTLING_S else None

    def note(self, node: str, begun: float, *, accepted: bool) -> None:
        """Note the end of a connection that was begun at that time."""
        signs = self._signs.setdefault(node, _Signs())
        if accepted:
            signs.seen = begun
            signs.failing_since = None
        elif signs.failing_since is None:
            signs.failing_since = begun

    def _watch(self) -> None:
        async def connect_to_all() -> None:
            await asyncio.gather(*map(self._connect, self._nodes))

        while not self._stop.wait(_EVERY_S):
            asyncio.run(connect_to_all())

    async def _connect(self, node: Node) -> None:
        begun = self.now()
        accepted = True
        try:
            async with asyncio.timeout(_LIMIT_S):
                _, writer = await asyncio.open_connection(node.address, node.port)
            writer.close()
        except OSError:  # TimeoutError is one
            accepted = False
        self.note(node.id, begun, accepted=accepted)
