"""The contact sheet: images of a few queries by several systems, side by side.

    sheet = sheet_of_systems(board, ["anole", "gt"], 6)
    draw_sheet(sheet, BlobReader())         # one image

Of a matrix of LVLMs and text-to-image models, `pairings/sheet.py` makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, zip_longest
from typing import NamedTuple

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont, ImageOps

from plait.benchmarks.results.board import Board, outcome_of
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import printable
from plait.generators.base import Result
from plait.generators.document import Image, Query, key_of, texts_in
from plait.generators.images import decode
from plait.scorers.base import Scorer
from plait.scorers.statistics.estimate import Floats

Read = Callable[[Image], bytes]
QUERIES = 6
_IMAGES = 4
"""Of an answer, at most."""
_TILE = 160
_GAP = 8
_LINE = 18
_MARGIN = 180
"""Of the one image, in pixels: an image's side, the room between two, a line of text, and
what stands left of the images where rows have names."""


@dataclass(frozen=True, slots=True)
class SheetCell:
    """What one system has made of a query."""

    score: str
    images: Sequence[Image]
    missing: str = "no image"
    """What stands where images would, where there are none."""


@dataclass(frozen=True, slots=True)
class SheetQuery:
    """One query, with its cells by the name of a row and, in each row, by column."""

    key: str
    category: str
    text: str
    rows: Mapping[str, Sequence[SheetCell]]


@dataclass(frozen=True)
class ContactSheet:
    """Answers to the same queries, with a column for each system.

    Of a matrix, a row for each LVLM and a column for each text-to-image model; else one row
    without a name.
    """

    scorer: str
    """Whose scores stand below the images; empty for none."""
    columns: Sequence[str]
    queries: Sequence[SheetQuery]
    repeats: int = 1
    """Of each answer: images are of repeat 1, scores are means over all."""

    @property
    def cells(self) -> list[SheetCell]:
        """All of them, from left to right and from top to bottom."""
        cells: list[SheetCell] = []
        for query in self.queries:
            cells += chain.from_iterable(query.rows.values())
        return cells

    @property
    def images(self) -> dict[str, Image]:
        """All images by digest."""
        images = chain.from_iterable(cell.images for cell in self.cells)
        return {image.digest: image for image in images}

    @property
    def about_repeats(self) -> str:
        """Which repeat the images are of, to follow a category; empty without repeats."""
        if self.repeats == 1:
            return ""
        scores = f", mean score of {self.repeats}" if self.scorer else ""
        return f"; images of repeat 1{scores}"

    @cached_property
    def margin(self) -> int:
        """Pixels left of the images: room for the names of rows, where these have some."""
        return _MARGIN if any(self.queries[0].rows) else _GAP

    @cached_property
    def column_width(self) -> int:
        """Pixels of one column."""
        return max(1, *(len(cell.images) for cell in self.cells)) * _TILE + _GAP

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the whole as one image, in pixels."""
        rows = sum(len(query.rows) for query in self.queries)
        height = len(self.queries) * _HEAD + rows * _ROW
        return self.margin + len(self.columns) * self.column_width, height


_HEAD = 2 * _LINE + _GAP
_ROW = _TILE + _LINE + _GAP
"""Height of what stands above a query's images, and of one row of these, in pixels."""


class AnswerPlace(NamedTuple):
    """What one answer is of."""

    query: str
    """Its key."""
    system: str
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class ShownAnswers:
    """The texts of some queries, and what systems answered to them."""

    texts: Mapping[str, str]
    """By the query's key."""
    answers: Mapping[AnswerPlace, SheetCell]
    """Without scores."""

    @classmethod
    def of(cls, board: Board, keys: Collection[str]) -> ShownAnswers:
        """Return those of the queries with these keys."""
        answers: dict[AnswerPlace, SheetCell] = {}
        texts: dict[str, str] = {}
        for evaluation in board.reading(keys):
            query = evaluation.query
            document = evaluation.document
            place = AnswerPlace(key_of(query), evaluation.system, evaluation.repeat)
            drawn = document.value.images if isinstance(document, Result) else ()
            outcome = outcome_of(document).name
            missing = "no image" if outcome == "done" else outcome.replace("_", " ")
            answers[place] = SheetCell("", drawn[:_IMAGES], missing)
            if isinstance(query, Query):
                texts[place.query] = " ".join(texts_in(query.question))
        return cls(texts, answers)

    def cell(self, place: AnswerPlace, score: str) -> SheetCell:
        """Return what is shown of an answer, with its score."""
        found = self.answers.get(place, SheetCell("", (), "not made"))
        return replace(found, score=score)


