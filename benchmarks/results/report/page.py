"""report.html and the folder report/ beside it: a page that opens from disk.

    write_report(board, root, manifest, read_blob)

The page needs no network and no server. The summary is plain HTML; the answers are drawn
by a script from data files, a few at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import wording
from benchmarks.results.board import Board, key_of
from benchmarks.results.leaderboard import leaderboard
from benchmarks.results.pairings.page import pairings_section, pairings_style
from benchmarks.results.reasons import FAILURES
from benchmarks.results.report.entries import (
    CHUNK,
    ReportEntry,
    as_script,
    chunk_of,
    entries_of,
    index_of,
)
from benchmarks.results.report.gallery import Gallery, Read
from benchmarks.results.report.panels import facts_of, panel_of
from benchmarks.results.templates import REPORT, page_environment, sources
from benchmarks.results.timeline import timeline_section
from benchmarks.results.validity import checks
from generators.files import write_whole

_SCRIPTS = (
    *("elements.js", "cards.js", "query.js", "store.js"),
    *("viewer.js", "report.js", "theme.js"),
)


Progress = Callable[[int, int], None]
"""Called with how many pictures are prepared, and of how many."""


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """How much of a run its page shows. Nothing here changes a number."""

    thumbnail: int = 256
    """Longer side of a thumbnail, in pixels."""
    full_size_mib: int = 200
    """Pictures are copied in full size until they take this much."""
    queries: int | None = None
    """At most this many queries are shown, by default all; the tables always cover all."""


DEFAULT_SETTINGS = ReportSettings()


def write_report(
    board: Board,
    root: Path,
    manifest: Mapping[str, Any],
    read: Read,
    settings: ReportSettings = DEFAULT_SETTINGS,
    on_progress: Progress | None = None,
) -> Path:
    """Write the page of a run; the path of report.html. Equal input, equal bytes.

    `read` returns a picture's bytes; one that cannot be read is shown as the reason. Text
    and pictures are written a few entries at a time: however large the run, at most one
    chunk of them is in memory. `on_progress` is called with (prepared, total) pictures.
    """
    folder = root / "report"
    budget = settings.full_size_mib << 20
    entries = entries_of(board, settings.queries)
    total = len({image.digest for entry in entries for image in entry.pictures()})

    def prepared(done: int) -> None:
        if on_progress is not None:
            on_progress(done, total)

    with Gallery(
        folder, read, side=settings.thumbnail, full_bytes=budget, on_progress=prepared
    ) as gallery:
        _write_data(board, folder, entries, gallery)
    gallery.sweep()
    page = root / "report.html"
    write_whole(page, _page(board, root, manifest, entries, gallery))
    return page


def _write_data(
    board: Board, folder: Path, entries: Sequence[ReportEntry], gallery: Gallery
) -> None:
    """Pictures, chunks and index; files of an earlier, longer report are removed."""
    written = {"index.js"}
    for i, start in enumerate(range(0, len(entries), CHUNK)):
        part = entries[start : start + CHUNK]
        gallery.add(image for entry in part for image in entry.pictures())
        name = f"data-{i:03d}.js"
        chunk = chunk_of(board, part, gallery.shown)
        write_whole(folder / name, as_script("plait.chunk", i, chunk))
        written.add(name)
    write_whole(folder / "index.js", as_script("plait.index", index_of(board, entries)))
    for path in folder.glob("*.js"):
        if path.name not in written:
            path.unlink()


def _page(
    board: Board,
    root: Path,
    manifest: Mapping[str, Any],
    entries: Sequence[ReportEntry],
    gallery: Gallery,
) -> str:
    environment = page_environment(REPORT)
    rows = leaderboard(board)
    queries = list(dict.fromkeys(key_of(entry.sample) for entry in entries))
    return environment.get_template("report.html.j2").render(
        board=board,
        name=root.name,
        timeline=timeline_section(root),
        rows=rows,
        panels=[panel_of(board, rows, s, queries) for s in board.scorers],
        pairings=pairings_section(board),
        checks=[check.as_json() for check in checks(board)],
        wording=wording,
        failures=FAILURES,
        methods=wording.interval_methods(rows),
        counted=wording.counts_shown(rows),
        entries=len(entries),
        queries_shown=len(queries),
        pictures=len(gallery.shown),
        full_size=gallery.full_size,
        facts=facts_of(manifest),
        manifest=json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
        style=sources(environment, "report.css") + pairings_style(),
        script=sources(environment, *_SCRIPTS),
    )
