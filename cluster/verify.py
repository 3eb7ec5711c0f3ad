"""Every part and every picture of a store looked at once; changes nothing.

for stage in verify(Path("runs/mine")):
    print(stage.name, stage.records, [str(p.part) for p in stage.damaged])
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cluster.checking import PartCheck, check_part
from cluster.parts import named_digest
from cluster.store import parts_in, stage_folders


@dataclass(frozen=True, slots=True)
class StageCheck:
    """What a look at all parts of one stage showed."""

    name: str
    """The folder of the stage."""
    checks: Sequence[PartCheck]

    @property
    def records(self) -> int:
        """Records that were read, superseded ones included."""
        return sum(check.records or 0 for check in self.checks)

    @property
    def pictures(self) -> int:
        """Pictures whose digest was compared and that were decoded."""
        return sum(check.pictures for check in self.checks)

    @property
    def damaged(self) -> list[PartCheck]:
        """Parts whose bytes are not those that were written."""
        return [check for check in self.checks if check.damage is not None]

    @property
    def undecodable(self) -> list[str]:
        """Keys of pictures that are as their stage made them and cannot be decoded."""
        return [key for check in self.checks for key in check.undecodable]

    @property
    def lost(self) -> int:
        """Records that would be made again: those that no intact part holds as well."""
        intact = [c.keys for c in self.checks if c.damage is None and c.keys is not None]
        named = [check.keys for check in self.damaged if check.keys is not None]
        unnamed = sum(c.records or 0 for c in self.damaged if c.keys is None)
        return len(frozenset().union(*named) - frozenset().union(*intact)) + unnamed

    @property
    def unsigned(self) -> int:
        """Parts of earlier versions, which carry no checksums."""
        return sum(named_digest(check.part) is None for check in self.checks)

    @property
    def uncounted(self) -> int:
        """Damaged parts of which not even the number of records can be read."""
        return sum(check.records is None for check in self.damaged)


def verify(root: Path) -> Iterator[StageCheck]:
    """Check all parts under `root`, stage by stage; StoreError where one cannot be read."""
    stages: dict[str, list[Path]] = defaultdict(list)
    for folder in stage_folders(root):
        # A stage that was renamed has its records in several folders.
        stages[folder.name.rpartition("-")[2]].append(folder)
    for folders in stages.values():
        parts = [part for folder in folders for part in parts_in(folder)]
        if parts:
            yield StageCheck(folders[0].name, _checked(parts))


def _checked(parts: Sequence[Path]) -> list[PartCheck]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [check for check in pool.map(_check, parts) if check is not None]


def _check(part: Path) -> PartCheck | None:
    try:
        return check_part(part, pictures=True)
    except FileNotFoundError:
        return None  # joined with others by a run that is under way
