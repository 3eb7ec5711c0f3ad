"""The leaderboard as plain data: a row for each system, with every mean and its interval.

A row is what `leaderboard.json` holds. Everything that shows numbers of a run reads these
rows, and computes none of its own: the tables (`leaderboard_tables.py`), the files
(`leaderboard_files.py`), the page, the exports and the studies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from plait.benchmarks.results.board import (
    DONE,
    RAW,
    SCORED,
    Board,
    Group,
    Mask,
    levers_of,
    weights_of,
)
from plait.benchmarks.results.comparisons import comparisons, ranges_of_ranks
from plait.benchmarks.results.numbers import NumberForm, estimate_of
from plait.benchmarks.results.people import agreement_of
from plait.benchmarks.results.published import comparisons_of
from plait.benchmarks.results.reasons import Reasons, count_reasons, missing_values
from plait.benchmarks.tasks.controls import is_reference
from plait.generators.base import DOCUMENT_OUTCOMES, SCORE_OUTCOMES, OutcomeName
from plait.scorers.base import UNBOUNDED, Scorer, ends_of
from plait.scorers.judging.summaries import (
    GeditValue,
    ImugValue,
    UnisonValue,
    gedit_summary,
    imgedit_summary,
    imug_summary,
    mmie_summary,
    opening_summary,
    specv_summary,
    unison_summary,
)
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import Stratum, mean, mean_by_question, stratified_mean

COUNTS = ("planned", *DOCUMENT_OUTCOMES, *(name.of_scores for name in SCORE_OUTCOMES))
FIXED = "avg_fixed"
MICRO = "avg_micro"
AVERAGES = {FIXED: "fixed weights", MICRO: "per query"}
_OVERALL = "overall"
"""How GEdit's summary names the scores themselves."""
_BY_DIMENSION = ("category", "value")
_BY_TASK = ("category", "criterion", "value")
LeaderboardRow = Mapping[str, Any]
Cell = Mapping[str, Any]
"""A mean as `Estimate.as_json` makes it plain, its scale, and counts."""


@lru_cache(maxsize=2)
def leaderboard(board: Board) -> list[dict[str, Any]]:
    """Return one row per system: counts, and for every scorer each mean with its interval.

    The best by the first scorer with a value comes first, systems without its average last.
    Counts are of answers (queries x repeats) and judgements; the `n` of a mean is the
    number of queries that have a score, the row's `n` that of all queries. `avg_fixed`
    weights category means by the published counts, as the paper's AVG does (MMIE, Tables
    1, 3 and 4); `avg_micro` is the mean over all scored queries.
    """
    rows = _rows_of_systems(board)
    _sort_by_first_value(board, rows)
    # What follows compares systems with each other or with published figures, so it needs
    # the means of all rows.
    for scorer in board.scorers:
        _add_ranks(board, scorer, rows)
        _add_drawn_judge(board, scorer, rows)
    _add_reasons(board, rows)
    _add_published(board, rows)
    return rows


def _rows_of_systems(board: Board) -> list[dict[str, Any]]:
    """Return what each system's row says by itself, in the order of the board."""
    scores = {scorer.name: _scores(board, scorer) for scorer in board.scorers}
    rows = []
    for i, system in enumerate(board.systems):
        row: dict[str, Any] = {
            "system": system.name,
            "weights": weights_of(system),
            "n": board.n,
            "repeats": board.rounds,
        }
        if levers := levers_of(system):
            row["levers"] = levers
        row |= _counts(board, system.name, board.groups, scores, board.answers)
        row |= board.mark_of(system.name)
        row["scores"] = {}
        for scorer, by_system in scores.items():
            row["scores"][scorer] = by_system[i]
        rows.append(row)
    return rows


def _sort_by_first_value(board: Board, rows: list[dict[str, Any]]) -> None:
    """Sort rows by the first scorer that has an average of any system."""
    for scorer in board.scorers:
        place = placing(rows, scorer)
        if any(place(row) < math.inf for row in rows):
            rows.sort(key=place)
            return


def _add_reasons(board: Board, rows: Iterable[dict[str, Any]]) -> None:
    """Add why answers and judgements are missing, with how often."""
    reasons = count_reasons(missing_values(board), board.system_names)
    for row in rows:
        row["reasons"] = reasons[row["system"]]


