"""Rows of Parquet files, and images as data set libraries hold them in rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.tasks.reading.images import ImageCache, ImageFolder
from benchmarks.tasks.reading.rules import TaskError, get, of_type
from generators.document import Image

_BATCH = 64


def parquet_files(root: Path, split: str) -> list[Path]:
    """Return the files of a split at `root`, a file or a folder.

    All where no name begins with the split; TaskError where there are none.
    """
    files = [root] if root.is_file() else sorted(root.rglob("*.parquet"))
    parts = [p for p in files if p.name.startswith(split)] or files
    if not parts:
        raise TaskError(f"{root} holds no Parquet files")
    return parts


def parquet_rows(paths: Iterable[Path]) -> Iterator[Any]:
    """Yield all rows of the files as plain values; TaskError for an unreadable one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in paths:
        try:
            for batch in pq.ParquetFile(path).iter_batches(_BATCH):
                yield from batch.to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise TaskError(f"{path} cannot be read: {error}") from None


def images_of(
    value: Any, files: ImageFolder, kept: ImageCache, what: str = "image"
) -> Iterator[Image]:
    """Yield one image or several: `{"bytes": ..., "path": ...}` each, or paths.

    Bytes are kept in `kept`, paths are those of `files`. RowError for anything else.
    """
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            yield files.image(item)
            continue
        image = of_type(item, dict, what)
        if image.get("bytes") is not None:
            yield kept.add(of_type(image["bytes"], bytes, f"{what}.bytes"))
        else:
            yield files.image(get(image, "path", str, what))
