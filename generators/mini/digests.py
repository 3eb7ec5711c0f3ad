"""Which files the mini weights are: pinned beside them, and checked where they are used.

python -m plait.generators.mini.digests [FOLDER]      write FOLDER/digests.json
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from plait.generators.checkpoints import fingerprint
from plait.generators.errors import CheckpointError
from plait.generators.mini.table import MINI, ROOT, SHIPPED, folder_of, root

DIGESTS = "digests.json"


def verify(name: str) -> str:
    """Return the identity of the mini checkpoint `name`, whose files are checked first.

    Raises CheckpointError where files are missing, or differ from those pinned beside them.
    """
    folder = folder_of(name)
    if not any(file.suffix == ".safetensors" for file in _files(folder)):
        raise CheckpointError(
            f"the mini weights of {name!r} are not in {folder}. They come with plait's "
            f"checkout; the environment variable {ROOT} may name another folder"
        )
    digest = digest_of(folder)
    expected = _read_pins(root()).get(folder.name)
    if expected is None and root() == SHIPPED:
        raise CheckpointError(f"{folder}: {DIGESTS} does not name these weights")
    if expected not in (None, digest):
        raise CheckpointError(
            f"the mini weights in {folder} are not the pinned ones (SHA-256 {digest[:12]}, "
            f"not {str(expected)[:12]}): restore them with git, or pin the new ones with "
            f"python -m plait.generators.mini.digests {shlex.quote(str(root()))}"
        )
    return f"folder:{fingerprint(folder)}"


def _files(folder: Path) -> list[Path]:
    files: list[Path] = []
    for path in sorted(folder.rglob("*")):
        # Editors and file managers leave hidden files, which are no weights.
        if path.is_file() and not path.name.startswith("."):
            files.append(path)
    return files


def digest_of(folder: Path) -> str:
    """Return the SHA-256 over names and whole contents of a folder's files."""
    total = hashlib.sha256()
    for path in _files(folder):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()}\n{content}\n".encode())
    return total.hexdigest()


def _read_pins(folder: Path) -> Mapping[str, str]:
    file = folder / DIGESTS
    pinned: Mapping[str, str] = json.loads(file.read_text()) if file.is_file() else {}
    return pinned


def present(folder: Path) -> dict[str, str]:
    """Return the digest of every mini checkpoint in `folder`, by its own folder's name."""
    digests: dict[str, str] = {}
    # Several names may share a folder.
    for name in sorted({model.folder for model in MINI.values()}):
        if _files(folder / name):
            digests[name] = digest_of(folder / name)
    return digests


def size_of(folder: Path) -> float:
    """Return the megabytes of a checkpoint folder; 0 where there is none."""
    return sum(path.stat().st_size for path in _files(folder)) / 1e6


def main(arguments: list[str]) -> None:
    """Pin the weights of one folder, by default of those that are shipped."""
    folder = Path(arguments[0]).resolve() if arguments else SHIPPED
    digests = present(folder)
    (folder / DIGESTS).write_text(json.dumps(digests, indent=2) + "\n")
    for name, digest in digests.items():
        print(f"{name:20} {size_of(folder / name):6.2f} MB  {digest}")


if __name__ == "__main__":
    main(sys.argv[1:])
