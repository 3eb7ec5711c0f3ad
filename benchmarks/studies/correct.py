"""`plait correct`: a judge's scores of all answers, corrected by people's ratings of some.

    correction = correct(board, Path("annotations.csv"), CorrectSettings(scorer="judge:x"))
    correction.systems["anole"].corrected           # mean rating of all its answers
    correction.tables; correction.as_json

Ratings of answers that were chosen at random correct a judge whatever its faults
(`scorers/statistics/corrected.py`); of answers chosen otherwise they correct nothing. So
each file of ratings has to say how its answers were chosen: `plait annotate` writes that
down (`drawing.py`), of others the user states it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.studies.annotate import units_to_show
from plait.benchmarks.studies.annotations import (
    RatedDocuments,
    Unit,
    ends_of,
    read_ratings,
    read_rows,
)
from plait.benchmarks.studies.correction import Correction, StratumShare
from plait.benchmarks.studies.drawing import Draw, read_draw
from plait.benchmarks.terminal import command_text
from plait.generators.base import OutcomeName
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.names import unknown
from plait.scorers.base import Scorer, bounds
from plait.scorers.statistics.corrected import (
    Corrected,
    RatedAnswers,
    correct_difference,
    correct_mean,
)
from plait.scorers.statistics.means import PERCENT, Ends, paired_differences
from plait.scorers.statistics.rogan_gladen import RoganGladen, rogan_gladen

RANDOM = "random"
STRATA = ("category", "field")
"""Columns of the run's table that are known of every answer, rated or not."""
USUAL_SCALE = "0-6"
"""Of people's scores where nothing else is said, as in `plait agreement`."""
_PERCENT_SCALE = "0-100"
_WON = {"system": 100.0, "undecided": 50.0, "baseline": 0.0}
"""A vote's value for the system; a tie is half a win."""
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectSettings:
    """The settings of `plait correct`."""

    scorer: str | None = None
    """Whose scores are corrected; None where the run has one alone."""
    drawn: str | None = None
    """`random`: the user states that the rated answers were chosen at random."""
    strata: str | None = None
    """`category` or `field`: they were chosen at random within each, at shares of its own,
    or each is to have its own means."""
    scale: str = ""
    """Of people's scores; by default 0-6."""


@dataclass(frozen=True)
class _JudgeScores:
    """What a judge says of answers, or of pairs of them, on the scale of the ratings."""

    values: Mapping[Unit, float]
    lost: Mapping[Unit, str] = field(default_factory=dict)
    """Why there is no value."""


class _People(NamedTuple):
    """What people say of answers, or of pairs of them: means over raters."""

    values: Mapping[Unit, float]
    raters: int
    blank: int
    """Ratings left blank."""


def correct(
    board: Board, root: AnyPath, ratings: Path | None, settings: CorrectSettings
) -> Correction:
    """Return a judge's means and differences of the systems of a run, corrected by ratings.

    `ratings` are by default those that `plait annotate --collect` has written in `root`.
    Votes on pairs correct win rates. UsageError where nothing can be corrected: for ratings
    that were not chosen at random, of no answer of the run, or of none that is scored.
    """
    if settings.drawn not in (None, RANDOM):
        raise unknown("way of drawing", settings.drawn or "", [RANDOM])
    if settings.strata not in (None, *STRATA):
        raise unknown("column of strata", settings.strata or "", STRATA)
    scorer = _scorer_of(board, settings.scorer)
    path = ratings or _find_ratings(root)
    draw, statement = _statement_of(path, settings)
    answers = {*units_to_show(board, pairs=False)}
    read = _read(path, settings.scale, answers)
    # Votes on pairs correct win rates, scores correct means: the rest is the same.
    of_pairs = read.form != "score"
    scale = _PERCENT_SCALE if of_pairs else _scale_of(path, read)
    people = _people(read)
    known = answers
    if draw is not None:
        known = _population_of(board, draw)
    elif of_pairs:
        known = _pairs_of_rated(board, people)
    rated = _ratings_of_known(people, known, path, of_pairs=of_pairs)
    judge = _judge_scores(board, scorer, ends_of(scale), known, of_pairs=of_pairs)
    _check_scored(rated, judge, board, root, scorer)
    strata = _strata_of(board, settings.strata)
    groups = _groups(known, judge, rated, strata, of_pairs=of_pairs, scorer=scorer)
    rated_groups = {}
    without = []
    for name, group in groups.items():
        if group.is_rated:
            rated_groups[name] = group
        else:
            without.append(name)
    notes = [
        *_notes_on_ratings(people, rated, known),
        *_notes_on_scores(rated, known, judge, scorer),
        *_notes_on_systems(rated_groups, without),
    ]
    if of_pairs:
        estimates = _win_rates(rated_groups)
    else:
        estimates = _means(rated_groups, ends_of(scale))
    return Correction(
        scorer=scorer.name,
        form="votes" if of_pairs else "scores",
        scale=scale,
        drawn=statement,
        raters=people.raters,
        strata=_shares(rated_groups.values(), settings.strata),
        notes=tuple(notes),
        **estimates,
    )


