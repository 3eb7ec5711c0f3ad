"""`plait paper`: write the tables, figures and the sheet of finished runs into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from plait.benchmarks.studies.paper.columns import PaperChoice, PaperContent, content_of
from plait.benchmarks.studies.paper.costs import answer_costs
from plait.benchmarks.studies.paper.figures import figures_of, save
from plait.benchmarks.studies.paper.sheet import (
    Read,
    SheetChoice,
    grid_of,
    write_sheet,
)
from plait.benchmarks.studies.paper.tables import (
    IntervalForm,
    PaperTable,
    category_table,
    main_table,
    paper_csv,
)
from plait.benchmarks.studies.paper.wording import methods
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.names import unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperOptions:
    """What is written, and how."""

    choice: PaperChoice = field(default_factory=PaperChoice)
    interval: IntervalForm = "brackets"
    pair: tuple[str, ...] = ()
    """Two systems, whose differences are drawn; by default the two best."""
    sheet: SheetChoice = field(default_factory=SheetChoice)
    needs_sheet: bool = False
    """Whether a sheet was asked for, so that it is an error to have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPaper:
    """What `plait.paper` has written, and the numbers behind it.

    Examples:
        >>> written = plait.paper("runs/quickstart", "paper")
        >>> column = written.content.column("clipscore")
        >>> round(column.cells["gt"].estimate.value, 3), column.sizes
        (1.919, (8, 8))
        >>> [table.label for table in written.tables]
        ['systems', 'categories-clipscore', 'categories-truth-match']
    """

    content: PaperContent
    tables: Sequence[PaperTable]
    files: Sequence[str]
    """In the folder."""
    without: Sequence[str]
    """What there is nothing of, and why."""


def write_paper(
    runs: Sequence[AnyPath], folder: AnyPath, options: PaperOptions, read: Read
) -> WrittenPaper:
    """Write everything of these runs; the sheet is of the first.

    UsageError for names that the runs do not have, and where nothing has a score.
    """
    content = content_of(runs, options.choice)
    pair = _pair_of(content, options.pair)
    tables = [main_table(content)]
    for column in content.columns:
        if column.categories:
            tables.append(category_table(content, column))
    texts = {f"{table.label}.tex": table.latex(options.interval) for table in tables}
    texts["tables.md"] = "\n".join(table.markdown for table in tables)
    texts["tables.csv"] = paper_csv(content)
    texts["paper.md"] = "\n\n".join(methods(content)) + "\n"
    for name, text in texts.items():
        write_whole(folder / name, text)
    files = [*texts]
    costs = answer_costs(content)
    for figure in figures_of(content, costs, pair):
        files += save(figure, folder)
    without = []
    if costs is None and len(content.models) > 1:
        without.append("cost: not every system has seconds or prices of its answers")
    try:
        files += write_sheet(grid_of(content.boards[0], options.sheet), folder, read)
    except UsageError as error:
        if options.needs_sheet:
            raise
        without.append(f"sheet: {error}")
    return WrittenPaper(content=content, tables=tables, files=files, without=without)


def _pair_of(content: PaperContent, pair: Sequence[str]) -> tuple[str, str] | None:
    if not pair:
        return None
    if len(pair) != 2:
        raise UsageError(f"a pair is two systems, not {len(pair)}: {', '.join(pair)}")
    for name in pair:
        if name not in content.systems:
            raise unknown("system", name, content.systems)
    return pair[0], pair[1]
