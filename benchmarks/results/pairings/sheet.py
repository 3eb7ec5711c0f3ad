"""The contact sheet of a matrix: images of a few queries by every pairing, side by side.

sheet = sheet_of(board, pairings, board.keys)
sheet_markup(sheet, write_images([sheet], files, read))     # for the page
write_sheet(sheet, Path("sheet.png"), read)                 # one image
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from markupsafe import Markup

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.contact_sheet import (
    AnswerPlace,
    ContactSheet,
    Read,
    SheetCell,
    SheetQuery,
    ShownAnswers,
    draw_sheet,
    furthest_apart,
    queries_with_images,
)
from plait.benchmarks.results.page_files import PageFiles
from plait.benchmarks.results.pairings.comparison import Pairings, PairingScores
from plait.benchmarks.results.table import environment
from plait.generators.document import Image
from plait.generators.errors import UsageError
from plait.generators.images import small_webp
from plait.scorers.statistics.estimate import Floats

SIDE = 256
FORMS = {".png": "PNG", ".webp": "WebP"}
FILES = "sheet-*.webp"
_LARGEST = 16_383
"""Width and height of a WebP, in pixels."""


def sheet_of(
    board: Board, pairings: Pairings, keys: Collection[str]
) -> ContactSheet | None:
    """Return the queries of `keys` that the first scorer sets pairings furthest apart on.

    As many of each category as there are, and the first answer to each. None where no
    query that a pairing has drawn an image for has a score of every pairing.
    """
    wanted = queries_with_images(board, pairings.matrix.names).intersection(keys)
    for scores in pairings.scores:
        of_cells = np.stack([*scores.shared.values()], axis=1)
        values = {}
        for key, of_query in zip(scores.keys, of_cells, strict=True):
            if key in wanted:
                values[key] = of_query
        if chosen := furthest_apart(board, values):
            return _sheet_of_queries(board, pairings, scores, chosen, values)
    return None


def _sheet_of_queries(
    board: Board,
    pairings: Pairings,
    scores: PairingScores,
    chosen: Mapping[str, str],
    values: Mapping[str, Floats],
) -> ContactSheet:
    """Return the sheet of the `chosen` queries, which come with their categories.

    `values` are the scores of each query (cells,), in the order of `scores.shared`.
    """
    answers = ShownAnswers.of(board, chosen)
    matrix = pairings.matrix
    queries = []
    for key, category in chosen.items():
        score_of = dict(zip(scores.shared, values[key].tolist(), strict=True))
        rows: dict[str, list[SheetCell]] = {}
        for lvlm, systems in zip(matrix.lvlms, matrix.systems, strict=True):
            rows[lvlm] = []
            for system in systems:
                score = scores.form.number(score_of[system.name])
                place = AnswerPlace(key, system.name)
                rows[lvlm].append(answers.cell(place, score))
        queries.append(SheetQuery(key, category, answers.texts.get(key, ""), rows))
    return ContactSheet(scores.scorer.name, matrix.t2is, queries, board.rounds)


Written = Mapping[str, tuple[str, int, int] | tuple[None, str]]
"""By digest, an image's address, width and height on the page; or why it is not there."""


def write_images(sheets: Sequence[ContactSheet], files: PageFiles, read: Read) -> Written:
    """Write the images of `sheets`; those of former sheets are removed."""

    def write(image: Image) -> tuple[str, int, int] | tuple[None, str]:
        try:
            data, size = small_webp(read(image), SIDE)
        except Exception as error:
            # Whatever a store or a file system raises, the page shows the reason.
            return None, f"cannot be read: {error}"
        return files.write_image(_name(image.digest), data), *size

    images: dict[str, Image] = {}
    for sheet in sheets:
        images |= sheet.images
    # Pillow lets go of the interpreter while it scales and encodes.
    with ThreadPoolExecutor() as pool:
        written = dict(zip(images, pool.map(write, images.values()), strict=True))
    kept = set[str]()
    for digest, (address, *_) in written.items():
        if address is not None:
            kept.add(_name(digest))
    files.remove_others(FILES, kept)
    return written


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
    width, height = sheet.size
    if form == "WebP" and max(width, height) > _LARGEST:
        raise UsageError(
            f"{path}: the sheet has {width} x {height} pixels, a WebP at most {_LARGEST:,} "
            "on each side; name a .png"
        )
    draw_sheet(sheet, read).save(path, form)


def form_of(path: Path) -> str:
    """Return Pillow's name of the form that a suffix names; UsageError."""
    if path.suffix.lower() not in FORMS:
        raise UsageError(f"{path} ends in none of {', '.join(FORMS)}")
    return FORMS[path.suffix.lower()]
