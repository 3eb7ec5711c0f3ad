"""report.html and the folder report/ beside it: a page that opens from disk.

    write_report(board, root, manifest, read_blob)

The page needs no network and no server. The summary is plain HTML; the answers are drawn
by a script from data files, a few at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.results import tables
from benchmarks.results.board import Board, key_of
from benchmarks.results.criteria import profiles
from benchmarks.results.leaderboard import differences, leaderboard
from benchmarks.results.report.entries import (
    Entry,
    as_script,
    chunks_of,
    entries_of,
    index_of,
)
from benchmarks.results.report.facts import facts_of
from benchmarks.results.report.gallery import Gallery, Read
from benchmarks.results.validity import checks
from generators.files import write_whole

_SCRIPTS = ("elements.js", "cards.js", "query.js", "store.js", "report.js", "theme.js")


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """How much of a run goes into its page. Nothing here touches a number."""

    thumbnail: int = 256
    """Longer side of a thumbnail, in pixels."""
    full_size_mib: int = 200
    """Pictures are copied in full size until they take this much."""
    queries: int = 1000
    """Most queries shown; the tables are always of all."""


DEFAULT_SETTINGS = ReportSettings()


def write_report(
    board: Board,
    root: Path,
    manifest: Mapping[str, Any],
    read: Read,
    settings: ReportSettings = DEFAULT_SETTINGS,
) -> Path:
    """Write the page of a run; the path of report.html. Equal input, equal bytes.

    `read` brings a picture's bytes. One that cannot be read is shown as its reason.
    """
    folder = root / "report"
    room = settings.full_size_mib << 20
    gallery = Gallery(folder, read, side=settings.thumbnail, full_bytes=room)
    entries = entries_of(board, settings.queries)
    gallery.add(image for entry in entries for image in entry.pictures())
    _write_data(board, folder, entries, gallery)
    gallery.sweep()
    page = root / "report.html"
    write_whole(page, _page(board, root.name, manifest, entries, gallery))
    return page


def _write_data(
    board: Board, folder: Path, entries: Sequence[Entry], gallery: Gallery
) -> None:
    """The index and the chunks; files of an earlier, longer report are removed."""
    kept = {"index.js"}
    for i, chunk in enumerate(chunks_of(board, entries, gallery.shown)):
        name = f"data-{i:03d}.js"
        write_whole(folder / name, as_script("plait.chunk", i, chunk))
        kept.add(name)
    write_whole(folder / "index.js", as_script("plait.index", index_of(board, entries)))
    for path in folder.glob("*.js"):
        if path.name not in kept:
            path.unlink()


def _page(
    board: Board,
    name: str,
    manifest: Mapping[str, Any],
    entries: Sequence[Entry],
    gallery: Gallery,
) -> str:
    environment = Environment(
        loader=PackageLoader("benchmarks.results.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = leaderboard(board)
    return environment.get_template("report.html.j2").render(
        board=board,
        name=name,
        rows=rows,
        parts=[_part(board, rows, s.name, s.scale) for s in board.scorers],
        checks=[check.as_json() for check in checks(board)],
        tables=tables,
        counted=tables.counts_shown(rows),
        entries=len(entries),
        queries_shown=len({key_of(entry.sample) for entry in entries}),
        pictures=len(gallery.shown),
        full_size=gallery.full_size,
        facts=facts_of(manifest),
        manifest=json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
        style=_source(environment, "report.css"),
        script=Markup("\n").join(_source(environment, s) for s in _SCRIPTS),
    )


def _source(environment: Environment, name: str) -> Markup:
    """A file of our own, put into the page as it is."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def _part(
    board: Board, rows: Sequence[Mapping[str, Any]], scorer: str, scale: str
) -> dict[str, Any]:
    """What the template shows of one scorer."""
    scores = [(row["system"], row["scores"][scorer]) for row in rows]
    average = tables.headline(rows, scorer)
    pairs = {(d["a"], d["b"]): d for d in differences(board) if d["scorer"] == scorer}
    return {
        "name": scorer,
        "scale": scale,
        "scores": scores,
        "average": average,
        "axis": _axis([s[average] for _, s in scores]),
        "counted": tables.counts_shown([s["avg_micro"] for _, s in scores]),
        "matrix": tables.matrix(board, rows, scorer),
        "profiles": profiles(board, scorer),
        "difference": partial(_difference, pairs),
    }


def _difference(
    pairs: Mapping[tuple[str, str], Mapping[str, Any]], a: str, b: str
) -> dict[str, Any] | None:
    """Mean of `a` - `b`, whichever way round it was taken; None for a system by itself."""
    if (a, b) in pairs:
        return dict(pairs[a, b])
    found = pairs.get((b, a))
    if found is None or found["mean"] is None:
        return dict(found) if found else None
    ends = found["ci95"] and [-end for end in reversed(found["ci95"])]
    return dict(found) | {"mean": -found["mean"], "ci95": ends}


def _axis(cells: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """The range that holds all means and intervals, for drawing them side by side."""
    ends = [
        end for c in cells for end in (c["mean"], *(c["ci95"] or ())) if end is not None
    ]
    if not ends or min(ends) == max(ends):
        return None
    margin = (max(ends) - min(ends)) * 0.04
    return min(ends) - margin, max(ends) + margin
