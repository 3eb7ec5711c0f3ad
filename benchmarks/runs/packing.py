"""A run as one file: a zip of its results, tables and page, or the page alone.

    pack_run(Path("runs/x"), None, console)                 # x.zip
    pack_page(Path("runs/x"), None, console)                # x.html

Everything is made from a copy of the results that names nothing of the machines that made
the run. Equal runs make equal bytes.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.leaderboard_files import write_leaderboard
from plait.benchmarks.results.page_files import PageTooLarge
from plait.benchmarks.results.report import write_page_alone, write_report
from plait.benchmarks.results.report.entries import keys_shown
from plait.benchmarks.results.report.page import limit_of
from plait.benchmarks.results.table import json_text
from plait.benchmarks.runs.config import PageQueries
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.packed_results import copy_results
from plait.benchmarks.runs.portable import Portable
from plait.benchmarks.runs.run_directory import read_manifest
from plait.benchmarks.terminal import command_text, progress
from plait.benchmarks.wording import quantity
from plait.cluster.manifest import RECORDS
from plait.cluster.run import MANIFEST
from plait.cluster.store import read_blob
from plait.cluster.tracing.summary import TRACE
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.files import write_error, write_whole
from plait.generators.packs import SUFFIX, PackPath

MOST_MB = 50
"""Of a page that stands alone: what can be sent by mail, or opened on a phone."""
_MB = 1e6
_MOST_NOTICES = 5
_TABLES = (
    *("*.csv", "*.json", "*.md", "*.tex"),
    *("annotate/annotations.csv", "compare/*/judgements-*.jsonl"),
)
_NOT_SENT = (MANIFEST, TRACE, "spans.jsonl")
_PACKED_ALREADY = (".parquet", ".webp", ".png")
_IMAGES = "pictures-"
"""How the names of scripts with images begin, which are compressed already."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of every member: the first that a zip file can name."""


def pack_run(
    root: AnyPath,
    out: Path | None,
    console: Console,
    queries: PageQueries = None,
    *,
    records: bool = False,
) -> int:
    """Write a zip of a run, by default in this folder; exit status 1 where images lack.

    Its page shows at most `queries` queries. With `records`, the records of all stages are
    in it too.
    """
    target = _target(root, out, SUFFIX)
    if records and isinstance(root, PackPath) and not (root / "stages").is_dir():
        raise UsageError(f"{root} holds no records: pack the run itself with --all")
    with _copy(root, target, console, queries, records=records) as copy:
        board = copy.results.board
        write_leaderboard(board, copy.folder)
        with progress(console, "preparing images of the report") as show:
            write_report(
                board,
                root,
                copy.manifest,
                read_blob,
                copy.queries,
                show,
                copy.folder,
                absent=(TRACE,),
            )
        _copy_tables(root, copy)
        write_whole(copy.folder / MANIFEST, json_text(copy.manifest))
        _write_zip(copy.folder, target)
        _print_written(console, "pack", target, copy)
        return int(bool(copy.notices))


def pack_page(
    root: AnyPath,
    out: Path | None,
    console: Console,
    queries: PageQueries = None,
    *,
    most_mb: float = MOST_MB,
) -> int:
    """Write the page of a run as one file; exit status 1 where images lack.

    UsageError where it would have more than `most_mb` million bytes.
    """
    target = _target(root, out, ".html")
    with _copy(root, target, console, queries, shown_alone=True) as copy:
        images_done = 0
        images_in_all = 1

        def show(done: int, total: int) -> None:
            nonlocal images_done, images_in_all
            images_done = done
            images_in_all = total
            bar(done, total)

        try:
            with progress(console, "preparing images of the page") as bar:
                write_page_alone(
                    copy.results.board,
                    root,
                    copy.manifest,
                    read_blob,
                    target,
                    int(most_mb * _MB),
                    copy.queries,
                    show,
                )
        except PageTooLarge as error:
            # It was given up on the way: its whole size is told by the images so far.
            whole_mb = error.size / _MB * images_in_all / max(1, images_done)
            advice = _advise_smaller_page(root, copy, most_mb, whole_mb)
            raise UsageError(f"{error} {advice}") from None
        _print_written(console, "page", target, copy)
        return int(bool(copy.notices))


def _advise_smaller_page(
    root: AnyPath, copy: _CopiedRun, most_mb: float, whole_mb: float
) -> str:
    """Say how a page of about `whole_mb` can be sent where it may have `most_mb`."""
    every = len(copy.results.heads)
    shown = min(limit_of(copy.queries) or every, every)
    fewer = max(1, math.floor(0.9 * shown * most_mb / whole_mb))
    return (
        f"with {shown:,} queries, about {whole_mb:,.1f} MB: show fewer with --queries "
        f"{fewer}, allow more with --max-mb {math.ceil(whole_mb)}, or send the whole run: "
        f"`{command_text('plait', 'pack', root)}`"
    )


