"""The pairings of a matrix as tables, and the files pairings.{json,md,csv,tex}."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, product
from typing import Any, NamedTuple

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import about_correction, round_p
from plait.benchmarks.results.costs import MEASURES
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.pairings.comparison import (
    CellDifference,
    PairingCosts,
    Pairings,
    PairingScores,
)
from plait.benchmarks.results.table import (
    ResultTable,
    TableCell,
    TableColumn,
    csv_text,
    json_text,
    latex_page,
    markdown_page,
)
from plait.benchmarks.wording import quantity
from plait.generators.buckets import AnyPath
from plait.generators.files import write_whole
from plait.generators.system import DescribedSystem
from plait.scorers.base import Direction
from plait.scorers.statistics.estimate import Estimate, excludes_zero
from plait.scorers.statistics.power import POWER
from plait.scorers.statistics.two_way import ONE_LEVEL

FILES = tuple(f"pairings.{form}" for form in ("json", "md", "csv", "tex"))
SHARES: Mapping[str, str] = {
    "writer": "which LVLM",
    "artist": "which text-to-image model",
    "interaction": "which pairing, beyond both",
    "query": "which query",
    "residual": "which pairing on which query, and chance",
}
"""Parts of a score's variance in words, by the names of `VarianceShares`."""
PAID = ("seconds", "gpu_seconds", "joules", "cost")
"""Measures of which less is better."""
ABOUT_EFFECTS = (
    "An effect is a row's or column's mean less the mean of all cells; 95% intervals by "
    "query. Every query counts once, as in the leaderboard's average per query."
)
ABOUT_INTERACTION = (
    "How much better a pairing is than the sum of its parts: its mean less the mean of all "
    "cells and less the effects of its LVLM and its text-to-image model."
)
ABOUT_SHARES = (
    "For a random query answered by a random pairing of this matrix. The share due "
    "to chance is subtracted, so a share whose true value is 0 is estimated below 0 "
    "as often as above, and farther from 0 with fewer queries."
)
ABOUT_COST = (
    "Mean per document, with its 95% interval by query, of what it takes to make it alone: "
    "its text and its images. Seconds are those that stages were busy; failed attempts, "
    "loading and scoring are not counted."
)
ABOUT_NEEDED = (
    "Queries needed: to find a difference from the best as large as the one seen at power "
    f"{POWER:g} (paired t test, two-sided, level 0.05; noncentral t, Cohen 1988). In few "
    "queries the one seen is often too large."
)
ABOUT_APART = "Not told apart: the p-value of the paired difference is 0.05 or more"
ABOUT_FRONTIER = "Frontier: no other pairing is as good and as cheap, by the means alone."
ONE_ROW = (
    "There is only one LVLM or only one text-to-image model, so there is no interaction "
    "to estimate: main effects only."
)
_PALE = 4
_STRONG = 40
"""Shares of colour behind a number on the page, in percent: text stays legible."""


class _Amount(NumberForm):
    """Of what cannot be less than nothing: `0.0123`, `1.234`, `1,235`."""

    def number(self, value: float | None) -> str:
        """Three or four digits, without exponents, or a dash."""
        if value is None:
            return "-"
        if value and abs(value) < 1:
            return f"{value:.3g}"
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:z.2f}"

    def total(self, value: float | None) -> str:
        """The same of a sum, which may be a count."""
        return f"{value:,.0f}" if value and value.is_integer() else self.number(value)


AMOUNT = _Amount()


def tables_of(pairings: Pairings) -> Iterator[ResultTable]:
    """Yield every table of one matrix, as files and terminals show them."""
    for scores in pairings.scored:
        yield from score_tables(pairings, scores)
    if pairings.costs is not None:
        yield cost_table(pairings)
    yield from agreement_tables(pairings)


def score_tables(pairings: Pairings, scores: PairingScores) -> Iterator[ResultTable]:
    """Yield the means of one scorer, the interaction, what scores depend on, the order."""
    yield score_table(pairings, scores)
    if pairings.matrix.is_crossed:
        yield interaction_table(pairings, scores)
    if scores.model.shares is not None:
        yield shares_table(pairings, scores)
    if scores.ranked:
        yield ranking_table(pairings, scores)


