"""Writing the files that people read."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write so that a reader sees the old file or the new one, whole.

    Lone surrogates, which models do emit and UTF-8 lacks, are written as escapes.
    """
    data = (
        content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
