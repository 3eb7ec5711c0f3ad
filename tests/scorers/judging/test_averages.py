"""The leaderboard's averages against all averages that the MMIE paper prints."""

from __future__ import annotations

import numpy as np
import pytest
from mmie_tables import TABLE_3, TABLE_4, TABLE_7, TABLE_8, Printed
from report_helpers import board, evaluation, sample

from benchmarks.results.leaderboard import leaderboard
from benchmarks.tasks.mmie.categories import CATEGORIES
from generators.base import Skip

TABLES = {"3": TABLE_3, "4": TABLE_4, "7": TABLE_7, "8": TABLE_8}


def averages(table: list[Printed], name: str = "avg_fixed") -> list[float]:
    samples = [sample(i, c, "field") for i, c in enumerate(CATEGORIES)]
    scores = [
        evaluation(row.model, query, mean)
        for row in table
        for query, mean in zip(samples, (row.sa, row.pbl, row.msr), strict=True)
    ]
    rows = leaderboard(board(scores, categories=CATEGORIES))
    return [row["scores"]["judge"][name]["mean"] for row in rows]


@pytest.mark.parametrize("table", TABLES)
def test_every_printed_average_is_that_of_the_fixed_weights(table):
    printed = [row.avg for row in TABLES[table]]
    assert averages(TABLES[table]) == pytest.approx(printed, abs=0.012)


def test_all_forty_are_there():
    assert sum(map(len, TABLES.values())) == 40


def test_neither_the_mean_of_all_scores_nor_that_of_the_categories_is_printed():
    """With one query a category, the micro average is the categories' plain mean."""
    off = np.abs(np.subtract(averages(TABLE_4, "avg_micro"), [r.avg for r in TABLE_4]))
    assert off.max() > 5


def test_queries_that_are_skipped_leave_a_category_its_weight():
    """LLaVA's rows: most reasoning queries skipped, the category's mean counts in full."""
    row = TABLE_4[8]
    samples = [sample(i, c, "field") for i, c in enumerate(CATEGORIES)]
    skipped = [sample(10 + i, "MSR", "field") for i in range(5)]
    scores = [
        evaluation("llava", query, mean)
        for query, mean in zip(samples, (row.sa, row.pbl, row.msr), strict=True)
    ] + [evaluation("llava", q, None, document=Skip("several pictures")) for q in skipped]
    result = leaderboard(board(scores, categories=CATEGORIES))[0]
    assert result["scores"]["judge"]["avg_fixed"]["mean"] == pytest.approx(
        row.avg, abs=0.012
    )
    assert result["skipped"] == 5
