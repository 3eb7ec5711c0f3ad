"""The tables of a leaderboard, each a function of a board that returns a `ResultTable`.

They lay out the rows of `leaderboard.py`. A table is put together from columns, since a
column of means knows by itself how it is headed and whether anything is in it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from plait.benchmarks.results.board import PENALTY, RAW, Board
from plait.benchmarks.results.comparisons import about_correction, differences, p_text
from plait.benchmarks.results.costs import MEASURES
from plait.benchmarks.results.leaderboard import (
    AVERAGES,
    COUNTS,
    FIXED,
    MICRO,
    Cell,
    LeaderboardRow,
    criterion_means,
    headline,
    leaderboard,
    parts_of,
    placing,
    rank,
)
from plait.benchmarks.results.numbers import NumberForm, estimate_of
from plait.benchmarks.results.pairings.tables import AMOUNT
from plait.benchmarks.results.published import comparisons_of, published_table
from plait.benchmarks.results.reasons import FAILURES, outcome_groups
from plait.benchmarks.results.repeats import spread_over_repeats
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn
from plait.benchmarks.results.validity import checks
from plait.benchmarks.tasks.controls import is_reference
from plait.generators.base import StageSpec
from plait.scorers.base import Scorer, bounds
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.judge_error import ABOUT as ABOUT_TERMS
from plait.scorers.statistics.multiple import CORRECTIONS

_NAMED = {"planned": "answers", "missing": "not made"}
# How many judgements are scored stands beside each mean already, as its n.
_SHOWN_COUNTS = [name for name in COUNTS if name != "scored"]
HEADINGS = {name: _NAMED.get(name, name.replace("_", " ")) for name in _SHOWN_COUNTS}
ABOUT_FAILURES = f"Every answer and judgement without a value is listed in {FAILURES}."
ABOUT_CONTROLS = (
    "Answers made worse on purpose from the ground truth. A scorer can be trusted where "
    "it ranks the ground truth above them (order right: the whole interval of the "
    "difference is above 0). Blind: equal on every query, as from a scorer that ignores "
    "what the control changes."
)
ABOUT_DRAWN = (
    "With the judge's error: the interval that takes the judge and its wording for ones "
    "drawn from many, by the pilot of `plait uncertainty`."
)
ABOUT_SPENT = (
    "Seconds are those in which stages were busy. A record counts once in a row, "
    "however many answers or judgements it serves, and in the row of each system or "
    "scorer that uses it. Costs are shown where an endpoint has prices. Images that "
    "a critic discarded are included."
)
_STRONGEST_SHARE = 40
"""Share of colour behind a share of 1 on the page, in percent."""
_SPENT = {**MEASURES, "discarded": "images discarded"}


class Column(NamedTuple):
    """A heading and the cells below it."""

    head: TableColumn
    cells: Sequence[TableCell]

    @property
    def has_value(self) -> bool:
        """Whether any cell holds a mean: only these have a span."""
        return any(cell.span for cell in self.cells)


def cell_of(cell: Cell, *, reference: bool = False, counted: bool = True) -> TableCell:
    """Return a mean with its interval as detail; a reference's is never the best.

    Where it is `counted`, its n is a detail too.
    """
    if cell.get("reason") == "not applicable":
        return TableCell("n/a")
    shown = TableCell.of(estimate_of(cell), NumberForm.of(cell["scale"]), counted=counted)
    return replace(shown, value=None) if reference else shown


def _texts(heading: str, texts: Iterable[Any], *, numeric: bool | None = None) -> Column:
    cells = [TableCell(str(text)) for text in texts]
    return Column(TableColumn(heading, numeric=numeric), cells)


def _column_of(rows: Sequence[LeaderboardRow], key: str) -> list[Any]:
    """Return what rows hold under one key."""
    return [row[key] for row in rows]


def _systems(rows: Sequence[LeaderboardRow]) -> Column:
    """Return the names, each with what makes its images others than its model's."""
    names = []
    for row in rows:
        levers = row.get("levers")
        added = f" [{', '.join(levers)}]" if levers else ""
        names.append(f"{row['system']}{added}")
    return _texts("system", names, numeric=False)


