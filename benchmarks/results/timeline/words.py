"""What a session waited for, in sentences."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from benchmarks.durations import in_words
from cluster.tracing.sessions import read_sessions
from cluster.tracing.summary import TraceSummary, summarise

_MOST_NAMED = 4
"""Parts of the time that a sentence names."""
_LEAST_SHARE = 0.01


def show_times(root: Path, console: Console) -> None:
    """Print what the last session of a run waited for, or that it has no trace."""
    sessions = read_sessions(root)
    if not sessions:
        console.print("The run has no trace of its time: it was made without one.")
    for session in sessions[-1:]:
        for text in words_of(summarise(session)):
            console.print(escape(text), soft_wrap=True)


def words_of(summary: TraceSummary) -> list[str]:
    """Two or three sentences: where the time went, what was idle, what would help."""
    if summary.bounding is None:
        return [f"No worker computed anything in {duration(summary.seconds)}."]
    return [_time_words(summary), _idle_words(summary), *_advice(summary)]


def _time_words(summary: TraceSummary) -> str:
    """The longest parts of the time, the longest first."""
    parts = {f"limited by {name}": use.bound_s for name, use in summary.stages.items()}
    parts |= {
        "with nothing to do but load models": summary.load_bound_s,
        "without work for any worker": summary.wait_bound_s,
        "starting Ray": summary.start_ray_s,
        "stopping Ray, counting, compacting and reading results": summary.driver_s,
    }
    order = sorted(parts, key=lambda p: -parts[p])
    named = [p for p in order if parts[p] >= _LEAST_SHARE * summary.seconds][:_MOST_NAMED]
    texts = [f"{_part(parts[p], summary.seconds)} {p}" for p in named]
    return f"Time: {duration(summary.seconds)}, of which {', '.join(texts)}."


def _idle_words(summary: TraceSummary) -> str:
    unit = f"{summary.hours_unit}-hours"
    if summary.held_hours <= 0:
        return "All work was done by endpoints."
    share = summary.idle_hours / summary.held_hours
    loading = summary.load_hours / summary.held_hours
    text = (
        f"Workers held {_hours(summary.held_hours)} {unit}, of which "
        f"{_hours(summary.idle_hours)} ({share:.0%}) computed nothing"
    )
    return f"{text}; starting and loading took {loading:.0%}."


def _advice(summary: TraceSummary) -> list[str]:
    name, saved = summary.bounding, summary.one_more_saves_s
    if saved is None:
        return [
            f"{name} is an endpoint: more requests at a time would help only if its server "
            "has room for them."
        ]
    if saved < _LEAST_SHARE * summary.seconds:
        return [f"One more worker of {name} would save next to nothing."]
    need = " with a GPU of its own" if summary.hours_unit == "GPU" else ""
    return [
        f"One more worker of {name}{need} would save about "
        f"{_part(saved, summary.seconds)}, if it computes as fast and all else stays."
    ]


def _part(seconds: float, of: float) -> str:
    return f"{duration(seconds)} ({seconds / of:.0%})" if of else duration(seconds)


def _hours(hours: float) -> str:
    return f"{hours:.3g}" if hours < 100 else f"{hours:,.0f}"


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `2 min 05 s` or `3 h 10 min`."""
    return f"{seconds:.1f} s" if seconds < 9.95 else in_words(seconds)
