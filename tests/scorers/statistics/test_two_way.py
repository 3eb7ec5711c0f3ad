"""The two-way model against least squares; queries that a power needs."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from plait.scorers.statistics.means import mean
from plait.scorers.statistics.power import detectable, paired_power, queries_needed
from plait.scorers.statistics.two_way import ONE_LEVEL, two_way


def simulated(seed, n=40, lvlms=3, t2is=4):
    """Scores (n, writers, artists) with effects of each, of both, and of the query."""
    rng = np.random.default_rng(seed)
    shapes = [(lvlms, 1), (t2is,), (lvlms, t2is), (n, 1, 1), (n, lvlms, 1)]
    sizes = (1.0, 0.5, 0.3, 2.0, 0.7)
    effects = sum(
        s * rng.normal(size=shape) for s, shape in zip(sizes, shapes, strict=True)
    )
    return 50 + effects + rng.normal(size=(n, lvlms, t2is))


def least_squares(y):
    """Effects by ordinary least squares of the sum-to-zero coded design."""
    n, lvlms, t2is = y.shape
    q, w, a = (i.ravel() for i in np.indices(y.shape))
    code_q, code_w, code_a = (
        np.vstack([np.eye(k - 1), -np.ones(k - 1)])[i]
        for k, i in ((n, q), (lvlms, w), (t2is, a))
    )
    both = (code_w[:, :, None] * code_a[:, None, :]).reshape(len(w), -1)
    design = np.hstack([np.ones((len(w), 1)), code_w, code_a, both, code_q])
    fit = np.linalg.lstsq(design, y.ravel(), rcond=None)[0]
    ends = np.cumsum([1, lvlms - 1, t2is - 1, (lvlms - 1) * (t2is - 1)])
    lvlm, t2i, cell = (fit[i:j] for i, j in pairwise(ends))
    lvlm, t2i = np.append(lvlm, -lvlm.sum()), np.append(t2i, -t2i.sum())
    cell = cell.reshape(lvlms - 1, t2is - 1)
    cell = np.vstack([cell, -cell.sum(0)])
    return fit[0], lvlm, t2i, np.hstack([cell, -cell.sum(1, keepdims=True)])


def values(row):
    return [estimate.value for estimate in row]


@pytest.mark.parametrize("shape", [(12, 2, 2), (30, 3, 4), (9, 5, 2)])
def test_effects_are_those_of_least_squares(shape):
    y = simulated(1, *shape)
    model = two_way(y)
    centre, lvlm, t2i, cell = least_squares(y)
    assert model.mean.value == pytest.approx(centre, abs=1e-9)
    assert values(model.lvlms) == pytest.approx(lvlm, abs=1e-9)
    assert values(model.t2is) == pytest.approx(t2i, abs=1e-9)
    assert np.array([values(r) for r in model.interaction]) == pytest.approx(cell, abs=1e-9)
    assert np.array([values(r) for r in model.cells]) == pytest.approx(y.mean(0))


def test_intervals_are_students_t_of_each_querys_contrast():
    y = simulated(2, 15, 2, 3)
    model = two_way(y)
    half = np.array([0.5, -0.5])[:, None]
    for found, contrast in (
        (model.lvlms[0], half * np.full(3, 1 / 3)),
        (model.interaction[0][0], half * np.array([2, -1, -1]) / 3),
    ):
        expected = stats.ttest_1samp((y * contrast).sum((1, 2)), 0).confidence_interval()
        assert found.ci95 == pytest.approx(tuple(expected), rel=1e-9)
    assert model.cells[1][2] == mean(y[:, 1, 2])


def test_a_single_row_has_the_effects_of_its_columns_only():
    y = simulated(4, 20, 1, 3)
    model = two_way(y)
    assert {e.reason for e in (*model.lvlms, *model.interaction[0])} == {ONE_LEVEL}
    assert model.shares is None
    effects = (y - y.mean((1, 2), keepdims=True)).mean((0, 1))
    assert values(model.t2is) == pytest.approx(effects)


def test_additive_scores_have_an_interaction_of_exactly_zero():
    rng = np.random.default_rng(5)
    y = 0.1 * rng.integers(0, 9, (10, 1, 1)) + np.array([[0.1], [0.7]]) + [0.2, 0.5, 0.3]
    cells = [e for row in two_way(y).interaction for e in row]
    assert {(e.value, e.ci95) for e in cells} == {(0.0, None)}


def test_only_queries_with_a_score_in_every_cell_count():
    y = simulated(3, 20, 2, 2)
    whole = two_way(y[5:])
    # The cell that lacks the hard queries would gain by their loss.
    y[:5] -= 1000
    y[:5, 1, 0] = float("nan")
    assert two_way(y) == whole
    assert whole.n == 15


def test_shares_are_those_of_the_mean_squares():
    y = simulated(7, 6, 2, 3)
    n, w, a = y.shape
    centre, cells = y.mean(), y.mean(0)
    row, column = cells.mean(1) - centre, cells.mean(0) - centre
    cell = cells - centre - row[:, None] - column
    query = y.mean((1, 2)) - centre
    by_row = y.mean(2) - y.mean((1, 2))[:, None] - row
    by_column = y.mean(1) - y.mean((1, 2))[:, None] - column
    rest = y - cells - query[:, None, None] - by_row[:, :, None] - by_column[:, None, :]
    free = n - 1
    ms_row, ms_query_row = n * a * (row**2).sum(), a * (by_row**2).sum() / free
    ms_column = n * w * (column**2).sum() / 2
    ms_query_column = w * (by_column**2).sum() / free / 2
    ms_cell, ms_rest = n * (cell**2).sum() / 2, (rest**2).sum() / free / 2
    parts = [
        (ms_row - ms_query_row) / (n * w * a),
        2 * (ms_column - ms_query_column) / (n * w * a),
        2 * (ms_cell - ms_rest) / (n * w * a),
        (query**2).sum() / free,
        (ms_query_row + 2 * ms_query_column + 2 * ms_rest) / (w * a),
    ]
    shares = two_way(y).shares
    names = ("writer", "artist", "interaction", "query", "residual")
    got = [getattr(shares, name) for name in names]
    assert got == pytest.approx(np.array(parts) / sum(parts), abs=1e-12)


@pytest.mark.parametrize("effect", [0.1, 0.35, 0.8, 2.5])
def test_power_is_scipys_noncentral_t(effect):
    for n in (5, 17, 60, 400):
        t, centre = stats.t.ppf(0.975, n - 1), effect * math.sqrt(n)
        theirs = stats.nct(n - 1, centre)
        # scipy gives NaN far in the tails, where nothing is left to be told apart.
        far = theirs.cdf(-t) if centre < 6 else 0.0
        expected = theirs.sf(t) + far if centre < 15 else 1.0
        assert paired_power(3 * effect, 3.0, n) == pytest.approx(expected, abs=1e-9)


def test_queries_needed_by_the_published_table():
    # Cohen's d of 0.2, 0.5 and 0.8: G*Power and statsmodels give 199, 34 and 15.
    assert [queries_needed(d, 1.0) for d in (0.2, 0.5, 0.8)] == [199, 34, 15]
    assert queries_needed(-0.5, 1.0) == 34
    assert paired_power(0.5, 1.0, 33) < 0.8 <= paired_power(0.5, 1.0, 34)
    assert queries_needed(100.0, 1.0) == 5
    assert {queries_needed(*a) for a in ((0.0, 1.0), (1.0, 0.0), (1e-9, 1.0))} == {None}
    for n in (5, 34, 1000):
        assert paired_power(detectable(2.0, n), 2.0, n) == pytest.approx(0.8, abs=1e-9)
    assert detectable(2.0, 4) is None is detectable(0.0, 50)
