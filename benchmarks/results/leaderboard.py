"""The leaderboard: its numbers as plain data, its tables and its files.

Tables are functions of a board, whose `leaderboard` and `differences` are computed once.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from plait.benchmarks.results.board import (
    DONE,
    PENALTY,
    RAW,
    SCORED,
    Board,
    Group,
    Mask,
    weights_of,
)
from plait.benchmarks.results.comparisons import (
    about_correction,
    comparisons,
    differences,
    p_text,
    ranges_of_ranks,
)
from plait.benchmarks.results.costs import MEASURES
from plait.benchmarks.results.judges import panels_of, write_judges
from plait.benchmarks.results.numbers import NumberForm, estimate_of
from plait.benchmarks.results.pairings.comparison import pairings_of
from plait.benchmarks.results.pairings.tables import AMOUNT, write_pairings
from plait.benchmarks.results.people import agreement_of
from plait.benchmarks.results.published import comparisons_of, published_table
from plait.benchmarks.results.reasons import (
    FAILURES,
    Reasons,
    count_reasons,
    failures_csv,
    missing_values,
    outcome_groups,
    reasons_table,
)
from plait.benchmarks.results.repeats import spread_over_repeats
from plait.benchmarks.results.table import (
    ResultTable,
    TableCell,
    TableColumn,
    csv_text,
    json_text,
    latex_page,
    plain,
)
from plait.benchmarks.results.validity import checks
from plait.benchmarks.tasks.controls import is_reference
from plait.generators.base import DOCUMENT_OUTCOMES, SCORE_OUTCOMES, OutcomeName, StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.files import write_whole
from plait.scorers.base import UNBOUNDED, ReleasedSummary, Scorer, bounds, ends_of
from plait.scorers.judging.summaries import (
    GeditValue,
    UnisonValue,
    gedit_summary,
    imgedit_summary,
    mmie_summary,
    opening_summary,
    specv_summary,
    unison_summary,
)
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.judge_error import ABOUT as ABOUT_TERMS
from plait.scorers.statistics.means import (
    Stratum,
    mean,
    mean_by_question,
    stratified_mean,
)
from plait.scorers.statistics.multiple import CORRECTIONS

COUNTS = ("planned", *DOCUMENT_OUTCOMES, *(name.of_scores for name in SCORE_OUTCOMES))
FIXED = "avg_fixed"
MICRO = "avg_micro"
AVERAGES = {FIXED: "fixed weights", MICRO: "per query"}
_NAMED = {"planned": "answers", "missing": "not made"}
HEADINGS = {
    name: _NAMED.get(name, name.replace("_", " ")) for name in COUNTS if name != "scored"
}
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
_ABOUT_RELEASED = (
    "Raw scores from 0 to 6, averaged and rounded as the released scorer prints them."
)
_ABOUT_TRACKS = (
    "Means of dimensions, then of tracks, rounded as the released program prints them; a "
    "dimension in which nothing was judged is 0."
)
_ABOUT_GROUPS = (
    "Means of the types of edit, rounded as the released program prints them, of all "
    "queries and of the intersection; none while a type has no score."
)
_ABOUT_TYPES = "Means of the types of edit, rounded as the released program prints them."
_ABOUT_TASKS = (
    "Means of the tasks, rounded as the released program writes them; the last is the mean "
    "of the tasks that the run has."
)
_ABOUT_SUMMARIES: Mapping[ReleasedSummary, str] = {
    "specv": _ABOUT_TRACKS,
    "gedit": _ABOUT_GROUPS,
    "imgedit": _ABOUT_TYPES,
    "unison": _ABOUT_TASKS,
}
"""What is said of a summary, where it is not that of raw scores."""
_OVERALL = "overall"
"""How GEdit's summary names the scores themselves."""
_BY_DIMENSION = ("category", "value")
_BY_TASK = ("category", "criterion", "value")
_ABOUT_PAIRS = "Mean over the queries that have a score of both systems."
_STRONGEST_SHARE = 40
"""Share of colour behind a share of 1 on the page, in percent."""
_SPENT = {**MEASURES, "discarded": "images discarded"}
LeaderboardRow = Mapping[str, Any]
Cell = Mapping[str, Any]
"""A mean as `Estimate.as_json` makes it plain, its scale, and counts."""
Column = tuple[TableColumn, Sequence[TableCell]]


