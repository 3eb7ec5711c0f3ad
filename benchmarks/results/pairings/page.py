"""The pairings' section of the page: heat maps, quality against cost, and the rest folded.

Numbers stand in every cell, so that nothing depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from benchmarks.results.board import Board
from benchmarks.results.costs import MEASURES
from benchmarks.results.numbers import NumberForm
from benchmarks.results.pairings import tables
from benchmarks.results.pairings.comparison import Pairings, PairingScores, pairings_of
from benchmarks.results.pairings.plot import plot_of, points_of
from benchmarks.results.templates import REPORT, page_environment, sources
from scorers.statistics.estimate import Estimate
from scorers.statistics.two_way import ONE_LEVEL

PACKAGE = "benchmarks.results.pairings"
_LEAST, _MOST = 4, 40
"""Shares of colour in the background of a cell, in percent: text stays legible."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A cell as the template draws it."""

    text: str
    interval: str
    tint: int = 0
    """Share of colour in the background, in percent; below 0 in the other colour."""
    marked: bool = False
    """The best mean, or an effect whose interval excludes 0."""
    reason: str = ""
    """Why there is no value or no interval."""


def pairings_section(board: Board) -> Markup:
    """The section for the page; empty where no systems form a matrix."""
    pairings = pairings_of(board)
    if not pairings:
        return Markup("")
    html = (
        page_environment(PACKAGE, REPORT)
        .get_template("pairings.html.j2")
        .render(matrices=[_matrix(p) for p in pairings], tables=tables)
    )
    return Markup(html)


def pairings_style() -> Markup:
    """What the section adds to the page's style."""
    return sources(page_environment(PACKAGE), "pairings.css")


def _matrix(pairings: Pairings) -> dict[str, Any]:
    return {
        "pairings": pairings,
        "matrix": pairings.matrix,
        "notes": tables.notes_of(pairings),
        "panels": [_panel(pairings, scores) for scores in pairings.scores],
        "cost": None if pairings.costs is None else tables.cost_table(pairings),
    }


def _panel(pairings: Pairings, scores: PairingScores) -> dict[str, Any]:
    model, scale = scores.model, scores.scale
    measure = tables.cost_measure(pairings)
    points = [] if measure is None else points_of(pairings, scores, measure)
    heading = MEASURES.get(measure or "", "")
    against = tables.against_best(pairings, scores)
    return {
        "scores": scores,
        "shared": tables.shared_text(pairings, scores),
        "absent": tables.absent_intervals(scores),
        "cells": _heat(model.cells, scores),
        "writers": [_effect(e, scale) for e in model.writers],
        "artists": [_effect(e, scale) for e in model.artists],
        "mean": NumberForm.of(scale).number(model.mean.value),
        "interaction": _diverging(model.interaction, scores),
        "shares": _shares(scores),
        "plot": plot_of(points, heading),
        "points": points,
        "measure": heading,
        "needed": tables.needed_table(pairings, scores, against) if against else None,
    }


def _heat(
    rows: Sequence[Sequence[Estimate]], scores: PairingScores
) -> list[list[HeatCell]]:
    """Means; the better, the more colour."""
    known = [e.value for row in rows for e in row if e.value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    best = high if scores.direction == "higher" else low

    def cell(e: Estimate) -> HeatCell:
        share = 0.0 if e.value is None or low == high else (e.value - low) / (high - low)
        share = share if scores.direction == "higher" else 1 - share
        tint = 0 if e.value is None else round(_LEAST + (_MOST - _LEAST) * share)
        own = tables.estimate_cell(e, scores.scale)
        return HeatCell(
            own.text, own.detail, tint, e.value == best and low < high, e.reason
        )

    return [[cell(e) for e in row] for row in rows]


def _effect(e: Estimate, scale: str) -> HeatCell:
    if e.reason == ONE_LEVEL:
        return HeatCell("", "")
    own = tables.estimate_cell(e, scale, signed=True)
    return HeatCell(own.text, own.detail, 0, _excludes_zero(e), e.reason)


def _excludes_zero(e: Estimate) -> bool:
    return e.ci95 is not None and (e.ci95[0] > 0 or e.ci95[1] < 0)


def _diverging(
    rows: Sequence[Sequence[Estimate]], scores: PairingScores
) -> list[list[HeatCell]]:
    """Effects; one colour for what helps, another for what harms.

    The strongest colour is that of the largest effect of any kind, so that interactions
    which are small beside the main effects look small.
    """
    sign = 1 if scores.direction == "higher" else -1
    every = [*rows, scores.model.writers, scores.model.artists]
    most = max((abs(e.value) for row in every for e in row if e.value), default=0.0)

    def cell(e: Estimate) -> HeatCell:
        own = _effect(e, scores.scale)
        tint = round(sign * _MOST * e.value / most) if e.value and most else 0
        return HeatCell(own.text, own.interval, tint, own.marked, own.reason)

    return [[cell(e) for e in row] for row in rows]


def _shares(scores: PairingScores) -> list[tuple[str, str, float]]:
    """What, how much in words, and the length of its bar in percent."""
    shares = scores.model.shares
    if shares is None:
        return []
    return [
        (text, tables.share_text(shares, name), max(0.0, 100 * getattr(shares, name)))
        for name, text in tables.SHARES.items()
    ]
