"""Judges' scores: of a run's records, or of a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from benchmarks.annotations.ratings import About, Ratings, Unit, read_ratings
from benchmarks.annotations.values import Value
from benchmarks.results.board import Board, score_outcome, score_value
from benchmarks.runs.experiment import reopen
from cluster.plan import Evaluation, outcome_name
from cluster.store import Store
from generators.document import Malformed
from generators.names import unknown


def read_scores(path: Path, *, scale: str, scorers: Collection[str] = ()) -> Ratings:
    """The scores of a run directory, or of a file (`read_ratings`, rater `scorer`).

    Of all scorers, or of those named; UsageError for names that are not there.
    """
    if path.is_dir():
        return of_board(reopen(path).board(Store(path)), scorers)
    found = read_ratings(path, rater="scorer", unnamed=path.stem, scale=scale)
    there = {*found.values, *found.missing}
    _refuse_unknown(scorers, there)
    kept = set(scorers) or there
    return Ratings(
        form=found.form,
        values={name: v for name, v in found.values.items() if name in kept},
        missing={name: v for name, v in found.missing.items() if name in kept},
        about=found.about,
        scales=found.scales,
    )


def of_board(board: Board, scorers: Collection[str] = ()) -> Ratings:
    """The scores of a run; what has none is missing for the reason the counts name."""
    scales = {s.name: s.scale for s in board.scorers}
    _refuse_unknown(scorers, scales)
    names = [name for name in scales if name in (scorers or scales)]
    values: dict[str, dict[Unit, Value]] = {name: {} for name in names}
    missing: dict[str, dict[Unit, str]] = {name: {} for name in names}
    about: dict[Unit, About] = {}
    for e in board.evaluations:
        if isinstance(e.sample, Malformed):
            continue
        unit = Unit(e.sample.id, e.system, e.repeat)
        about[unit] = About(e.sample.category)
        for name in names:
            value, why = _score(e, name)
            if value is None:
                missing[name][unit] = why
            else:
                values[name][unit] = value
    return Ratings(form="score", values=values, missing=missing, about=about, scales=scales)


def _score(evaluation: Evaluation, scorer: str) -> tuple[float | None, str]:
    outcome = evaluation.scores.get(scorer)
    if outcome is None:
        return None, f"answer {outcome_name(evaluation.document)}"
    return score_value(outcome), score_outcome(outcome).replace("_", " ")


def _refuse_unknown(asked: Collection[str], there: Iterable[str]) -> None:
    known = list(there)
    for name in asked:
        if name not in known:
            raise unknown("scorer", name, known)