def _is_first(pairings: Pairings, scores: PairingScores) -> bool:
    """Whether notes that hold for all scorers stand here: at the first with a score."""
    return scores is pairings.scored[0]


def _title(pairings: Pairings, what: str) -> str:
    return f"{what}, protocol {pairings.matrix.protocol}"


def score_table(pairings: Pairings, scores: PairingScores) -> ResultTable:
    """Return every cell, the better the more colour; main effects beside and below."""
    model = scores.model
    form = scores.form
    means = []
    for estimate in scores.cells.values():
        if estimate.value is not None:
            means.append(estimate.value)
    worst = min(means, default=0.0)
    best = max(means, default=0.0)
    if scores.scorer.direction == "lower":
        worst, best = best, worst

    def cell(estimate: Estimate) -> TableCell:
        if estimate.value is None:
            return TableCell.of(estimate, form)
        share = 0.0 if best == worst else (estimate.value - worst) / (best - worst)
        tint = round(_PALE + (_STRONG - _PALE) * share)
        # Where all are equal none is the best.
        marked = estimate.value == best != worst
        return TableCell.of(estimate, form, tint=tint, marked=marked)

    lines: list[list[str | TableCell]] = []
    rows = zip(pairings.matrix.lvlms, model.cells, model.lvlms, strict=True)
    for lvlm, estimates, effect in rows:
        lines.append([lvlm, *map(cell, estimates), _effect(effect, scores)])
    # A single LVLM has no effect: the column holds the mean of all cells alone.
    last = "effect" if len(model.lvlms) > 1 else "mean"
    below = [_effect(effect, scores) for effect in model.t2is]
    name = "effect" if len(model.t2is) > 1 else "mean"
    lines.append([name, *below, form.number(model.mean.value)])
    about = f"{scores.scorer.scale}, {scores.scorer.direction} is better"
    title = _title(pairings, f"{scores.scorer.name} ({about})")
    notes = _score_notes(pairings, scores)
    return ResultTable.of(title, ["LVLM", *pairings.matrix.t2is, last], lines, notes)


def _effect(effect: Estimate, scores: PairingScores, tint: int = 0) -> TableCell:
    """Return an effect, marked where its interval is all on one side of 0."""
    if effect.reason == ONE_LEVEL:
        return TableCell("")
    return TableCell.of(effect, scores.signed, tint=tint, marked=excludes_zero(effect))


def _score_notes(pairings: Pairings, scores: PairingScores) -> list[str]:
    """Say what cells are compared on, and what has no interval or no score."""
    model = scores.model
    matrix = pairings.matrix
    left = "; ".join(f"{n:,} {why}" for why, n in scores.left_out.items())
    rest = f"; left out for every cell: {left}" if left else ""
    compared = (
        f"Compared on the {model.n:,} of {pairings.queries:,} queries that have a score in "
        f"every cell{rest}."
    )
    rows = [*model.cells, model.lvlms, model.t2is, *model.interaction]
    absent = set[str]()
    for estimate in chain.from_iterable(rows):
        if estimate.value is not None and estimate.ci95 is None and estimate.reason:
            absent.add(estimate.reason)
    notes = [compared]
    for reason in sorted(absent):
        notes.append(f"No interval: {reason}.")
    if not _is_first(pairings, scores):
        return notes
    silent = []
    for others in pairings.scores:
        if others not in pairings.scored:
            silent.append(others.scorer.name)
    if silent:
        notes.append(f"No query has a score in every cell by {', '.join(silent)}.")
    if not matrix.is_crossed:
        notes.append(ONE_ROW)
    if matrix.left_aside:
        aside = ", ".join(matrix.left_aside)
        notes.append(
            f"The largest complete part of the matrix is shown; left out: {aside}."
        )
    return [*notes, f"{ABOUT_EFFECTS} The last cell: mean of all cells."]


