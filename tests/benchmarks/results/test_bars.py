"""The axis of a column of intervals."""

from __future__ import annotations

import pytest

from plait.benchmarks.results.bars import BarAxis
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn

pytestmark = pytest.mark.contract


@pytest.mark.parametrize(
    ("spans", "scale", "tie", "ends", "texts"),
    [
        # More than a third of the scale: all of it.
        ([(1.0, 2.0, 3.5)], "0-6", 0.0, (0.0, 6.0), ("0", "6")),
        ([(0.2, 0.5, 1.9)], "0-2.5", 0.0, (0.0, 2.5), ("0.000", "2.500")),
        # Less than that: from end to end, rounded outward.
        ([(45.31, 48.0, 50.0), (50.0, 55.0, 61.17)], "0-100", 0.0, (45, 62), ("45", "62")),
        ([(1.8531, 1.9, 1.9419)], "0-2.5", 0.0, (1.853, 1.942), ("1.853", "1.942")),
        # A tie is at most half of the axis.
        (
            [(50.0, 50.0, 50.0), (54.0, 54.0, 54.0)],
            "0-100",
            4.0,
            (48, 56),
            ("48.0", "56.0"),
        ),
        # One side has no room, so that the other has all of it.
        ([(96.0, 96.0, 96.0), (100, 100, 100)], "0-100", 4.0, (92, 100), ("92.0", "100.0")),
        ([(0.0, 0.0, 0.0), (4.0, 4.0, 4.0)], "0-100", 4.0, (0, 8), ("0.0", "8.0")),
        # Intervals that reach far enough already.
        ([(40.0, 50.0, 58.0), (42.0, 52.0, 60.0)], "0-100", 2.0, (40, 60), ("40", "60")),
        # Without ends, and far from 0.
        ([(123.4, 200.0, 287.1)], "unbounded", 0.0, (120, 290), ("120", "290")),
        ([(-3.1, -2.0, 1.2)], "unbounded", 4.0, (-5.0, 3.1), ("-5.0", "3.1")),
        # A single point.
        ([(4.0, 4.0, 4.0)], "0-100", 0.0, (0, 100), ("0", "100")),
        ([(4.0, 4.0, 4.0)], "unbounded", 0.0, (4, 4), ("4.00", "4.00")),
        ([(-1e78, 0.0, 1e78)], "unbounded", 0.0, (-1e78, 1e78), None),
        ([(1e-90, 1e-90, 2e-90)], "unbounded", 0.0, (0, 2e-90), None),
    ],
)
def test_an_axis_covers_all_intervals_and_no_tie_fills_it(spans, scale, tie, ends, texts):
    axis = BarAxis.of(spans, scale, tie)
    assert (axis.low, axis.high) == pytest.approx(ends, rel=1e-9)
    assert texts is None or axis.texts == texts
    assert all(axis.low <= low and high <= axis.high for low, _, high in spans)
    assert tie <= 0.5 * (axis.high - axis.low) + 1e-9


def test_no_interval_no_axis_and_places_are_percent_of_it():
    assert BarAxis.of([], "0-6") is None
    axis = BarAxis(20.0, 40.0)
    cells = [TableCell("30", span=(25.0, 30.0, 40.0)), TableCell("-")]
    head = ["system", TableColumn("score", bars=axis)]
    table = ResultTable.of("Scores", head, [["a", cells[0]], ["b", cells[1]]])
    assert table.bars == {(0, 1): [25.0, 50.0, 100.0]}
    assert BarAxis(4.0, 4.0).places((4.0, 4.0, 4.0)) == [50.0, 50.0, 50.0]