def _mean_column(
    heading: str, scorer: Scorer, rows: Iterable[LeaderboardRow], *place: str
) -> Column:
    """Return the means that stand at a place in the scores of each row.

    Their n is in the heading where it is the same for all.
    """
    means = []
    references = []
    for row in rows:
        # `place` is a path into the scores, such as "categories", "situational analysis".
        mean = row["scores"][scorer.name]
        for name in place:
            mean = mean[name]
        means.append(mean)
        references.append(is_reference(row["system"]))
    sizes = {mean["n"] for mean in means}
    cells = []
    for mean, reference in zip(means, references, strict=True):
        cells.append(cell_of(mean, reference=reference, counted=len(sizes) > 1))
    detail = f"(n={min(sizes):,})" if len(sizes) == 1 else ""
    head = TableColumn(heading, scorer.direction, numeric=True, detail=detail)
    return Column(head, cells)


def _table(title: str, columns: Iterable[Column], notes: Sequence[str] = ()) -> ResultTable:
    """Return a table of columns; those of means only where there is one."""
    heads = []
    cells_of_columns = []
    for column in columns:
        # Only columns of means have a direction.
        if column.head.direction is None or column.has_value:
            heads.append(column.head)
            cells_of_columns.append(column.cells)
    return ResultTable.of(title, heads, zip(*cells_of_columns, strict=True), notes)


def scorer_table(board: Board, scorer: Scorer) -> ResultTable:
    """Return both averages and every category of one scorer, with counts."""
    rows = rank(board, scorer)
    scores = [row["scores"][scorer.name] for row in rows]
    columns = [_systems(rows)]
    for average, heading in AVERAGES.items():
        columns.append(_mean_column(heading, scorer, rows, average))
    columns += _judge_drawn(scorer, rows)
    columns += _categories(scorer, rows)
    columns += _spreads(board, scorer, rows)
    columns += _count_columns([own[MICRO] for own in scores])
    notes = _missing_averages(scorer, rows)
    if scorer.name in board.judge_errors:
        notes.append(ABOUT_DRAWN)
    title = f"{scorer.name} ({scorer.scale}, {scorer.direction} is better)"
    return _table(title, columns, notes)


def _missing_averages(scorer: Scorer, rows: Sequence[LeaderboardRow]) -> list[str]:
    """Say of each average that a system does not have why it has none."""
    expected = [MICRO]
    # Nobody misses the average by fixed weights where no system has it.
    if any(row["scores"][scorer.name][FIXED]["n"] for row in rows):
        expected = [FIXED, MICRO]
    lines = []
    for row in rows:
        for average in expected:
            reason = row["scores"][scorer.name][average].get("reason")
            if reason is not None:
                lines.append(f"{row['system']}, {AVERAGES[average]}: {reason}")
    return lines


def _judge_drawn(scorer: Scorer, rows: Sequence[LeaderboardRow]) -> list[Column]:
    """Return the intervals whose judge is drawn, where a pilot has measured its error."""
    average = headline(rows, scorer.name)
    cells = [row["scores"][scorer.name][average] for row in rows]
    if not any("ci95_judge_drawn" in cell for cell in cells):
        return []
    form = NumberForm.of(scorer.scale)
    texts = [form.interval(cell.get("ci95_judge_drawn")) or "-" for cell in cells]
    return [_texts("with the judge's error", texts, numeric=True)]


def _spreads(board: Board, scorer: Scorer, rows: Sequence[LeaderboardRow]) -> list[Column]:
    """Return how the means of repeats spread; nothing for a run without repeats."""
    spreads = spread_over_repeats(board, scorer)
    if not any(spread.sd is not None for spread in spreads.values()):
        return []
    form = NumberForm.of(scorer.scale)
    texts = [form.number(spreads[row["system"]].sd) for row in rows]
    return [_texts(f"SD over {board.rounds} repeats", texts, numeric=True)]


def _categories(
    scorer: Scorer, rows: Sequence[LeaderboardRow], of: str = "categories"
) -> list[Column]:
    """Return the means by category, or by field.

    No categories where a single one has values: they would be the average again.
    """
    # All rows have the same parts, so that the first stands for all.
    names = rows[0]["scores"][scorer.name][of] if rows else ()
    columns = [_mean_column(name, scorer, rows, of, name) for name in names]
    with_values = sum(column.has_value for column in columns)
    if of == "categories" and with_values < 2:
        return []
    return columns