@lru_cache(maxsize=2)
def leaderboard(board: Board) -> list[dict[str, Any]]:
    """Return one row per system: counts, and for every scorer each mean with its interval.

    The best by the first scorer with a value comes first, systems without its average last.
    Counts are of answers (queries x repeats) and judgements; the `n` of a mean is the
    number of queries that have a score, the row's `n` that of all queries. `avg_fixed`
    weights category means by the published counts, as the paper's AVG does (MMIE, Tables
    1, 3 and 4); `avg_micro` is the mean over all scored queries.
    """
    reasons = count_reasons(missing_values(board), [s.name for s in board.systems])
    scores = {s.name: _scores(board, s) for s in board.scorers}
    rows: list[dict[str, Any]] = []
    for i, system in enumerate(board.systems):
        row: dict[str, Any] = {
            "system": system.name,
            "weights": weights_of(system),
            "n": board.n,
            "repeats": board.rounds,
        }
        row |= _counts(board, system.name, board.groups, scores, board.answers)
        row |= board.mark_of(system.name)
        row["scores"] = {scorer: by_system[i] for scorer, by_system in scores.items()}
        rows.append(row)
    for scorer in board.scorers:
        place = placing(rows, scorer)
        if any(place(row) < math.inf for row in rows):
            rows.sort(key=place)
            break
    for scorer in board.scorers:
        _add_ranks(board, scorer, rows)
        _add_drawn_judge(board, scorer, rows)
    published = comparisons_of(board, rows)
    for row in rows:
        row["reasons"] = reasons[row["system"]]
        own = [one.as_json for one in published if one.system == row["system"]]
        row |= {"published": own} if own else {}
    return rows


def _add_drawn_judge(board: Board, scorer: Scorer, rows: Sequence[dict[str, Any]]) -> None:
    """Add to averages the interval whose judge is drawn, where a pilot has measured it."""
    errors = board.judge_errors.get(scorer.name)
    if errors is None:
        return
    average = headline(rows, scorer.name)
    for row in rows:
        cell = row["scores"][scorer.name][average]
        interval = errors.interval(estimate_of(cell), ends_of(scorer.scale))
        if interval is not None:
            drawn = Estimate(cell["mean"], interval, cell["n"]).as_json("mean")
            cell["ci95_judge_drawn"] = drawn["ci95"]


def _add_ranks(board: Board, scorer: Scorer, rows: Sequence[dict[str, Any]]) -> None:
    """Add the rank of each system by a scorer that compares answers, and its range."""
    if scorer.of_sets:
        return
    place = placing(rows, scorer)
    places = {row["system"]: place(row) for row in rows}
    ranges = ranges_of_ranks(places, comparisons(board)[scorer.name])
    if len(ranges) < 2:
        return  # One system alone is neither first nor last.
    at = [places[name] for name in ranges]
    for row in rows:
        if (range95 := ranges.get(row["system"])) is not None:
            rank = {"value": 1 + sum(p < place(row) for p in at), "range95": [*range95]}
            row["scores"][scorer.name]["rank"] = rank


def headline(rows: Sequence[LeaderboardRow], scorer: str) -> str:
    """Return the average to show where there is room for one, the same for all rows.

    `avg_fixed` where any row has it, else `avg_micro`.
    """
    fixed = any(row["scores"][scorer][FIXED]["mean"] is not None for row in rows)
    return FIXED if fixed else MICRO


def placing(
    rows: Sequence[LeaderboardRow], scorer: Scorer
) -> Callable[[LeaderboardRow], float]:
    """Return the order by a scorer's headline: the best first, those without it last."""
    average = headline(rows, scorer.name)
    sign = -1 if scorer.direction == "higher" else 1

    def place(row: LeaderboardRow) -> float:
        value = row["scores"][scorer.name][average]["mean"]
        return math.inf if value is None else float(sign * value)

    return place


