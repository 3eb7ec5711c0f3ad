"""Answers sampled at a temperature, several to each query: do intervals cover?"""

from __future__ import annotations

import numpy as np

from benchmarks.miniature.bars import Bar, BenchPart
from benchmarks.miniature.outputs import OUTLINE
from benchmarks.miniature.runs import repeated_run
from benchmarks.miniature.settings import TRUTH, WRITER, BenchSettings, Say
from benchmarks.runs.config import merged
from benchmarks.runs.run_data import RunData
from scorers.statistics.estimate import Estimate, Floats
from scorers.statistics.means import mean

TEMPERATURE = 0.7
LEAST = 0.92
"""Of nominal 0.95: an interval for scores that pile up at both ends of their scale."""
STUDIES = 1000
"""Small studies that are drawn."""
QUERIES, REPEATS = 30, 3
"""Queries of one study, and answers to each."""
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
    for s in run.scores.to_pylist():
        if s["scorer"] == TRUTH:
            missed = 0.0 if s["outcome"] == "unscored" else np.nan
            value = missed if s["value"] is None else s["value"]
            rows.setdefault(s["query"], []).append(value)
    whole = [row for row in rows.values() if not np.isnan(row).any()]
    return np.array(whole, dtype=np.float64)


def coverage(values: Floats, seed: int = 0, *, by_query: bool = True) -> Estimate:
    """The share of small studies whose interval holds the mean over everything.

    Args:
        values: (queries, repeats) scores of all answers; none missing.
        seed: Of the draw.
        by_query: Whether a study's answers to one query count as their mean, as they do
            in every table; otherwise as if they were independent, which they are not.

    Returns:
        Over the studies that have an interval, which are `n`.
    """
    rng, whole = np.random.default_rng(seed), float(values.mean())
    hits = [_covers(_study(values, rng, by_query), whole) for _ in range(STUDIES)]
    known = [float(hit) for hit in hits if hit is not None]
    return mean(known) if known else Estimate(None, None, 0, "no study has an interval")


def _study(values: Floats, rng: np.random.Generator, by_query: bool) -> Estimate:
    """Queries drawn one by one from all, each with some of its answers."""
    rows = rng.integers(len(values), size=QUERIES)
    few = min(REPEATS, values.shape[1])
    answers = np.stack([rng.permutation(values[row])[:few] for row in rows])
    return mean(answers.mean(axis=1) if by_query else answers.ravel())


def _covers(estimate: Estimate, whole: float) -> bool | None:
    if estimate.ci95 is None:
        return None
    return estimate.ci95[0] <= whole <= estimate.ci95[1]