@dataclass(frozen=True)
class _CopiedRun:
    """A copy of a run that names nothing of a machine, in a folder for a while."""

    folder: Path
    results: RunResults
    manifest: dict[str, Any]
    portable: Portable
    queries: PageQueries
    notices: list[str]


@contextmanager
def _copy(
    root: AnyPath,
    target: Path,
    console: Console,
    queries: PageQueries,
    *,
    shown_alone: bool = False,
    records: bool = False,
) -> Iterator[_CopiedRun]:
    """Make a copy beside `target`, for as long as the context lasts.

    It is as large as the run, or has images of the queries that are shown alone.
    """
    results = open_results(root)
    manifest = read_manifest(root)
    portable = Portable.of(root, manifest)
    manifest = portable.about(manifest)
    if not records:
        # There are none to be missed.
        manifest[RECORDS] = {}
    limit = queries or results.page_queries
    shown = None
    if shown_alone:
        keys = [portable.text(key) for key in results.heads]
        shown = keys_shown(keys, limit_of(limit))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(dir=target.parent, prefix=".plait-pack-")
    except OSError as error:
        raise write_error(target.parent, error) from error
    with place:
        folder = Path(place.name)
        notices = copy_results(results, portable, folder, shown=shown, records=records)
        for notice in notices[:_MOST_NOTICES]:
            console.print(f"Warning: {notice}")
        if len(notices) > _MOST_NOTICES:
            console.print(f"Warning: {len(notices) - _MOST_NOTICES:,} more")
        copy = RunResults.at(folder)
        yield _CopiedRun(folder, copy, manifest, portable, limit, notices)


def _target(root: AnyPath, out: Path | None, suffix: str) -> Path:
    """Return the file to write, by default in this folder and with the run's name."""
    target = out or Path(f"{root.resolve().name}{suffix}")
    if target.suffix.lower() != suffix:
        raise UsageError(f"{target} does not end in {suffix}")
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name a file that ends in {suffix}")
    return target


def _copy_tables(root: AnyPath, copy: _CopiedRun) -> None:
    """Copy tables that studies wrote beside the run's own, and what people answered."""
    root = root.resolve()
    for pattern in _TABLES:
        for file in root.glob(pattern):
            below = str(file)[len(str(root)) :].lstrip("/\\")
            if file.name in _NOT_SENT or (copy.folder / below).exists():
                continue
            text = _portable_text(copy.portable, file)
            # Not flushed to the disk: the folder is gone once the zip is written.
            write_whole(copy.folder / below, text, durable=False)


def _portable_text(portable: Portable, file: AnyPath) -> str:
    """Return what a file holds, as it may be sent; JSON value by value."""
    text = file.read_text("utf-8")
    if file.name.endswith(".json"):
        return json_text(portable.data(json.loads(text)))
    if not file.name.endswith(".jsonl"):
        return portable.text(text)
    lines = []
    for line in text.split("\n"):
        if line:
            row = portable.data(json.loads(line))
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)


def _write_zip(folder: Path, target: Path) -> None:
    """Write all files below `folder` as one zip, whole or not at all; WriteError."""
    temporary = target.with_name(f".{target.name[:80]}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            with zipfile.ZipFile(file, "w") as pack:
                # Folders list their files in any order, and equal runs make equal bytes.
                for path in sorted(folder.rglob("*")):
                    if path.is_file():
                        _add(pack, path, path.relative_to(folder).as_posix())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise write_error(target.parent, error) from error


def _add(pack: zipfile.ZipFile, path: Path, name: str) -> None:
    """Add a file to a zip, with nothing in its entry that depends on the machine."""
    about = zipfile.ZipInfo(name, _DATE)
    stored = path.suffix in _PACKED_ALREADY or path.name.startswith(_IMAGES)
    about.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    # Unix, whatever the machine.
    about.create_system = 3
    about.external_attr = 0o644 << 16
    about.file_size = path.stat().st_size
    with path.open("rb") as source, pack.open(about, "w") as member:
        shutil.copyfileobj(source, member, 1 << 20)


def _print_written(console: Console, what: str, target: Path, copy: _CopiedRun) -> None:
    size = target.stat().st_size / _MB
    results = copy.results
    console.print(
        f"{what:<12}{target} ({size:,.1f} MB): {quantity(len(results.systems), 'system')}, "
        f"{quantity(len(results.heads), 'query')}"
    )
