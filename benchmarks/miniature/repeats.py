"""Answers sampled at a temperature, several to each query: do intervals cover?"""

from __future__ import annotations

import numpy as np

from benchmarks.miniature.bars import Bar, BenchPart
from benchmarks.miniature.coverage import QUERIES, REPEATS, STUDIES, coverage
from benchmarks.miniature.outputs import OUTLINE
from benchmarks.miniature.runs import repeated_run
from benchmarks.miniature.settings import TRUTH, WRITER, BenchSettings, Say
from benchmarks.runs.config import merged
from benchmarks.runs.run_data import RunData
from scorers.statistics.estimate import Floats

TEMPERATURE = 0.7
LEAST = 0.92
"""Of nominal 0.95: an interval for scores that pile up at both ends of their scale."""
TITLE = f"Repeats at temperature {TEMPERATURE:g}"


def measure_repeats(settings: BenchSettings, say: Say) -> BenchPart:
    """How often the interval of a small study holds the mean over all answers."""
    models = merged(settings.models, {WRITER: {"temperature": TEMPERATURE}})
    run = repeated_run(settings, (OUTLINE,), (TRUTH,), models, say)
    return repeats_part(score_matrix(run.data))


def repeats_part(values: Floats) -> BenchPart:
    """The bar for tables' own intervals, and what ignoring the query would give."""
    if not len(values):
        return BenchPart.not_there(TITLE, "no query has a score of every repeat")
    share = coverage(values)
    naive = coverage(values, by_query=False)
    deviation = float(values.std(axis=1).mean())
    note = (
        f"{STUDIES:,} studies of {QUERIES} queries with {REPEATS} answers each, drawn from "
        f"{len(values):,} queries with {values.shape[1]:,}; answers to one query deviate "
        f"by {deviation:.3f} from each other. Studies without an interval do not count."
    )
    bars = (
        Bar.at_least("intervals that cover, by query", share, LEAST),
        Bar(name="as if repeats were independent", estimate=naive),
    )
    return BenchPart(title=TITLE, bars=bars, notes=(note,))


def score_matrix(run: RunData) -> Floats:
    """(queries, repeats) of `TRUTH`; what it cannot read counts as a miss (0).

    Queries without a score of every repeat are left out.
    """
    rows: dict[str, list[float]] = {}
    for s in run.scores:
        if s["scorer"] == TRUTH:
            missed = 0.0 if s["outcome"] == "unscored" else np.nan
            value = missed if s["value"] is None else s["value"]
            rows.setdefault(s["query"], []).append(value)
    whole = [row for row in rows.values() if not np.isnan(row).any()]
    return np.array(whole, dtype=np.float64)
