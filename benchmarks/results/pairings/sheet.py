"""The contact sheet: images of a few queries by every pairing, side by side.

sheet = sheet_of(board, pairings, board.keys)
sheet_markup(sheet, write_images([sheet], files, read))     # for the page
write_sheet(sheet, Path("sheet.png"), read)                 # one image
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
from markupsafe import Markup
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont, ImageOps

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.page_files import PageFiles
from plait.benchmarks.results.pairings.comparison import Pairings
from plait.benchmarks.results.table import environment, printable
from plait.generators.base import Result
from plait.generators.document import Image, Query, Text
from plait.generators.errors import UsageError
from plait.generators.images import decode, small_webp
from plait.scorers.statistics.estimate import Floats

Read = Callable[[Image], bytes]
QUERIES = 6
SIDE = 256
FORMS = {".png": "PNG", ".webp": "WebP"}
FILES = "sheet-*.webp"
_IMAGES = 4
_TILE, _GAP, _LINE, _MARGIN = 160, 8, 18, 180
"""Of the one image, in pixels: an image's side, the room between two, a line of text, and
what stands left of the images."""
_LARGEST = 16_383
"""Width and height of a WebP, in pixels."""


@dataclass(frozen=True, slots=True)
class SheetCell:
    """What one pairing has made of a query."""

    score: str
    images: Sequence[Image]


@dataclass(frozen=True, slots=True)
class SheetQuery:
    """One query, with its cells by LVLM and, in each row, by text-to-image model."""

    key: str
    category: str
    text: str
    rows: Mapping[str, Sequence[SheetCell]]


@dataclass(frozen=True, slots=True)
class ContactSheet:
    """The same queries by all pairings of a matrix."""

    scorer: str
    t2is: Sequence[str]
    queries: Sequence[SheetQuery]

    @property
    def images(self) -> dict[str, Image]:
        """All images by digest."""
        rows = (row for query in self.queries for row in query.rows.values())
        return {i.digest: i for row in rows for cell in row for i in cell.images}


def sheet_of(
    board: Board, pairings: Pairings, keys: Collection[str]
) -> ContactSheet | None:
    """Return the queries of `keys` that the first scorer sets pairings furthest apart on.

    As many of each category as there are, and the first answer to each. None where no
    query with an image has a score of every pairing.
    """
    drawn = board.table.column("images").to_numpy() > 0
    query, wanted = board.column["query"], set(keys)
    wanted &= {query.names[code] for code in np.unique(query.codes[drawn])}
    for scores in pairings.scores:
        values = np.stack([*scores.shared.values()], axis=1)
        own = dict(zip(scores.keys, values, strict=True))
        chosen = _furthest_apart(board, {k: own[k] for k in scores.keys if k in wanted})
        if chosen:
            break
    else:
        return None
    images: dict[tuple[str, str], Sequence[Image]] = {}
    texts: dict[str, str] = {}
    for e in board.reading(chosen):
        if e.repeat == 0 and isinstance(e.sample, Query):
            said = (part.text for part in e.sample.question if isinstance(part, Text))
            texts[e.sample.id] = " ".join(said)
            done = e.document.value.images if isinstance(e.document, Result) else ()
            images[e.sample.id, e.system] = done[:_IMAGES]
    queries = []
    for key, category in chosen.items():
        known = dict(zip(scores.shared, map(float, own[key]), strict=True))
        rows = {
            lvlm: [
                SheetCell(scores.form.number(known[s.name]), images.get((key, s.name), ()))
                for s in systems
            ]
            for lvlm, systems in zip(
                pairings.matrix.lvlms, pairings.matrix.systems, strict=True
            )
        }
        queries.append(SheetQuery(key, category, texts.get(key, ""), rows))
    return ContactSheet(scores.scorer.name, pairings.matrix.t2is, queries)


def _furthest_apart(board: Board, values: Mapping[str, Floats]) -> dict[str, str]:
    """Return at most QUERIES of the queries, with the category of each, by category."""
    groups: dict[str, list[str]] = {name: [] for name in board.category_names}
    category = {q.key: q.category for q in board.queries}
    for key in sorted(values, key=lambda key: -np.ptp(values[key])):
        groups[category[key]].append(key)
    turns = zip_longest(*groups.values())
    chosen = set([key for keys in turns for key in keys if key][:QUERIES])
    return {key: name for name, own in groups.items() for key in own if key in chosen}


Written = Mapping[str, tuple[str, int, int] | tuple[None, str]]
"""By digest, an image's address, width and height on the page; or why it is not there."""


