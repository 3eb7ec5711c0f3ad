"""`plait diff`: differences of two runs in scores, texts and images, query by query.

A difference of scores is the second run's minus the first's, over the queries that have a
score in both. Queries are paired by id; one with another question in the other run is left
out and named, since a difference of its answers would be meaningless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results.board import Board
from benchmarks.results.numbers import NumberForm
from benchmarks.results.table import ResultTable, TableCell, TableColumn
from benchmarks.runs.experiment import Experiment, reopen
from benchmarks.studies.answers import (
    Answer,
    AnswerDifferences,
    AnswerPair,
    ImageMeter,
    Splitter,
    answer_pair,
    splitter_of,
    tables,
)
from cluster.plan import lookup_in
from cluster.store import Store
from cluster.walks import Lookup, read
from generators.document import Malformed, Sample, key_of
from generators.errors import UsageError
from generators.names import unknown
from generators.system import System
from scorers.statistics.estimate import Estimate
from scorers.statistics.means import mean, paired


@dataclass(frozen=True)
class FinishedRun:
    """A run directory as it is compared: its experiment, its scores and its records."""

    root: Path
    experiment: Experiment
    board: Board
    lookup: Lookup

    @classmethod
    def at(cls, root: Path) -> "FinishedRun":
        """The run at `root`; UsageError where there is none."""
        experiment, store = reopen(root), Store(root, strict=True)
        return cls(root, experiment, experiment.board(store), lookup_in(store))

    @property
    def systems(self) -> list[str]:
        """Names of the systems."""
        return [system.name for system in self.board.systems]

    @property
    def scorers(self) -> list[str]:
        """Names of the scorers."""
        return [scorer.name for scorer in self.board.scorers]

    @cached_property
    def queries(self) -> dict[str, Sample | Malformed]:
        """By the key that distinguishes a malformed row from the valid one with its id."""
        return {key_of(sample): sample for sample in self.experiment.samples}

    def scores(self, system: str, scorer: str) -> dict[str, float]:
        """Mean over repeats, by the key of every query that has a score."""
        column = self.systems.index(system)
        values = self.board.values[scorer][:, column]
        pairs = zip(self.board.keys, values, strict=True)
        return {key: float(value) for key, value in pairs if not np.isnan(value)}

    def system(self, name: str) -> System:
        """The system of that name."""
        return next(s for s in self.experiment.systems if s.name == name)

    def answer(self, system: System, query: str, repeat: int) -> Answer:
        """The answer of `system` to the query of that key; `repeat` counts from 0."""
        walk = self.experiment.plan.answer(system, self.queries[query], repeat)
        return read(walk, self.lookup)


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """One scorer on one system of each run; means are over the paired queries."""

    scorer: str
    scale: str
    first_system: str
    second_system: str
    first: Estimate
    second: Estimate
    difference: Estimate
    """Mean of the second run's score minus the first's, with its interval."""
    only_first: tuple[str, ...]
    """Queries that have a score in the first run alone."""
    only_second: tuple[str, ...]

    @property
    def system(self) -> str:
        """`A`, or `A -> B` where the runs' systems have different names."""
        same = self.first_system == self.second_system
        return self.first_system if same else f"{self.first_system} -> {self.second_system}"

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "scorer": self.scorer,
            "systems": [self.first_system, self.second_system],
            "first": self.first.as_json("mean"),
            "second": self.second.as_json("mean"),
            "difference": self.difference.as_json("mean"),
            "n": self.difference.n,
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
        }


@dataclass(frozen=True)
class RunDifference:
    """The paired differences of two runs, and what only one of them has."""

    first: FinishedRun
    second: FinishedRun
    rows: tuple[PairedDifference, ...]
    """Of scores."""
    answers: tuple[AnswerDifferences, ...]
    """Of texts and images, by system."""
    about_images: str
    """A remark on the measures of images."""
    changed: tuple[str, ...]
    """Queries with the same id and another question in the other run."""

    def only(self, what: str) -> tuple[list[str], list[str]]:
        """`systems`, `scorers` or `queries` that the first, and the second, has alone."""
        one, other = list(getattr(self.first, what)), list(getattr(self.second, what))
        return [n for n in one if n not in other], [n for n in other if n not in one]

    @property
    def tables(self) -> Iterator[ResultTable]:
        """Scores, where the runs share a scorer, then texts and images."""
        if self.rows:
            yield self.table
        yield from tables(self.answers, self.about_images)

    @property
    def table(self) -> ResultTable:
        """Scores: one line per system and scorer."""
        numbers = ("first", "second", "difference", "95% interval", "n")
        columns = [
            *(TableColumn(name, numeric=False) for name in ("system", "scorer")),
            *(TableColumn(name, numeric=True) for name in numbers),
            TableColumn("scored in one run only", numeric=False),
        ]
        title = f"{self.second.root.name} minus {self.first.root.name}"
        return ResultTable(title=title, columns=columns, rows=list(map(_line, self.rows)))

    def as_json(self) -> dict[str, Any]:
        """As plain data, as `--out` writes it."""
        kinds = ("systems", "scorers", "queries")
        alone = {kind: self.only(kind) for kind in kinds}
        return {
            "first": str(self.first.root),
            "second": str(self.second.root),
            "differences": [row.as_json() for row in self.rows],
            "only_first": {kind: alone[kind][0] for kind in kinds},
            "only_second": {kind: alone[kind][1] for kind in kinds},
            "changed_queries": list(self.changed),
            "answers": [row.as_json() for row in self.answers],
        }


