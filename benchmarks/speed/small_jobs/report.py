"""The times of a small job side by side, for a terminal, a page and a program."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from benchmarks.provenance import provenance_line
from benchmarks.results.table import ResultTable, markdown_page
from benchmarks.speed.small_jobs.answers import GREY_LEVELS, SCORE_TOLERANCE
from benchmarks.speed.small_jobs.job import ARTISTS, WRITERS
from benchmarks.speed.small_jobs.timing import (
    QUICKSTART,
    ProcessTime,
    SmallJobsMeasurement,
)
from cluster.manifest import environment

_HEADS = ["queries", "way", "wall s", "range", "CPU s", "x wall", "x CPU", "equal"]


@dataclass(frozen=True)
class SmallJobsReport:
    """Tables and data of one measurement."""

    measurement: SmallJobsMeasurement
    command: Sequence[str]
    """The words of `plait bench`."""

    @property
    def answers_equal(self) -> bool:
        """Whether all ways gave the same answers within the tolerances."""
        return all(
            agreement.equal == agreement.answers
            for by_way in self.measurement.agreements.values()
            for agreements in by_way.values()
            for agreement in agreements
        )

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each number of queries and way: medians, ranges and ratios."""
        return [*self._rows()]

    def _rows(self) -> Iterator[dict[str, Any]]:
        times = self.measurement.times
        for queries, way in dict.fromkeys((t.queries, t.way) for t in times):
            same = self._of(queries, way)
            first = self._of(queries, self._reference(queries, way))
            agreed = self.measurement.agreements.get(queries, {}).get(way, ())
            yield {
                "queries": queries,
                "way": way,
                "wall_s": statistics.median(t.wall_s for t in same),
                "wall_range_s": [min(t.wall_s for t in same), max(t.wall_s for t in same)],
                "cpu_s": statistics.median(t.cpu_s for t in same),
                "wall_ratio": _ratio([t.wall_s for t in same], [t.wall_s for t in first]),
                "cpu_ratio": _ratio([t.cpu_s for t in same], [t.cpu_s for t in first]),
                "answers": [asdict(agreement) for agreement in agreed],
                "agreement": ", ".join(map(str, agreed)),
            }

    def _of(self, queries: int, way: str) -> list[ProcessTime]:
        times = self.measurement.times
        return [t for t in times if (t.queries, t.way) == (queries, way)]

    def _reference(self, queries: int, way: str) -> str:
        """The way that `way` is compared with: the first of that size."""
        if way == QUICKSTART:
            return way
        times = (t for t in self.measurement.times if t.way != QUICKSTART)
        return next(t.way for t in times if t.queries == queries)

    @property
    def tables(self) -> list[ResultTable]:
        """The table of times."""
        rounds = 1 + max(t.round for t in self.measurement.times)
        title = (
            f"{len(WRITERS)} LVLMs x {len(ARTISTS)} text-to-image models, tiny weights, "
            f"CLIPScore; median of {rounds}"
        )
        notes = [
            "wall and CPU time of whole processes; ratios to the first way, round by round",
            f"equal: same text, pixels within {GREY_LEVELS} grey levels, scores within "
            f"{SCORE_TOLERANCE}",
        ]
        if any(t.way == QUICKSTART for t in self.measurement.times):
            notes.append(f"{QUICKSTART}: plait run --data sample --weights tiny")
        return [ResultTable.of(title, _HEADS, map(_cells, self.rows), notes=notes)]

    @property
    def markdown(self) -> str:
        """The page."""
        about = environment()
        lines = (
            f"plait bench {' '.join(self.command)}",
            provenance_line(about),
        )
        return markdown_page("Small jobs", lines, self.tables)

    def data(self) -> dict[str, Any]:
        """All times as plain data."""
        return {
            "about": {"command": ["plait", "bench", *self.command], **environment()},
            "rows": self.rows,
            "times": [asdict(t) for t in self.measurement.times],
        }


def _ratio(values: Sequence[float], first: Sequence[float]) -> float:
    """Median over the rounds of the ratio to the first way in the same round."""
    return statistics.median(a / b for a, b in zip(values, first, strict=True))


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["wall_range_s"]
    return [
        str(row["queries"]),
        row["way"],
        f"{row['wall_s']:.1f}",
        f"{low:.1f}-{high:.1f}",
        f"{row['cpu_s']:.1f}",
        f"{row['wall_ratio']:.2f}",
        f"{row['cpu_ratio']:.2f}",
        row["agreement"] or "-",
    ]
