"""report.html and the folder report/ beside it: a page that opens from disk.

    write_report(board, root, manifest, read_blob)
    write_page_alone(board, root, manifest, read_blob, Path("page.html"), most=50_000_000)

The page needs no network and no server. The summary is plain HTML; the answers are drawn
by a script from data files, a few at a time.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from markupsafe import Markup

from plait.benchmarks.provenance import provenance_facts
from plait.benchmarks.results import leaderboard_tables as tables
from plait.benchmarks.results.board import Board
from plait.benchmarks.results.figures import ACCENT, draw, name_rows, short
from plait.benchmarks.results.headline import headline_table, outcome_texts
from plait.benchmarks.results.judges import panels_of
from plait.benchmarks.results.leaderboard import rank
from plait.benchmarks.results.page_files import FolderFiles, InlineFiles, PageFiles
from plait.benchmarks.results.pairings.page import pairings_section
from plait.benchmarks.results.reasons import FAILURES, outcome_groups
from plait.benchmarks.results.report.entries import (
    ReportEntry,
    entries_of,
    index_of,
    keys_shown,
    row_of,
)
from plait.benchmarks.results.report.images import PACK, Progress, Read, pack_images
from plait.benchmarks.results.table import ResultTable, environment
from plait.benchmarks.results.timeline import timeline_of
from plait.benchmarks.results.told_apart import by_text, told_apart
from plait.cluster.tracing.summary import TRACE
from plait.generators.buckets import AnyPath
from plait.generators.document import Image
from plait.generators.files import write_whole
from plait.scorers.base import Scorer, bounds
from plait.scorers.statistics.estimate import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES = 200
"""Queries on a page for which no other number is asked; the tables always cover all."""
CHUNK = 20
_INDEX = "index.js"
_BINS = 12
_MOST_WHOLE = 20
"""Widest scale on which whole numbers have a bar each."""
_SIZE = re.compile(r"n=\d+,? ?")
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
    out: AnyPath | None = None,
    absent: Collection[str] = (),
) -> AnyPath:
    """Write the page of the run in `root`; return the path of report.html.

    It is written into the run's folder, or into `out`, where files of the run are beside
    it but for those that are `absent`. Equal input, equal bytes.

    It shows at most `queries` queries, by default QUERIES. `read` returns an image's
    bytes; one that cannot be read is shown as the reason. However large the run, one file
    of text or images is in memory at a time. `on_progress` is called with (done, total)
    images. Until all are written, the page of an earlier report stays as it was.
    """
    out = out or root
    files = FolderFiles(out / "report", absent)
    page = _page(board, root, manifest, read, files, queries, on_progress)
    write_whole(out / "report.html", page)
    return out / "report.html"


def write_page_alone(
    board: Board,
    root: AnyPath,
    manifest: Mapping[str, Any],
    read: Read,
    path: AnyPath,
    most: int,
    queries: int | Literal["all"] | None = None,
    on_progress: Progress = lambda done, total: None,
) -> int:
    """Write what `write_report` does as one file that needs no other; return its bytes.

    PageTooLarge, and nothing is written, where it would have more than `most`.
    """
    files = InlineFiles(most)
    page = _page(board, root, manifest, read, files, queries, on_progress).encode()
    files.refuse_if_larger(len(page))
    write_whole(path, page)
    return len(page)


def _page(
    board: Board,
    root: AnyPath,
    manifest: Mapping[str, Any],
    read: Read,
    files: PageFiles,
    queries: int | Literal["all"] | None,
    on_progress: Progress,
) -> str:
    """Return the page, after what it shows of queries is written to `files`."""
    shown = keys_shown(board.keys, limit_of(queries))
    entries = entries_of(board, shown)
    _write_data(board, files, entries, read, on_progress)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            board=board,
            name=root.resolve().name,
            tables=tables,
            main=headline_table(board),
            told_apart=by_text(told_apart(board)),
            outcomes=outcome_texts(board),
            groups=[*enumerate(outcome_groups(board).values())],
            reasons=tables.outcomes_table(board),
            controls=tables.controls_table(board),
            published=tables.table_of_published(board),
            judges=[(panel.kind, [*panel.tables()]) for panel in panels_of(board)],
            panels=[panel_of(board, scorer) for scorer in board.scorers],
            pairings=pairings_section(board, shown, files, read),
            failures=FAILURES,
            queries_shown=len(shown),
            facts=facts_of(manifest),
            cost=tables.spent_table(board),
            timeline=timeline_of(root),
            trace=TRACE,
            manifest=json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
            style=sources("report.css"),
            script=sources(*_SCRIPTS),
            files=files,
        )
    )


def limit_of(queries: int | Literal["all"] | None) -> int | None:
    """Return how many queries a page shows; None for all."""
    return None if queries == "all" else queries or QUERIES


def sources(*files: str) -> Markup:
    """Return styles or scripts beside the templates as they are, in order."""
    folder = Path(__file__).parent / "template"
    return Markup("\n".join((folder / file).read_text() for file in files))


def _write_data(
    board: Board,
    files: PageFiles,
    entries: Sequence[ReportEntry],
    read: Read,
    on_progress: Progress,
) -> None:
    """Write the index, the text in chunks and the images in packs; remove former ones."""
    images: dict[str, Image] = {}
    for entry in entries:
        for image in entry.images():
            images[image.digest] = image
    packs = pack_images(files, [*images.values()], read, on_progress)
    numbers = {digest: number for number, digest in enumerate(images)}
    written = {_INDEX, *packs}
    # A chunk is in memory at a time, however many queries are shown.
    for i, start in enumerate(range(0, len(entries), CHUNK)):
        chunk = entries[start : start + CHUNK]
        rows = [row_of(board, entry, numbers) for entry in chunk]
        written.add(files.write_data(f"data-{i:03d}.js", rows))
    index = index_of(board, entries) | {"chunk": CHUNK, "pack": PACK, "packs": packs}
    files.write_data(_INDEX, index)
    files.remove_others("*.js", written)


def facts_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return what readers look for first; what a manifest lacks is left out."""
    forecast = manifest.get("forecast_outcome") or {}
    data = manifest.get("data")
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
    style = sources("report.css")
    script = sources("elements.js", "theme.js")
    about = {"name": title, "remarks": remarks, "tables": shown}
    return page.render(style=style, script=script, **about)


