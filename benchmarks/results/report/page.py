"""report.html and the folder report/ beside it: a page that opens from disk.

    write_report(board, root, manifest, read_blob)

The page needs no network and no server. The summary is plain HTML; the answers are drawn
by a script from data files, a few at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from benchmarks.provenance import provenance_facts
from benchmarks.results import leaderboard as tables
from benchmarks.results.board import Board
from benchmarks.results.headline import headline_table, outcome_texts
from benchmarks.results.pairings.page import pairings_section
from benchmarks.results.reasons import FAILURES, outcome_groups
from benchmarks.results.report.entries import (
    ReportEntry,
    entries_of,
    index_of,
    keys_shown,
    row_of,
    write_script,
)
from benchmarks.results.report.images import PACK, Progress, Read, pack_images
from benchmarks.results.report.panels import panel_of
from benchmarks.results.table import ResultTable, environment
from benchmarks.results.timeline import timeline_of
from cluster.tracing.summary import TRACE
from generators.buckets import AnyPath
from generators.files import write_whole

QUERIES = 200
"""Queries on a page for which no other number is asked; the tables always cover all."""
CHUNK = 20
"""Queries in one file of text."""
_INDEX = "index.js"
_SCRIPTS = (
    *("elements.js", "cards.js", "query.js", "data.js", "store.js"),
    *("viewer.js", "report.js", "theme.js"),
)


def write_report(
    board: Board,
    root: AnyPath,
    manifest: Mapping[str, Any],
    read: Read,
    queries: int | Literal["all"] | None = None,
    on_progress: Progress = lambda done, total: None,
) -> AnyPath:
    """Write the page of a run; return the path of report.html. Equal input, equal bytes.

    It shows at most `queries` queries, by default QUERIES. `read` returns an image's
    bytes; one that cannot be read is shown as the reason. However large the run, one file
    of text or images is in memory at a time. `on_progress` is called with (done, total)
    images. Until all are written, the page of an earlier report stays as it was.
    """
    shown = keys_shown(board, limit_of(queries))
    entries = entries_of(board, shown)
    _write_data(board, root / "report", entries, read, on_progress)
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            board=board,
            name=root.resolve().name,
            tables=tables,
            main=headline_table(board),
            outcomes=outcome_texts(board),
            groups=[*enumerate(outcome_groups(board).values())],
            reasons=tables.outcomes_table(board),
            controls=tables.controls_table(board),
            panels=[panel_of(board, scorer) for scorer in board.scorers],
            pairings=pairings_section(board, shown, root / "report", read),
            failures=FAILURES,
            queries_shown=len(shown),
            facts=facts_of(manifest),
            cost=tables.spent_table(board),
            timeline=timeline_of(root),
            trace=TRACE,
            manifest=json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
            style=sources("report.css"),
            script=sources(*_SCRIPTS),
        )
    )
    write_whole(root / "report.html", page)
    return root / "report.html"


def limit_of(queries: int | Literal["all"] | None) -> int | None:
    """Return how many queries a page shows; None for all."""
    return None if queries == "all" else queries or QUERIES


def sources(*files: str) -> Markup:
    """Return styles or scripts beside the templates as they are, in order."""
    folder = Path(__file__).parent / "template"
    return Markup("\n".join((folder / file).read_text() for file in files))


def _write_data(
    board: Board,
    folder: AnyPath,
    entries: Sequence[ReportEntry],
    read: Read,
    on_progress: Progress,
) -> None:
    """Images, text and index; files of an earlier report are removed."""
    images = {image.digest: image for entry in entries for image in entry.images()}
    packs = pack_images(folder, [*images.values()], read, on_progress)
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


def facts_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return what readers look for first; what a manifest lacks is left out."""
    forecast, data = manifest.get("forecast_outcome") or {}, manifest.get("data")
    facts = {
        **{name: manifest.get(name) for name in ("status", "started", "finished")},
        "forecast": "; ".join(forecast.get("lines", ())),
        "data": data.get("name") if isinstance(data, Mapping) else data,
        "seed": manifest.get("config", {}).get("seed"),
        **provenance_facts(manifest),
        "command": " ".join(map(str, manifest.get("argv") or [])),
    }
    return {name: str(fact) for name, fact in facts.items() if fact not in (None, "")}


def tables_page(title: str, remarks: Sequence[str], shown: Sequence[ResultTable]) -> str:
    """Return a page of tables alone, in the style of the report."""
    page = environment().get_template("tables.html.j2")
    style, script = sources("report.css"), sources("elements.js", "theme.js")
    about = {"name": title, "remarks": remarks, "tables": shown}
    return page.render(style=style, script=script, **about)
