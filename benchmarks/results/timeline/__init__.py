"""Where the time of a run went: a chart of its workers, and the same in words.

    timeline_section(root)

Everything comes from the spans that a run has stored (`cluster/tracing`); a run without
them, made by an earlier version of plait, has no such section.
"""

from benchmarks.results.timeline.section import timeline_section
from benchmarks.results.timeline.words import show_times

__all__ = ["show_times", "timeline_section"]
