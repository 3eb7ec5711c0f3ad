"""Whether making the page of a run again would give the page that is there.

Figures and images take longer than all else that a command does which makes no record, so
what a page was made of is noted beside it. A page that shows another command's time is not
another page: it tells when what it shows was made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from plait.benchmarks.results.files.schema import ABOUT, FOLDER
from plait.cluster.shard import FOLDER as SHARDS
from plait.cluster.tracing.journal import JOURNAL
from plait.generators.buckets import AnyPath
from plait.generators.files import write_whole
from plait.generators.keys import digest

MADE_OF = "made-of.json"
"""In the folder of a page's files: a digest of what the page was made of, and its files."""
_TIMES = ("started", "finished")
"""Entries of the manifest that differ with each command, whatever it does."""


def is_current(root: AnyPath, manifest: Mapping[str, Any], asked: object) -> bool:
    """Return whether the page of the run in `root` shows all that is known by now.

    `asked` is how many queries it is to show. False where a file of the page was changed
    or removed, for a page of an earlier version, and for runs in buckets, where looking at
    every file takes as many requests as writing them.
    """
    if not isinstance(root, Path):
        return False
    try:
        noted = json.loads((root / "report" / MADE_OF).read_text())
        return bool(noted == _facts(root, manifest, asked))
    except (OSError, ValueError):
        return False


def note(root: AnyPath, manifest: Mapping[str, Any], asked: object) -> None:
    """Note what the page that was just made shows; see `is_current`.

    Where that cannot be written, the page is there all the same, and is made again.
    """
    if isinstance(root, Path):
        with suppress(OSError):
            facts = json.dumps(_facts(root, manifest, asked))
            write_whole(root / "report" / MADE_OF, facts, durable=False)


def _facts(root: Path, manifest: Mapping[str, Any], asked: object) -> dict[str, Any]:
    about = json.loads((root / FOLDER / ABOUT).read_text())
    shown = {name: entry for name, entry in manifest.items() if name not in _TIMES}
    # The tables have their digests in `run.json`, and commands that make nothing compare
    # them. Traces are long: they count by their size and time.
    traces = [root / JOURNAL, *sorted(root.glob(f"{SHARDS}/*/{JOURNAL}"))]
    known = [_state(path) for path in traces if path.exists()]
    name = root.resolve().name
    files = sorted((root / "report").iterdir())
    own = (path for path in files if path.name != MADE_OF)
    return {
        "content": digest(name, about["sha256"], json.dumps(shown), str(asked), known),
        "files": [_state(path) for path in chain([root / "report.html"], own)],
    }


def _state(path: Path) -> list[Any]:
    stat = os.stat(path)
    return [path.name, stat.st_size, stat.st_mtime_ns, stat.st_ino]
