"""The judge against truth, on right answers and on answers damaged on purpose."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.miniature.bars import Bar, BenchPart
from benchmarks.miniature.captions import outcomes_of
from benchmarks.miniature.damaged import damaged, document_of
from benchmarks.miniature.outputs import RANKS
from benchmarks.miniature.settings import JUDGE, TRUTH, BenchSettings, Say
from benchmarks.results.board import score_value
from benchmarks.results.table import ResultTable
from benchmarks.tasks.miniature.samples import sample_of
from generators.base import Outcome, Unscored
from generators.document import Score
from scorers.statistics.agreement import estimated, spearman
from scorers.statistics.estimate import Estimate, bootstrap_weights

TITLE = "Judge against truth, on damaged answers"
Marks = Sequence[float | None]
"""One score per answer; None where there is none."""


def measure_corruptions(settings: BenchSettings, say: Say) -> BenchPart:
    """Rank correlation over damaged answers to queries of the test split."""
    judge, truth = settings.scorer(JUDGE), settings.scorer(TRUTH)
    rng = random.Random(f"damaged {settings.seed}")
    answers = [damaged(rng, "test") for _ in range(settings.scenes)]
    pairs = [(sample_of(a.query), document_of(rng, a)) for a in answers]
    say(f"{JUDGE} and {TRUTH}: {len(pairs)} damaged answers")
    marks = [score_value(outcome) for outcome in outcomes_of(judge, pairs)]
    truths = [_or_miss(outcome) for outcome in outcomes_of(truth, pairs)]
    return corruptions_part([answer.kind for answer in answers], marks, truths)


def _or_miss(outcome: Outcome[Score]) -> float | None:
    """Truth's score; what it cannot read is a miss (0)."""
    return 0.0 if isinstance(outcome, Unscored) else score_value(outcome)


def corruptions_part(kinds: Sequence[str], marks: Marks, truths: Marks) -> BenchPart:
    """The bar, and both means by what was done to the answers."""
    known = [
        (kind, mark, truth)
        for kind, mark, truth in zip(kinds, marks, truths, strict=True)
        if mark is not None and truth is not None
    ]
    bar = Bar.at_least(
        f"{JUDGE} against {TRUTH}: Spearman",
        _ranks([m for _, m, _ in known], [t for _, _, t in known]),
        RANKS,
        f"{len(kinds) - len(known):,} of {len(kinds):,} have no score of both",
    )
    by_kind: dict[str, list[tuple[float, float]]] = {}
    for kind, mark, truth in known:
        by_kind.setdefault(kind, []).append((mark, truth))
    return BenchPart(title=TITLE, bars=(bar,), tables=(_table(by_kind),))


def _ranks(marks: Sequence[float], truths: Sequence[float]) -> Estimate:
    if not marks:
        return Estimate(None, None, 0, "nothing is scored")
    weights = bootstrap_weights([f"answer {i}" for i in range(len(marks))])
    x, y = np.array(marks, dtype=np.float64), np.array(truths, dtype=np.float64)
    return replace(estimated(spearman, x, y, weights, len(marks)), n=len(marks))


def _table(by_kind: Mapping[str, Sequence[tuple[float, float]]]) -> ResultTable:
    rows = [
        [kind, f"{len(pairs):,}", *(f"{m:.2f}" for m in np.mean(pairs, axis=0))]
        for kind, pairs in sorted(by_kind.items(), key=lambda k: -np.mean(k[1], axis=0)[1])
    ]
    head = ["answers", "n", f"mean {JUDGE}", f"mean {TRUTH}"]
    return ResultTable.of("By what was done to the answers", head, rows)
