"""The leaderboard's averages against all averages that the MMIE paper prints."""

from __future__ import annotations

import pytest
from mmie_tables import TABLE_3, TABLE_4, Printed
from report_helpers import board, evaluation, sample

from plait.benchmarks.results.leaderboard import leaderboard
from plait.benchmarks.tasks.mmie.categories import CATEGORIES

pytestmark = pytest.mark.contract

TABLES = {"3": TABLE_3, "4": TABLE_4}


def averages(table: list[Printed], name: str = "avg_fixed") -> list[float]:
    samples = [sample(i, c, "field") for i, c in enumerate(CATEGORIES)]
    scores = [
        evaluation(row.model, query, mean)
        for row in table
        for query, mean in zip(samples, (row.sa, row.pbl, row.msr), strict=True)
    ]
    rows = {r["system"]: r for r in leaderboard(board(scores, categories=CATEGORIES))}
    return [rows[row.model]["scores"]["judge"][name]["mean"] for row in table]


@pytest.mark.parametrize("table", TABLES)
def test_every_printed_average_is_that_of_the_fixed_weights(table):
    printed = [row.avg for row in TABLES[table]]
    assert averages(TABLES[table]) == pytest.approx(printed, abs=0.012)