def _scores(board: Board, scorer: Scorer) -> list[dict[str, Any]]:
    """Return every mean of one scorer, by system."""
    silent = _silent_categories(board, scorer)
    everything = [*board.groups]
    if scorer.of_sets:
        figures = board.figures[scorer.name]
        micro = _cells(board, scorer, everything, figures, board.answers)
        whole = [Estimate(None, reason="a figure of all images alone")] * len(figures)
        fixed = _cells(board, scorer, everything, whole)
    else:
        micro = _part(board, scorer, everything, (), board.answers)
        # Categories that a scorer does not apply to count in no average.
        weighted = [name for name in board.categories if name not in silent]
        fixed = _means_by_fixed_weights(board, scorer, weighted)
    people = [figure.as_json for figure in agreement_of(scorer, board.agreement)]
    categories = {
        name: _part(board, scorer, board.groups_of(name), silent)
        for name in board.category_names
    }
    fields = {
        name: _part(board, scorer, board.groups_of(name, 1), silent)
        for name in board.field_names
    }
    rows = []
    for i, system in enumerate(board.systems):
        row: dict[str, Any] = {"scale": scorer.scale, "direction": scorer.direction}
        if scorer.manner:
            row["manner"] = scorer.manner
        if people:
            row["agreement"] = people
        row |= _as_released(board, scorer, system.name)
        row |= {FIXED: fixed[i], MICRO: micro[i]}
        row["categories"] = {name: cells[i] for name, cells in categories.items()}
        row["fields"] = {name: cells[i] for name, cells in fields.items()}
        row |= _criteria(board, scorer, system.name)
        rows.append(row)
    return rows


def _silent_categories(board: Board, scorer: Scorer) -> set[str]:
    """Return the categories that a scorer applies to no answer of."""
    outcomes: dict[str, set[str]] = {category: set() for category in board.category_names}
    for (_, category, _), tally in board.tallies.items():
        outcomes[category] |= {outcome for name, outcome in tally if name == scorer.name}
    nothing_applies = {OutcomeName.NOT_APPLICABLE}
    return {name for name, found in outcomes.items() if found == nothing_applies}


def _criteria(board: Board, scorer: Scorer, system: str) -> dict[str, Any]:
    """Return the mean of each criterion, where they are on scales of their own."""
    if scorer.criteria_are_shares:
        return {}
    means = criterion_means(board, scorer.name).get("", {}).get(system, {})
    cells = {}
    for criterion, estimate in means.items():
        scale = board.criterion_scales.get((scorer.name, criterion), UNBOUNDED)
        cells[criterion] = estimate.as_json("mean") | {"scale": scale}
    return {"criteria": cells} if cells else {}


def _part(
    board: Board,
    scorer: Scorer,
    groups: Sequence[Group],
    silent: Collection[str],
    planned: int | None = None,
) -> list[dict[str, Any]]:
    """Return the mean of some groups by system; the scorer may be silent on all of it."""
    values = board.values[scorer.name][board.rows_of(groups)]
    means = [Estimate(None, reason="no query asked")] * len(board.systems)
    if len(values):
        means = [mean(column, ends_of(scorer.scale)) for column in values.T]
    if groups and all(category in silent for category, _ in groups):
        means = [replace(estimate, reason="not applicable") for estimate in means]
    return _cells(board, scorer, groups, means, planned)


def _means_by_fixed_weights(
    board: Board, scorer: Scorer, categories: Sequence[str]
) -> list[dict[str, Any]]:
    """Return category means under the published weights; none while one is empty."""
    groups: list[Group] = []
    values = {}
    for category in categories:
        own = board.groups_of(category)
        groups += own
        values[category] = board.values[scorer.name][board.rows_of(own)]
    means = []
    for i in range(len(board.systems)):
        strata = [
            Stratum(category, board.categories[category], of_systems[:, i])
            for category, of_systems in values.items()
        ]
        if strata:
            estimate = stratified_mean(strata, ends_of(scorer.scale))
        else:
            reason = "the task set publishes no number of queries per category"
            estimate = Estimate(None, reason=reason)
        empty = [stratum.name for stratum in strata if np.isnan(stratum.values).all()]
        if empty:
            estimate = replace(estimate, reason=f"no scored query in {', '.join(empty)}")
        means.append(estimate)
    return _cells(board, scorer, groups, means)