# --------------------------------------------------------------------------- what there is


def _scorer_of(board: Board, name: str | None) -> Scorer:
    """Return the scorer of that name, or the only one; UsageError where there is none."""
    single = board.scorers_of_answers
    if name is None:
        if len(single) == 1:
            return next(iter(single.values()))
        names = ", ".join(single) or "none"
        raise UsageError(f"name the scorer to correct with --scorer; the run has: {names}")
    if name in single:
        return single[name]
    if name in board.scorer_names:
        raise UsageError(f"{name} has one figure of all images, and no score of an answer")
    raise unknown("scorer of the run", name, single)


def _find_ratings(root: AnyPath) -> Path:
    """Return the ratings in the folder of a run; UsageError where there are none."""
    path = root / "annotate" / "annotations.csv"
    if not isinstance(path, Path) or not path.is_file():
        raise UsageError(
            f"{path} is not there; `{command_text('plait', 'annotate', root)}` has people "
            "rate answers, and with --collect writes it; or name a file of ratings"
        )
    return path


def _statement_of(path: Path, settings: CorrectSettings) -> tuple[Draw | None, str]:
    """Return how the answers were drawn, and in words; UsageError where nobody says."""
    stated = bool(settings.drawn or settings.strata)
    # What the user states of the whole run goes before what was noted.
    draw = None if settings.drawn else read_draw(path, stated=stated)
    within = f", each {settings.strata} with its own means" if settings.strata else ""
    if draw is not None:
        return draw, f"{draw}{within}"
    if settings.drawn:
        return None, f"at random, as --drawn random states{within}"
    if settings.strata:
        return None, f"at random within each {settings.strata}, as --strata states"
    raise UsageError(
        f"nothing says how the answers in {path} were chosen, and ratings of answers that "
        "were not chosen at random correct nothing. If they were, add --drawn random; if "
        "they were within categories or fields, at other shares in some, add --strata "
        "category or --strata field; `plait annotate` draws answers and notes it"
    )


def _read(path: Path, scale: str, known: Collection[Unit]) -> RatedDocuments:
    """Return the ratings in a file; UsageError, with the scale that they are taken on."""
    usual = scale or USUAL_SCALE
    ends_of(usual)
    try:
        read = read_ratings(
            path, rater="annotator", unnamed="people", scale=usual, known=known
        )
    except UsageError as error:
        if scale or "score" not in read_rows(path)[0].values:
            raise
        raise UsageError(
            f"{error}. Scores are taken to be on {usual}; --scale LOW-HIGH names another "
            "scale"
        ) from None
    if read.form == "vote" and any(not unit.baseline for unit in read.about):
        raise UsageError(
            f"{path}: a vote needs the column baseline, the system beside which the answer "
            "was shown"
        )
    return read


def _scale_of(path: Path, read: RatedDocuments) -> str:
    """Return the one scale of people's scores; UsageError where raters have several."""
    scales = {*read.scales.values()}
    if len(scales) > 1:
        named = ", ".join(f"{name} {own}" for name, own in sorted(read.scales.items()))
        raise UsageError(f"{path}: raters use several scales ({named}); one file has one")
    return next(iter(scales))


