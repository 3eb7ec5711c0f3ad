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
        """What is there is noted; a driver of the whole run takes over all notes.

        With a `shard_folder`, the notes are those of a shard's driver, and lie there.
        """
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
        """Write all notes into one file, and remove those of shards."""
        lines = [f"+ {name}\n" for name in sorted(self._names)]
        with contextlib.suppress(OSError, WriteError):
            for path in matching(self.root, f"{FOLDER}/*/{LEDGER}"):
                path.unlink(missing_ok=True)
            write_whole(self.root / LEDGER, "".join(lines), durable=False)

    def add(self, parts: Iterable[str]) -> None:
        """Note parts that were committed, by their paths or names."""
        for part in parts:
            name = _name_of(part)
            if name not in self._names and name not in self._removed:
                self._names.add(name)
                self._lines.append(f"+ {name}\n")
        if time.monotonic() - self._written_s > _WRITTEN_EVERY_S:
            self._write()

    def remove(self, parts: Iterable[str]) -> None:
        """Note parts that are about to be taken away."""
        for part in parts:
            name = _name_of(part)
            if name in self._names:
                self._names.remove(name)
                self._removed.add(name)
                self._lines.append(f"- {name}\n")
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
    signs: dict[str, _Sign] = {}
    for line in text.splitlines():
        note = _LINE.fullmatch(line)
        if note is not None:
            signs[note[2]] = cast(_Sign, note[1])
    return signs


def missing_parts(root: AnyPath) -> list[str]:
    """Return the names of parts that were noted and are gone; a run may be under way."""
    gone = _not_accounted_for(root, expected_parts(root) - _names_there(root))
    if not gone:
        return []
    # The notes are read once more: what a run has joined with others meanwhile was noted
    # before it was taken away.
    return sorted(expected_parts(root).intersection(gone))


def notices_of_missing(root: AnyPath, names: Collection[str], what: str) -> Iterator[str]:
    """Yield what is said of parts that are gone, by stage, and `what` becomes of it."""
    by_stage = defaultdict[str, list[str]](list)
    for name in names:
        by_stage[name.partition("/")[0]].append(name)
    for gone in by_stage.values():
        first = root / "stages" / gone[0]
        others = len(gone) - 1
        if others:
            are_gone = f"and {others:,} more of its folder are gone"
            removed = "plait has not removed them"
        else:
            are_gone = "is gone"
            removed = "plait has not removed it"
        yield f"part {first} {are_gone}, and {removed}. {what}"


def _names_there(root: AnyPath) -> set[str]:
    """Names of the parts that are in a listing."""
    names: set[str] = set()
    for folder in stage_folders(root):
        for part in parts_in(folder):
            names.add(_name_of(str(part)))
    return names


def _not_accounted_for(root: AnyPath, absent: Collection[str]) -> list[str]:
    """Those of the parts that were not in a listing that are not set aside either."""
    names: list[str] = []
    for name in sorted(absent):
        path = root / "stages" / name
        # A part may have come since the listing.
        if not (path.exists() or path.with_suffix(".unreadable").exists()):
            names.append(name)
    return names


def _name_of(part: str) -> str:
    """`FOLDER/PART`, of a path or of a name."""
    return "/".join(part.rsplit("/", 2)[-2:])
