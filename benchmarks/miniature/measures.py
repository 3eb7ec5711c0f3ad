"""What `plait bench miniature` is asked, and what it gives: bars in the parts of a report.

A bar is a number with its interval, and what is aimed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import plait
from plait.benchmarks.local import LocalScorer, LocalSystem
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.run_data import RunData
from plait.benchmarks.tasks.controls import TRUTH as GROUND_TRUTH
from plait.benchmarks.tasks.controls import is_control
from plait.benchmarks.tasks.mmie.prompts import prompts
from plait.generators.base import WeightsName
from plait.generators.errors import PlaitError, UsageError
from plait.scorers.statistics.estimate import Estimate

LVLM = "qwen2-vl-7b"
T2IS = ("openjourney", "sdxl")
NATIVE = "anole"
BEST = "openjourney"
WEAKER = "openjourney-early"
"""A T2I model, and an earlier checkpoint of its training, which must score lower."""
EDITOR = "instruct-pix2pix"
"""A T2I model that draws from an image too, whose training began with BEST."""
JUDGE = "judge:mmie-score"
TRUTH = "truth:answer"
CLIP = "clipscore"
Say = Callable[[str], None]
"""Is given a line of progress."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """How much is measured, and of which weights."""

    weights: WeightsName
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by the model's name, as `[models.NAME]` of a config."""
    out: Path
    """Folder of the runs and of the results."""
    scenes: int = 200
    """Images and captions, and drawings of each T2I model."""
    queries: int = 60
    """Of the run of all systems."""
    seed: int = 0

    def scorer(self, name: str) -> LocalScorer:
        """Return a scorer in this process; PlaitError where it is not to be had."""
        return LocalScorer.named(name, weights=self.weights, models=self.models)

    def system(self, name: str) -> LocalSystem:
        """A system in this process, asked as in a run; PlaitError where it is not there."""
        return LocalSystem.named(
            name, weights=self.weights, models=self.models, seed=self.seed, prompt=prompts()
        )

    def run(
        self,
        folder: str,
        systems: Sequence[str],
        scorers: Sequence[str],
        say: Say,
        *,
        composition: Mapping[str, Any] = MappingProxyType({}),
    ) -> RunData:
        """Return a finished run, without what is not to be had; run again, it resumes.

        UsageError where there is no system.
        """
        absent = self._absent(systems, scorers)
        named = [name for name in systems if name not in absent]
        if not named:
            raise UsageError("; ".join(absent[name] for name in systems))
        say(f"run {folder}: {', '.join(named)} on {self.queries} queries")
        for name, reason in absent.items():
            say(f"left out: {name}: {reason}")
        run = plait.run(
            data=f"miniature:{self.queries}",
            systems=named,
            scorers=[name for name in scorers if name not in absent],
            weights=self.weights,
            models=self.models,
            composition=composition,
            seed=self.seed,
            out=self.out / folder,
        )
        say(f"{run.outcome.made:,} records made in {run.outcome.seconds:.0f} s")
        return run

    def _absent(self, systems: Sequence[str], scorers: Sequence[str]) -> dict[str, str]:
        """Return why systems and scorers are not to be had, where they are not."""
        absent: dict[str, str] = {}
        for name in (*systems, *scorers):
            try:
                if name in scorers:
                    self.scorer(name)
                elif name != GROUND_TRUTH and not is_control(name):
                    self.system(name)
            except PlaitError as error:
                absent[name] = str(error)
        return absent


State = Literal["reached", "not reached", "reported", "not there"]
_HEAD = ("measured", "value", "95% interval", "n", "aim", "state", "remark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One measurement, and whether it is what was aimed at."""

    name: str
    estimate: Estimate
    aim: str = ""
    """What was aimed at, for people; empty where there is no aim."""
    met: bool | None = None
    """None where there is no aim or no value."""
    remark: str = ""
    """What a reader must know besides: why there is no value, what counts."""
    there: bool = True
    """Whether it could be measured at all."""

    @classmethod
    def at_least(
        cls, name: str, estimate: Estimate, least: float | None, remark: str = ""
    ) -> Bar:
        """Met where the value is `least` or more; None for no aim."""
        if least is None:
            return cls(name=name, estimate=estimate, remark=remark)
        met = None if estimate.value is None else estimate.value >= least
        aim = f">= {least:g}"
        return cls(name=name, estimate=estimate, aim=aim, met=met, remark=remark)

    @classmethod
    def not_there(cls, name: str, reason: str) -> Bar:
        """Return what could not be measured, and why."""
        return cls(name=name, estimate=Estimate(None), remark=reason, there=False)

    @property
    def state(self) -> State:
        """In one word or two."""
        if not self.there:
            return "not there"
        if self.met is None:
            return "not reached" if self.aim else "reported"
        return "reached" if self.met else "not reached"

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        about = {"name": self.name, "aim": self.aim, "state": self.state}
        return about | {"remark": self.remark} | self.estimate.as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPart:
    """The bars of one part of the measurement, and tables beside them."""

    title: str
    bars: tuple[Bar, ...] = ()
    tables: tuple[ResultTable, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def not_there(cls, title: str, reason: str) -> BenchPart:
        """Return a part that could not be measured."""
        return cls(title=title, bars=(Bar.not_there(title, reason),))

    @property
    def all_tables(self) -> tuple[ResultTable, ...]:
        """The bars as a table, then the others."""
        if not self.bars:
            return self.tables
        rows = [_row(bar) for bar in self.bars]
        return (ResultTable.of(self.title, _HEAD, rows, self.notes), *self.tables)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "title": self.title,
            "bars": [bar.as_json() for bar in self.bars],
            "tables": [_table_as_json(table) for table in self.tables],
            "notes": list(self.notes),
        }


def _table_as_json(table: ResultTable) -> dict[str, Any]:
    rows = []
    for row in table.rows:
        rows.append([cell.full for cell in row])
    return {
        "title": table.title,
        "head": [column.heading for column in table.columns],
        "rows": rows,
        "notes": list(table.notes),
    }


def _row(bar: Bar) -> list[str]:
    form = NumberForm(digits=3)
    return [
        bar.name,
        form.number(bar.estimate.value),
        form.interval(bar.estimate.ci95) or "-",
        f"{bar.estimate.n:,}" if bar.there else "-",
        bar.aim or "-",
        bar.state,
        bar.remark or bar.estimate.reason,
    ]
