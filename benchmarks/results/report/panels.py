"""What the template shows of a scorer (tables and plots) and of the run (its facts)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.provenance import provenance_facts
from benchmarks.results import wording
from benchmarks.results.axis import axis_of
from benchmarks.results.board import Board
from benchmarks.results.leaderboard import differences
from benchmarks.results.leaderboard_tables import scorer_table
from benchmarks.results.report.plots import disagreements_of, distributions_of
from benchmarks.results.standings import profiles
from scorers.base import Scorer

_Scores = Sequence[tuple[str, Mapping[str, Any]]]
"""The means of every system by its name."""


def panel_of(
    board: Board, rows: Sequence[Mapping[str, Any]], scorer: Scorer, shown: Sequence[str]
) -> dict[str, Any]:
    """One scorer's tables and plots; `shown` are the keys of the queries on the page."""
    name = scorer.name
    scores = [(row["system"], row["scores"][name]) for row in rows]
    average = wording.headline(rows, name)
    pairs = {(d["a"], d["b"]): d for d in differences(board) if d["scorer"] == name}
    return {
        "name": name,
        "scale": scorer.scale,
        "direction": wording.direction_of(scorer),
        "digits": wording.decimals(scorer.scale),
        "scores": scores,
        "average": average,
        "best": scorer_table(board, rows, scorer).best,
        "axis": axis_of([s[average] for _, s in scores]),
        "counted": wording.counts_shown([s["avg_micro"] for _, s in scores]),
        "absent": wording.absent_intervals(_main_cells(scores)),
        "absent_by_field": wording.absent_intervals(
            named for _, s in scores for named in s["fields"].items()
        ),
        "matrix": wording.matrix(board, rows, name),
        "profiles": profiles(board, name),
        "difference": partial(_difference, pairs),
        "distributions": distributions_of(board, name, scorer.scale),
        "disagreements": disagreements_of(board, name, shown),
    }


def _main_cells(scores: _Scores) -> Iterator[tuple[str, wording.Cell]]:
    """The means of the table that is not folded, by their headings."""
    for average, heading in wording.AVERAGES.items():
        yield from ((heading, s[average]) for _, s in scores)
    yield from (named for _, s in scores for named in s["categories"].items())


def _difference(
    pairs: Mapping[tuple[str, str], Mapping[str, Any]], a: str, b: str
) -> dict[str, Any] | None:
    """Mean of `a` - `b`, in whichever direction it is stored; None for one system."""
    if (a, b) in pairs:
        return dict(pairs[a, b])
    pair = pairs.get((b, a))
    if pair is None or pair["mean"] is None:
        return dict(pair) if pair else None
    ends = pair["ci95"] and [-end for end in reversed(pair["ci95"])]
    return dict(pair) | {"mean": -pair["mean"], "ci95": ends}


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a run in the order shown; what a manifest lacks is left out."""

    general: dict[str, str]
    stages: list[dict[str, str]]
    """One line per stage: what it is and what it used."""


def facts_of(manifest: Mapping[str, Any]) -> Facts:
    """The facts that readers look for first; the page shows the whole manifest below."""
    facts = {
        "status": _text(manifest.get("status")),
        "started": _text(manifest.get("started")),
        "finished": _text(manifest.get("finished")),
        "forecast": "; ".join(_mapping(manifest.get("forecast_outcome")).get("lines", ())),
        "data": _data(manifest.get("data")),
        "seed": _text(_mapping(manifest.get("config")).get("seed")),
        **provenance_facts(manifest),
        "command": " ".join(map(str, manifest.get("argv") or [])),
    }
    return Facts({name: text for name, text in facts.items() if text}, _stages(manifest))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _data(data: Any) -> str:
    if not isinstance(data, Mapping):
        return _text(data)
    return ", ".join(f"{k} {v}" for k, v in data.items() if isinstance(v, str | int) and v)


def _stages(manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    usage = _mapping(manifest.get("usage"))
    lines = []
    for folder, stage in _mapping(manifest.get("stages")).items():
        about, name = _mapping(stage), str(folder).rpartition("-")[0]
        used = _mapping(usage.get(name))
        line = {"stage": name or str(folder)}
        line |= {k: _text(about.get(k)) for k in ("kind", "weights", "identity")}
        lines.append(
            line | {"usage": ", ".join(f"{v:,} {_words(k)}" for k, v in used.items())}
        )
    return lines


def _words(name: str) -> str:
    return name.replace("_", " ")