def _people(read: RatedDocuments) -> _People:
    """Return means over raters, of votes in percent of a win of the unit's system."""
    given: dict[Unit, list[float]] = defaultdict(list)
    for values in read.values.values():
        for unit, value in values.items():
            number = _points(value, read.form)
            # A pair has one name, whichever system the file names first.
            if unit.baseline and unit.system > unit.baseline:
                unit = unit._replace(system=unit.baseline, baseline=unit.system)
                number = 100.0 - number
            given[unit].append(number)
    means = {unit: float(np.mean(own)) for unit, own in given.items()}
    blank = sum(len(units) for units in read.missing.values())
    return _People(means, len(read.raters), blank)


def _points(value: object, form: Literal["score", "preference", "vote"]) -> float:
    """Return a score as it is, of a vote or preference what it is worth of a win."""
    if form == "vote":
        return _WON[str(value)]
    number = cast(float, value)
    if form == "score":
        return number
    return 50.0 + 50.0 * float(np.sign(number))


def _pairs_of_rated(board: Board, people: _People) -> set[Unit]:
    """Return all pairs of answers of the systems that people have compared."""
    rated = set[str]()
    for unit in people.values:
        rated |= {unit.system, unit.baseline}
    names = [system.name for system in board.systems if system.name in rated]
    # Without a name, `units_to_show` would show all systems.
    return {*units_to_show(board, names, pairs=True)} if names else set()


def _population_of(board: Board, draw: Draw) -> set[Unit]:
    """Return the answers, or pairs, that the rated ones were drawn from; UsageError."""
    # Ratings of a random sample stand for the answers that it was drawn from, and not for
    # those that came later.
    there = {system.name for system in board.systems}
    gone = [name for name in draw.systems if name not in there]
    found = set[Unit]()
    if not gone:
        found = {*units_to_show(board, draw.systems, pairs=draw.pairs)}
    if gone or len(found) != draw.of + len(draw.gold):
        changed = f"it no longer has {_list_names(gone)}" if gone else f"now {len(found):,}"
        raise UsageError(
            f"the run has changed since raters' items were drawn from "
            f"{draw.of + len(draw.gold):,} answers or pairs ({changed}): draw and rate "
            "anew, or state with --drawn random that the rated ones are a random sample "
            "of what the run has now"
        )
    return found - {*draw.gold}


def _ratings_of_known(
    people: _People, known: Collection[Unit], path: Path, *, of_pairs: bool
) -> dict[Unit, float]:
    """Return the ratings of what the run has; UsageError where it has none of it."""
    rated = {unit: value for unit, value in people.values.items() if unit in known}
    if rated:
        return rated
    what = "pairs of answers" if of_pairs else "answers"
    examples = [_place(min(units)) for units in (people.values, known) if units]
    raise UsageError(
        f"none of the {len(people.values):,} {what} rated in {path} is among the "
        f"{len(known):,} that the run has; the first of each: {' / '.join(examples)}"
    )


def _place(unit: Unit) -> str:
    """Name an answer, or a pair of answers, for people."""
    systems = _against(unit.system, unit.baseline)
    repeat = f", repeat {unit.repeat}" if unit.repeat else ""
    return f"{unit.id} of {systems}{repeat}"


def _against(system: str, baseline: str) -> str:
    return f"{system} against {baseline}" if baseline else system


# ---------------------------------------------------------------------------- judge's side


def _judge_scores(
    board: Board, scorer: Scorer, ends: Ends, known: Collection[Unit], *, of_pairs: bool
) -> _JudgeScores:
    """Return the scores on the scale between `ends`; of pairs, percent of a win."""
    own = _scores(board, scorer)
    values: dict[Unit, float] = {}
    if not of_pairs:
        for unit, score in own.values.items():
            values[unit] = _map_score(score, scorer, ends)
        return _JudgeScores(values, own.lost)
    opponent = _opponent_of(scorer)
    lost: dict[Unit, str] = {}
    for pair in known:
        if opponent:
            value = _beside(pair, opponent, own, scorer)
        else:
            value = _better(pair, own, scorer)
        if value is not None:
            values[pair] = value
        else:
            # Of two reasons that of the first answer is told.
            reasons = [own.lost[side] for side in pair.sides if side in own.lost]
            lost[pair] = reasons[0] if reasons else "not judged"
    return _JudgeScores(values, lost)