def _cells(
    board: Board,
    scorer: Scorer,
    groups: Sequence[Group],
    means: Iterable[Estimate],
    planned: int | None = None,
) -> list[dict[str, Any]]:
    cells = []
    for estimate, system in zip(means, board.systems, strict=True):
        cell = estimate.as_json("mean") | {"scale": scorer.scale}
        cells.append(cell | _counts(board, system.name, groups, [scorer.name], planned))
    return cells


def _as_released(board: Board, scorer: Scorer, system: str) -> dict[str, Any]:
    """Return n, averages of raw scores (0 to 6, rounded as printed) and the percent.

    Of a judge of aspects, their means (0 to 10) and `Overall`; of SpecV's, the mean of each
    track and `Average`; of GEdit's, ImgEdit's and Unison's, means by language, type or
    task. Over all repeats, as a file with every answer would give. Empty for other judges.
    """
    if not scorer.released_summary:
        return {}
    own = board.column["system"].is_(system)
    if scorer.released_summary == "specv":
        scored = own & board.is_score & board.column["scorer"].is_(scorer.name)
        scores = board.rows(scored & board.column["outcome"].is_(SCORED), *_BY_DIMENSION)
        return {"as_released": specv_summary(_dimensions_run(board, system), scores)}
    if scorer.released_summary == "imgedit":
        scored = own & board.is_score & board.column["scorer"].is_(scorer.name)
        scores = board.rows(scored & board.column["outcome"].is_(SCORED), *_BY_DIMENSION)
        return {"as_released": imgedit_summary(board.category_names, scores)}
    if scorer.released_summary == "gedit":
        return {"as_released": gedit_summary(_gedit_values(board, scorer, own))}
    if scorer.released_summary == "unison":
        rulings = board.rows(own & board.rulings(scorer.name), *_BY_TASK)
        values = (UnisonValue(*ruling) for ruling in rulings)
        tasks = board.category_names
        return {"as_released": unison_summary(tasks, values)}
    ruled = own & board.rulings(scorer.name)
    if scorer.released_summary == "opening":
        shares = board.rows(ruled, "criterion", "value")
        return {"as_released": opening_summary(shares)}
    raw = ruled & board.column["criterion"].is_(RAW)
    return {"as_released": mmie_summary(board.rows(raw, "query", "value"))}


def _gedit_values(board: Board, scorer: Scorer, own: Mask) -> Iterator[GeditValue]:
    """Yield the criteria of a system's scores, each score after its own."""
    judged = own & board.column["scorer"].is_(scorer.name) & board.is_complete
    scored = judged & board.column["outcome"].is_(SCORED)
    columns = ("field", "category", "criterion", "value")
    for field_name, group, criterion, value in board.rows(scored, *columns):
        yield GeditValue(field_name, group, criterion or _OVERALL, value)


def _dimensions_run(board: Board, system: str) -> dict[str, list[str]]:
    """Return the dimensions (categories) of each track (field) of a run.

    None of a track on which a system made no answer.
    """
    found: dict[str, list[str]] = {}
    for track in board.field_names:
        groups = board.groups_of(track, 1)
        outcomes = Counter[tuple[str, str]]()
        for group in groups:
            outcomes.update(board.tallies[system, *group])
        made = outcomes["", DONE] + outcomes["", OutcomeName.FAILED]
        found[track] = [dimension for dimension, _ in groups] if made else []
    return found


