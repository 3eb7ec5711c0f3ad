"""Judges of one kind: ranks, Kendall's tau, and the pairs that they order differently."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from report_helpers import Judge, answer, board, sample, system
from scipy.stats import kendalltau, rankdata

from plait.benchmarks.results import rankings
from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import comparisons
from plait.benchmarks.results.judges import (
    BOTH,
    NEITHER,
    ONE,
    JudgePanel,
    panels_of,
    write_judges,
)
from plait.benchmarks.results.leaderboard import leaderboard
from plait.benchmarks.results.leaderboard_files import write_leaderboard
from plait.benchmarks.results.rankings import (
    Rankings,
    Series,
    means_of,
    weights_of,
)
from plait.benchmarks.results.report.page import write_report
from plait.cluster.plan import Evaluation
from plait.generators.base import Result, Unscored
from plait.generators.document import Image, Score
from plait.scorers.base import Scorer
from plait.scorers.statistics.estimate import Floats

pytestmark = pytest.mark.contract

QUERIES = 40
A, B, C = "judge:a", "judge:b", "judge:c"


def made(
    values: Mapping[str, Floats],
    names: Sequence[str] = "xyz",
    categories: Mapping[str, int] = {},
) -> Board:
    """A board: by judge (queries, systems), NaN for an unread reply.

    Of queries three in four are of the first category, the others of the last.
    """
    found = []
    first, *_, last = [*categories] or ["one", "one"]
    for q in range(len(next(iter(values.values())))):
        for i, name in enumerate(names):
            scores = {}
            for judge, own in values.items():
                value = float(own[q, i])
                lost = np.isnan(value)
                scores[judge] = Unscored("unread") if lost else Result(Score(value))
            asked = sample(q, last if q % 4 == 3 else first)
            found.append(Evaluation(name, asked, 0, answer("Said."), scores))
    scorers: list[Scorer] = [Judge(judge, scale="0-100") for judge in values]
    systems = [system(name) for name in names]
    return board(found, systems=systems, scorers=scorers, categories=categories)


def around(*means: float, seed: int, spread: float = 1.0) -> Floats:
    """Values of a system about each mean."""
    noise = np.random.default_rng(seed).normal(0, spread, (QUERIES, len(means)))
    return np.clip(np.array(means) + noise, 0, 100)


def panel(values: Mapping[str, Floats], names: str = "xyz") -> JudgePanel:
    (found,) = panels_of(made(values, names))
    return found


def test_only_judges_of_one_kind_are_compared() -> None:
    own = around(50, 40, 30, seed=1)
    names = [A, "clipscore", "truth:text", "truth:image", "criteria:a", "module:Class"]
    assert panels_of(made(dict.fromkeys(names, own))) == []
    several = dict.fromkeys([A, "criteria:a", B, "clipscore", "criteria:b"], own)
    found = panels_of(made(several))
    assert [(p.kind, p.judges) for p in found] == [
        ("judge", [A, B]),
        ("criteria", ["criteria:a", "criteria:b"]),
    ]
    of_turns = dict.fromkeys([f"turns:{A}", f"looking-back:{A}", f"turns:{B}", B], own)
    (turns,) = panels_of(made(of_turns))
    assert (turns.kind, turns.judges) == ("turns:judge", [f"turns:{A}", f"turns:{B}"])
    assert panels_of(made({A: own[:, :1], B: own[:, :1]}, "x")) == []


@pytest.mark.parametrize("seed", range(4))
def test_tau_of_every_draw_is_that_of_scipy(seed: int) -> None:
    """Of averages with ties, as small whole numbers give them."""
    rng = np.random.default_rng(seed)
    keys = [f"q{i}" for i in range(12)]
    weights = weights_of(keys)
    values = [rng.integers(0, 3, (12, 6)).astype(float) for _ in range(2)]
    values[1][:, 0] = values[1][:, 1]
    series = [
        Series("a", "higher", 12, means_of(weights, values[0])),
        Series("b", "lower", 12, -means_of(weights, values[1])),
    ]
    (found,) = Rankings([*"uvwxyz"], series).taus.values()
    signed = [-series[0].draws, series[1].draws]
    ranks = [rankdata(draws, axis=1) for draws in signed]
    taus = [kendalltau(*pair).statistic for pair in zip(*ranks, strict=True)]
    assert found.value == pytest.approx(taus[0], abs=1e-12)
    drawn = np.array(taus[1:])
    low, high = np.nanquantile(drawn, [0.02, 0.98])
    assert found.ci95 is not None
    assert found.ci95[0] <= low <= high <= found.ci95[1]
    for end in found.ci95:
        assert np.nanmin(np.abs(drawn - end)) < 1e-12, "of a draw"


def test_tau_needs_three_systems_that_differ() -> None:
    own = around(50, 40, seed=1)
    (tau,) = panel({A: own, B: own}, "xy").rankings.taus.values()
    assert (tau.value, bool(tau.reason)) == (None, True)
    (tau,) = panel(
        {A: around(60, 50, 40, seed=1), B: np.full((QUERIES, 3), 7.0)}
    ).rankings.taus.values()
    assert tau.value is None


def test_ranks_are_those_of_the_leaderboard_where_nothing_is_missing() -> None:
    values = {A: around(60, 50, 50.3, seed=1), B: around(50, 60, 49.9, seed=2)}
    whole = made(values)
    (found,) = panels_of(whole)
    rows = {row["system"]: row["scores"] for row in leaderboard(whole)}
    for i, judge in enumerate(found.judges):
        for name in found.systems:
            rank = rows[name][judge]["rank"]
            assert found.rankings.ranks[i][name].value == rank["value"]
            assert [*found.ranges[i][name]] == rank["range95"]
        told = [(c.a, c.b, c.adjusted) for c in comparisons(whole)[judge]]
        assert [(c.a, c.b, c.adjusted) for c in found.compared[i]] == told


def test_where_categories_have_weights_ranks_are_by_the_weighted_averages() -> None:
    """y is better in the category that counts most, and x on most queries."""
    own = around(60, 50, 10, seed=1)
    own[3::4] = around(40, 65, 10, seed=2)[3::4]
    whole = made({A: own, B: own + 1}, categories={"small": 1, "large": 9})
    (found,) = panels_of(whole)
    assert {name: rank.value for name, rank in found.rankings.ranks[0].items()} == {
        "x": 2,
        "y": 1,
        "z": 3,
    }
    rows = {row["system"]: row["scores"] for row in leaderboard(whole)}
    for name in "xyz":
        fixed = rows[name][A]["avg_fixed"]["mean"]
        drawn = found.rankings.series[0].draws[0, "xyz".index(name)]
        assert drawn == pytest.approx(fixed, abs=1e-6)


def test_pairs_are_compared_alike_whether_answers_are_missing_or_not() -> None:
    """The comparisons of the leaderboard, and those of the common answers alone."""
    values = {A: around(60, 50, 50.3, seed=1), B: around(50, 60, 49.9, seed=2)}
    (whole,) = panels_of(made(values))
    more = {judge: np.concatenate([own, own]) for judge, own in values.items()}
    more[B][QUERIES:] = np.nan
    (part,) = panels_of(made(more))
    for one, other in zip(whole.compared, part.compared, strict=True):
        assert [(c.a, c.b, c.p, c.adjusted) for c in one] == [
            (c.a, c.b, c.p, c.adjusted) for c in other
        ]


def test_means_of_many_queries_are_drawn_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = around(60, 50, seed=1)
    values[3, 1] = np.nan
    keys = [f"q{i}" for i in range(QUERIES)]
    whole = rankings.drawn_means(keys, values)
    monkeypatch.setattr(rankings, "_AT_ONCE", 7)
    assert rankings.drawn_means(keys, values) == pytest.approx(whole, rel=1e-12)
    assert whole == pytest.approx(means_of(weights_of(keys), values), rel=1e-12)


def test_pairs_that_judges_order_differently_are_shown_or_not() -> None:
    """x and y both ways, x and z by one alone, w beside v by none."""
    values = {
        A: around(70, 60, 65.00, 30.01, 30.00, seed=1),
        B: around(60, 70, 60.05, 30.00, 30.02, seed=2),
    }
    values[A][:, 3] = values[A][:, 4] + np.tile([0.2, -0.18], QUERIES // 2)
    values[B][:, 4] = values[B][:, 3] + np.tile([0.2, -0.18], QUERIES // 2)
    values[B][:, 2] = values[B][:, 0] + np.tile([0.3, -0.28], QUERIES // 2)
    found = panel(values, "xyzwv")
    assert [(r.a + r.b, r.verdict) for r in found.reversals] == [
        ("xy", BOTH),
        ("yz", BOTH),
        ("xz", ONE),
        ("wv", NEITHER),
    ]
    orders = {order.judge: order for order in found.reversals[2].orders}
    assert (orders[A].better, orders[A].shown) == ("x", True)
    assert (orders[B].better, orders[B].shown) == ("z", False)
    for reversal in found.reversals:
        for order in reversal.orders:
            assert order.shown is (order.p is not None and order.p < 0.05)


def test_where_all_judges_agree_no_pair_is_listed() -> None:
    own = around(60, 50, 40, seed=1)
    found = panel({A: own, B: own + 1, C: around(90, 50, 10, seed=3)})
    assert found.reversals == []
    assert {tau.value for tau in found.rankings.taus.values()} == {1.0}
    assert len([*found.tables()]) == 2


def test_judges_are_compared_on_answers_that_all_of_them_scored() -> None:
    """One judge reads no reply about the half on which y is the better one."""
    easy, hard = around(60, 50, 40, seed=1), around(40, 70, 30, seed=2)
    both = np.concatenate([easy, hard])
    half = both.copy()
    half[QUERIES:] = np.nan
    found = panel({A: both, B: half})
    assert found.answers == QUERIES
    assert found.reversals == []
    assert len(panels_of(made({A: both, B: half}))[0].rankings.taus) == 1
    third = both.copy()
    third[:, 2] = np.nan
    found = panel({A: both, B: third})
    assert found.systems == ["x", "y"]
    assert any("z" in note for note in next(found.tables()).notes)


def test_references_have_no_rank() -> None:
    own = around(90, 60, 50, seed=1)
    (found,) = panels_of(made({A: own, B: own}, ["gt", "x", "y"]))
    assert found.systems == ["x", "y"]
    assert [*found.rankings.ranks[0]] == ["x", "y"]


def test_files_hold_all_of_it(tmp_path: Path) -> None:
    values = {A: around(70, 60, 65, seed=1), B: around(60, 70, 65, seed=2)}
    whole = made(values)
    write_leaderboard(whole, tmp_path)
    (told,) = json.loads((tmp_path / "judges.json").read_text())
    assert told["judges"] == [A, B]
    assert told["ranks"][A]["x"] == {"value": 1.0, "range95": [1, 1]}
    (tau,) = told["taus"]
    assert tau["tau"] == pytest.approx(-1)
    assert {r["verdict"] for r in told["reversals"]} == {BOTH}
    assert len(told["reversals"]) == 3
    page = (tmp_path / "leaderboard.md").read_text()
    assert "## Ranks by judge (judge)" in page
    assert "Kendall's tau" in page
    report = write_report(whole, tmp_path, {}, Image.read).read_text()
    assert 'id="section-judges"' in report
    assert "Pairs that judges order differently" in report
    alone = made({A: values[A]})
    write_judges(alone, tmp_path / "alone")
    assert not (tmp_path / "alone").exists()
    assert "section-judges" not in write_report(alone, tmp_path, {}, Image.read).read_text()
