"""What `plait bench miniature` measures: a number, its interval, and what is aimed at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.results.numbers import NumberForm
from benchmarks.results.table import ResultTable
from scorers.statistics.estimate import Estimate

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
    def at_least(cls, name: str, estimate: Estimate, least: float, remark: str = "") -> Bar:
        """Met where the value is `least` or more."""
        met = None if estimate.value is None else estimate.value >= least
        return cls(
            name=name, estimate=estimate, aim=f">= {least:g}", met=met, remark=remark
        )

    @classmethod
    def not_there(cls, name: str, reason: str) -> Bar:
        """What could not be measured, and why."""
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
        """A part that could not be measured."""
        return cls(title=title, bars=(Bar.not_there(title, reason),))

    @property
    def all_tables(self) -> tuple[ResultTable, ...]:
        """The bars as a table, then the others."""
        if not self.bars:
            return self.tables
        return (bars_table(self.title, self.bars, self.notes), *self.tables)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "title": self.title,
            "bars": [bar.as_json() for bar in self.bars],
            "tables": [_table_json(table) for table in self.tables],
            "notes": list(self.notes),
        }


def _table_json(table: ResultTable) -> dict[str, Any]:
    head = [column.heading for column in table.columns]
    rows = [[cell.full for cell in row] for row in table.rows]
    return {"title": table.title, "head": head, "rows": rows, "notes": list(table.notes)}


def bars_table(title: str, bars: Iterable[Bar], notes: Sequence[str] = ()) -> ResultTable:
    """Bars as rows."""
    rows = [_row(bar) for bar in bars]
    return ResultTable.of(title, _HEAD, rows, notes)


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
