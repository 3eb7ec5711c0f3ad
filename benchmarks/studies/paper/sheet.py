"""The image sheet of a run: its answers' images in rows and columns.

    grid = grid_of(board, SheetChoice(columns="system", worst=4))
    write_sheet(grid, folder, read)     # sheet.png, .pdf, .webp, .tex and its images

Rows and columns are two of query, system and repeat; the third is one: the best system, the
first query, the first repeat, where none is named.
"""

from __future__ import annotations

import io
import random
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from PIL import Image as Pillow

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.contact_sheet import (
    QUERIES,
    AnswerPlace,
    SheetCell,
    ShownAnswers,
    queries_apart,
    queries_with_images,
)
from plait.benchmarks.results.leaderboard import rank
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.repeats import values_by_repeat
from plait.benchmarks.results.table import escape_latex, printable
from plait.generators.buckets import AnyPath
from plait.generators.document import Image
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.images import decode
from plait.generators.names import unknown
from plait.scorers.base import Scorer
from plait.scorers.statistics.estimate import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Axis = Literal["query", "system", "repeat"]
Read = Callable[[Image], bytes]
FORMS = ("png", "pdf", "webp")
_STYLE = Path(__file__).with_name("paper.mplstyle")
_SIDE = 512
"""Of the largest image that is written, in pixels."""
_GAP = 8
"""Between two images of one answer, in pixels."""
_TILE = 1.3
"""Side of an image on the sheet, in inches, as the next."""
_HEAD = 1.1
_DOTS = 200
"""To an inch."""
_WORDS = 160
"""Characters of a query that stand beside its images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetChoice:
    """What a sheet shows."""

    rows: Axis = "query"
    columns: Axis = "system"
    systems: tuple[str, ...] = ()
    """By default all, the best first."""
    ids: tuple[str, ...] = ()
    """Of the queries; else so many as the next three name, by the mean of the systems."""
    best: int = 0
    worst: int = 0
    random: int = 0
    seed: int = 0
    """Of `random`."""
    scorer: str | None = None
    """Whose scores choose and stand below; by default the first of single answers."""


@dataclass(frozen=True, kw_only=True)
class ImageGrid:
    """Answers in rows and columns, with a heading for each."""

    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[SheetCell]]
    caption: str


def grid_of(board: Board, choice: SheetChoice) -> ImageGrid:
    """Return the sheet of a run.

    UsageError for names that it does not have, for equal rows and columns, for repeats of a
    run without any, and where no query has an image.
    """
    if choice.rows == choice.columns:
        raise UsageError(
            f"rows and columns are both {choice.rows!r}: name two of query, system, repeat"
        )
    if "repeat" in (choice.rows, choice.columns) and board.rounds < 2:
        raise UsageError(
            "this run has one answer to each query: `plait run ... --repeats 4` makes the "
            "others, and --rows query --columns system shows what is there"
        )
    scorer = _scorer_of(board, choice.scorer)
    systems = _systems_of(board, choice)
    queries = _queries_of(board, systems, choice, scorer)
    chosen: dict[Axis, list[str]] = {
        "query": queries,
        "system": systems,
        "repeat": [str(number) for number in range(board.rounds)],
    }
    fixed = {axis: names[0] for axis, names in chosen.items()}
    cells = _cells(board, scorer, chosen, fixed, choice)
    headings: dict[Axis, list[str]] = {}
    about = [_about_choice(choice)]
    for axis, names in chosen.items():
        headings[axis] = [_heading(axis, name, cells.texts) for name in names]
        if axis not in (choice.rows, choice.columns) and len(names) > 1:
            about.append(headings[axis][0])
    if scorer is not None:
        about.append(f"below each its score by {scorer.name}")
    return ImageGrid(
        rows=headings[choice.rows],
        columns=headings[choice.columns],
        cells=cells.grid,
        caption="; ".join(about),
    )


def _heading(axis: Axis, name: str, texts: Mapping[str, str]) -> str:
    """Return what stands beside a row or above a column."""
    if axis == "query":
        return texts.get(name) or name
    return f"repeat {int(name) + 1}" if axis == "repeat" else name


def _about_choice(choice: SheetChoice) -> str:
    if choice.ids:
        return "Chosen queries"
    if choice.random:
        return f"Queries drawn at random (seed {choice.seed})"
    for name in ("best", "worst"):
        if getattr(choice, name):
            return f"The queries with the {name} mean of the systems"
    return "The queries on which systems differ most, of each category"


def _scorer_of(board: Board, name: str | None) -> Scorer | None:
    single = {scorer.name: scorer for scorer in board.scorers if not scorer.of_sets}
    if name is None:
        return next(iter(single.values()), None)
    if name not in single:
        raise unknown("scorer of single answers", name, single)
    return single[name]


def _systems_of(board: Board, choice: SheetChoice) -> list[str]:
    names = [row["system"] for row in rank(board)]
    for name in choice.systems:
        if name not in names:
            raise unknown("system", name, names)
    return [*choice.systems] or names


def _queries_of(
    board: Board, systems: Sequence[str], choice: SheetChoice, scorer: Scorer | None
) -> list[str]:
    """Return the queries that are shown: those named, or as many as are asked for."""
    known = [query.key for query in board.queries]
    for name in choice.ids:
        if name not in known:
            raise unknown("query", name, known)
    if choice.ids:
        return [*choice.ids]
    with_images = queries_with_images(board, systems)
    candidates = [key for key in known if key in with_images]
    if not candidates:
        raise UsageError(f"no answer of {', '.join(systems)} holds an image")
    if choice.random:
        # Sorted, so that a seed draws the same whatever the order of the data.
        drawn = random.Random(choice.seed).sample(
            sorted(candidates), min(choice.random, len(candidates))
        )
        return [key for key in candidates if key in drawn]
    scores = _scores_by_query(board, systems, scorer)
    if not (choice.best or choice.worst):
        return queries_apart(board, systems, scores, QUERIES)
    if scorer is None:
        raise UsageError("the best and the worst need a scorer: `plait score RUN` adds one")
    means = {}
    for key in candidates:
        if not np.isnan(scores[key]).all():
            means[key] = float(np.nanmean(scores[key]))
    # The worst come first, or the best, whichever are asked for.
    upward = (scorer.direction == "higher") == bool(choice.worst)
    ranked = sorted(means, key=means.__getitem__, reverse=not upward)
    return ranked[: choice.best or choice.worst]


def _scores_by_query(
    board: Board, systems: Sequence[str], scorer: Scorer | None
) -> dict[str, Floats]:
    """Return (systems,) scores of each query; zeros where nothing has scored them."""
    if scorer is None:
        return {key: np.zeros(len(systems)) for key in board.keys}
    names = [system.name for system in board.systems]
    columns = [names.index(name) for name in systems]
    return dict(zip(board.keys, board.values[scorer.name][:, columns], strict=True))


class _Cells(NamedTuple):
    grid: list[list[SheetCell]]
    texts: Mapping[str, str]
    """By query."""


def _cells(
    board: Board,
    scorer: Scorer | None,
    chosen: Mapping[Axis, Sequence[str]],
    fixed: Mapping[Axis, str],
    choice: SheetChoice,
) -> _Cells:
    """Return a cell for each name of rows and columns; `fixed` tells the third axis."""
    answers = ShownAnswers.of(board, {*chosen["query"]})
    texts: dict[str, str] = {}
    for key, text in answers.texts.items():
        texts[key] = textwrap.shorten(text, _WORDS, placeholder=" …")
    scores = _scores(board, scorer)
    grid = []
    for row in chosen[choice.rows]:
        cells = []
        for column in chosen[choice.columns]:
            at = {**fixed, choice.rows: row, choice.columns: column}
            place = AnswerPlace(at["query"], at["system"], int(at["repeat"]))
            cells.append(answers.cell(place, scores.get(place, "")))
        grid.append(cells)
    return _Cells(grid, texts)


def _scores(board: Board, scorer: Scorer | None) -> dict[AnswerPlace, str]:
    if scorer is None:
        return {}
    form = NumberForm.of(scorer.scale)
    values = values_by_repeat(board, scorer.name)
    texts = {}
    for repeat, row, column in np.argwhere(~np.isnan(values)).tolist():
        place = AnswerPlace(board.keys[row], board.systems[column].name, repeat)
        texts[place] = form.number(float(values[repeat, row, column]))
    return texts


def write_sheet(grid: ImageGrid, folder: AnyPath, read: Read) -> list[str]:
    """Write the sheet in every form, and LaTeX with its images in `sheet/`.

    Returns the names of the files. ImageError where an image cannot be read.
    """
    strips = _strips(grid, read)
    files = []
    for form, data in _draw(grid, strips).items():
        name = f"sheet.{form}"
        write_whole(folder / name, data)
        files.append(name)
    names = {}
    for (row, column), strip in strips.items():
        name = f"sheet/{row + 1}-{column + 1}.png"
        file = io.BytesIO()
        strip.save(file, "PNG")
        write_whole(folder / name, file.getvalue())
        names[row, column] = name
    write_whole(folder / "sheet.tex", _latex(grid, names))
    return [*files, "sheet.tex"]


Strips = Mapping[tuple[int, int], Pillow.Image]
"""By row and column, the images of one answer side by side."""


def _strips(grid: ImageGrid, read: Read) -> dict[tuple[int, int], Pillow.Image]:
    strips = {}
    for i, row in enumerate(grid.cells):
        for j, cell in enumerate(row):
            if cell.images:
                strips[i, j] = _side_by_side([decode(read(own)) for own in cell.images])
    return strips


def _side_by_side(images: Iterable[Pillow.Image]) -> Pillow.Image:
    """Return images of at most `_SIDE` in a row, on white, along their upper ends."""
    tiles = []
    for image in images:
        tile = image.copy()
        tile.thumbnail((_SIDE, _SIDE))
        tiles.append(tile)
    width = sum(tile.width for tile in tiles) + _GAP * (len(tiles) - 1)
    strip = Pillow.new("RGB", (width, max(tile.height for tile in tiles)), "white")
    x = 0
    for tile in tiles:
        strip.paste(tile, (x, 0))
        x += tile.width + _GAP
    return strip


def _draw(grid: ImageGrid, strips: Strips) -> dict[str, bytes]:
    """Return the bytes of the sheet by form."""
    import matplotlib
    from matplotlib.figure import Figure

    # A column of answers without any image is as wide as one image, for their text.
    tiles = 1
    for cell in chain.from_iterable(grid.cells):
        tiles = max(tiles, len(cell.images))
    across = _HEAD + len(grid.columns) * _TILE * tiles
    down = 0.3 + len(grid.rows) * (_TILE + 0.2)
    drawn = {}
    with matplotlib.rc_context(fname=_STYLE):
        figure = Figure(figsize=(across, down), layout="constrained")
        shape = len(grid.rows), len(grid.columns)
        every = figure.subplots(*shape, squeeze=False)
        for i, row in enumerate(grid.cells):
            for j, cell in enumerate(row):
                _draw_cell(every[i, j], cell, strips.get((i, j)))
            label = "\n".join(textwrap.wrap(printable(grid.rows[i]), 24)[:7])
            every[i, 0].set_ylabel(label, rotation=0, ha="right", va="center")
        for j, name in enumerate(grid.columns):
            title = "\n".join(textwrap.wrap(printable(name), 24 * tiles)[:3])
            every[0, j].set_title(title)
        for form in FORMS:
            file = io.BytesIO()
            # A PDF says when it was made: the same sheet would be another file each time.
            metadata = {"CreationDate": None} if form == "pdf" else None
            figure.savefig(file, format=form, dpi=_DOTS, metadata=metadata)
            drawn[form] = file.getvalue()
    return drawn


def _draw_cell(axes: Axes, cell: SheetCell, strip: Pillow.Image | None) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    if strip is None:
        axes.text(0.5, 0.5, cell.missing, ha="center", va="center", color="0.4")
        axes.set_aspect("equal")
    else:
        axes.imshow(np.asarray(strip))
        axes.set_xlabel(cell.score)


def _latex(grid: ImageGrid, names: Mapping[tuple[int, int], str]) -> str:
    width = 0.8 / len(grid.columns)
    head = ["", *(escape_latex(name) for name in grid.columns)]
    lines = [
        "% Needs the packages booktabs, graphicx and array.",
        r"\begin{figure}",
        r"\centering",
        rf"\begin{{tabular}}{{m{{0.16\linewidth}}*{{{len(grid.columns)}}}{{c}}}}",
        " & ".join(head) + r" \\",
    ]
    for i, row in enumerate(grid.cells):
        cells = [escape_latex(grid.rows[i])]
        for j, cell in enumerate(row):
            text = escape_latex(cell.score if cell.images else cell.missing)
            if (i, j) in names:
                image = rf"\includegraphics[width={width:.3f}\linewidth]{{{names[i, j]}}}"
                text = rf"\shortstack{{{image}\\ \scriptsize {text}}}"
            cells.append(text)
        lines.append(" & ".join(cells) + r" \\")
    lines += [
        r"\end{tabular}",
        rf"\caption{{{escape_latex(grid.caption)}.}}",
        r"\label{fig:sheet}",
        r"\end{figure}",
    ]
    return "\n".join(lines) + "\n"
