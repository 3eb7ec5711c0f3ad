"""Which parts a run directory has, so that one that somebody removes is missed.

A driver notes each part that is committed, and each that plait itself is about to take
away, since its records were joined with others. A crash may keep a part from being noted:
then only its loss would go unseen, until the next command notes what there is.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Literal, cast

from plait.cluster.parts import parts_in, stage_folders
from plait.cluster.shard import FOLDER
from plait.generators.buckets import AnyPath, matching
from plait.generators.errors import WriteError
from plait.generators.files import AppendedFile, write_whole

LEDGER = "parts.log"
_LINE = re.compile(r"([+-]) ([^/]+/part-[0-9a-f]+\.parquet)")
_Sign = Literal["+", "-"]
_WRITTEN_EVERY_S = 1.0
"""Parts that are committed within this time are noted by one write."""


class PartLedger:
    """The notes of a driver that holds the lock of a run, or of a shard of it.

    Where they cannot be written the run goes on: the store reports a full disk.
    """

    def __init__(self, root: AnyPath, shard_folder: AnyPath | None = None) -> None:
        """What is there is noted; a driver of the whole run takes over all notes."""
        self.root = root
        self._file = AppendedFile((shard_folder or root) / LEDGER)
        self._lines: list[str] = []
        self._written_s = time.monotonic()
        self._names = expected_parts(root)
        """Of the parts that should be there."""
        self._removed: set[str] = set()
        """Names of parts that were taken away: none is noted again, however late."""
        there = _names_there(root)
        if shard_folder is None:
            self._names |= there
            self._begin_anew()
        else:
            self._lines.append("\n")  # what a crash has left of a line is none
            self.add(there)

    def _begin_anew(self) -> None:
        lines = (f"+ {name}\n" for name in sorted(self._names))
        with contextlib.suppress(OSError, WriteError):
            for path in matching(self.root, f"{FOLDER}/*/{LEDGER}"):
                path.unlink(missing_ok=True)
            write_whole(self.root / LEDGER, "".join(lines), durable=False)

    def add(self, parts: Iterable[str]) -> None:
        """Note parts that were committed, by their paths or names."""
        new = {*map(_name_of, parts)} - self._names - self._removed
        self._names |= new
        self._lines += (f"+ {name}\n" for name in new)
        if time.monotonic() - self._written_s > _WRITTEN_EVERY_S:
            self._write()

    def remove(self, parts: Iterable[str]) -> None:
        """Note parts that are about to be taken away."""
        former = {*map(_name_of, parts)} & self._names
        self._names -= former
        self._removed |= former
        self._lines += (f"- {name}\n" for name in former)
        self.save()

    def remove_stage(self, folder: str) -> None:
        """Note that all parts in the folder of a stage are about to be taken away."""
        self.remove([name for name in self._names if name.startswith(f"{folder}/")])

    def take_missing(self) -> list[str]:
        """Return the names of parts that are gone, and expect them no more."""
        absent = self._names - _names_there(self.root)
        gone = _not_accounted_for(self.root, absent)
        self.remove(absent)
        return gone

    def save(self) -> None:
        """Write all that is noted."""
        self._write()
        with contextlib.suppress(OSError):
            self._file.save()

    def _write(self) -> None:
        self._written_s = time.monotonic()
        lines = self._lines
        self._lines = []
        with contextlib.suppress(OSError):
            self._file.append("".join(lines))


def expected_parts(root: AnyPath) -> set[str]:
    """Return the names of parts (`FOLDER/PART`) that were noted and not taken away."""
    noted: dict[_Sign, set[str]] = defaultdict(set)
    for path in (root / LEDGER, *matching(root, f"{FOLDER}/*/{LEDGER}")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name, sign in _last_signs(path.read_text()).items():
                noted[sign].add(name)
    return noted["+"] - noted["-"]


def _last_signs(text: str) -> dict[str, _Sign]:
    """What was noted last of each part; a line that was not written whole is none."""
    lines = filter(None, map(_LINE.fullmatch, text.splitlines()))
    return {line[2]: cast(_Sign, line[1]) for line in lines}


def missing_parts(root: AnyPath) -> list[str]:
    """Return the names of parts that were noted and are gone; a run may be under way."""
    gone = _not_accounted_for(root, expected_parts(root) - _names_there(root))
    # Those that a run has joined with others were noted before they were taken away.
    return sorted(expected_parts(root).intersection(gone)) if gone else []


def notices_of_missing(root: AnyPath, names: Collection[str], what: str) -> Iterator[str]:
    """Yield what is said of parts that are gone, by stage, and `what` becomes of it."""
    by_stage = defaultdict[str, list[str]](list)
    for name in names:
        by_stage[name.partition("/")[0]].append(name)
    for gone in by_stage.values():
        others = f"{len(gone) - 1:,} more of its folder"
        more = f" and {others} are" if gone[1:] else " is"
        yield (
            f"part {root / 'stages' / gone[0]}{more} gone, and plait has not removed "
            f"{'them' if gone[1:] else 'it'}. {what}"
        )


def _names_there(root: AnyPath) -> set[str]:
    parts = chain.from_iterable(map(parts_in, stage_folders(root)))
    return {_name_of(str(part)) for part in parts}


def _not_accounted_for(root: AnyPath, absent: Collection[str]) -> list[str]:
    """Those of the parts that were not in a listing that are not set aside either."""
    paths = {name: root / "stages" / name for name in absent}
    return sorted(
        name
        for name, path in paths.items()
        if not (path.exists() or path.with_suffix(".unreadable").exists())
    )


def _name_of(part: str) -> str:
    return "/".join(part.rsplit("/", 2)[-2:])