def _count_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return a column for each outcome that there is, and for those that all ask about."""
    columns = []
    for name, heading in HEADINGS.items():
        counts = _column_of(rows, name)
        if name in ("planned", "done") or any(counts):
            columns.append(_texts(heading, counts))
    return columns


def ranking_table(board: Board, scorer: Scorer) -> ResultTable:
    """Return every category, then the average; the best first: a paper's main table.

    Systems without an average, the ground truth and its controls come last and have no
    rank; equal systems share a rank.
    """
    rows = rank(board, scorer)
    average = headline(rows, scorer.name)
    place = placing(rows, scorer)
    places = []
    for row in rows:
        # What is no competitor has no rank, whatever its average.
        places.append(math.inf if is_reference(row["system"]) else place(row))
    ranks = [_rank_of(own, places) for own in places]
    columns = [_texts("#", ranks, numeric=True), _systems(rows)]
    columns += _categories(scorer, rows)
    columns.append(_mean_column(AVERAGES[average], scorer, rows, average))
    about = f"{scorer.name} ({scorer.scale}, {scorer.direction} is better)"
    return _table(f"{about}, {board.title}", columns)


def _rank_of(place: float, places: Sequence[float]) -> str:
    """Return how many are before a place, and 1; nothing for one without a value."""
    if place == math.inf:
        return ""
    return str(1 + sum(other < place for other in places))


def field_table(board: Board, scorer: Scorer) -> ResultTable | None:
    """Return the mean of every field; None where no query names its field."""
    if not any(group.field for group in board.groups):
        return None
    rows = rank(board, scorer)
    return _table("By field", [_systems(rows), *_categories(scorer, rows, "fields")])


def table_as_released(board: Board, scorer: Scorer) -> ResultTable | None:
    """Return raw scores as the released scorer prints them; None where none is printed."""
    head: list[str] = []
    lines = []
    for row in rank(board, scorer):
        released = row["scores"][scorer.name].get("as_released")
        if released is None:
            continue
        # Every row has the same figures, so that the first names them for all.
        head = head or ["system", *released]
        line = [row["system"]]
        for value in released.values():
            line.append("-" if value is None else str(value))
        lines.append(line)
    return ResultTable.of("As released", head, lines) if lines else None


def criteria_tables(board: Board, scorer: Scorer) -> Iterator[ResultTable]:
    """Say how often each criterion is met, one table per category.

    Where criteria are on scales of their own, the mean of each, first over all queries. The
    penalty is not a criterion and comes last.
    """
    if not scorer.criteria_are_shares:
        yield from _criterion_mean_tables(board, scorer)
        return
    # The raw score of a judge is stored as a criterion, and is none.
    where = board.rulings(scorer.name) & ~board.column["criterion"].is_(RAW)
    columns = ("category", "system", "criterion")
    shares: dict[str, dict[str, dict[str, str]]] = {}
    for category, system, criterion, n, met in board.group(where, columns, "value"):
        own = shares.setdefault(category, {}).setdefault(system, {})
        # A ruling is 1 where the criterion is met, and 0 where not.
        own[criterion] = f"{100 * (met / n):.0f}% n={n}"
    for category, systems in shares.items():
        criteria = _criteria_in_order(systems)
        lines = []
        for name in _names_in_order(board, scorer, systems):
            shown = systems[name]
            shares_in_order = [shown.get(criterion, "-") for criterion in criteria]
            lines.append([name, *shares_in_order])
        yield ResultTable.of(f"{category}, by criterion", ["system", *criteria], lines)


def _criteria_in_order(systems: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the criteria of any system as they come, the penalty last."""
    criteria: dict[str, None] = {}
    for rulings in systems.values():
        criteria |= dict.fromkeys(rulings)
    # The sort is stable: all but the penalty stay in their order.
    return sorted(criteria, key=lambda criterion: criterion == PENALTY)


def _names_in_order(board: Board, scorer: Scorer, among: Container[str]) -> list[str]:
    """Return systems in the order of the leaderboard by a scorer."""
    return [name for name in _column_of(rank(board, scorer), "system") if name in among]


