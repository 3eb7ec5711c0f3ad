"""Joins the small parts of a run into larger ones while it makes more of them.

Parts that workers commit are joined as soon as there are many, and what comes of that again
with its like, so that a record is written a few times in all and a stage has few files at
any moment. One thread reads and writes; the driver's own notes where the records are.

A joined part is complete before the former ones are removed: a crash in between leaves
records twice, which readers resolve by key. What still names a former part, such as a job
that waits for a worker, finds its record by key (`record_values.find_records`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from plait.cluster.parts import DamagedPart, StoreError
from plait.cluster.store import JoinedPart, Store
from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath, any_path

_LEVEL_BYTES = (256 << 10, 4 << 20, 32 << 20)
"""What is smaller than each of these is joined with others of its level. Those that workers
commit are a level of their own below these."""
_MOST_NEW = 48
"""Parts of workers that are joined at once,"""
_MOST_OF_LEVEL = 16
"""and of every other level."""
_LEFT_OUT = 8
"""Of the latest parts the driver may not have heard of all records yet."""
_MOST_FORMER = 64
"""Parts of a run that are kept although they were joined,"""
_KEPT_S = 60.0
"""for so long: a worker of another machine may not see the joined one at once."""


@dataclass(eq=False)
class _StageParts:
    """The parts of a stage that are not large yet, by level."""

    spec: StageSpec
    levels: list[dict[str, None]] = field(init=False)
    """Paths of the parts in the order they were written; those of workers first."""

    def __post_init__(self) -> None:
        self.levels = [{} for _ in range(len(_LEVEL_BYTES) + 1)]

    def full_level(self) -> int | None:
        """Return the first level with so many parts that they are to be joined."""
        for level, parts in enumerate(self.levels):
            most = _MOST_NEW if level == 0 else _MOST_OF_LEVEL
            if len(parts) >= most:
                return level
        return None

    def add_joined(self, joined: JoinedPart) -> None:
        """Add a part that was made of others to its level, unless it is large."""
        for level, most_bytes in enumerate(_LEVEL_BYTES, start=1):
            if joined.size < most_bytes:
                self.levels[level][str(joined.part)] = None
                return


class _Join(NamedTuple):
    """What the thread is joining."""

    stage: _StageParts
    parts: list[AnyPath]
    future: Future[JoinedPart]


class _Former(NamedTuple):
    """Parts that were joined."""

    at: float
    spec: StageSpec
    parts: list[AnyPath]


class Compaction:
    """Joins parts whose records the driver knows; its `turn` is to be called often."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._stages: dict[str, _StageParts] = {}
        self._thread = ThreadPoolExecutor(1, "plait-compaction")
        self._join: _Join | None = None
        self._former: deque[_Former] = deque()
        self._may_join = False
        """Whether there may be parts to be joined."""
        self._refused = False

    def note(self, spec: StageSpec, parts: Iterable[str]) -> None:
        """Note parts that a worker or the driver has committed."""
        stage = self._stages.setdefault(spec.digest, _StageParts(spec))
        stage.levels[0] |= dict.fromkeys(parts)
        self._may_join = True

    def turn(self) -> None:
        """Note what has been joined, and have the next parts joined."""
        if self._join is not None and self._join.future.done():
            self._finish(self._join)
            self._join = None
            self._may_join = True
        if self._may_join and self._join is None and not self._refused:
            self._begin()
        kept = sum(len(former.parts) for former in self._former)
        while self._former:
            oldest = self._former[0]
            if kept <= _MOST_FORMER and self._now() - oldest.at < _KEPT_S:
                break
            kept -= len(oldest.parts)
            self._remove(self._former.popleft())

    def close(self) -> None:
        """Wait for what is being joined, note it, and remove all former parts."""
        if self._join is not None:
            self._finish(self._join)
            self._join = None
        self._thread.shutdown()
        while self._former:
            self._remove(self._former.popleft())

    def _begin(self) -> None:
        """Have the parts of the first level that is full joined."""
        self._may_join = False
        for stage in self._stages.values():
            level = stage.full_level()
            if level is None:
                continue
            names = list(stage.levels[level])
            chosen = names[:-_LEFT_OUT] if level == 0 else names
            stage.levels[level] = dict.fromkeys(names[len(chosen) :])
            parts = [any_path(name) for name in chosen]
            future = self._thread.submit(self._store.join, stage.spec, parts)
            self._join = _Join(stage, parts, future)
            return

    def _finish(self, join: _Join) -> None:
        """Note what was joined; parts that could not be are joined with later ones."""
        stage = join.stage
        try:
            joined = join.future.result()
        except FileNotFoundError:
            for part in join.parts:
                if part.exists():
                    stage.levels[0][str(part)] = None
            return
        except DamagedPart as damage:
            # It is examined, set aside and made again at the end of the run.
            self._store.suspects.add(damage.part)
            for part in join.parts:
                if str(part) != damage.part:
                    stage.levels[0][str(part)] = None
            return
        except (StoreError, OSError) as error:
            # Such as a full disk: the run can do without, and joins all at its end.
            self._refused = True
            self._store.on_notice(f"parts are not joined while the run works: {error}")
            return
        # From here on the index names the joined part; files of the others stay a while.
        former = self._store.take_over(joined)
        self._former.append(_Former(self._now(), stage.spec, former))
        stage.add_joined(joined)

    def _remove(self, former: _Former) -> None:
        with contextlib.suppress(OSError):  # records that are there twice do no harm
            self._store.remove(former.spec, former.parts)
