"""Known truth in the place of people: a scorer that the others of a run are set beside."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from benchmarks.studies.agreement.ratings import RatingsByRater, read_scores
from generators.errors import UsageError

TRUTH = "truth:"


def is_truth(human: Path) -> bool:
    """Whether `truth:NAME` stands where a file of people's annotations does."""
    return str(human).startswith(TRUTH) and not human.exists()


def scores_and_truth(
    path: Path, name: str, *, scale: str, scorers: Collection[str] = ()
) -> tuple[RatingsByRater, RatingsByRater]:
    """The scores of the scorers (by default of all others), and those of truth.

    UsageError where truth has scored nothing there, or is all there is.
    """
    both = read_scores(path, scale=scale)
    known = {*both.values, *both.missing}
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"{path} has no scores of {name!r}; its scorers: {names}; "
            f"`plait score {path} --scorer {name}` adds it"
        )
    others = set(scorers) or known - {name}
    if not others - {name}:
        raise UsageError(f"{path} has no other scorer to set beside {name!r}")
    selected = read_scores(path, scale=scale, scorers=sorted(others - {name}))
    return selected, _only(both, name)


def _only(ratings: RatingsByRater, name: str) -> RatingsByRater:
    return replace(
        ratings,
        values={name: ratings.values.get(name, {})},
        missing={name: ratings.missing.get(name, {})},
    )
