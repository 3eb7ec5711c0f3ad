"""The pairings of a matrix as tables: scores and effects, shares, cost, queries needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.results.costs import MEASURES
from benchmarks.results.numbers import NumberForm
from benchmarks.results.pairings.comparison import (
    CellDifference,
    Pairings,
    PairingScores,
    Sharing,
)
from benchmarks.results.table import ResultTable, TableCell, TableColumn
from scorers.statistics.estimate import Estimate
from scorers.statistics.power import POWER
from scorers.statistics.two_way import ONE_LEVEL, VarianceShares

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
    "Of a random query answered by a random pairing of this matrix. What chance adds is "
    "taken off, so a share that is truly 0 comes out below 0 as often as above, and the "
    "further the fewer queries there are."
)
ABOUT_COST = (
    "Mean per document, with its 95% interval by query, of what it takes to make it alone: "
    "its text and its pictures. Seconds are those that stages were busy; failed attempts, "
    "loading and scoring are not counted."
)
ABOUT_NEEDED = (
    "Detectable: the smallest true difference that as many queries find at power "
    f"{POWER:g} (paired t test, two-sided, level 0.05; noncentral t, Cohen 1988). Queries "
    "needed: to find a difference as large as the one seen, which in few queries is often "
    "too large."
)
ONE_ROW = (
    "There is only one LVLM or only one text-to-image model, so there is no interaction "
    "to estimate: main effects only."
)


def tables_of(pairings: Pairings) -> Iterator[ResultTable]:
    """Every table of one matrix, as files and terminals show them."""
    for scores in pairings.scores:
        yield score_table(pairings, scores)
        if pairings.matrix.is_crossed:
            yield interaction_table(pairings, scores)
        if scores.model.shares is not None:
            yield shares_table(pairings, scores)
    if pairings.costs is not None:
        yield cost_table(pairings)
    for scores in pairings.scores:
        if against := against_best(pairings, scores):
            yield needed_table(pairings, scores, against)


def _is_first(pairings: Pairings, scores: PairingScores) -> bool:
    """Whether notes that hold for all scorers stand here: at the first with a score."""
    scored = [s for s in pairings.scores if s.model.n] or pairings.scores
    return scores is scored[0]


def absent_intervals(scores: PairingScores) -> list[str]:
    """Why some means or effects have no interval, each reason once."""
    model = scores.model
    rows = [*model.cells, model.writers, model.artists, *model.interaction]
    return sorted(
        {
            e.reason
            for row in rows
            for e in row
            if e.value is not None and e.ci95 is None and e.reason
        }
    )


def title_of(pairings: Pairings, what: str) -> str:
    """`truth:match (0-100, higher is better), protocol outline`."""
    return f"{what}, protocol {pairings.matrix.protocol}"


def shared_text(pairings: Pairings, scores: PairingScores) -> str:
    """On how many queries the cells are compared, and why not on the others."""
    left = "; ".join(f"{n:,} {why}" for why, n in scores.left_out.items())
    rest = f"; left out for every cell: {left}" if left else ""
    n = scores.model.n
    return (
        f"Compared on the {n:,} of {pairings.queries:,} queries that have a score in "
        f"every cell{rest}."
    )


def notes_of(pairings: Pairings) -> list[str]:
    """What readers must know about the matrix itself."""
    notes = [] if pairings.matrix.is_crossed else [ONE_ROW]
    if pairings.matrix.left_aside:
        names = ", ".join(pairings.matrix.left_aside)
        notes.append(
            "The largest part of the matrix that has every cell is shown; left aside: "
            f"{names}."
        )
    return notes


def estimate_cell(estimate: Estimate, scale: str, *, signed: bool = False) -> TableCell:
    """The value with its interval; a single level has no effect."""
    if estimate.reason == ONE_LEVEL:
        return TableCell("")
    cell = TableCell.of(estimate, NumberForm.of(scale, signed=signed))
    return replace(cell, value=None) if signed else cell


def score_table(pairings: Pairings, scores: PairingScores) -> ResultTable:
    """Every cell, and the main effects beside and below."""
    model, scale = scores.model, scores.scale
    better = f"{scores.scorer} ({scale}, {scores.direction} is better)"
    rows = [
        [
            TableCell(writer),
            *(estimate_cell(e, scale) for e in model.cells[w]),
            estimate_cell(model.writers[w], scale, signed=True),
        ]
        for w, writer in enumerate(pairings.matrix.writers)
    ]
    effects = [estimate_cell(e, scale, signed=True) for e in model.artists]
    last = TableCell("effect" if len(model.artists) > 1 else "mean")
    rows.append([last, *effects, TableCell(NumberForm.of(scale).number(model.mean.value))])
    columns = [TableColumn("LVLM", numeric=False)]
    columns += [TableColumn(name, numeric=True) for name in pairings.matrix.artists]
    # A single LVLM has no effect: the column holds the mean of all cells alone.
    columns.append(
        TableColumn("effect" if len(model.writers) > 1 else "mean", numeric=True)
    )
    notes = [shared_text(pairings, scores)]
    notes += [f"No interval: {reason}." for reason in absent_intervals(scores)]
    if _is_first(pairings, scores):
        notes += [*notes_of(pairings), f"{ABOUT_EFFECTS} The last cell: mean of all cells."]
    title = title_of(pairings, better)
    return ResultTable(title=title, columns=columns, rows=rows, notes=notes)


def interaction_table(pairings: Pairings, scores: PairingScores) -> ResultTable:
    """What each pairing adds to the sum of its parts."""
    rows = [
        [
            TableCell(writer),
            *(
                estimate_cell(e, scores.scale, signed=True)
                for e in scores.model.interaction[w]
            ),
        ]
        for w, writer in enumerate(pairings.matrix.writers)
    ]
    columns = [TableColumn("LVLM", numeric=False)]
    columns += [TableColumn(name, numeric=True) for name in pairings.matrix.artists]
    title = title_of(pairings, f"{scores.scorer}, interaction")
    notes = [ABOUT_INTERACTION] if _is_first(pairings, scores) else []
    return ResultTable(title=title, columns=columns, rows=rows, notes=notes)


def shares_table(pairings: Pairings, scores: PairingScores) -> ResultTable:
    """What the scores' variance comes from."""
    shares = scores.model.shares
    assert shares is not None
    rows = [[text, share_text(shares, name)] for name, text in SHARES.items()]
    title = title_of(pairings, f"{scores.scorer}, shares of variance")
    return ResultTable.of(title, ["a score depends on", "share"], rows, [ABOUT_SHARES])