def _counts(
    board: Board,
    system: str,
    groups: Iterable[Group],
    scorers: Iterable[str],
    planned: int | None = None,
) -> dict[str, int]:
    tally = Counter[tuple[str, str]]()
    asked = 0
    for group in groups:
        tally.update(board.tallies[system, *group])
        asked += len(board.groups[group]) * board.rounds
    planned = asked if planned is None else planned
    counts = {str(name): tally["", name] for name in DOCUMENT_OUTCOMES}
    counts["missing"] = planned - sum(counts.values())
    judged = dict[str, int]()
    for outcome in SCORE_OUTCOMES:
        name = outcome.of_scores
        judged[name] = sum(tally[scorer, name] for scorer in scorers)
    return {"planned": planned} | counts | judged


def cell_of(cell: Cell, *, reference: bool = False, counted: bool = True) -> TableCell:
    """Return a mean with its interval as detail; a reference's is never the best.

    Where it is `counted`, its n is a detail too.
    """
    if cell.get("reason") == "not applicable":
        return TableCell("n/a")
    shown = TableCell.of(estimate_of(cell), NumberForm.of(cell["scale"]), counted=counted)
    return replace(shown, value=None) if reference else shown


def _texts(heading: str, texts: Iterable[Any], *, numeric: bool | None = None) -> Column:
    return TableColumn(heading, numeric=numeric), [TableCell(str(text)) for text in texts]


def _systems(rows: Sequence[LeaderboardRow]) -> Column:
    return _texts("system", (row["system"] for row in rows), numeric=False)


def _mean_column(
    heading: str, scorer: Scorer, rows: Iterable[LeaderboardRow], *place: str
) -> Column:
    """Return the means that stand at a place in the scores of each row.

    Their n is in the heading where it is the same for all.
    """
    means = []
    references = []
    for row in rows:
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
    return TableColumn(heading, scorer.direction, numeric=True, detail=detail), cells


def _table(title: str, columns: Iterable[Column], notes: Sequence[str] = ()) -> ResultTable:
    """Return a table of columns; those of means only where there is one."""
    heads = []
    cells_of_columns = []
    for head, cells in columns:
        if head.direction is None or any(cell.span for cell in cells):
            heads.append(head)
            cells_of_columns.append(cells)
    return ResultTable.of(title, heads, zip(*cells_of_columns, strict=True), notes)


def rank(board: Board, scorer: Scorer | None = None) -> list[dict[str, Any]]:
    """Return the rows of the leaderboard, the best by a scorer first, else by the first.

    The ground truth and its controls come last.
    """
    rows = leaderboard(board)
    if scorer is not None:
        rows = sorted(rows, key=placing(rows, scorer))
    return sorted(rows, key=lambda row: is_reference(row["system"]))


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
    missed = [MICRO]
    # Nobody misses the average by fixed weights where no system has it.
    if any(own[FIXED]["n"] for own in scores):
        missed = [FIXED, MICRO]
    missing = []
    for row, own in zip(rows, scores, strict=True):
        for average in missed:
            if (reason := own[average].get("reason")) is not None:
                missing.append(f"{row['system']}, {AVERAGES[average]}: {reason}")
    if scorer.name in board.judge_errors:
        missing.append(ABOUT_DRAWN)
    title = f"{scorer.name} ({scorer.scale}, {scorer.direction} is better)"
    return _table(title, columns, missing)


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
    names = rows[0]["scores"][scorer.name][of] if rows else ()
    columns = [_mean_column(n, scorer, rows, of, n) for n in names]
    if of != "categories":
        return columns
    with_values = [cells for _, cells in columns if any(cell.span for cell in cells)]
    return columns if len(with_values) > 1 else []


def _count_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    columns = []
    for name, heading in HEADINGS.items():
        counts = [row[name] for row in rows]
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
    places = [math.inf if is_reference(row["system"]) else place(row) for row in rows]
    ranks = [_rank_of(place, places) for place in places]
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


def field_table(board: Board, scorer: Scorer) -> ResultTable:
    """Return the mean of every field."""
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
        head = head or ["system", *released]
        values = ["-" if value is None else str(value) for value in released.values()]
        lines.append([row["system"], *values])
    return ResultTable.of("As released", head, lines) if lines else None


