"""Krippendorff's alpha, beside its published example and the definition pair by pair."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from plait.scorers.statistics.alpha import _alpha, krippendorff
from plait.scorers.statistics.estimate import LEAST

OBSERVERS = (
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
)
"""Krippendorff (2011), example C: four observers, twelve units, missing values."""
EXAMPLE = [
    (f"unit {i}", {f"observer {k}": float(v) for k, v in enumerate(column) if v != "."})
    for i, column in enumerate(zip(*(row.split() for row in OBSERVERS), strict=True))
]


@pytest.mark.parametrize(("level", "published"), [("nominal", 0.743), ("interval", 0.849)])
def test_the_published_example(level, published):
    found = krippendorff(EXAMPLE, level)
    assert found.value == pytest.approx(published, abs=0.0005)
    assert found.n == 11
    assert found.ci95[0] < found.value < found.ci95[1]
    assert krippendorff(EXAMPLE[::-1], level) == found


def by_pairs(units, level):
    """1 less observed over expected disagreement, over all ordered pairs of values."""
    apart = {"nominal": lambda a, b: a != b, "interval": lambda a, b: (a - b) ** 2}[level]
    units = [own for own in units if len(own) > 1]
    every = [value for own in units for value in own]
    observed = sum(
        sum(apart(a, b) for a, b in permutations(own, 2)) / (len(own) - 1) for own in units
    )
    expected = sum(apart(a, b) for a, b in permutations(every, 2)) / (len(every) - 1)
    return 1 - observed / expected


@pytest.mark.parametrize("level", ["nominal", "interval"])
def test_a_weight_is_how_often_a_unit_is_drawn(level):
    rng = np.random.default_rng(0)
    units = [list(rng.integers(0, 4, rng.integers(2, 5))) for _ in range(9)]
    counts = np.array([[own.count(v) for v in range(4)] for own in units], float)
    apart = np.array([[(a - b) ** 2 for a in range(4)] for b in range(4)], float)
    weights = rng.integers(0, 3, (3, len(units))).astype(float)
    found = _alpha(counts, apart if level == "interval" else apart.clip(0, 1), weights)
    for value, w in zip(found, weights.astype(int), strict=True):
        drawn = [own for own, times in zip(units, w, strict=True) for _ in range(times)]
        assert value == pytest.approx(by_pairs(drawn, level))


def test_words_are_values_and_what_supports_no_number_has_a_reason():
    votes = [(f"q{i}", {"a": "system", "b": "system"}) for i in range(LEAST)]
    assert krippendorff(votes, "nominal").reason == "undefined: all values are the same"
    assert krippendorff([("q", {"a": 1.0})], "interval").value is None
    votes[0] = ("q0", {"a": "system", "b": "undecided", "c": "system"})
    assert krippendorff(votes, "nominal").value < 1
    same_query = [("q", by) for _, by in EXAMPLE]
    assert krippendorff(same_query, "interval").ci95 is None