def interaction_table(pairings: Pairings, scores: PairingScores) -> ResultTable:
    """Return what each pairing adds to the sum of its parts.

    The strongest colour is that of the largest effect of any kind, so that interactions
    which are small beside the main effects look small.
    """
    model = scores.model
    sign = 1 if scores.scorer.direction == "higher" else -1
    strongest = 0.0
    for effect in chain(*model.interaction, model.lvlms, model.t2is):
        strongest = max(strongest, abs(effect.value or 0.0))

    def cell(effect: Estimate) -> TableCell:
        # Without any effect all values are 0, whatever they are divided by.
        tint = round(sign * _STRONG * (effect.value or 0.0) / (strongest or 1.0))
        return _effect(effect, scores, tint)

    rows: list[list[str | TableCell]] = []
    for lvlm, effects in zip(pairings.matrix.lvlms, model.interaction, strict=True):
        rows.append([lvlm, *map(cell, effects)])
    title = _title(pairings, f"{scores.scorer.name}, interaction")
    notes = [ABOUT_INTERACTION] if _is_first(pairings, scores) else []
    return ResultTable.of(title, ["LVLM", *pairings.matrix.t2is], rows, notes)


def shares_table(pairings: Pairings, scores: PairingScores) -> ResultTable:
    """Return what the scores' variance comes from."""
    rows: list[list[str | TableCell]] = []
    for name, text in SHARES.items():
        share = getattr(scores.model.shares, name)
        tint = round(_STRONG * share)
        rows.append([text, TableCell(f"{100 * share:z.1f}%", tint=tint)])
    title = _title(pairings, f"{scores.scorer.name}, shares of variance")
    return ResultTable.of(title, ["a score depends on", "share"], rows, [ABOUT_SHARES])


def ranking_table(pairings: Pairings, scores: PairingScores) -> ResultTable:
    """Return the cells, the best first: what each can be told apart from, and its cost.

    The points are those of the plot.
    """
    name = scores.scorer.name
    frontier = pairings.frontier(scores)
    points = pairings.points(scores)
    measure = MEASURES.get(pairings.measure or "", "")
    number = {system: i for i, system in enumerate(scores.ranked, 1)}
    behind = {difference.b: difference for difference in scores.from_best}
    rows: list[list[str | TableCell]] = []
    for system, others in scores.not_told_apart.items():
        apart = behind.get(system)
        row: list[str | TableCell] = [
            system,
            str(number[system]),
            TableCell.of(scores.cells[system], scores.form),
            _effect(apart.estimate, scores) if apart else "",
            f"{apart.needed:,}" if apart and apart.needed else "-",
            _ranges(number[other] for other in others) or "-",
        ]
        if system in points:
            cost, _ = points[system]
            row.append(TableCell.of(cost, AMOUNT))
            row.append("frontier" if system in frontier else "")
        rows.append(row)
    head: list[str | TableColumn] = [
        *("pairing", "point", name, "best less it", "queries needed"),
        TableColumn("not told apart from", numeric=False),
    ]
    if points:
        head += [measure, ""]
    notes = []
    if _is_first(pairings, scores):
        about = about_correction(scores.correction, scores.shared)
        notes = [ABOUT_NEEDED, f"{ABOUT_APART}; {about}."]
        if points:
            notes.append(ABOUT_FRONTIER)
    return ResultTable.of(_title(pairings, f"{name}, in order"), head, rows, notes)


def _ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers in short: `1, 3-6`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = []
    for run in runs:
        parts.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return ", ".join(parts)


def agreement_tables(pairings: Pairings) -> Iterator[ResultTable]:
    """Yield the ranks by all scorers, and how far these agree with each other and people.

    Nothing where a single scorer has an order.
    """
    if len(pairings.rankings.series) < 2:
        return
    people = []
    for scores in pairings.scores:
        people += [f"{scores.scorer.name} {figure}." for figure in scores.people]
    for table in pairings.rankings.tables():
        notes = [*table.notes, *people]
        yield replace(table, title=_title(pairings, table.title), notes=notes)
        people = []  # They stand below the first table alone.


