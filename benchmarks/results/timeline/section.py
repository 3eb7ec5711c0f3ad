"""The page's section on the time of a run: words, a chart of its workers, a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from benchmarks.results.timeline.lanes import COLUMNS, Lane, SessionMark, lanes_of, marks_of
from benchmarks.results.timeline.words import duration, words_of
from cluster.tracing.activity import Shares
from cluster.tracing.chrome import TRACE
from cluster.tracing.sessions import Session, read_sessions
from cluster.tracing.summary import TraceSummary, summarise

_HEIGHT = 20
_DRAWN = ("compute", "transfer", "lost", "load", "wait")
"""From the bottom of a lane to its top."""
_WORDS = {
    "compute": "computing",
    "transfer": "reading or writing",
    "lost": "lost with a worker",
    "load": "starting and loading",
    "wait": "waiting for work",
}
_STYLE = Path(__file__).with_name("timeline.css")


def timeline_section(root: Path) -> Markup:
    """The section as HTML; empty for a run without a trace."""
    sessions = [s for s in read_sessions(root) if s.workers]
    if not sessions:
        return Markup("")
    marks = marks_of(sessions)
    # The longest session is what the run is about; others may have made what was left.
    longest = max(sessions, key=lambda s: s.end)
    summary = summarise(longest)
    parts = [
        _heading(sessions, longest),
        *(Markup("<p>{}</p>").format(text) for text in words_of(summary)),
        *(_lane(lane) for lane in lanes_of(sessions, marks)),
        _axis(marks),
        _key(),
        _table(summary),
        Markup('<p class="remarks">{}</p>').format(_remarks(sessions)),
    ]
    style = Markup(f"<style>\n{_STYLE.read_text()}</style>")
    body = Markup("\n").join(parts)
    return Markup(
        '{}<section class="panel timeline" id="section-time" '
        'aria-label="Where the time went">\n{}\n</section>'
    ).format(style, body)


def _heading(sessions: Sequence[Session], longest: Session) -> Markup:
    note = ""
    if len(sessions) > 1:
        number = sessions.index(longest) + 1
        note = f"in words, session {number} of {len(sessions)}, the longest"
    return Markup('<h2>Where the time went <span class="scale">{}</span></h2>').format(note)


def _lane(lane: Lane) -> Markup:
    title = ", ".join(
        f"{_WORDS[s]} {lane.shares[s]:.0%}" for s in _DRAWN if lane.shares[s] >= 0.005
    )
    text = f"{lane.stage}, {lane.label}: {title}"
    return Markup(
        '<div class="lane"><span dir="auto"><b>{}</b> <small>{}, {:.0%} computing</small>'
        '</span><svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><title>{}</title>{}</svg></div>'
    ).format(
        *(lane.stage, lane.label, lane.shares["compute"]),
        *(COLUMNS, _HEIGHT, text, text, _shapes(lane)),
    )


def _shapes(lane: Lane) -> Markup:
    """One path for each state, stacked: a column's height is the share of its time."""
    base = [0] * COLUMNS
    shapes = []
    for state in _DRAWN:
        heights = _heights(lane.states[state])
        tops = [min(_HEIGHT * 10, b + h) for b, h in zip(base, heights, strict=True)]
        if path := _path(base, tops):
            shapes.append(Markup('<path class="{}" d="{}"/>').format(state, path))
        base = tops
    return Markup("").join(shapes)


def _heights(shares: Shares) -> list[int]:
    """In tenths of a unit of the drawing."""
    return [round(float(s) * _HEIGHT * 10) for s in shares]


def _path(base: Sequence[int], tops: Sequence[int]) -> str:
    """Rectangles of equal neighbours as one."""
    parts, start = [], 0
    for i in range(1, COLUMNS + 1):
        if i == COLUMNS or (base[i], tops[i]) != (base[start], tops[start]):
            if height := tops[start] - base[start]:
                top, width = _HEIGHT - tops[start] / 10, i - start
                box = f"h{width}v{height / 10:g}h-{width}z"
                parts.append(f"M{start} {top:g}{box}")
            start = i
    return "".join(parts)


def _axis(marks: Sequence[SessionMark]) -> Markup:
    total = sum(mark.seconds for mark in marks)
    ends = Markup("").join(
        Markup("<span>{}</span>").format(duration(total * k / 2) if k else "0")
        for k in range(3)
    )
    return Markup(
        '<div class="lane" aria-hidden="true"><span></span>'
        '<div class="hours">{}</div></div>'
    ).format(ends)


def _key() -> Markup:
    entries = (
        Markup(
            '<span><svg viewBox="0 0 1 1" aria-hidden="true"><path class="{}" '
            'd="M0 0h1v1H0z"/></svg>{}</span>'
        ).format(state, _WORDS[state])
        for state in _DRAWN
    )
    return Markup('<p class="key">{}</p>').format(Markup("").join(entries))


def _table(summary: TraceSummary) -> Markup:
    columns = ["stage", "workers", "records", "batches", "limit for"]
    columns += ["computing", "waiting", "loading"]
    joules = any(use.joules is not None for use in summary.stages.values())
    head = [*columns, *(["energy, kJ"] if joules else [])]
    rows = []
    for name, use in summary.stages.items():
        cells = [f"{use.workers:,}", f"{use.records:,}", f"{use.batches:,}"]
        seconds = (use.bound_s, use.compute_s, use.wait_s, use.load_s)
        cells += [duration(s) for s in seconds]
        if joules:
            cells.append("" if use.joules is None else f"{use.joules / 1000:,.1f}")
        texts = (
            Markup("<td>{}{}</td>").format(_label(column), cell)
            for column, cell in zip(head[1:], cells, strict=True)
        )
        row = Markup('<tr><th scope="row" dir="auto">{}</th>{}</tr>')
        rows.append(row.format(name, Markup("").join(texts)))
    heads = Markup("").join(Markup('<th scope="col">{}</th>').format(c) for c in head)
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="Time of each stage">'
        '<table class="numbers"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(heads, Markup("").join(rows))


def _label(column: str) -> Markup:
    return Markup('<span class="label" aria-hidden="true">{}</span>').format(column)


def _remarks(sessions: Sequence[Session]) -> Markup:
    texts = [
        "A column's height is the share of its time. Seconds of a stage are added up over "
        "its workers. A stage is the limit while its workers are the busiest. One more "
        "worker: a replay of the run in which the stage's work is shared with it while all "
        "its workers are busy, and other stages only fill their own idle time."
    ]
    if len(sessions) > 1:
        starts = "; ".join(
            f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(s.start_ns / 1e9))} UTC, "
            f"{duration(s.end / 1e6)}, {s.status}"
            for s in sessions
        )
        texts.append(f"Sessions, without the time between them: {starts}.")
    if skews := {h: s for session in sessions for h, s in session.skews_us.items()}:
        hosts = ", ".join(f"{h} by {s / 1000:.1f} ms" for h, s in skews.items())
        texts.append(f"Clocks that had to be corrected: {hosts}.")
    link = Markup(
        '<a href="{0}">{0}</a> holds all of it; it opens in ui.perfetto.dev and in '
        "chrome://tracing."
    ).format(TRACE)
    return Markup(" ").join([*map(escape, texts), link])
