"""What the template shows of a scorer (tables and plots) and of the run (its facts)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from benchmarks.provenance import provenance_facts
from benchmarks.results import leaderboard_tables as tables_of
from benchmarks.results import wording
from benchmarks.results.board import Board
from benchmarks.results.leaderboard import differences
from benchmarks.results.numbers import NumberForm
from benchmarks.results.report.plots import (
    Disagreement,
    disagreements_of,
    distributions_of,
    scores_plot,
)
from benchmarks.results.table import ResultTable
from scorers.base import Scorer

_Scores = Sequence[tuple[str, Mapping[str, Any]]]
"""The means of every system by its name."""


@dataclass(frozen=True, slots=True)
class ScorerPanel:
    """One scorer's part of the page."""

    name: str
    scale: str
    direction: str
    digits: int
    main: ResultTable
    plot: Markup
    disagreements: Sequence[Disagreement]
    folded: Sequence[ResultTable]


def panel_of(
    board: Board, rows: Sequence[Mapping[str, Any]], scorer: Scorer, shown: Sequence[str]
) -> ScorerPanel:
    """Return one scorer's part; `shown` are the keys of the queries on the page."""
    name, average = scorer.name, wording.headline(rows, scorer.name)
    scores = [(row["system"], row["scores"][name]) for row in rows]
    by_field = [named for _, s in scores for named in s["fields"].items()]
    spread = distributions_of(board, name, scorer.scale)
    means = [(system, s[average]) for system, s in scores]
    pairs = [d for d in differences(board) if d["scorer"] == name]
    folded = (
        tables_of.released_table(rows, name),
        tables_of.matrix_table(board, rows, name),
        _noted(tables_of.field_table(board, rows, scorer), by_field),
        *tables_of.criteria_tables(board, name),
        tables_of.pairs_table(pairs) if pairs else None,
    )
    return ScorerPanel(
        name=name,
        scale=scorer.scale,
        direction=wording.direction_of(scorer),
        digits=NumberForm.of(scorer.scale).digits,
        main=_noted(tables_of.scorer_table(board, rows, scorer), _main_cells(scores)),
        plot=scores_plot(spread, means, wording.AVERAGES[average])
        if spread
        else Markup(""),
        disagreements=disagreements_of(board, name, shown),
        folded=[table for table in folded if table is not None],
    )


def _noted(
    table: ResultTable, cells: Iterator[tuple[str, Any]] | Sequence[Any]
) -> ResultTable:
    """The table with one line on the means that have no interval."""
    absent = wording.absent_intervals(cells)
    missing = [note for note in table.notes if "no scored" in note]
    return replace(table, notes=[*missing, *([absent] if absent else [])])


def _main_cells(scores: _Scores) -> Iterator[tuple[str, wording.Cell]]:
    """The means of the table that is not folded, by their headings."""
    for average, heading in wording.AVERAGES.items():
        yield from ((heading, s[average]) for _, s in scores)
    yield from (named for _, s in scores for named in s["categories"].items())


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a run in the order shown; what a manifest lacks is left out."""

    general: dict[str, str]
    stages: ResultTable | None
    """What each stage is and what it used."""


def facts_of(manifest: Mapping[str, Any]) -> Facts:
    """Return the facts that readers look for first; the page shows the manifest below."""
    data = manifest.get("data")
    facts = {
        "status": manifest.get("status"),
        "started": manifest.get("started"),
        "finished": manifest.get("finished"),
        "forecast": "; ".join(_mapping(manifest.get("forecast_outcome")).get("lines", ())),
        "data": data.get("name") if isinstance(data, Mapping) else data,
        "seed": _mapping(manifest.get("config")).get("seed"),
        **provenance_facts(manifest),
        "command": " ".join(map(str, manifest.get("argv") or [])),
    }
    known = {name: str(fact) for name, fact in facts.items() if fact not in (None, "")}
    return Facts(known, _stages(manifest))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _stages(manifest: Mapping[str, Any]) -> ResultTable | None:
    lines = []
    for folder, stage in _mapping(manifest.get("stages")).items():
        about, name = _mapping(stage), str(folder).rpartition("-")[0]
        used = _mapping(_mapping(manifest.get("usage")).get(name))
        usage = ", ".join(f"{n:,} {what.replace('_', ' ')}" for what, n in used.items())
        known = (str(about.get(key) or "") for key in ("kind", "weights", "identity"))
        lines.append([name or str(folder), *known, usage])
    head = ["stage", "kind", "weights", "identity", "usage"]
    return ResultTable.of("Stages", head, lines, numeric=False) if lines else None