def _criterion_mean_tables(board: Board, scorer: Scorer) -> Iterator[ResultTable]:
    """Yield the means of criteria that are on scales of their own, by category."""
    means = criterion_means(board, scorer.name)
    if len(means) == 2:  # all queries are of one category
        means = {"": means[""]}
    for category, systems in means.items():
        scales: dict[str, str] = {}
        head = []
        for criterion in _criteria_in_order(systems):
            scale = board.criterion_scales.get((scorer.name, criterion), "")
            scales[criterion] = scale
            # A scale without ends, or none at all, would tell nobody anything.
            head.append(f"{criterion} ({scale})" if bounds(scale) else criterion)
        lines: list[list[str | TableCell]] = []
        for name in _names_in_order(board, scorer, systems):
            line: list[str | TableCell] = [name]
            for criterion, scale in scales.items():
                estimate = systems[name].get(criterion, Estimate(None))
                line.append(TableCell.of(estimate, NumberForm.of(scale), counted=True))
            lines.append(line)
        title = f"{category}, by criterion" if category else "By criterion"
        yield ResultTable.of(title, ["system", *head], lines)


def variance_table(board: Board, scorer: str) -> ResultTable | None:
    """Return what a score depends on, by share; None where no pilot has measured it."""
    errors = board.judge_errors.get(scorer)
    if errors is None or not errors.shares:
        return None
    rows: list[list[str | TableCell]] = []
    for term, share in errors.shares.items():
        shown = TableCell(f"{100 * share:.1f}%", tint=round(_STRONGEST_SHARE * share))
        rows.append([ABOUT_TERMS[term], shown])
    head: list[str | TableColumn] = ["a score depends on"]
    head.append(TableColumn("share", numeric=True))
    title = "Where the variance of scores comes from"
    return ResultTable.of(title, head, rows, [ABOUT_DRAWN])


def pairs_table(board: Board, scorer: str) -> ResultTable | None:
    """Return the paired differences of one scorer; None for a single system."""
    lines = []
    names = board.system_names
    # With two systems there is one pair, and nothing to correct for.
    corrected = board.correction != "none" and len(names) > 2
    for pair in differences(board):
        if pair["scorer"] == scorer:
            form = NumberForm.of(pair["scale"], signed=True)
            mean = form.number(pair["mean"])
            ends = form.interval(pair["ci95"]) or pair.get("reason", "")
            p_values = [p_text(pair["p"])]
            if corrected:
                p_values.append(p_text(pair["p_adjusted"]))
            lines.append([pair["a"], pair["b"], mean, ends, *p_values, str(pair["n"])])
    if not lines:
        return None
    head = ["a", "b", "a - b", "95% interval", "p"]
    notes = []
    if corrected:
        head.append(f"p, {CORRECTIONS[board.correction]}")
        about = about_correction(board.correction, names)
        notes.append(f"{about[0].upper()}{about[1:]}; each interval is of one pair alone.")
    return ResultTable.of("Paired differences", [*head, "n"], lines, notes)


def table_of_published(board: Board) -> ResultTable | None:
    """Return the figures of the run's pinned protocol beside its own; None without any."""
    return published_table(comparisons_of(board, rank(board)))


def controls_table(board: Board) -> ResultTable | None:
    """Return every scorer against every control; None where there is no control."""
    lines: list[list[str | TableCell]] = []
    for check in checks(board):
        form = NumberForm.of(check.scale)
        truth = TableCell.of(check.truth, form, counted=True)
        made = TableCell.of(check.made, form, counted=True)
        signed = NumberForm.of(check.scale, signed=True)
        apart = TableCell.of(check.difference, signed, counted=True)
        lines.append([check.scorer, check.control, truth, made, apart, check.order])
    head = ["scorer", "control", "ground truth", "control's mean", "difference", "order"]
    return ResultTable.of("Controls", head, lines) if lines else None


def counts_table(board: Board) -> ResultTable:
    """Return every system's answers by outcome."""
    rows = rank(board)
    # An endpoint's are unknown, and a control has none.
    weights = [kind or "none" for kind in _column_of(rows, "weights")]
    columns = [_systems(rows), _texts("weights", weights)]
    columns.append(_texts("queries", _column_of(rows, "n")))
    columns += _count_columns(rows)
    return _table("Outcomes", columns)


