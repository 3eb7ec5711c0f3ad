"""Where the time of a run went: a chart of its workers, and the same in words.

Everything comes from the spans that a run has stored (`cluster/tracing`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from rich.console import Console

from plait.benchmarks.durations import in_words
from plait.benchmarks.results import figures
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.wording import quantity
from plait.cluster.tracing.sessions import Session, read_sessions
from plait.cluster.tracing.summary import STATES, Grid, Shares, summarise
from plait.generators.buckets import AnyPath

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LANES = 24
"""More workers than this at a time are drawn as one lane for each stage."""
_COLUMNS = 300
"""Steps of time in which the chart shows what a worker did."""
_LEAST_SHARE = 0.01
"""Of the whole time: a part that took less is not named."""
_MOST_NAMED = 4
_PARTS = {
    "load_bound_s": "waiting for models to load",
    "wait_bound_s": "with no work for any worker",
    "start_ray_s": "starting Ray",
    "driver_s": "stopping, counting, compacting and reading results",
}
_DRAWN = {
    "compute": ("computing", figures.ACCENT),
    "transfer": ("reading or writing", figures.UNSCORED),
    "lost": ("lost with a worker", figures.FAILED),
    "load": ("starting and loading", figures.SKIPPED),
    "wait": ("waiting for work", figures.LINE),
}
"""From the bottom of a lane to its top."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the page says of the longest session, and draws of all."""

    words: list[str]
    chart: Markup
    stages: ResultTable


def timeline_of(root: AnyPath) -> Timeline | None:
    """Return the timeline of a run; None for a run without a trace."""
    sessions: list[Session] = []
    for session in read_sessions(root):
        if session.workers:
            session.events.clear()  # most of it, and not drawn
            sessions.append(session)
    if not sessions:
        return None
    longest = max(sessions, key=lambda session: session.end)
    summary = summarise(longest)
    words = words_of(summary)
    if len(sessions) > 1:
        words[0] = f"Session {sessions.index(longest) + 1} of {len(sessions)}. {words[0]}"
    return Timeline(words, _chart(sessions), _stages(summary))


def show_times(root: AnyPath, console: Console) -> None:
    """Print what the last session of a run waited for, or that it has no trace."""
    sessions = read_sessions(root)
    if not sessions:
        console.print("The run has no timing trace: none was recorded.")
    for session in sessions[-1:]:
        for text in words_of(summarise(session)):
            console.print(text, soft_wrap=True)


def words_of(summary: Mapping[str, Any]) -> list[str]:
    """Return where the time went, the longest parts first, and what was idle."""
    whole = summary["seconds"]
    held = summary["held_hours"]
    if summary["bounding"] is None:
        return [f"No worker computed anything in {duration(whole)}."]
    parts = {}
    for stage, use in summary["stages"].items():
        parts[f"limited by {stage}"] = use["bound_s"]
    for name, words in _PARTS.items():
        parts[words] = summary[name]
    texts = []
    for part in sorted(parts, key=lambda name: -parts[name])[:_MOST_NAMED]:
        share = parts[part] / whole
        if share >= _LEAST_SHARE:
            texts.append(f"{duration(parts[part])} ({share:.0%}) {part}")
    time = f"Time: {duration(whole)}, of which {', '.join(texts)}."
    if held <= 0:
        # Hours are rounded, so that those of a short run are none, whoever computed.
        remote = all(use["remote"] for use in summary["stages"].values())
        return [time, "All work was done by endpoints."] if remote else [time]
    idle = summary["idle_hours"]
    loading = summary["load_hours"]
    return [
        time,
        f"Workers held {held:,.3g} {summary['hours_unit']}-hours, of which "
        f"{idle:,.3g} ({idle / held:.0%}) were not spent computing; starting and "
        f"loading took {loading / held:.0%}.",
    ]


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `2 min 05 s` or `3 h 10 min`."""
    return f"{seconds:.1f} s" if seconds < 9.95 else in_words(seconds)


def _stages(summary: Mapping[str, Any]) -> ResultTable:
    """Return what each stage's workers did; energy where it was measured."""
    head = [
        *("stage", "workers", "records", "batches"),
        *("limit for", "computing", "waiting", "loading", "energy, kJ"),
    ]
    rows = []
    for name, use in summary["stages"].items():
        row = [name]
        for count in ("workers", "records", "batches"):
            row.append(f"{use[count]:,}")
        for seconds in ("bound_s", "compute_s", "wait_s", "load_s"):
            row.append(duration(use[seconds]))
        row.append("-" if use["joules"] is None else f"{use['joules'] / 1000:,.1f}")
        rows.append(row)
    return ResultTable.of("Time of each stage", head, rows)


