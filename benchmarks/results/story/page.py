"""story.html: one file that opens from disk, with its pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results.board import Board
from benchmarks.results.report.gallery import thumbnail
from benchmarks.results.standings import standing
from benchmarks.results.story.answers import StoryScorers
from benchmarks.results.story.chapters import StoryChapter, StoryPanel, chapters_of
from benchmarks.results.table import ResultTable
from benchmarks.results.templates import REPORT, page_environment, sources
from benchmarks.results.wording import decimals
from generators.document import Image, Text
from generators.files import write_whole
from scorers.base import Scorer
from scorers.statistics.estimate import Estimate

PAGE = "story.html"
SIDE = 320
"""Longer side of a picture in the file, in pixels."""
_PNG = b"\x89PNG"
_SMALL = 1 << 16
"""Bytes up to which a PNG is put into the page as it is."""
Read = Callable[[Image], bytes]


@dataclass(frozen=True, slots=True)
class ShownSegment:
    """Text, or a picture as a data URL; `problem` says why there is none."""

    text: str = ""
    url: str = ""
    problem: str = ""


def write_story(board: Board, root: Path, read: Read) -> Path:
    """Write the story of a run; its path. UsageError where there is nothing to tell.

    `read` returns a picture's bytes; one that cannot be read is shown as the reason.
    """
    page = root / PAGE
    write_whole(page, story_page(board, root.name, chapters_of(board), read))
    return page


def story_page(
    board: Board, name: str, chapters: Sequence[StoryChapter], read: Read
) -> str:
    """The HTML, with the style of a run's report; it loads nothing."""
    environment = page_environment("benchmarks.results.story", REPORT)
    return environment.get_template("story.html.j2").render(
        name=name,
        board=board,
        chapters=chapters,
        shown=shown_segments(chapters, read),
        table=means_table(board),
        style=sources(environment, "report.css", "story.css"),
    )


def shown_segments(
    chapters: Sequence[StoryChapter], read: Read
) -> Mapping[StoryPanel, list[ShownSegment]]:
    """What each panel shows, pictures as data URLs."""
    panels = (panel for chapter in chapters for panel in chapter.panels)
    return {panel: [_shown(part, read) for part in panel.content] for panel in panels}


def _shown(part: Text | Image, read: Read) -> ShownSegment:
    if isinstance(part, Text):
        return ShownSegment(text=part.text)
    try:
        data = read(part)
        small = data.startswith(_PNG) and len(data) <= _SMALL
        kind, data = ("png", data) if small else ("webp", thumbnail(data, SIDE))
    except Exception as error:
        # Whatever a store or a file system raises, the page shows the reason.
        return ShownSegment(problem=f"the picture cannot be read: {error}")
    return ShownSegment(url=f"data:image/{kind};base64,{base64.b64encode(data).decode()}")


def means_table(board: Board) -> ResultTable:
    """The mean of each of the three scorers over all queries, by system."""
    scorers = StoryScorers.of(board).all
    means = [(s, standing(board, s.name).micro) for s in scorers]
    rows = [
        [system.name, *(_mean(s, estimates[i]) for s, estimates in means)]
        for i, system in enumerate(board.systems)
    ]
    head = ["system", *(f"{s.name} ({s.scale})" for s in scorers)]
    return ResultTable.of("All answers", head, rows, numeric=False)


def _mean(scorer: Scorer, estimate: Estimate) -> str:
    if estimate.value is None:
        return "-"
    digits = decimals(scorer.scale)
    ends = estimate.ci95
    shown = "" if ends is None else " [{:.{d}f}, {:.{d}f}]".format(*ends, d=digits)
    return f"{estimate.value:.{digits}f}{shown}"