def panel_of(board: Board, scorer: Scorer) -> dict[str, Any]:
    """Return what the template shows of one scorer."""
    by_field = tables.field_table(board, scorer)
    folded = (
        tables.table_as_released(board, scorer),
        None if by_field is None else _with_note(by_field),
        *tables.criteria_tables(board, scorer),
        tables.variance_table(board, scorer.name),
        tables.pairs_table(board, scorer.name),
        tables.settings_table(scorer.stages) if scorer.stages else None,
    )
    return {
        "name": scorer.name,
        "main": _with_note(tables.scorer_table(board, scorer)),
        "plot": scores_plot(board, scorer),
        "folded": [table for table in folded if table is not None],
    }


def _with_note(table: ResultTable) -> ResultTable:
    """Return the table with one line on those of its means that have no interval.

    How many values each has is not repeated: it stands behind the mean.
    """
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for j, column in enumerate(table.columns):
        for row in table.rows:
            cell = row[j]
            if cell.value is not None and cell.reason:
                why = _SIZE.sub("", cell.reason).replace(" ()", "")
                names[why][column.heading] = None
    notes = [note for note in table.notes if "no scored" in note]
    if names:
        groups = [f"{', '.join(own)}: {why}" for why, own in names.items()]
        notes.append(f"No interval for {'; for '.join(groups)}.")
    return replace(table, notes=notes)


def scores_plot(board: Board, scorer: Scorer) -> Markup:
    """Draw a histogram of each system's scores for each category; empty without scores."""
    edges, counts = histograms_of(board, scorer)
    names = [row["system"] for row in rank(board, scorer)]
    highest = 0.0
    for of_systems in counts.values():
        for in_bins in of_systems.values():
            highest = max(highest, in_bins.max() / in_bins.sum())
    if not highest:
        return Markup("")

    def paint(figure: Figure) -> None:
        figure.set_layout_engine("constrained", w_pad=0.15)
        (every,) = figure.subplots(1, len(counts), sharey=True, squeeze=False)
        for axes, (category, own) in zip(every, counts.items(), strict=True):
            name_rows(axes, names)
            axes.set_title(short(category, 18))
            axes.set_xticks([edges[0], edges[-1]])
            axes.xaxis.set_major_formatter("{x:.3g}")
            for row, name in enumerate(names):
                if name not in own:
                    continue
                # Equal shares are equally high in all histograms.
                heights = 0.85 * own[name] / own[name].sum() / highest
                base = row + 0.45
                axes.stairs(base - heights, edges, baseline=base, fill=True, color=ACCENT)

    words = f"histograms of the scores of {len(names)} systems"
    return draw(240 + 120 * len(counts), 40 + 40 * len(names), words, paint)


def histograms_of(
    board: Board, scorer: Scorer
) -> tuple[Floats, dict[str, dict[str, Floats]]]:
    """Return the edges of common bins, and counts by category and system.

    Of the values behind the means: one per query, over its repeats.
    """
    values = board.values[scorer.name]
    known = values[~np.isnan(values)]
    if not known.size:
        return known, {}
    edges = _edges(known, scorer.scale)
    counts: dict[str, dict[str, Floats]] = {}
    for category in board.category_names:
        own = values[board.rows_of(board.groups_of_category(category))]
        for system, column in zip(board.systems, own.T, strict=True):
            in_bins, _ = np.histogram(column[~np.isnan(column)], edges)
            if in_bins.any():
                counts.setdefault(category, {})[system.name] = in_bins.astype(float)
    return edges, counts


def _edges(known: Floats, scale: str) -> Floats:
    """Return edges around each whole number, or of bins that are equally wide."""
    ends = bounds(scale) or (float(known.min()), float(known.max()))
    low = min(ends[0], known.min())
    high = max(ends[1], known.max())
    if np.all(known == np.round(known)) and high - low <= _MOST_WHOLE:
        return np.arange(math.floor(low), math.ceil(high) + 2) - 0.5
    if ends[1] - ends[0] > 3 * (known.max() - known.min()) > 0:
        low = known.min()
        high = known.max()
    if high <= low:
        # Values too close together to distinguish share one bin of some width.
        high = low + max(abs(low), 1.0) * 1e-6
    return np.linspace(low, high, _BINS + 1)