def share_text(shares: VarianceShares, name: str) -> str:
    """`12.3%`."""
    return f"{100 * getattr(shares, name):z.1f}%"


def cost_table(pairings: Pairings) -> ResultTable:
    """What one document of each cell costs; frontiers by scorer and measure."""
    costs = pairings.costs
    assert costs is not None
    columns = [TableColumn("pairing", numeric=False)]
    columns += [
        TableColumn(MEASURES[m], "lower" if m in PAID else None, numeric=True)
        for m in costs.measures
    ]
    rows = [
        [TableCell(s.name), *(TableCell.of(own[m], AMOUNT) for m in costs.measures)]
        for s in pairings.matrix.cells
        for own in [costs.cells[s.name]]
    ]
    notes = [f"On the {costs.queries:,} queries that every cell has answered. {ABOUT_COST}"]
    notes += sharing_notes(costs.sharing, pairings)
    notes += [f"{text}." for text in frontier_texts(pairings)]
    title = title_of(pairings, "Cost per document")
    return ResultTable(title=title, columns=columns, rows=rows, notes=notes)


def amount(value: float | None) -> str:
    """Three or four digits, without exponents: `0.0123`, `1.234`, `1,235`."""
    return AMOUNT.number(value)


class _Amount(NumberForm):
    """Of what cannot be less than nothing."""

    def number(self, value: float | None) -> str:
        if value is None:
            return "-"
        if value and abs(value) < 1:
            return f"{value:.3g}"
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:z.2f}"


AMOUNT = _Amount(ends=(0.0, math.inf))


def sharing_notes(sharing: Sharing, pairings: Pairings) -> list[str]:
    """How much was shared, and what that saved."""
    cells = len(pairings.matrix.cells)
    notes = [
        f"Of all queries: {sharing.texts:,} texts served {sharing.texts_requested:,} "
        f"requests of {cells} cells; {sharing.pictures:,} pictures served "
        f"{sharing.pictures_requested:,}."
    ]
    if sharing.seeds:
        notes.append(
            f"{sharing.same_seeds:,} of {sharing.seeds:,} places of pictures that several "
            "cells drew have the same noise seed in all of them."
        )
    spent, alone = sharing.spent.get("seconds"), sharing.unshared.get("seconds")
    if spent and alone:
        notes.append(
            f"The matrix took {amount(spent)} busy seconds; without sharing it would have "
            f"taken {amount(alone)} ({1 - spent / alone:.0%} saved)."
        )
    return notes


def frontier_texts(pairings: Pairings, measure: str | None = None) -> list[str]:
    """Which cells no other beats in both score and cost, one line per scorer."""
    measure = measure or cost_measure(pairings)
    if measure is None:
        return []
    lines = []
    for scores in pairings.scores:
        if names := pairings.frontier(scores, measure):
            what = f"Frontier of {scores.scorer} against {MEASURES[measure]}"
            lines.append(f"{what}: {', '.join(names)}")
    return lines


def cost_measure(pairings: Pairings) -> str | None:
    """What quality is drawn against: money where known, else GPU-seconds, else seconds."""
    measures = [] if pairings.costs is None else pairings.costs.measures
    for name in ("cost", "gpu_seconds", "seconds"):
        own = pairings.costs.cells.values() if pairings.costs else ()
        if name in measures and all(c[name].value for c in own):
            return name
    return None


def against_best(pairings: Pairings, scores: PairingScores) -> list[CellDifference]:
    """The best cell less every other one."""
    names = [s.name for s in pairings.matrix.cells]
    values = [e.value for row in scores.model.cells for e in row]
    known = [(v, n) for v, n in zip(values, names, strict=True) if v is not None]
    if not known:
        return []
    pick = max if scores.direction == "higher" else min
    best = pick(known, key=lambda one: one[0])[1]
    return [d.with_first(best) for d in scores.differences if best in (d.a, d.b)]


def needed_table(
    pairings: Pairings, scores: PairingScores, differences: Sequence[CellDifference]
) -> ResultTable:
    """How sure the differences are, and how many queries they would need."""
    form = NumberForm.of(scores.scale)
    columns = [TableColumn("a", numeric=False), TableColumn("b", numeric=False)]
    heads = ("a - b", "SD by query", "detectable", "queries needed")
    columns += [TableColumn(head, numeric=True) for head in heads]
    rows = [
        [
            TableCell(d.a),
            TableCell(d.b),
            estimate_cell(d.estimate, scores.scale, signed=True),
            TableCell(form.number(d.sd)),
            TableCell(form.number(d.detectable)),
            TableCell("-" if d.needed is None else f"{d.needed:,}"),
        ]
        for d in differences
    ]
    title = title_of(pairings, f"{scores.scorer}, the best cell against the others")
    notes = [ABOUT_NEEDED] if _is_first(pairings, scores) else []
    return ResultTable(title=title, columns=columns, rows=rows, notes=notes)