def write_images(sheets: Sequence[ContactSheet], files: PageFiles, read: Read) -> Written:
    """Write the images of `sheets`; those of former sheets are removed."""

    def written(image: Image) -> tuple[str, int, int] | tuple[None, str]:
        try:
            data, size = small_webp(read(image), SIDE)
        except Exception as error:
            # Whatever a store or a file system raises, the page shows the reason.
            return None, f"cannot be read: {error}"
        return files.write_image(_name(image.digest), data), *size

    images = {digest: i for sheet in sheets for digest, i in sheet.images.items()}
    with ThreadPoolExecutor() as pool:
        found = dict(zip(images, pool.map(written, images.values()), strict=True))
    files.remove_others(FILES, {_name(d) for d, at in found.items() if at[0]})
    return found


def _name(digest: str) -> str:
    return FILES.replace("*", digest[:16])


def sheet_markup(sheet: ContactSheet, written: Written) -> Markup:
    """Return what the page shows of a sheet whose images are `written`."""
    template = environment().get_template("sheet.html.j2")
    return Markup(template.render(sheet=sheet, shown=written))


def write_sheet(sheet: ContactSheet, path: Path, read: Read) -> None:
    """Write the whole sheet as one PNG or WebP; UsageError for another suffix.

    ImageError where an image cannot be read.
    """
    form = form_of(path)
    cells = [c for q in sheet.queries for row in q.rows.values() for c in row]
    column = max(1, *(len(cell.images) for cell in cells)) * _TILE + _GAP
    row, head = _TILE + _LINE + _GAP, 2 * _LINE + _GAP
    lvlms = len(sheet.queries[0].rows)
    width = _MARGIN + len(sheet.t2is) * column
    height = len(sheet.queries) * (head + lvlms * row)
    if form == "WebP" and max(width, height) > _LARGEST:
        raise UsageError(
            f"{path}: the sheet has {width} x {height} pixels, a WebP at most {_LARGEST:,} "
            "on each side; name a .png"
        )
    canvas, font = Pillow.new("RGB", (width, height), "white"), ImageFont.load_default(14)
    draw = ImageDraw.Draw(canvas)

    def write(x: int, y: int, text: str, room: int, colour: str = "black") -> None:
        text = printable(text)
        while text and font.getlength(text) > room:
            text = f"{text[:-2].rstrip()}…"
        draw.text((x, y), text, colour, font)

    y = 0
    for query in sheet.queries:
        write(_GAP, y, f"{query.key} ({query.category}): {query.text}", width - 2 * _GAP)
        for i, t2i in enumerate(sheet.t2is):
            write(_MARGIN + i * column, y + _LINE, t2i, column - _GAP, "dimgrey")
        y += head
        for lvlm, own in query.rows.items():
            write(_GAP, y, lvlm, _MARGIN - 2 * _GAP, "dimgrey")
            for i, cell in enumerate(own):
                x = _MARGIN + i * column
                for k, image in enumerate(cell.images):
                    tile = ImageOps.contain(decode(read(image)), (_TILE - _GAP, _TILE))
                    canvas.paste(tile, (x + k * _TILE, y))
                write(x, y + _TILE, f"{sheet.scorer} {cell.score}", column - _GAP)
            y += row
    canvas.save(path, form)


def form_of(path: Path) -> str:
    """Return Pillow's name of the form that a suffix names; UsageError."""
    if path.suffix.lower() not in FORMS:
        raise UsageError(f"{path} ends in none of {', '.join(FORMS)}")
    return FORMS[path.suffix.lower()]