def criteria_tables(board: Board, scorer: Scorer) -> Iterator[ResultTable]:
    """Say how often each criterion is met, one table per category.

    Where criteria are on scales of their own, the mean of each, first over all queries. The
    penalty is not a criterion and comes last.
    """
    if not scorer.criteria_are_shares:
        yield from _criterion_mean_tables(board, scorer)
        return
    where = board.rulings(scorer.name) & ~board.column["criterion"].is_(RAW)
    columns = ("category", "system", "criterion")
    shares: dict[str, dict[str, dict[str, str]]] = {}
    for category, system, criterion, n, met in board.group(where, columns, "value"):
        own = shares.setdefault(category, {}).setdefault(system, {})
        own[criterion] = f"{100 * (met / n):.0f}% n={n}"
    for category, systems in shares.items():
        criteria = _criteria_in_order(systems)
        lines = []
        for name in _names_in_order(board, scorer, systems):
            shown = systems[name]
            lines.append([name, *(shown.get(criterion, "-") for criterion in criteria)])
        yield ResultTable.of(f"{category}, by criterion", ["system", *criteria], lines)


def _criteria_in_order(systems: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the criteria of any system as they come, the penalty last."""
    criteria = dict.fromkeys(chain.from_iterable(systems.values()))
    return sorted(criteria, key=PENALTY.__eq__)


def _names_in_order(board: Board, scorer: Scorer, among: Container[str]) -> list[str]:
    """Return systems in the order of the leaderboard by a scorer."""
    names = [row["system"] for row in rank(board, scorer)]
    return [name for name in names if name in among]


@lru_cache(maxsize=8)
def criterion_means(board: Board, scorer: str) -> dict[str, dict[str, dict[str, Estimate]]]:
    """Return the mean of each criterion by category and system, with its interval.

    Of one query those over its repeats count once. The category "" is all of them.
    """
    where = board.rulings(scorer) & ~board.column["criterion"].is_(RAW)
    columns = ("category", "system", "criterion", "query", "value")
    found: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for category, system, criterion, query, value in board.rows(where, *columns):
        for group in ("", category):
            found.setdefault((group, system, criterion), []).append((query, value))
    means: dict[str, dict[str, dict[str, Estimate]]] = {}
    for (group, system, criterion), rows in found.items():
        queries, values = zip(*rows, strict=True)
        ends = ends_of(board.criterion_scales.get((scorer, criterion), ""))
        own = means.setdefault(group, {}).setdefault(system, {})
        own[criterion] = mean_by_question(queries, values, ends)
    return means


def _criterion_mean_tables(board: Board, scorer: Scorer) -> Iterator[ResultTable]:
    means = criterion_means(board, scorer.name)
    if len(means) == 2:  # all queries are of one category
        means = {"": means[""]}
    for category, systems in means.items():
        criteria = _criteria_in_order(systems)
        scales = {c: board.criterion_scales.get((scorer.name, c), "") for c in criteria}
        head = [f"{c} ({scale})" if bounds(scale) else c for c, scale in scales.items()]
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
    names = [system.name for system in board.systems]
    # With two systems there is one pair, and nothing to correct for.
    corrected = board.correction != "none" and len(names) > 2
    for pair in differences(board):
        if pair["scorer"] == scorer:
            form = NumberForm.of(pair["scale"], signed=True)
            mean = form.number(pair["mean"])
            ends = form.interval(pair["ci95"]) or pair.get("reason", "")
            tested = [p_text(pair["p"]), p_text(pair["p_adjusted"])]
            if not corrected:
                tested.pop()
            lines.append([pair["a"], pair["b"], mean, ends, *tested, str(pair["n"])])
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
    columns = [_systems(rows), _texts("weights", (r["weights"] or "none" for r in rows))]
    columns += [_texts("queries", (r["n"] for r in rows)), *_count_columns(rows)]
    return _table("Outcomes", columns)


def settings_table(stages: Sequence[StageSpec]) -> ResultTable:
    """Return what each stage is and how it is set."""
    lines = []
    for stage in stages:
        texts = [f"{k} {v}" for k, v in stage.settings.items() if v not in (None, "")]
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
    numbered = [*enumerate(outcome_groups(board).values())]
    numbered.sort(key=lambda pair: -pair[1].counts.total())
    place = {system.name: i for i, system in enumerate(board.systems)}
    affected = Counter[str]()
    for _, group in numbered:
        affected.update(group.counts)
    shown = [name for name in place if affected[name]]
    lines = []
    for number, group in numbered:
        if not group.counts:
            continue
        link = f"#outcome={number}"
        cells = []
        for name in shown:
            count = group.counts[name]
            to = f"{link}&system={place[name]}"
            cells.append(TableCell(f"{count:,}" if count else "", link=to))
        total = TableCell(f"{group.counts.total():,}", link=link)
        outcome = group.outcome.replace("_", " ")
        words = (group.scorer or "answers", outcome, group.reason)
        lines.append([*map(TableCell, words), total, *cells])
    counts = (TableColumn(name, numeric=True) for name in ("all", *shown))
    head: list[str | TableColumn] = ["of", "outcome", "reason", *counts]
    return ResultTable.of("Outcomes and their reasons", head, lines)


def reasons_of(board: Board) -> list[tuple[str, Reasons]]:
    """Return the most frequent reasons by system, in the order of the leaderboard."""
    return [(row["system"], row["reasons"]) for row in leaderboard(board)]


def spent_table(board: Board) -> ResultTable:
    """Return what the answers of each system took, and the judgements of each scorer."""
    spent = defaultdict[str, dict[str, float]](dict)
    for name, own in board.spent.items():
        spent[name] |= own
    discarded = board.group(board.is_answer, ("system",), "discarded")
    for name, _, images in discarded:
        if images:
            spent[name]["discarded"] = images
            spent[""]["discarded"] = spent[""].get("discarded", 0.0) + images
    taken = set[str]()
    for own in spent.values():
        taken |= {measure for measure, amount in own.items() if amount}
    measures = [measure for measure in _SPENT if measure in taken]
    names = dict.fromkeys([*(row["system"] for row in rank(board)), *board.values])
    lines = []
    for name in [*names, ""]:
        amounts = [AMOUNT.total(spent[name].get(measure)) for measure in measures]
        lines.append([name or "all, each record once", *amounts])
    head = ["answers or judgements of", *(_SPENT[m] for m in measures)]
    return ResultTable.of("In all", head, lines, [ABOUT_SPENT])


def legend(board: Board) -> str:
    """Say what the averages are, how intervals are computed, and what of the scorers.

    How judges are asked, and how often scorers are known to agree with people.
    """
    methods = set[str]()
    for row in leaderboard(board):
        for scores in row["scores"].values():
            for _, _, cell in parts_of(scores):
                if cell["ci95"] and "method" in cell:
                    methods.add(str(cell["method"]))
    by = f" ({', '.join(sorted(methods))})" if methods else ""
    weights = ", ".join(f"{name} {n:,}" for name, n in board.categories.items())
    fixed = ""
    if weights:
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


def parts_of(scores: Mapping[str, Any]) -> Iterator[tuple[str, str, Cell]]:
    """Every mean of one system by one scorer: part, group, cell."""
    for average in AVERAGES:
        yield average, "", scores[average]
    for name, cell in scores["categories"].items():
        yield "category", name, cell
    for name, cell in scores["fields"].items():
        yield "field", name, cell
    for name, cell in scores.get("criteria", {}).items():
        yield "criterion", name, cell


def write_leaderboard(board: Board, root: AnyPath) -> None:
    """Write leaderboard.{json,csv,md,tex}, differences.json and failures.csv.

    And judges.json where there are two judges of one kind, pairings.{json,csv,md,tex} where
    systems form a matrix. Equal boards, equal bytes.
    """
    write_whole(root / "leaderboard.json", json_text(leaderboard(board)))
    write_whole(root / "leaderboard.csv", _as_csv(board))
    write_whole(root / "leaderboard.md", _markdown(board))
    ranked = []
    for scorer in board.scorers:
        table = ranking_table(board, scorer)
        if any(cell.span for row in table.rows for cell in row):
            ranked.append(table)
    if (published := table_of_published(board)) is not None:
        ranked.append(published)
    title = f"Leaderboard: {board.title}"
    latex = latex_page(title, ranked, board.warning, board.brief_warning)
    write_whole(root / "leaderboard.tex", latex)
    write_whole(root / "differences.json", json_text(differences(board)))
    write_judges(board, root)
    write_whole(root / FAILURES, failures_csv(board))
    write_pairings(board, root, pairings_of(board))


def name_changes(former: Sequence[LeaderboardRow], board: Board) -> list[str]:
    """Return each mean that the rows of former tables show otherwise, in words."""
    before = {row["system"]: row["scores"] for row in former}
    rows = leaderboard(board)
    lines = []
    for scorer in board.scorers:
        average = headline(rows, scorer.name)
        form = NumberForm.of(scorer.scale)
        for row in rows:
            then = before.get(row["system"], {}).get(scorer.name, {}).get(average)
            now = row["scores"][scorer.name][average]
            if then is None:
                continue  # The former tables did not have it.
            old, new = (f"{form.number(c['mean'])} (n={c['n']})" for c in (then, now))
            if old != new:
                lines.append(f"{scorer.name} of {row['system']}: {old}, now {new}")
    return lines


def _as_csv(board: Board) -> str:
    head = ["system", "weights", "scorer", "scale", "direction", "part", "group", "mean"]
    head += ["ci95_low", "ci95_high", "n", *COUNTS, "method", "reason"]
    head += board.mark_of("")
    lines = []
    for row in leaderboard(board):
        about = {"system": row["system"], "weights": row["weights"] or ""}
        about |= board.mark_of(row["system"])
        if not row["scores"]:
            lines.append(about | {name: row[name] for name in ("n", *COUNTS)})
        for scorer, scores in row["scores"].items():
            about |= {"scorer": scorer, "direction": scores["direction"]}
            for part, group, cell in parts_of(scores):
                line = {"part": part, "group": group, **cell}
                if cell["ci95"]:
                    line["ci95_low"], line["ci95_high"] = cell["ci95"]
                lines.append(about | {k: v for k, v in line.items() if v is not None})
    rows = []
    for line in lines:
        rows.append([line.get(name, "") for name in head])
    return csv_text(head, rows)


def _markdown(board: Board) -> str:
    parts = [f"# Leaderboard: {board.title}"]
    if board.warning:
        parts.append(f"> **Warning: {plain(board.warning)}**")
    if board.scorers:
        parts.append(legend(board))
    parts += _section(table_of_published(board), 2)
    for scorer in board.scorers:
        parts += _section(scorer_table(board, scorer), 2)
        about = _ABOUT_SUMMARIES.get(scorer.released_summary, _ABOUT_RELEASED)
        parts += _section(table_as_released(board, scorer), 3, about)
        for table in (field_table(board, scorer), *criteria_tables(board, scorer)):
            parts += _section(table, 3)
        parts += _section(variance_table(board, scorer.name), 3)
        parts += _section(pairs_table(board, scorer.name), 3, _ABOUT_PAIRS)
    for panel in panels_of(board):
        for level, table in zip((2, 3, 3), panel.tables(), strict=False):
            parts += _section(table, level)
    parts += _section(controls_table(board), 2, ABOUT_CONTROLS)
    parts += _section(counts_table(board), 2)
    reasons = reasons_table("system", reasons_of(board))
    parts += _section(reasons if reasons.rows else None, 2, ABOUT_FAILURES)
    return "\n\n".join(parts) + "\n"


def _section(table: ResultTable | None, level: int, *remarks: str) -> list[str]:
    if table is None:
        return []
    return [f"{'#' * level} {plain(table.title)}", *remarks, table.markdown]