def _scores(board: Board, scorer: Scorer) -> _JudgeScores:
    """Return the scores as they are, by answer."""
    rows = board.column["scorer"].is_(scorer.name) & (board.column["criterion"].codes < 0)
    values: dict[Unit, float] = {}
    lost: dict[Unit, str] = {}
    columns = ("query", "system", "repeat", "outcome", "value")
    for id, system, repeat, outcome, value in board.rows(rows, *columns):
        # Tables count repeats from 1, units from 0.
        unit = Unit(id, system, repeat - 1)
        name = OutcomeName(outcome)
        if value is not None:
            values[unit] = value
        elif name != OutcomeName.NO_DOCUMENT:
            lost[unit] = name.of_scores.replace("_", " ")
    return _JudgeScores(values, lost)


def _map_score(value: float, scorer: Scorer, onto: Ends) -> float:
    """Return the place of a score on people's scale, higher being better.

    One without a scale stays as it is, since lambda finds out what it is worth.
    """
    lower = scorer.direction == "lower"
    ends = bounds(scorer.scale)
    if ends is None:
        return -value if lower else value
    share = (value - ends[0]) / (ends[1] - ends[0])
    return onto[0] + (1 - share if lower else share) * (onto[1] - onto[0])


def _opponent_of(scorer: Scorer) -> str:
    """Return the system beside whose answers a scorer of pairs judged; else empty."""
    settings: Mapping[str, object] = getattr(scorer, "settings", {})
    return scorer.opponent or str(settings.get("baseline") or "")


def _beside(pair: Unit, opponent: str, own: _JudgeScores, scorer: Scorer) -> float | None:
    """Return what a scorer of pairs says for the pair's system, if it judged the pair."""
    for side, other in (pair.sides, pair.sides[::-1]):
        if other.system == opponent and side in own.values:
            value = _map_score(own.values[side], scorer, PERCENT)
            return value if side == pair.sides[0] else 100.0 - value
    return None


def _better(pair: Unit, own: _JudgeScores, scorer: Scorer) -> float | None:
    """Return 100 where the system's answer has the better score, 50 for equal ones."""
    first, second = pair.sides
    if first not in own.values or second not in own.values:
        return None
    one = np.array([own.values[first]])
    other = np.array([own.values[second]])
    better = float(np.sign(paired_differences(one, other)[0]))
    return 50.0 + 50.0 * (-better if scorer.direction == "lower" else better)


def _check_scored(
    rated: Mapping[Unit, float],
    judge: _JudgeScores,
    board: Board,
    root: AnyPath,
    scorer: Scorer,
) -> None:
    """Raise UsageError where no rated answer has a score, with what can still be had."""
    if any(unit in judge.values for unit in rated):
        return
    told = _count_reasons(judge.lost.get(unit, "not scored") for unit in rated)
    others = []
    for one in board.scorers:
        if one.name == scorer.name or one.of_sets:
            continue
        own = _scores(board, one).values
        scored = 0
        for unit in rated:
            # Of a comparison both answers need a score.
            scored += own.keys() >= {*_sides(unit)}
        if scored:
            others.append(f"{one.name} ({scored:,})")
    again = command_text("plait", "score", root, "--scorer", scorer.name)
    rest = f"; rated answers scored by others: {', '.join(others)}" if others else ""
    raise UsageError(
        f"{scorer.name} has no score of any of the {len(rated):,} rated answers ({told}); "
        f"`{again}` tries again{rest}"
    )


def _sides(unit: Unit) -> Sequence[Unit]:
    """Return the answers that a unit is of: one, or the two of a pair."""
    return unit.sides if unit.baseline else [unit]