def _add_published(board: Board, rows: Sequence[dict[str, Any]]) -> None:
    """Add the published figures of a system, where a pinned protocol has any."""
    by_system: dict[str, list[Any]] = {}
    for figure in comparisons_of(board, rows):
        by_system.setdefault(figure.system, []).append(figure.as_json)
    for row in rows:
        if row["system"] in by_system:
            row["published"] = by_system[row["system"]]


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
    # Only those that are ranked stand before others: no ground truth, and no control.
    ranked = np.array([places[name] for name in ranges])
    for row in rows:
        range95 = ranges.get(row["system"])
        if range95 is not None:
            better = int((ranked < place(row)).sum())
            rank = {"value": 1 + better, "range95": [*range95]}
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
    # Sorting is ascending, so that the best has to be the least.
    sign = -1 if scorer.direction == "higher" else 1

    def place(row: LeaderboardRow) -> float:
        value = row["scores"][scorer.name][average]["mean"]
        return math.inf if value is None else float(sign * value)

    return place


class _MeansOfScorer(NamedTuple):
    """Every mean of one scorer, each as the cells of all systems, in their order."""

    fixed: Sequence[Cell]
    micro: Sequence[Cell]
    categories: Mapping[str, Sequence[Cell]]
    fields: Mapping[str, Sequence[Cell]]

    def of_system(self, place: int) -> dict[str, Any]:
        """Return the cells of the system at a place."""
        categories = {}
        for name, cells in self.categories.items():
            categories[name] = cells[place]
        fields = {}
        for name, cells in self.fields.items():
            fields[name] = cells[place]
        averages = {FIXED: self.fixed[place], MICRO: self.micro[place]}
        return averages | {"categories": categories, "fields": fields}


def _scores(board: Board, scorer: Scorer) -> list[dict[str, Any]]:
    """Return what one scorer says of each system: every mean, and how it judged."""
    means = _means_of_scorer(board, scorer)
    about: dict[str, Any] = {"scale": scorer.scale, "direction": scorer.direction}
    if scorer.manner:
        about["manner"] = scorer.manner
    people = [figure.as_json for figure in agreement_of(scorer, board.agreement)]
    if people:
        about["agreement"] = people
    rows = []
    for place, system in enumerate(board.system_names):
        row = about | _as_released(board, scorer, system)
        row |= means.of_system(place)
        row |= _criteria(board, scorer, system)
        rows.append(row)
    return rows


def _means_of_scorer(board: Board, scorer: Scorer) -> _MeansOfScorer:
    """Return every mean of a scorer; of one of sets only the figure of all images."""
    silent = _silent_categories(board, scorer)
    everything = [*board.groups]
    if scorer.of_sets:
        # FID and its kin are one figure of all images: no mean, and none of a part.
        figures = board.figures[scorer.name]
        micro = _cells(board, scorer, everything, figures, board.answers)
        whole = [Estimate(None, reason="a figure of all images alone")] * len(figures)
        fixed = _cells(board, scorer, everything, whole)
    else:
        micro = _part(board, scorer, everything, (), board.answers)
        # Categories that a scorer does not apply to count in no average.
        weighted = [name for name in board.categories if name not in silent]
        fixed = _means_by_fixed_weights(board, scorer, weighted)
    categories = {}
    for name in board.category_names:
        categories[name] = _part(board, scorer, board.groups_of_category(name), silent)
    fields = {}
    for name in board.field_names:
        fields[name] = _part(board, scorer, board.groups_of_field(name), silent)
    return _MeansOfScorer(fixed, micro, categories, fields)


def _silent_categories(board: Board, scorer: Scorer) -> set[str]:
    """Return the categories that a scorer applies to no answer of."""
    outcomes: dict[str, set[str]] = {}
    for category in board.category_names:
        outcomes[category] = set()
    for (_, category, _), tally in board.tallies.items():
        for name, outcome in tally:
            if name == scorer.name:
                outcomes[category].add(outcome)
    # A category without any judgement is not silent: the scorer has not been asked yet.
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
        ends = ends_of(scorer.scale)
        means = [mean(of_system, ends) for of_system in values.T]
    if groups and all(group.category in silent for group in groups):
        means = [replace(estimate, reason="not applicable") for estimate in means]
    return _cells(board, scorer, groups, means, planned)


def _means_by_fixed_weights(
    board: Board, scorer: Scorer, categories: Sequence[str]
) -> list[dict[str, Any]]:
    """Return category means under the published weights; none while one is empty."""
    groups: list[Group] = []
    values = {}
    for category in categories:
        own = board.groups_of_category(category)
        groups += own
        values[category] = board.values[scorer.name][board.rows_of(own)]
    means = []
    for place in range(len(board.systems)):
        strata = []
        for category, of_systems in values.items():
            weight = board.categories[category]
            strata.append(Stratum(category, weight, of_systems[:, place]))
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
    """Return the means of all systems as cells, each with the counts behind it.

    `planned` is the number of answers planned of each system; by default that of the
    queries of `groups`, which a query that nobody has answered yet is in none of.
    """
    cells = []
    for estimate, system in zip(means, board.systems, strict=True):
        cell = estimate.as_json("mean") | {"scale": scorer.scale}
        cells.append(cell | _counts(board, system.name, groups, [scorer.name], planned))
    return cells


