"""The data of a leaderboard: evaluations, counted and laid out as arrays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cluster.plan import Evaluation, outcome_name
from generators.base import Outcome, Result
from generators.document import Malformed, Sample, Score
from generators.mini.table import ABOUT, ABOUT_JUDGE
from generators.system import System
from scorers.base import Scorer
from scorers.statistics.estimate import Floats

RANDOM = ("dummy", "tiny")
"""Kinds of weights whose output is meaningless."""
MINI = "mini"
"""The kind of weights whose output says nothing about published models."""


DOCUMENT_OUTCOMES = ("done", "failed", "skipped", "missing")
SCORE_OUTCOMES = ("scored", "unscored", "not_applicable", "failed_scores", "skipped_scores")


Group = tuple[str, str]
"""A category and a field: the smallest set of queries that means are computed over."""


class Query(NamedTuple):
    """A planned query as the tables see it."""

    key: str
    category: str
    field: str


def key_of(sample: Sample | Malformed) -> str:
    """A unique name: a malformed row may have the id of a valid one."""
    if isinstance(sample, Malformed):
        return f"{sample.id} (row {sample.row})"
    return sample.id


def query_of(sample: Sample | Malformed) -> Query:
    """What the tables see of a sample."""
    return Query(key_of(sample), sample.category, sample.field)


@dataclass(frozen=True, kw_only=True, eq=False)
class Board:
    """A run as its tables and its page see it; no models, no store."""

    systems: Sequence[System]
    scorers: Sequence[Scorer]
    evaluations: Sequence[Evaluation]
    categories: Mapping[str, int]
    """Published queries per category, the weights of `avg_fixed`; may be empty."""
    fields: Sequence[str]
    """The task set's fields, in the order of the tables."""
    weights: str
    """`pretrained`, `mini`, `dummy`, `tiny` or `mixed`."""
    selection: str = ""
    """Which part of the task set was selected, for every heading."""
    missing: int = 0
    """Evaluations not yet made, over all systems."""
    repeats: int = 1
    """Answers per query; at least as many as the evaluations show."""

    @cached_property
    def rounds(self) -> int:
        """Answers per query."""
        return max(self.repeats, *(1 + e.repeat for e in self.evaluations), 1)

    @cached_property
    def answers(self) -> int:
        """Answers planned of each system."""
        planned = len(self.evaluations) + self.missing
        return planned // len(self.systems) if self.systems else 0

    @cached_property
    def n(self) -> int:
        """Planned queries."""
        return max(len(self.queries), math.ceil(self.answers / self.rounds))

    @cached_property
    def queries(self) -> list[Query]:
        """The queries that have an evaluation, in the order of their first answer."""
        return list(dict.fromkeys(query_of(e.sample) for e in self.evaluations))

    @cached_property
    def groups(self) -> dict[Group, int]:
        """Known queries by group."""
        return dict(sorted(Counter((q.category, q.field) for q in self.queries).items()))

    @cached_property
    def category_names(self) -> list[str]:
        """Categories in the published order, then any others."""
        return _ordered(self.categories, (q.category for q in self.queries))

    @cached_property
    def field_names(self) -> list[str]:
        """Fields in the task set's order, then any others."""
        return _ordered(self.fields, (q.field for q in self.queries))

    @cached_property
    def tallies(self) -> dict[tuple[str, str, str], Counter[tuple[str, str]]]:
        """Outcomes by (system, category, field), counted under (scorer or "", name)."""
        keys = ((s.name, *group) for s in self.systems for group in self.groups)
        tallies = {key: Counter[tuple[str, str]]() for key in keys}
        for e in self.evaluations:
            tally = tallies[e.system, e.sample.category, e.sample.field]
            tally["", outcome_name(e.document)] += 1
            tally.update((name, score_outcome(o)) for name, o in e.scores.items())
        return tallies

    @cached_property
    def keys(self) -> list[str]:
        """The queries' keys in sorted order: the rows of `values`."""
        return sorted(q.key for q in self.queries)

    @cached_property
    def values(self) -> dict[str, Floats]:
        """By scorer (queries, systems): means over repeats, NaN where none is scored."""
        row = {key: i for i, key in enumerate(self.keys)}
        column = {s.name: i for i, s in enumerate(self.systems)}
        shape = (2, len(row), len(column))
        sums = {s.name: np.zeros(shape) for s in self.scorers}
        # A power of two, with which no sum of large scores overflows.
        unit = 2.0 ** -self.rounds.bit_length()
        for e in sorted(self.evaluations, key=lambda e: e.repeat):
            at = row[key_of(e.sample)], column[e.system]
            for name, outcome in e.scores.items():
                if name in sums and (value := score_value(outcome)) is not None:
                    sums[name][:, *at] += (unit * value, unit)
        with np.errstate(invalid="ignore"):
            return {name: total / count for name, (total, count) in sums.items()}

    @property
    def random_weights(self) -> dict[str, list[str]]:
        """Systems and scorers that ran on random weights, by the kind of weights."""
        return {kind: names for kind in RANDOM if (names := self._of_weights(kind))}

    @property
    def mini_weights(self) -> list[str]:
        """Systems and scorers that ran on mini weights."""
        return self._of_weights(MINI)

    @property
    def about_mini(self) -> str:
        """What mini weights mean for this run's numbers."""
        judged = any(name.startswith("judge:") for name in self.mini_weights)
        return f"{ABOUT}; {ABOUT_JUDGE}" if judged else ABOUT

    def _of_weights(self, kind: str) -> list[str]:
        parts: list[System | Scorer] = [*self.systems, *self.scorers]
        return [p.name for p in parts if any(s.weights == kind for s in p.stages)]

    @property
    def warning(self) -> str:
        """What readers must know before any number; empty if nothing."""
        warnings = []
        if kinds := sorted(self.random_weights.items()):
            named = "; ".join(f"{kind}: {', '.join(parts)}" for kind, parts in kinds)
            warnings.append(f"random weights ({named}): the numbers mean nothing")
        if self.mini_weights:
            named = ", ".join(self.mini_weights)
            warnings.append(f"mini weights ({named}), {self.about_mini}")
        return ". ".join(warnings)


def weights_of(system: System) -> str | None:
    """The weights a system ran on; None where it has none (endpoints)."""
    kinds = {str(s.weights) for s in system.stages if s.weights is not None}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), None)


def score_value(outcome: Outcome[Score]) -> float | None:
    """The score, where there is one that is a finite number."""
    if isinstance(outcome, Result) and math.isfinite(outcome.value.value):
        return float(outcome.value.value)
    return None


def score_outcome(outcome: Outcome[Score]) -> str:
    """One of `SCORE_OUTCOMES`; a value that is not a finite number is unscored."""
    name = outcome_name(outcome)
    if name == "done":
        return "unscored" if score_value(outcome) is None else "scored"
    return f"{name}_scores" if name in ("failed", "skipped") else name


def _ordered(first: Iterable[str], others: Iterable[str]) -> list[str]:
    known = list(first)
    return known + sorted(set(others) - set(known))
