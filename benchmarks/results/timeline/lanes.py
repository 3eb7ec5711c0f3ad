"""The lanes of the chart: what workers did, over all sessions of a run on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.tracing.activity import STATES, Activity, Grid, Shares
from cluster.tracing.sessions import Session

COLUMNS = 300
MOST_LANES = 24
"""More workers than this at a time are drawn as one lane for each stage."""
_GAP = 0.015
"""Between two sessions, as a share of the whole axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """One worker after another of one stage, or all workers of a stage together."""

    stage: str
    label: str
    states: dict[str, Shares]
    """Share of each column by state; the rest of it the lane held nothing."""
    shares: dict[str, float]
    """Share of the time held, by state."""


@dataclass(frozen=True, slots=True)
class SessionMark:
    """Where a session lies on the axis, as shares of its length."""

    begin: float
    end: float
    seconds: float


def marks_of(sessions: Sequence[Session]) -> list[SessionMark]:
    """Sessions one after the other, the time between them left out."""
    total = sum(max(1, s.end) for s in sessions)
    gaps = _GAP * (len(sessions) - 1)
    scale, marks, at = max(0.1, 1 - gaps) / total, [], 0.0
    gap = (1 - scale * total) / max(1, len(sessions) - 1)
    for session in sessions:
        length = max(1, session.end) * scale
        marks.append(SessionMark(at, at + length, session.end / 1e6))
        at += length + gap
    return marks


def lanes_of(sessions: Sequence[Session], marks: Sequence[SessionMark]) -> list[Lane]:
    """The lanes in order of stages: of single workers where they are few."""
    placed = _placed(sessions, marks)
    rows: dict[tuple[str, int], list[Activity]] = {}
    for stage in dict.fromkeys(a.worker.stage for _, _, a in placed):
        own = [p for p in placed if p[2].worker.stage == stage]
        for (_, _, activity), row in zip(own, _rows([p[:2] for p in own]), strict=True):
            rows.setdefault((stage, row), []).append(activity)
    if len(rows) > MOST_LANES:
        return _by_stage(rows)
    return [_lane(stage, row, own) for (stage, row), own in rows.items()]


def _placed(
    sessions: Sequence[Session], marks: Sequence[SessionMark]
) -> list[tuple[float, float, Activity]]:
    """Every worker with its begin and end on the axis, and its activity in columns."""
    placed = []
    for session, mark in zip(sessions, marks, strict=True):
        scale = max(1, session.end) / (mark.end - mark.begin)
        grid = Grid(round(-mark.begin * scale), round((1 - mark.begin) * scale), COLUMNS)
        for worker in session.workers:
            ends = [mark.begin + t / scale for t in (worker.begin, worker.end)]
            placed.append((ends[0], ends[1], grid.activity(worker)))
    return placed


def _rows(times: Sequence[tuple[float, float]]) -> list[int]:
    """A row for each worker, so that those of one row follow each other."""
    free_at: list[float] = []
    rows = []
    for begin, end in times:
        row = next((i for i, t in enumerate(free_at) if t <= begin), len(free_at))
        if row == len(free_at):
            free_at.append(end)
        free_at[row] = end
        rows.append(row)
    return rows


def _lane(stage: str, row: int, workers: Sequence[Activity]) -> Lane:
    places = ", ".join(dict.fromkeys(a.worker.place for a in workers))
    return _summed(stage, f"worker {row + 1} on {places}", workers, 1)


def _by_stage(rows: dict[tuple[str, int], list[Activity]]) -> list[Lane]:
    lanes = []
    for stage in dict.fromkeys(name for name, _ in rows):
        own = [workers for (name, _), workers in rows.items() if name == stage]
        flat = [a for workers in own for a in workers]
        lanes.append(_summed(stage, f"{len(own)} workers", flat, len(own)))
    return lanes


def _summed(stage: str, label: str, workers: Sequence[Activity], of: int) -> Lane:
    states = {s: np.sum([a.states[s] for a in workers], axis=0) / of for s in STATES}
    held = sum(float(shares.sum()) for shares in states.values())
    shares = {s: float(v.sum()) / held if held else 0.0 for s, v in states.items()}
    return Lane(stage, label, states, shares)