def cost_table(pairings: Pairings) -> ResultTable:
    """Return what one document of each cell costs; frontiers by scorer and measure."""
    costs = pairings.costs
    assert costs is not None
    names = pairings.matrix.names
    head: list[str | TableColumn] = ["pairing"]
    for measure in costs.measures:
        better: Direction | None = "lower" if measure in PAID else None
        head.append(TableColumn(MEASURES[measure], better))
    rows: list[list[str | TableCell]] = []
    for name in names:
        own = costs.cells[name]
        cells = [TableCell.of(own[measure], AMOUNT) for measure in costs.measures]
        rows.append([name, *cells])
    notes = [f"On the {costs.queries:,} queries that every cell has answered. {ABOUT_COST}"]
    notes += _sharing_notes(costs.sharing, len(names))
    return ResultTable.of(_title(pairings, "Cost per document"), head, rows, notes)


def _sharing_notes(sharing: Mapping[str, Any], cells: int) -> list[str]:
    """Say how many records served how many requests, and the seconds that this saved."""
    notes = [
        f"Of all queries: {sharing['texts']:,} texts served "
        f"{quantity(sharing['texts_requested'], 'request')} of {quantity(cells, 'cell')}; "
        f"{sharing['pictures']:,} images served {sharing['pictures_requested']:,}."
    ]
    if sharing["seeds"]:
        notes.append(
            f"{sharing['same_seeds']:,} of {sharing['seeds']:,} places of images that "
            "several cells drew have the same noise seed in all of them."
        )
    spent = sharing["spent"].get("seconds")
    alone = sharing["unshared"].get("seconds")
    if spent and alone:
        notes.append(
            f"The matrix took {AMOUNT.number(spent)} busy seconds; without sharing it "
            f"would have taken {AMOUNT.number(alone)} ({1 - spent / alone:.0%} saved)."
        )
    return notes


def write_pairings(board: Board, root: AnyPath, pairings: Sequence[Pairings]) -> None:
    """Write the files of a board's pairings, where it has any. Equal input, equal bytes."""
    if not pairings:
        return
    content = {
        "weights": board.weights,
        "warning": board.warning,
        "matrices": [*map(_content, pairings)],
    }
    write_whole(root / "pairings.json", json_text(content, _plain))
    remarks = [f"Warning: {board.warning}." if board.warning else ""]
    tables: list[ResultTable] = []
    for one in pairings:
        remarks.append(f"{one.matrix.shape}, protocol {one.matrix.protocol}")
        tables += tables_of(one)
    title = f"Pairings: {board.title}"
    write_whole(root / "pairings.md", markdown_page(title, remarks, tables))
    latex = latex_page(title, tables, board.warning, board.brief_warning)
    write_whole(root / "pairings.tex", latex)
    write_whole(root / "pairings.csv", _csv(board, pairings))


def _content(pairings: Pairings) -> dict[str, Any]:
    """Return one matrix as `pairings.json` has it; `_plain` writes the estimates."""
    matrix = pairings.matrix
    costs = pairings.costs
    rankings = pairings.rankings
    scores_by_scorer = {}
    for scores in pairings.scores:
        scores_by_scorer[scores.scorer.name] = _scores(pairings, scores)
    agreement = []
    for (i, j), rho in rankings.correlations.items():
        names = [rankings.series[i].name, rankings.series[j].name]
        agreement.append({"scorers": names, **rho.as_json()})
    return {
        "protocol": matrix.protocol,
        "lvlms": matrix.lvlms,
        "t2is": matrix.t2is,
        "systems": [_names_in(row) for row in matrix.systems],
        "left_aside": matrix.left_aside,
        "queries": pairings.queries,
        "scores": scores_by_scorer,
        "mean_ranks": rankings.mean_ranks,
        "agreement": agreement,
        "cost": None if costs is None else _costs(costs),
    }


