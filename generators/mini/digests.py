"""Which files the mini weights are: pinned beside them, and checked where they are used.

python -m generators.mini.digests [FOLDER]      write FOLDER/digests.json
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from generators.checkpoints import fingerprint
from generators.errors import CheckpointError
from generators.mini.table import MINI, ROOT, SHIPPED, root

DIGESTS = "digests.json"


def verified(name: str) -> str:
    """Identity of the mini checkpoint `name`, whose files are checked first.

    Raises CheckpointError where files are missing, or differ from those pinned beside them.
    """
    folder = root() / MINI[name].folder
    state = _state(folder)
    if not any(file.endswith(".safetensors") for file, *_ in state):
        raise CheckpointError(
            f"the mini weights of {name!r} are not in {folder}. They come with plait's "
            f"checkout; the environment variable {ROOT} may name another folder"
        )
    digest, expected = digest_of(folder, state), _pinned(root()).get(folder.name)
    if expected is None and root() == SHIPPED:
        raise CheckpointError(f"{folder}: {DIGESTS} does not name these weights")
    if expected not in (None, digest):
        raise CheckpointError(
            f"the mini weights in {folder} are not the pinned ones (SHA-256 {digest[:12]}, "
            f"not {str(expected)[:12]}): restore them with git, or pin the new ones with "
            f"python -m generators.mini.digests {root()}"
        )
    return f"folder:{fingerprint(folder)}"


State = tuple[tuple[str, int, int], ...]
"""Path, size and time of change of every file of a folder."""


def _state(folder: Path) -> State:
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name[0] != "."]
    facts = ((p.relative_to(folder).as_posix(), p.stat()) for p in files)
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in facts)


@functools.lru_cache(maxsize=64)
def digest_of(folder: Path, state: State) -> str:
    """SHA-256 over names and whole contents of a folder's files.

    `state` is that of the files; while it stays the same they are read once.
    """
    total = hashlib.sha256()
    for name, *_ in state:
        with (folder / name).open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{name}\n{content}\n".encode())
    return total.hexdigest()


def _pinned(folder: Path) -> Mapping[str, str]:
    file = folder / DIGESTS
    if not file.is_file():
        return {}
    pinned: Mapping[str, str] = json.loads(file.read_text())
    return pinned


def present(folder: Path) -> dict[str, str]:
    """Digest of every mini checkpoint in `folder`, by its own folder's name."""
    names = sorted({model.folder for model in MINI.values()})
    states = {name: _state(folder / name) for name in names}
    return {n: digest_of(folder / n, state) for n, state in states.items() if state}


def size_of(folder: Path) -> float:
    """Megabytes of a checkpoint folder; 0 where there is none."""
    return sum(size for _, size, _ in _state(folder)) / 1e6


def main(arguments: list[str]) -> None:
    """Pin the weights of one folder, by default of those that are shipped."""
    folder = Path(arguments[0]).resolve() if arguments else SHIPPED
    digests = present(folder)
    (folder / DIGESTS).write_text(json.dumps(digests, indent=2) + "\n")
    for name, digest in digests.items():
        print(f"{name:20} {size_of(folder / name):6.2f} MB  {digest}")


if __name__ == "__main__":
    main(sys.argv[1:])