def _count_reasons(reasons: Iterable[str]) -> str:
    """Return how often each reason is given, the most frequent first."""
    counts = Counter(reasons)
    return ", ".join(f"{n:,} {reason}" for reason, n in counts.most_common())


# ------------------------------------------------------------------------------- estimates

_Name = tuple[str, str]
"""A system, and the one beside which it was shown; of single answers that is empty."""


@dataclass(frozen=True)
class _Group:
    """All answers of a system, or to a pair of systems, that the judge has scored."""

    parts: Sequence[RatedAnswers]

    @property
    def is_rated(self) -> bool:
        """Whether one of them is rated."""
        return any(part.is_rated.any() for part in self.parts)

    def only(self, queries: Collection[str]) -> Sequence[RatedAnswers]:
        """Return its parts, of these queries alone."""
        parts = []
        for part in self.parts:
            rows = []
            names = []
            for row, query in enumerate(part.queries):
                if query in queries:
                    rows.append(row)
                    names.append(query)
            parts.append(
                RatedAnswers(names, part.judged[rows], part.rated[rows], part.stratum)
            )
        return parts

    @property
    def queries(self) -> set[str]:
        """The queries of all parts."""
        found = set[str]()
        for part in self.parts:
            found.update(part.queries)
        return found


@dataclass(frozen=True)
class _Columns:
    """Answers of one stratum while they are gathered, a row for each."""

    queries: list[str] = field(default_factory=list)
    judged: list[float] = field(default_factory=list)
    rated: list[float] = field(default_factory=list)
    """NaN where nobody has rated it."""


def _strata_of(board: Board, column: str | None) -> Mapping[str, str]:
    """Return the stratum of each query; empty where there are none."""
    if column is None:
        return {}
    found = {}
    for query, name in board.rows(board.is_answer, "query", column):
        found[query] = name or "none"
    return found


def _groups(
    known: Collection[Unit],
    judge: _JudgeScores,
    rated: Mapping[Unit, float],
    strata: Mapping[str, str],
    *,
    of_pairs: bool,
    scorer: Scorer,
) -> dict[_Name, _Group]:
    """Return what the judge has scored by system or pair, in parts by stratum."""
    opponent = _opponent_of(scorer) if of_pairs else ""
    by_name: dict[_Name, dict[str, _Columns]] = {}
    for unit in sorted(known):
        if unit not in judge.values:
            continue
        judged = judge.values[unit]
        rating = rated.get(unit, math.nan)
        name = (unit.system, unit.baseline)
        if unit.system == opponent:
            # The system that others are judged beside is the baseline here, too.
            name = (unit.baseline, unit.system)
            judged = 100.0 - judged
            rating = 100.0 - rating
        by_stratum = by_name.setdefault(name, {})
        columns = by_stratum.setdefault(strata.get(unit.id, ""), _Columns())
        columns.queries.append(unit.id)
        columns.judged.append(judged)
        columns.rated.append(rating)
    groups = {}
    for name, by_stratum in by_name.items():
        parts = []
        for stratum, columns in sorted(by_stratum.items()):
            judged_by_row = np.array(columns.judged)
            rated_by_row = np.array(columns.rated)
            parts.append(
                RatedAnswers(columns.queries, judged_by_row, rated_by_row, stratum)
            )
        groups[name] = _Group(parts)
    return groups


def _win_rates(groups: Mapping[_Name, _Group]) -> dict[str, Any]:
    """Return what a `Correction` by votes has."""
    rates = {}
    for name, group in groups.items():
        rates[name] = correct_mean(group.parts, PERCENT)
    return {"win_rates": rates}


def _means(groups: Mapping[_Name, _Group], ends: Ends) -> dict[str, Any]:
    """Return what a `Correction` by scores has."""
    means = {}
    for (system, _), group in groups.items():
        means[system] = correct_mean(group.parts, ends)
    return {
        "systems": means,
        "pairs": _differences(groups, ends),
        "yes_no": _shares_of_yes(groups, ends),
    }


