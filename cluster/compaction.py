"""Joins the small parts of a run into larger ones while it makes more of them.

Parts that workers commit are joined as soon as there are many, and what comes of that again
with its like, so that a record is written a few times in all and a stage has few files at
any moment. One thread reads and writes; the driver's own then notes where the records are.

A joined part is complete before the former ones are removed: a crash in between leaves
records twice, which readers resolve by key. What still names a former part, such as a job
that waits for a worker, finds its record by key (`plait.cluster.store.read_blob`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from plait.cluster.parts import DamagedPart, StoreError
from plait.cluster.store import JoinedPart, Store
from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath, any_path, unlink_all

_LEVELS = (256 << 10, 4 << 20, 32 << 20)
"""Most bytes of a part of each level but the first, where those of workers are."""
_MOST_NEW = 48
_MOST_OF_LEVEL = 16
_LEFT_OUT = 8


@dataclass
class _StageParts:
    """The parts of a stage that are not large yet, by level."""

    spec: StageSpec
    levels: list[dict[str, None]] = field(
        default_factory=lambda: [{} for _ in range(len(_LEVELS) + 1)]
    )

    def full_level(self) -> int | None:
        """The first level with so many parts that they are to be joined."""
        for level, parts in enumerate(self.levels):
            if len(parts) >= (_MOST_OF_LEVEL if level else _MOST_NEW):
                return level
        return None


class Compaction:
    """Joins parts whose records the driver knows; call `turn` again and again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stages: dict[str, _StageParts] = {}
        self._thread = ThreadPoolExecutor(1, "plait-compaction")
        self._join: tuple[_StageParts, list[AnyPath], Future[JoinedPart]] | None = None
        self._grown = False
        """Whether there may be parts to be joined."""
        self._refused = False

    def note(self, spec: StageSpec, parts: Iterable[str]) -> None:
        """Note parts that a worker or the driver has committed."""
        stage = self._stages.setdefault(spec.digest, _StageParts(spec))
        stage.levels[0] |= dict.fromkeys(parts)
        self._grown = True

    def turn(self) -> None:
        """Note what has been joined, and have the next parts joined."""
        if self._join is not None and self._join[2].done():
            self._finish(*self._join)
            self._join = None
            self._grown = True
        if self._join is None and self._grown and not self._refused:
            self._begin()

    def close(self) -> None:
        """Wait for what is being joined, and note it."""
        if self._join is not None:
            self._finish(*self._join)
            self._join = None
        self._thread.shutdown(wait=True)

    def _begin(self) -> None:
        full = ((stage, stage.full_level()) for stage in self._stages.values())
        stage, level = next(((s, n) for s, n in full if n is not None), (None, 0))
        if stage is None or level is None:
            self._grown = False
            return
        names = [*stage.levels[level]]
        # Of the last parts, the driver may not have heard of all records yet.
        chosen = names if level else names[:-_LEFT_OUT]
        stage.levels[level] = dict.fromkeys(names[len(chosen) :])
        parts = [any_path(part) for part in chosen]
        future = self._thread.submit(self._store.write_joined, stage.spec, parts)
        self._join = stage, parts, future

    def _finish(
        self, stage: _StageParts, parts: list[AnyPath], future: Future[JoinedPart]
    ) -> None:
        try:
            joined = future.result()
        except FileNotFoundError:
            stage.levels[0] |= {str(part): None for part in parts if part.exists()}
            return
        except DamagedPart as damage:
            # It is proved, set aside and made again at the end of the run.
            self._store.suspects.add(damage.part)
            left = (str(part) for part in parts if str(part) != damage.part)
            stage.levels[0] |= dict.fromkeys(left)
            return
        except (StoreError, OSError) as error:
            self._refused = True
            self._store.on_notice(f"parts are not joined while the run works: {error}")
            return
        former = self._store.take_over(joined)
        level = next((i for i, size in enumerate(_LEVELS, 1) if joined.size < size), None)
        if level is not None:
            stage.levels[level][str(joined.part)] = None
        self._thread.submit(self._remove, former)

    @staticmethod
    def _remove(parts: list[AnyPath]) -> None:
        with contextlib.suppress(OSError):  # they are joined again at the end
            unlink_all(parts)
