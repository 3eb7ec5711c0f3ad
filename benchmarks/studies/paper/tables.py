"""The tables of a paper: systems by scorers, and by category, as LaTeX, Markdown and CSV.

The LaTeX needs the packages booktabs and siunitx. great-tables writes LaTeX too, but drops
bold cells and has no columns aligned at the point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from plait.benchmarks.results.comparisons import about_correction
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import (
    ResultTable,
    TableCell,
    TableColumn,
    csv_text,
    escape_latex,
    printable,
)
from plait.benchmarks.studies.paper.columns import PaperCell, PaperColumn, PaperContent
from plait.benchmarks.tasks.controls import is_reference
from plait.scorers.base import Direction, bounds, scale_text
from plait.scorers.statistics.estimate import Estimate

IntervalForm = Literal["brackets", "subscript", "pm", "none"]
"""How intervals stand beside means: `[a, b]`, that as a subscript, `+- half`, or not."""
_ARROWS = {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}
_TIED_LATEX = r"${}^{\approx}$"
_SETUP = r"\sisetup{detect-weight=true, mode=text}"


@dataclass(frozen=True, slots=True)
class Group:
    """A heading over one column of numbers, or over that and one of their spread."""

    heading: str
    scale: str
    direction: Direction
    form: NumberForm
    cells: Mapping[str, PaperCell]
    has_spread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """One table: a row for each system, a group of columns for each scorer or category."""

    label: str
    """Of the LaTeX table, and the name of its files."""
    title: str
    notes: Sequence[str]
    systems: Sequence[str]
    groups: Sequence[Group]

    def latex(self, interval: IntervalForm = "brackets") -> str:
        """Return a float to include, with its caption."""
        head = ["System"]
        scales = [""]
        align = "l"
        for group in self.groups:
            width = 2 if interval != "none" else 1
            align += _column_format(group)
            # The interval has a column of its own, close behind its mean.
            align += r"@{\,}l" if interval != "none" else ""
            scale = f"{_scale(group.scale)} {_ARROWS[group.direction]}".strip()
            head.append(_over(width, escape_latex(group.heading)))
            scales.append(_over(width, scale))
            if group.has_spread:
                align += "r"
                head.append(_over(1, "SD"))
                scales.append("")
        rows = []
        for system in self.systems:
            row = [escape_latex(system)]
            for group in self.groups:
                row += _latex_cells(group, group.cells.get(system), interval)
            rows.append(_latex_row(row))
        lines = [
            "% Needs the packages booktabs and siunitx.",
            r"\begin{table}",
            r"\centering",
            _SETUP,
            rf"\caption{{{self._caption(interval)}}}",
            rf"\label{{tab:{self.label}}}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            _latex_row(head),
            _latex_row(scales),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def _caption(self, interval: IntervalForm) -> str:
        sentences = [escape_latex(f"{text[0].upper()}{text[1:]}") for text in self.notes]
        if interval == "pm":
            sentences.append(
                r"$\pm$: half the width of the interval, which need not be even"
            )
        cells: list[PaperCell] = []
        for group in self.groups:
            cells += group.cells.values()
        if any(cell.is_best for cell in cells):
            sentences.append("Bold: the best")
        if any(cell.is_tied for cell in cells):
            sentences.append(rf"{_TIED_LATEX}: not shown to be worse than the best")
        # A title may begin with the name of a scorer.
        return ". ".join([escape_latex(self.title), *sentences]) + "."

    @property
    def markdown(self) -> str:
        """For a page, under its heading."""
        return f"## {printable(self.title)}\n\n{self.result_table.markdown}\n"

    @property
    def result_table(self) -> ResultTable:
        """The same for terminals, pages and Markdown."""
        head: list[str | TableColumn] = ["system"]
        for group in self.groups:
            detail = _plain_scale(group)
            head.append(
                TableColumn(group.heading, group.direction, numeric=True, detail=detail)
            )
            if group.has_spread:
                head.append(TableColumn("SD", numeric=True))
        rows = []
        for system in self.systems:
            row = [TableCell(system)]
            for group in self.groups:
                row += _plain_cells(group, system)
            rows.append(row)
        notes = [f"{note[0].upper()}{note[1:]}." for note in self.notes]
        return ResultTable.of(self.title, head, rows, notes)


def _column_format(group: Group) -> str:
    """Return the column of siunitx that the numbers of a group are aligned in."""
    # It reserves room for the digits before the point, without the sign.
    widths = []
    for cell in group.cells.values():
        text = group.form.number(cell.estimate.value)
        before_point, _, _ = text.lstrip("+-").partition(".")
        widths.append(len(before_point))
    return f"S[table-format={max(widths, default=1)}.{group.form.digits}]"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _over(width: int, text: str) -> str:
    return rf"\multicolumn{{{width}}}{{c}}{{{text}}}"


def _scale(scale: str) -> str:
    return f"({escape_latex(scale).replace('-', '--')})" if bounds(scale) else ""


def _plain_scale(group: Group) -> str:
    if not group.scale:
        return ""
    parts = [group.scale] if bounds(group.scale) else []
    return f"({', '.join([*parts, f'{group.direction} is better'])})"


def _latex_cells(group: Group, cell: PaperCell | None, interval: IntervalForm) -> list[str]:
    if cell is None or cell.estimate.value is None:
        row = ["{--}", ""] if interval != "none" else ["{--}"]
    else:
        number = group.form.number(cell.estimate.value)
        row = [rf"\bfseries {number}" if cell.is_best else number]
        if interval != "none":
            mark = _TIED_LATEX if cell.is_tied else ""
            row.append(mark + _latex_interval(group.form, cell.estimate, interval))
        elif cell.is_tied:
            row[0] += f" {{{_TIED_LATEX}}}"
    if group.has_spread:
        row.append(group.form.number(_sd_of(cell)).replace("-", "--"))
    return row


def _latex_interval(form: NumberForm, estimate: Estimate, interval: IntervalForm) -> str:
    if estimate.ci95 is None:
        return ""
    low, high = estimate.ci95
    if interval == "pm":
        return rf"{{\scriptsize $\pm$ {form.number((high - low) / 2)}}}"
    text = form.interval(estimate.ci95)
    return f"$_{{{text}}}$" if interval == "subscript" else rf"{{\scriptsize {text}}}"


def _plain_cells(group: Group, system: str) -> list[TableCell]:
    cell = group.cells.get(system)
    if cell is None:
        row = [TableCell("-")]
    else:
        shown = TableCell.of(cell.estimate, group.form, tied=cell.is_tied)
        # The ground truth and its controls are never the best.
        row = [replace(shown, value=None) if is_reference(system) else shown]
    if group.has_spread:
        row.append(TableCell(group.form.number(_sd_of(cell))))
    return row


def _sd_of(cell: PaperCell | None) -> float | None:
    return None if cell is None or cell.spread is None else cell.spread.sd


def main_table(content: PaperContent) -> PaperTable:
    """Return the table of all systems by all scorers."""
    groups = []
    for column in content.columns:
        spread = any(cell.spread for cell in column.cells.values())
        scorer = column.scorer
        group = Group(
            column.name, scorer.scale, scorer.direction, column.form, column.cells, spread
        )
        groups.append(group)
    notes = [about_means(content.columns), about_sizes(content.columns)]
    if any(column.comparisons for column in content.columns) and len(content.models) > 2:
        about = about_correction(content.correction, content.systems)
        notes.append(f"systems compared by {about}")
    if content.repeats > 1:
        notes.append(f"SD: of the means of the {content.repeats} repeats")
    return PaperTable(
        label="systems",
        title="Systems by scorer",
        notes=[*notes, *content.remarks],
        systems=content.systems,
        groups=groups,
    )


def category_table(content: PaperContent, column: PaperColumn) -> PaperTable:
    """Return the means of one scorer by category, then over all queries."""
    groups = []
    scorer = column.scorer
    direction = scorer.direction
    form = column.form
    for name, means in column.categories.items():
        cells = {system: PaperCell(estimate=means[system]) for system in means}
        groups.append(Group(name, "", direction, form, cells))
    groups.append(Group(column.average, "", direction, form, column.cells))
    return PaperTable(
        label=f"categories-{file_name(column.name)}",
        title=f"{column.name} by category",
        notes=[
            f"scale {scale_text(scorer.scale, scorer.direction)}",
            about_means([column]),
            *content.remarks,
        ],
        systems=[system for system in content.systems if system in column.cells],
        groups=groups,
    )


def about_means(columns: Sequence[PaperColumn]) -> str:
    """Say which averages the columns hold, with what intervals."""
    kinds: dict[str, list[str]] = {}
    for column in columns:
        kinds.setdefault(column.average, []).append(column.name)
    if len(kinds) == 1:
        return f"means ({next(iter(kinds))}) with 95% intervals by query"
    about = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
    return f"means with 95% intervals by query ({about})"


def about_sizes(columns: Sequence[PaperColumn]) -> str:
    """Say how many queries the means are of, once for all columns with equal numbers."""
    sizes: dict[str, list[str]] = {}
    for column in columns:
        least, most = column.sizes
        text = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        sizes.setdefault(text, []).append(column.name)
    if len(sizes) == 1:
        (size,) = sizes
        return "1 query" if size == "1" else f"{size} queries"
    return "Queries: " + "; ".join(f"{', '.join(own)} {n}" for n, own in sizes.items())


def file_name(name: str) -> str:
    """Return a name without characters that files cannot have."""
    return "".join(char if char.isalnum() or char in ".-_" else "-" for char in name)


_HEAD = (
    *("system", "scorer", "scale", "direction", "average", "category", "mean"),
    *("ci95_low", "ci95_high", "n", "best", "not_worse_than_best", "rank_best"),
    *("rank_worst", "sd_over_repeats", "with_judge_low", "with_judge_high", "reason"),
)


def paper_csv(content: PaperContent) -> str:
    """Return every number of the tables, a line for each system, scorer and category."""
    rows = []
    for column in content.columns:
        scorer = column.scorer
        about = [column.name, scorer.scale, scorer.direction]
        for system in content.systems:
            if (cell := column.cells.get(system)) is not None:
                rows.append([system, *about, column.average, "", *_csv_cells(cell)])
        for category, means in column.categories.items():
            for system in content.systems:
                if system in means:
                    own = PaperCell(estimate=means[system])
                    rows.append([system, *about, "category", category, *_csv_cells(own)])
    return csv_text(_HEAD, rows)


def _csv_cells(cell: PaperCell) -> Iterable[object]:
    plain = cell.estimate.as_json("mean")
    low, high = plain["ci95"] or ("", "")
    least, most = cell.ranks or ("", "")
    drawn = cell.drawn or ("", "")
    sd = _sd_of(cell)
    return [
        "" if plain["mean"] is None else plain["mean"],
        *(low, high, plain["n"]),
        *(int(cell.is_best), int(cell.is_best or cell.is_tied), least, most),
        "" if sd is None else round(sd, 6),
        *drawn,
        plain.get("reason", ""),
    ]
