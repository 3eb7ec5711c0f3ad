"""report.html and the folder report/ beside it: a page that opens from disk.

    write_report(board, root, manifest, read_blob)

The page needs no network and no server. The summary is plain HTML; the answers are drawn
by a script from data files, a few at a time.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.results import leaderboard_tables as tables_of
from benchmarks.results import wording
from benchmarks.results.board import Board
from benchmarks.results.leaderboard import leaderboard
from benchmarks.results.pairings.page import pairings_section, pairings_style
from benchmarks.results.reasons import FAILURES
from benchmarks.results.report.entries import ReportEntry, entries_of, index_of, row_of
from benchmarks.results.report.examples import examples_of
from benchmarks.results.report.panels import facts_of, panel_of
from benchmarks.results.report.pictures import PACK, Progress, Read, pack_pictures
from benchmarks.results.report.scripts import write_script
from benchmarks.results.templates import REPORT, page_environment, sources
from benchmarks.results.timeline import timeline_of
from cluster.tracing.summary import TRACE
from generators.document import key_of
from generators.files import write_whole

QUERIES = 200
"""Queries on a page for which no other number is asked; the tables always cover all."""
CHUNK = 20
"""Queries in one file of text."""
_INDEX = "index.js"
_FORMER = ("thumbs", "images")
"""Folders of pictures that earlier versions wrote."""
_SCRIPTS = (
    *("elements.js", "cards.js", "query.js", "store.js"),
    *("viewer.js", "report.js", "theme.js"),
)


def write_report(
    board: Board,
    root: Path,
    manifest: Mapping[str, Any],
    read: Read,
    queries: int | Literal["all"] | None = None,
    on_progress: Progress = lambda done, total: None,
) -> Path:
    """Write the page of a run; the path of report.html. Equal input, equal bytes.

    It shows at most `queries` queries, by default QUERIES. `read` returns a picture's
    bytes; one that cannot be read is shown as the reason. However large the run, one file
    of text or pictures is in memory at a time. `on_progress` is called with (done, total)
    pictures. Until all are written, the page of an earlier report stays as it was.
    """
    limit = None if queries == "all" else queries or QUERIES
    entries = entries_of(board, limit)
    _write_data(board, root / "report", entries, read, on_progress)
    page = root / "report.html"
    write_whole(page, _page(board, root, manifest, entries, read))
    return page


def _write_data(
    board: Board,
    folder: Path,
    entries: Sequence[ReportEntry],
    read: Read,
    on_progress: Progress,
) -> None:
    """Pictures, text and index; files of an earlier report are removed."""
    images = {image.digest: image for entry in entries for image in entry.pictures()}
    packs = pack_pictures(folder, [*images.values()], read, on_progress)
    numbers = {digest: number for number, digest in enumerate(images)}
    written = {_INDEX, *packs}
    for i, start in enumerate(range(0, len(entries), CHUNK)):
        rows = [row_of(board, e, numbers) for e in entries[start : start + CHUNK]]
        written.add(write_script(folder, f"data-{i:03d}.js", rows))
    index = index_of(board, entries) | {"chunk": CHUNK, "pack": PACK, "packs": packs}
    write_script(folder, _INDEX, index)
    for path in folder.glob("*.js"):
        if path.name not in written:
            path.unlink()
    for name in _FORMER:
        shutil.rmtree(folder / name, ignore_errors=True)


def _page(
    board: Board,
    root: Path,
    manifest: Mapping[str, Any],
    entries: Sequence[ReportEntry],
    read: Read,
) -> str:
    environment = page_environment(REPORT)
    rows = leaderboard(board)
    queries = list(dict.fromkeys(key_of(entry.sample) for entry in entries))
    panels = [panel_of(board, rows, scorer, queries) for scorer in board.scorers]
    apart = {panel.name: panel.disagreements for panel in panels}
    return environment.get_template("report.html.j2").render(
        board=board,
        name=root.name,
        rows=rows,
        leaderboard=tables_of.headline_table(board, rows),
        examples=examples_of(board, entries, apart, read),
        panels=panels,
        pairings=pairings_section(board),
        controls=tables_of.controls_table(board),
        outcomes=tables_of.counts_table(rows),
        reasons=tables_of.reasons_table(rows),
        failures=FAILURES,
        wording=wording,
        queries_shown=len(queries),
        facts=facts_of(manifest),
        timeline=timeline_of(root),
        trace=TRACE,
        manifest=json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
        style=sources(environment, "report.css") + pairings_style(),
        script=sources(environment, *_SCRIPTS),
    )