def _as_released(board: Board, scorer: Scorer, system: str) -> dict[str, Any]:
    """Return n, averages of raw scores (0 to 6, rounded as printed) and the percent.

    Of a judge of aspects, their means (0 to 10) and `Overall`; of SpecV's, the mean of each
    track and `Average`; of GEdit's, ImgEdit's, Unison's and IMUG-Bench's, means by
    language, type, task or turn. Over all repeats, as a file with every answer would give.
    Empty for other judges.
    """
    if not scorer.released_summary:
        return {}
    own = board.column["system"].is_(system)
    if scorer.released_summary in ("specv", "imgedit"):
        judged = own & board.is_score & board.column["scorer"].is_(scorer.name)
        scored = judged & board.column["outcome"].is_(SCORED)
        scores = board.rows(scored, *_BY_DIMENSION)
        if scorer.released_summary == "specv":
            return {"as_released": specv_summary(_dimensions_run(board, system), scores)}
        return {"as_released": imgedit_summary(board.category_names, scores)}
    if scorer.released_summary == "gedit":
        return {"as_released": gedit_summary(_gedit_values(board, scorer, own))}
    # All others are made of what a judge ruled on criteria, not of its score.
    if scorer.released_summary == "unison":
        rulings = board.rows(own & board.rulings(scorer.name), *_BY_TASK)
        values = (UnisonValue(*ruling) for ruling in rulings)
        tasks = board.category_names
        return {"as_released": unison_summary(tasks, values)}
    if scorer.released_summary == "imug":
        rulings = board.rows(own & board.rulings(scorer.name), *_BY_TASK)
        return {"as_released": imug_summary(ImugValue(*ruling) for ruling in rulings)}
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

    None of a track on which a system made no answer: the released program averages over
    the tracks that it was run on, and takes a dimension of these without scores for 0.
    """
    found: dict[str, list[str]] = {}
    for track in board.field_names:
        groups = board.groups_of_field(track)
        outcomes = Counter[tuple[str, str]]()
        for group in groups:
            outcomes.update(board.tallies[system, *group])
        made = outcomes["", DONE] + outcomes["", OutcomeName.FAILED]
        found[track] = [group.category for group in groups] if made else []
    return found


def _counts(
    board: Board,
    system: str,
    groups: Iterable[Group],
    scorers: Iterable[str],
    planned: int | None = None,
) -> dict[str, int]:
    """Return how many answers of a system, and judgements of them, have which outcome.

    The keys are those of `COUNTS`, in that order; judgements of all `scorers` together.
    """
    tally = Counter[tuple[str, str]]()
    asked = 0
    for group in groups:
        tally.update(board.tallies[system, *group])
        asked += len(board.groups[group]) * board.rounds
    planned = asked if planned is None else planned
    counts = {str(name): tally["", name] for name in DOCUMENT_OUTCOMES}
    # What has no row at all is missing, too.
    counts["missing"] = planned - sum(counts.values())
    judged = dict[str, int]()
    for outcome in SCORE_OUTCOMES:
        name = outcome.of_scores
        judged[name] = sum(tally[scorer, name] for scorer in scorers)
    return {"planned": planned} | counts | judged


def rank(board: Board, scorer: Scorer | None = None) -> list[dict[str, Any]]:
    """Return the rows of the leaderboard, the best by a scorer first, else by the first.

    The ground truth and its controls come last.
    """
    rows = leaderboard(board)
    if scorer is not None:
        rows = sorted(rows, key=placing(rows, scorer))
    return sorted(rows, key=lambda row: is_reference(row["system"]))


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


def reasons_of(board: Board) -> list[tuple[str, Reasons]]:
    """Return the most frequent reasons by system, in the order of the leaderboard."""
    return [(row["system"], row["reasons"]) for row in leaderboard(board)]


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
            # As they are shown: a mean that differs in its tenth digit has not changed.
            old = f"{form.number(then['mean'])} (n={then['n']})"
            new = f"{form.number(now['mean'])} (n={now['n']})"
            if old != new:
                lines.append(f"{scorer.name} of {row['system']}: {old}, now {new}")
    return lines