def run_difference(
    first: Path,
    second: Path,
    system: str | None = None,
    against: str | None = None,
    *,
    answers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> RunDifference:
    """The paired differences between the runs at `first` and `second`.

    Systems are paired by name, or `system` of the first run with `against` of the second.
    UsageError for names that a run does not have, and where no system can be paired.
    Texts and images are those of at most `answers` queries, at even distances, since
    measuring two images of 1024 pixels a side takes half a second. `on_progress` is told
    how many answers of how many are compared.
    """
    one, other = FinishedRun.at(first), FinishedRun.at(second)
    pairs = _system_pairs(one, other, system, against)
    scorers = [name for name in one.scorers if name in other.scorers]
    common = [key for key in one.queries if key in other.queries]
    same = {key for key in common if _asks_the_same(one.queries[key], other.queries[key])}
    rows = (_paired(one, other, s, pair, same) for pair in pairs for s in scorers)
    meter, keys = ImageMeter(), [key for key in common if key in same]
    if answers is not None and answers < len(keys):
        keys = [keys[i * len(keys) // answers] for i in range(answers)]
    return RunDifference(
        one,
        other,
        tuple(rows),
        tuple(_answers(one, other, pairs, keys, meter, on_progress)),
        meter.note,
        tuple(key for key in common if key not in same),
    )


def _answers(
    one: FinishedRun,
    other: FinishedRun,
    pairs: Sequence[tuple[str, str]],
    keys: Sequence[str],
    meter: ImageMeter,
    on_progress: Callable[[int, int], None],
) -> Iterator[AnswerDifferences]:
    """The answers of each pair of systems to the queries, in every repeat of both runs."""
    repeats = min(run.experiment.config.repeats for run in (one, other))
    asked = [(key, i) for i in range(repeats) for key in keys]
    steps, total = count(1), len(pairs) * len(asked)

    def compared(systems: tuple[System, System], split: Splitter) -> Iterator[AnswerPair]:
        for key, repeat in asked:
            first = one.answer(systems[0], key, repeat)
            second = other.answer(systems[1], key, repeat)
            yield answer_pair(key, repeat + 1, (first, second), split, meter)
            on_progress(next(steps), total)

    for names in pairs if asked else ():
        systems = one.system(names[0]), other.system(names[1])
        split = splitter_of(system.draft for system in systems)
        yield AnswerDifferences.of(names, split.unit, compared(systems, split))


def _system_pairs(
    one: FinishedRun, other: FinishedRun, system: str | None, against: str | None
) -> list[tuple[str, str]]:
    if system is None:
        if against is not None:
            raise UsageError("--against names a system of the second run; add --system")
        pairs = [(name, name) for name in one.systems if name in other.systems]
        if not pairs:
            raise UsageError(
                f"the runs share no system: {one.root} has {', '.join(one.systems)}; "
                f"{other.root} has {', '.join(other.systems)}. "
                "Pair two by --system A --against B"
            )
        return pairs
    pair = (system, against or system)
    for run, name in zip((one, other), pair, strict=True):
        if name not in run.systems:
            raise unknown(f"system of {run.root}", name, run.systems)
    return [pair]


def _asks_the_same(one: Sample | Malformed, other: Sample | Malformed) -> bool:
    both = isinstance(one, Sample) and isinstance(other, Sample)
    return not both or one.question == other.question  # type: ignore[union-attr]


def _paired(
    one: FinishedRun,
    other: FinishedRun,
    scorer: str,
    systems: tuple[str, str],
    same: set[str],
) -> PairedDifference:
    first = one.scores(systems[0], scorer)
    second = other.scores(systems[1], scorer)
    keys = sorted(key for key in first if key in second and key in same)
    before, after = (np.array([run[k] for k in keys]) for run in (first, second))
    return PairedDifference(
        scorer=scorer,
        scale=next(s.scale for s in one.board.scorers if s.name == scorer),
        first_system=systems[0],
        second_system=systems[1],
        first=mean(before),
        second=mean(after),
        difference=mean(paired(after, before)),
        only_first=tuple(sorted(first.keys() - second.keys())),
        only_second=tuple(sorted(second.keys() - first.keys())),
    )


def _line(row: PairedDifference) -> list[TableCell]:
    form = NumberForm.of(row.scale, signed=True)
    alone = f"{len(row.only_first):,} first, {len(row.only_second):,} second"
    cells = (
        row.system,
        row.scorer,
        *(NumberForm.of(row.scale).number(e.value) for e in (row.first, row.second)),
        form.number(row.difference.value),
        form.interval(row.difference.ci95) or row.difference.reason or "-",
        f"{row.difference.n:,}",
        alone if row.only_first or row.only_second else "-",
    )
    return [TableCell(text) for text in cells]


def remarks(difference: RunDifference, limit: int = 5) -> Iterator[str]:
    """Name what differs and what one run alone has; `--out` holds all names."""
    if not difference.rows:
        yield "no scores are compared: the runs share no scorer; `plait score` adds one"
    for row in difference.answers:
        if names := list(dict.fromkeys(pair.query for pair in row.differing)):
            yield f"{row.name}: answers differ in {_some('queries', names, limit)}"
    for what in ("systems", "scorers", "queries"):
        for place, names in zip(("first", "second"), difference.only(what), strict=True):
            if names:
                yield f"only in the {place} run: {_some(what, names, limit)}"
    if difference.changed:
        changed = _some("queries", difference.changed, limit)
        yield f"left out, since their question differs in the other run: {changed}"


def _some(what: str, names: Sequence[str], limit: int) -> str:
    rest = f", ... ({len(names):,} in all)" if len(names) > limit else ""
    return f"{what} {', '.join(names[:limit])}{rest}"