def sheet_of_systems(
    board: Board,
    systems: Sequence[str],
    queries: int | Sequence[str] = QUERIES,
    scorer: Scorer | None = None,
) -> ContactSheet:
    """Return a sheet with a column for each of `systems`.

    Of the queries with these keys; or of so many that one of them has drawn for, as many of
    each category as there are: those that `scorer` sets the systems furthest apart on, else
    the first ones.
    """
    values = np.full((len(board.keys), len(systems)), np.nan)
    form = NumberForm()
    if scorer is not None:
        places = [board.place_of_system[name] for name in systems]
        values = board.values[scorer.name][:, places]
        form = NumberForm.of(scorer.scale)
    values_of = dict(zip(board.keys, values, strict=True))
    if isinstance(queries, int):
        chosen = queries_apart(board, systems, values_of, queries)
    else:
        chosen = [*queries]
    answers = ShownAnswers.of(board, chosen)

    def cell(key: str, name: str, value: float) -> SheetCell:
        # Without a scorer all values are NaN.
        score = "" if np.isnan(value) else form.number(value)
        return answers.cell(AnswerPlace(key, name), score)

    category_of = _categories_of(board)
    shown = []
    for key in chosen:
        row = []
        for name, value in zip(systems, values_of[key].tolist(), strict=True):
            row.append(cell(key, name, value))
        text = answers.texts.get(key, "")
        shown.append(SheetQuery(key, category_of[key], text, {"": row}))
    return ContactSheet(scorer.name if scorer else "", systems, shown, board.rounds)


def queries_apart(
    board: Board, systems: Sequence[str], values_of: Mapping[str, Floats], most: int
) -> list[str]:
    """Return the keys of so many queries that one of the systems has drawn for.

    Of each category, those whose values, in the order of the systems, lie furthest apart.
    """
    with_images = queries_with_images(board, systems)
    candidates = {}
    for query in board.queries:
        if query.key in with_images:
            # Where nothing is scored all spreads are 0, and queries stay in their order.
            candidates[query.key] = np.nan_to_num(values_of[query.key])
    return [*furthest_apart(board, candidates, most)]


def _categories_of(board: Board) -> dict[str, str]:
    """Return the category of each query that has an evaluation."""
    return {query.key: query.category for query in board.queries}


def queries_with_images(board: Board, systems: Sequence[str]) -> set[str]:
    """Return the keys of the queries that one of some systems has drawn an image for."""
    drawn = board.table.column("images").to_numpy() > 0
    return board.column["query"].names_of(drawn & board.column["system"].is_(*systems))


def furthest_apart(
    board: Board, values: Mapping[str, Floats], most: int = QUERIES
) -> dict[str, str]:
    """Return at most so many of the queries, with the category of each, by category."""
    groups: dict[str, list[str]] = {}
    for name in board.category_names:
        groups[name] = []
    category_of = _categories_of(board)
    for key in sorted(values, key=lambda key: -np.ptp(values[key])):
        groups[category_of[key]].append(key)
    # Categories take turns, so that each has as many as the others while it has any; one
    # that has no more gives None.
    turns = chain.from_iterable(zip_longest(*groups.values()))
    chosen = {*islice(filter(None, turns), most)}
    categories = {}
    for name, own in groups.items():
        for key in own:
            if key in chosen:
                categories[key] = name
    return categories


def draw_sheet(sheet: ContactSheet, read: Read) -> Pillow.Image:
    """Return the whole sheet as one image; ImageError where one of it cannot be read."""
    width, height = sheet.size
    canvas = Pillow.new("RGB", (width, height), "white")
    font = ImageFont.load_default(14)
    draw = ImageDraw.Draw(canvas)
    column = sheet.column_width

    def write(x: int, y: int, text: str, room: int, colour: str = "black") -> None:
        text = printable(text)
        # A letter shorter each time: how wide a text is depends on its letters.
        while text and font.getlength(text) > room:
            text = f"{text[:-2].rstrip()}…"
        draw.text((x, y), text, colour, font)

    def draw_cell(x: int, y: int, cell: SheetCell) -> None:
        for k, image in enumerate(cell.images):
            tile = ImageOps.contain(decode(read(image)), (_TILE - _GAP, _TILE))
            canvas.paste(tile, (x + k * _TILE, y))
        if not cell.images:
            write(x, y + _TILE // 2, cell.missing, column - _GAP, "dimgrey")
        if cell.score:
            write(x, y + _TILE, f"{sheet.scorer} {cell.score}", column - _GAP)

    y = 0
    for query in sheet.queries:
        about = f"{query.key} ({query.category}{sheet.about_repeats}): {query.text}"
        write(_GAP, y, about, width - 2 * _GAP)
        for i, name in enumerate(sheet.columns):
            x = sheet.margin + i * column
            write(x, y + _LINE, name, column - _GAP, "dimgrey")
        y += _HEAD
        for name, own in query.rows.items():
            write(_GAP, y, name, _MARGIN - 2 * _GAP, "dimgrey")
            for i, cell in enumerate(own):
                draw_cell(sheet.margin + i * column, y, cell)
            y += _ROW
    return canvas