def _names_in(row: Sequence[DescribedSystem]) -> list[str]:
    return [system.name for system in row]


def _scores(pairings: Pairings, scores: PairingScores) -> dict[str, Any]:
    model = scores.model
    frontier = pairings.frontier(scores)
    return {
        "scale": scores.scorer.scale,
        "direction": scores.scorer.direction,
        "shared_queries": model.n,
        "left_out": scores.left_out,
        "mean": model.mean,
        "cells": model.cells,
        "lvlm_effects": model.lvlms,
        "t2i_effects": model.t2is,
        "interaction": model.interaction,
        "variance_shares": model.shares and asdict(model.shares),
        "differences": scores.differences,
        "not_told_apart": scores.not_told_apart,
        "people": [figure.as_json for figure in scores.people],
        "frontier": {"against": pairings.measure, "systems": frontier},
    }


def _costs(costs: PairingCosts) -> dict[str, Any]:
    return {
        "queries": costs.queries,
        "per_document": costs.cells,
        "sharing": costs.sharing,
    }


def _plain(value: Estimate | CellDifference) -> dict[str, Any]:
    if isinstance(value, Estimate):
        return value.as_json("mean")
    about = {"a": value.a, "b": value.b, **_plain(value.estimate), "sd": value.sd}
    about |= {"p": round_p(value.p), "p_adjusted": round_p(value.adjusted)}
    return about | {"detectable": value.detectable, "queries_needed": value.needed}


class _Line(NamedTuple):
    """One estimate of a matrix, as `pairings.csv` names it."""

    scorer: str
    """Empty for a cost."""
    part: str
    lvlm: str
    """Empty where the estimate is of all LVLMs."""
    t2i: str
    """Empty where the estimate is of all text-to-image models."""
    estimate: Estimate


_HEAD = ("protocol", "scorer", "part", "lvlm", "t2i", "mean", "ci95_low", "ci95_high", "n")


def _csv(board: Board, pairings: Sequence[Pairings]) -> str:
    mark = board.mark.values()
    rows = []
    for one in pairings:
        for line in _lines_of(one):
            about = [one.matrix.protocol, line.scorer, line.part, line.lvlm, line.t2i]
            rows.append([*about, *_ends(line.estimate), *mark])
    return csv_text([*_HEAD, *board.mark], rows)


def _lines_of(pairings: Pairings) -> Iterator[_Line]:
    """Yield the estimates by every scorer, then costs."""
    for scores in pairings.scores:
        yield from _lines_of_scorer(pairings, scores)
    if pairings.costs is None:
        return
    cells = product(pairings.matrix.lvlms, pairings.matrix.t2is)
    for (lvlm, t2i), system in zip(cells, pairings.matrix.cells, strict=True):
        for measure, cost in pairings.costs.cells[system.name].items():
            yield _Line("", f"cost: {measure}", lvlm, t2i, cost)


def _lines_of_scorer(pairings: Pairings, scores: PairingScores) -> Iterator[_Line]:
    lvlms = pairings.matrix.lvlms
    t2is = pairings.matrix.t2is
    name = scores.scorer.name
    model = scores.model
    yield _Line(name, "mean", "", "", model.mean)
    for lvlm, effect in zip(lvlms, model.lvlms, strict=True):
        yield _Line(name, "lvlm effect", lvlm, "", effect)
    for t2i, effect in zip(t2is, model.t2is, strict=True):
        yield _Line(name, "t2i effect", "", t2i, effect)
    for part, rows in (("cell", model.cells), ("interaction", model.interaction)):
        for lvlm, row in zip(lvlms, rows, strict=True):
            for t2i, estimate in zip(t2is, row, strict=True):
                yield _Line(name, part, lvlm, t2i, estimate)


def _ends(estimate: Estimate) -> list[Any]:
    plain = _plain(estimate)
    low, high = plain["ci95"] or ("", "")
    mean = "" if plain["mean"] is None else plain["mean"]
    return [mean, low, high, plain["n"]]