def lanes_of(sessions: Sequence[Session]) -> dict[str, Shares]:
    """Return what workers did on the common axis, (STATES, columns), by label.

    Many workers are one lane for each stage.
    """
    # A session of no time has a microsecond, so that no axis is without length.
    lengths = [max(1, session.end) for session in sessions]
    total = sum(lengths)
    start = 0
    empty = np.zeros((len(STATES), _COLUMNS))
    lanes: dict[tuple[str, str], Shares] = defaultdict(empty.copy)
    for session, length in zip(sessions, lengths, strict=True):
        # A session counts time from its own start, the common axis from that of the first.
        grid = Grid(-start, total - start, _COLUMNS)
        number = Counter[str]()
        for worker in session.workers:
            number[worker.stage] += 1
            label = f"{worker.stage} #{number[worker.stage]} on {worker.place}"
            lanes[worker.stage, label] += grid.activity(worker)
        start += length
    by_label = {}
    by_stage: dict[str, list[Shares]] = defaultdict(list)
    for (stage, label), shares in lanes.items():
        by_label[label] = shares
        by_stage[stage].append(shares)
    if len(lanes) <= MOST_LANES:
        return by_label
    means = {}
    for stage, of_workers in by_stage.items():
        means[f"{stage}, {quantity(len(of_workers), 'worker')}"] = np.mean(
            of_workers, axis=0
        )
    return means


def _chart(sessions: Sequence[Session]) -> Markup:
    """Draw a lane for each worker, or for each stage, over all sessions (in µs)."""
    lanes = lanes_of(sessions)
    ends = np.cumsum([max(1, s.end) for s in sessions]) / 1e6

    def paint(figure: Figure) -> None:
        from matplotlib.patches import Patch

        axes = figure.subplots()
        for row, shares in enumerate(lanes.values()):
            _draw_lane(axes, row, shares, np.linspace(0, ends[-1], _COLUMNS + 1))
        figures.name_rows(axes, list(lanes))
        axes.set_xlim(0, ends[-1])
        axes.xaxis.set_major_formatter(lambda seconds, _: duration(seconds))
        for end in ends[:-1]:
            axes.axvline(end, color=figures.INK, linewidth=1)
        keys = [Patch(color=colour, label=word) for word, colour in _DRAWN.values()]
        figure.legend(handles=keys, loc="outside lower center", ncols=len(keys))

    texts = [f"{name}: {_words(shares)}" for name, shares in lanes.items()]
    return figures.draw(1000, 80 + 30 * len(lanes), "; ".join(texts), paint)


def _draw_lane(axes: Axes, row: int, shares: Shares, edges: Shares) -> None:
    """Draw the states on each other; the height of a column is the share of its time."""
    below = np.full(_COLUMNS, row + 0.4)
    for state, (_, colour) in _DRAWN.items():
        above = below - 0.8 * shares[STATES.index(state)].round(2)
        # One step for equal neighbours: a long lane has few.
        changes = (np.diff(above, prepend=-1) != 0) | (np.diff(below, prepend=-1) != 0)
        steps = np.flatnonzero(changes)
        where = np.append(edges[steps], edges[-1])
        axes.stairs(above[steps], where, baseline=below[steps], fill=True, color=colour)
        below = above


def _words(shares: Shares) -> str:
    held = shares.sum() or 1.0
    texts = []
    for state, (word, _) in _DRAWN.items():
        share = shares[STATES.index(state)].sum() / held
        # What is less would stand there as 0%.
        if share >= 0.005:
            texts.append(f"{word} {share:.0%}")
    return ", ".join(texts)
