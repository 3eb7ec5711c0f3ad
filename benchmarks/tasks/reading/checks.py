"""Results of earlier checks of picture files, so that each is read only once.

The pictures of twenty thousand queries take minutes to decode. A file whose path, size and
modification time are unchanged is not read again; a worker still compares the digest when
it reads the bytes. A cache that is corrupt or cannot be written costs time, never a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import PIL

from generators.errors import WriteError
from generators.files import write_whole

VERSION = f"1 Pillow {PIL.__version__}"
"""Another version of the decoder may read what this one cannot."""


class PictureCheck(NamedTuple):
    """The result of checking one picture file."""

    size: int
    mtime_ns: int
    digest: str
    """SHA-256 of its bytes."""
    rule: str = ""
    """The rule it breaks; empty for a good picture."""
    detail: str = ""


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/plait`, by default `~/.cache/plait`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "plait"


def _file(folder: Path, root: Path) -> Path:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    return folder / "pictures" / f"{name}.json"


def load(folder: Path, root: Path) -> dict[str, PictureCheck]:
    """Checks of the pictures under `root`, by path; empty where none can be read."""
    try:
        stored = json.loads(_file(folder, root).read_bytes())
        if stored["version"] != VERSION:
            return {}
        return {path: _entry(values) for path, values in stored["checks"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _entry(values: Any) -> PictureCheck:
    check = PictureCheck(*values)
    kinds = (int, int, str, str, str)
    if not all(isinstance(v, kind) for v, kind in zip(check, kinds, strict=True)):
        raise TypeError(f"{values!r} is not a check")
    return check


def save(folder: Path, root: Path, checks: Mapping[str, PictureCheck]) -> None:
    """Save `checks` for the next run, if possible."""
    path = _file(folder, root)
    content = json.dumps({"version": VERSION, "root": str(root), "checks": checks})
    with contextlib.suppress(WriteError):
        write_whole(path, content, durable=False)