def settings_table(stages: Sequence[StageSpec]) -> ResultTable:
    """Return what each stage is and how it is set."""
    lines = []
    for stage in stages:
        texts = []
        for name, value in stage.settings.items():
            if value not in (None, ""):
                texts.append(f"{name} {value}")
        if stage.seeded:
            texts.append("seeded by the run's seed and the query")
        kind = stage.kind.value
        model = stage.identity or stage.target
        weights = str(stage.weights or "")
        lines.append([stage.name, kind, model, weights, ", ".join(texts)])
    head = ["stage", "kind", "model", "weights", "settings"]
    return ResultTable.of("Settings", head, lines, numeric=False)


def outcomes_table(board: Board) -> ResultTable:
    """Return why answers and judgements have no value; on the page, counts lead to them."""
    # Links of the page name a group by its number before sorting, as its filters do.
    numbered = [*enumerate(outcome_groups(board).values())]
    numbered.sort(key=lambda pair: -pair[1].counts.total())
    affected = Counter[str]()
    for _, group in numbered:
        affected.update(group.counts)
    shown = [name for name in board.system_names if affected[name]]
    lines = []
    for number, group in numbered:
        if not group.counts:
            continue
        link = f"#outcome={number}"
        line = [
            TableCell(group.scorer or "answers"),
            TableCell(group.outcome.replace("_", " ")),
            TableCell(group.reason),
            TableCell(f"{group.counts.total():,}", link=link),
        ]
        for name in shown:
            count = group.counts[name]
            to = f"{link}&system={board.place_of_system[name]}"
            line.append(TableCell(f"{count:,}" if count else "", link=to))
        lines.append(line)
    head: list[str | TableColumn] = ["of", "outcome", "reason"]
    for name in ("all", *shown):
        head.append(TableColumn(name, numeric=True))
    return ResultTable.of("Outcomes and their reasons", head, lines)


def spent_table(board: Board) -> ResultTable:
    """Return what the answers of each system took, and the judgements of each scorer."""
    spent = _amounts_by_name(board)
    measures = []
    for measure in _SPENT:
        if any(own.get(measure) for own in spent.values()):
            measures.append(measure)
    # Systems in the order of the leaderboard, then scorers; "" is all of them.
    names = dict.fromkeys([*_column_of(rank(board), "system"), *board.values, ""])
    lines = []
    for name in names:
        amounts = [AMOUNT.total(spent[name].get(measure)) for measure in measures]
        lines.append([name or "all, each record once", *amounts])
    head = ["answers or judgements of", *(_SPENT[measure] for measure in measures)]
    return ResultTable.of("In all", head, lines, [ABOUT_SPENT])


def _amounts_by_name(board: Board) -> defaultdict[str, dict[str, float]]:
    """Return what systems, scorers and all of them ("") took, discarded images too."""
    spent = defaultdict[str, dict[str, float]](dict)
    for name, own in board.spent.items():
        # A copy, since the board keeps its own.
        spent[name] |= own
    # No record knows whether its image was kept, so discarded ones are counted by answer.
    for name, _, images in board.group(board.is_answer, ("system",), "discarded"):
        if images:
            spent[name]["discarded"] = images
            spent[""]["discarded"] = spent[""].get("discarded", 0.0) + images
    return spent


def _interval_methods(board: Board) -> set[str]:
    """Return how the intervals of all means were computed."""
    methods = set[str]()
    for row in leaderboard(board):
        for scores in row["scores"].values():
            for _, _, cell in parts_of(scores):
                if cell["ci95"] and "method" in cell:
                    methods.add(str(cell["method"]))
    return methods


def legend(board: Board) -> str:
    """Say what the averages are, how intervals are computed, and what of the scorers.

    How judges are asked, and how often scorers are known to agree with people.
    """
    methods = _interval_methods(board)
    by = f" ({', '.join(sorted(methods))})" if methods else ""
    fixed = ""
    if board.categories:
        weights = ", ".join(f"{name} {n:,}" for name, n in board.categories.items())
        fixed = (
            f"Fixed weights: category means weighted by {weights}, over the categories "
            "that a scorer applies to. "
        )
    about = " ".join([*board.about_replies, *board.about_scorers])
    return (
        "The best first, the ground truth and its controls last. "
        f"Means with 95% intervals by query{by}; n is the number of scored queries. "
        f"{fixed}Per query: mean over all scored queries. {about}"
    ).strip()
