"""`paper.md`: how each number of a paper's tables and figures was made, for an appendix."""

from __future__ import annotations

from collections.abc import Iterator

from plait.benchmarks.results.comparisons import about_correction
from plait.benchmarks.results.table import plain
from plait.benchmarks.studies.paper.columns import PaperColumn, PaperContent
from plait.scorers.statistics.estimate import LEAST
from plait.scorers.statistics.means import LEAST_OF_TWO
from plait.scorers.statistics.multiple import LEVEL


def methods(content: PaperContent) -> Iterator[str]:
    """Yield the paragraphs, in Markdown."""
    yield "# How the numbers were made"
    if content.warnings:
        yield "\n".join(f"> **Warning: {plain(text)}**" for text in content.warnings)
    yield _about_data(content)
    yield "## Means and intervals"
    yield (
        "Each mean is over queries; the query is the independent unit. Intervals are 95% "
        "score intervals: the means that lie within t standard errors of the one seen, "
        "where the error depends on the mean as it does on a bounded scale "
        "(quasi-likelihood: McCullagh and Nelder 1989, chapter 9); for two values that is "
        f"Wilson's interval. None is given for fewer than {LEAST} queries, nor for fewer "
        f"than {LEAST_OF_TWO} where only two different values occur. Fixed weights: "
        "category means weighted by the published number of queries (Zou and Donner 2008)."
    )
    yield "\n".join(_about_column(column) for column in content.columns)
    if content.left_out:
        names = ", ".join(content.left_out)
        yield f"Left out, since they gave no system a value: {plain(names)}."
    if content.repeats > 1:
        yield "## Repeats"
        yield (
            f"Each query was answered {content.repeats} times, with seeds of their own. A "
            "query's scores over its repeats count as their mean, so that repeats are no "
            "additional queries. SD over repeats: the standard deviation of the repeats' "
            "means, over the queries with a score in all of them."
        )
    measured = []
    for column in content.columns:
        if any(cell.drawn for cell in column.cells.values()):
            measured.append(column.name)
    if measured:
        yield "## The judge's own error"
        yield (
            f"{plain(', '.join(measured))}: a pilot judged some answers by several judges, "
            "in several wordings and several times (`plait uncertainty`). Its variance "
            "components (method of moments, crossed random effects) give the second "
            "interval, which takes the judge and its wording for ones drawn from many: "
            "their variance is added to that by query, with Satterthwaite's degrees of "
            "freedom. Comparisons hold for the judge that was asked."
        )
    if any(column.comparisons for column in content.columns):
        yield "## Comparisons"
        yield _about_comparisons(content)


def _about_data(content: PaperContent) -> str:
    lines = []
    for root, board in zip(content.runs, content.boards, strict=True):
        lines.append(f"- {plain(root.name)}: {board.title}, weights {board.weights}.")
    return "\n".join(lines)


def _about_column(column: PaperColumn) -> str:
    least, most = column.sizes
    n = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    scorer = column.scorer
    about = f"{scorer.scale}, {scorer.direction} is better, {column.average}, n = {n}"
    manner = f" {scorer.manner}." if scorer.manner else ""
    none = [name for name, cell in column.cells.items() if cell.estimate.value is None]
    missing = f" No value of {', '.join(none)}." if none else ""
    return f"- **{plain(column.name)}**: {plain(about)}.{plain(manner)}{plain(missing)}"


def _about_comparisons(content: PaperContent) -> str:
    shown = about_correction(content.correction, content.systems)
    controlled = ""
    if content.correction == "holm":
        controlled = (
            " (Holm 1979), so that the probability of a single wrong difference by a "
            "scorer is at most 5%"
        )
    return (
        "Two systems are compared by the mean of their differences on the queries that "
        "both have a score of: by the test of which the interval is the inversion, or the "
        "exact sign test where all differences that are not 0 are of one size. Of k "
        "differences that are not 0, no p-value is below 2 / 2^k. Two systems are told "
        f"apart where it is below {LEVEL:.2f}; {shown}{controlled}. The ground truth and "
        "its controls are compared apart. Ranks: the best and the worst that the pairs "
        "leave possible, for all systems at once (Mogstad, Romano, Shaikh and Wilhelm "
        "2024)."
    )