def _differences(
    groups: Mapping[_Name, _Group], ends: Ends
) -> dict[tuple[str, str], Corrected]:
    """Return the differences of each two systems, on the queries that both answered."""
    found = {}
    for one, other in combinations(groups, 2):
        common = groups[one].queries & groups[other].queries
        first = groups[one].only(common)
        second = groups[other].only(common)
        found[one[0], other[0]] = correct_difference(first, second, ends)
    return found


def _shares_of_yes(groups: Mapping[_Name, _Group], ends: Ends) -> dict[str, RoganGladen]:
    """Return the shares of yes where people and judge say nothing but the scale's ends."""
    low, high = ends
    width = high - low
    shares = {}
    for (name, _), group in groups.items():
        parts = []
        for part in group.parts:
            judged = (part.judged - low) / width
            ratings = (part.rated - low) / width
            values = np.concatenate([judged, ratings[part.is_rated]])
            if not np.isin(values, (0.0, 1.0)).all():
                # One system with values between them is enough: the scale is not yes or no.
                return {}
            parts.append(RatedAnswers(part.queries, judged, ratings, part.stratum))
        shares[name] = rogan_gladen(parts)
    return shares


def _shares(groups: Iterable[_Group], column: str | None) -> tuple[StratumShare, ...]:
    """Return the share of answers and of ratings in each stratum, where there are any."""
    if column is None:
        return ()
    answers = Counter[str]()
    rated = Counter[str]()
    for group in groups:
        for part in group.parts:
            answers[part.stratum] += len(part.rated)
            rated[part.stratum] += int(part.is_rated.sum())
    return tuple(StratumShare(name, n, rated[name]) for name, n in sorted(answers.items()))


# ----------------------------------------------------------------------------------- notes


def _notes_on_ratings(
    people: _People, rated: Mapping[Unit, float], known: Collection[Unit]
) -> Iterator[str]:
    if people.blank:
        yield f"ratings left blank, which are left out: {people.blank:,}"
    strangers = [unit for unit in people.values if unit not in rated]
    if strangers:
        ids = set()
        systems = set()
        for unit in known:
            ids.add(unit.id)
            systems |= {unit.system, unit.baseline}
        told = _count_reasons(_unknown(unit, ids, systems) for unit in strangers)
        examples = _list_names([*map(_place, sorted(strangers))])
        yield f"ratings of what the run does not have, left out: {told} ({examples})"


def _unknown(unit: Unit, ids: Collection[str], systems: Collection[str]) -> str:
    if unit.id not in ids:
        return "unknown id"
    if unit.system not in systems or (unit.baseline and unit.baseline not in systems):
        return "unknown system"
    return "no such answer, or one that could not be drawn"


def _notes_on_scores(
    rated: Mapping[Unit, float],
    known: Collection[Unit],
    judge: _JudgeScores,
    scorer: Scorer,
) -> Iterator[str]:
    """Yield what the judge did not score: the means are of what it did."""
    systems = {(unit.system, unit.baseline) for unit in rated}
    asked = 0
    lost = []
    for unit in known:
        # Of systems that nobody rated nothing is corrected.
        if (unit.system, unit.baseline) not in systems:
            continue
        asked += 1
        if unit not in judge.values:
            lost.append(unit)
    if lost:
        told = _count_reasons(judge.lost.get(unit, "not scored") for unit in lost)
        of_rated = len(rated.keys() & {*lost})
        yield (
            f"all means are of what {scorer.name} has scored; {len(lost):,} of "
            f"{asked:,} have no score ({told}), {of_rated:,} of which are rated"
        )
    if bounds(scorer.scale) is None:
        yield f"{scorer.name} has no scale of the form LOW-HIGH: its scores are as they are"


def _notes_on_systems(rated: Collection[_Name], without: Sequence[_Name]) -> Iterator[str]:
    if without:
        names = [_against(system, baseline) for system, baseline in without]
        yield f"no ratings, so nothing is corrected: {_list_names(names)}"
    if len(rated) == 1:
        ((system, baseline),) = rated
        if not baseline:
            yield f"only {system} was rated: a difference needs two systems"


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
