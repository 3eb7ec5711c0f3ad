"""Values that are not on their scorer's scale, and what every scorer declares."""

from __future__ import annotations

import math

import pytest
from report_helpers import answer, sample

from cluster.counts import totals_of
from cluster.plan import Plan
from generators.base import Failure, Fault, Result, StageSpec, Unscored
from generators.document import Score
from generators.errors import UsageError
from scorers import SCORERS, resolve_scorer
from scorers.base import DIRECTIONS, admitted, bounds


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("scale", ["0-6", "unbounded"])
def test_what_is_no_finite_number_is_unscored(value, scale):
    result = admitted(Result(Score(value)), scale)
    assert result == Unscored(f"the score {value} is not a finite number")


@pytest.mark.parametrize(
    ("value", "scale"), [(6.1, "0-6"), (-0.1, "0-6"), (1e78, "0-100"), (-1.01, "-1-1")]
)
def test_a_value_beyond_the_declared_scale_is_a_failure(value, scale):
    reason = f"the score {value:g} is beyond the declared scale {scale}"
    assert admitted(Result(Score(value)), scale) == Failure(reason, Fault.ERROR)


@pytest.mark.parametrize(
    ("value", "scale"), [(0, "0-6"), (6, "0-6"), (1 + 1e-7, "-1-1"), (1e300, "levels")]
)
def test_what_is_on_the_scale_passes(value, scale):
    outcome = Result(Score(float(value)), {"texts": 1})
    assert admitted(outcome, scale) is outcome
    assert admitted(Unscored("unreadable"), scale) == Unscored("unreadable")


class Fixed:
    """A scorer that says what it is told."""

    name, scale, direction, manner, rounds = "fixed", "0-6", "higher", "", 1
    stages: tuple[StageSpec, ...] = ()

    def __init__(self, value: float) -> None:
        self.value = value

    def judge(self, sample, document):
        return Result(Score(self.value))
        yield


@pytest.mark.parametrize(
    ("value", "counted"),
    [(3.0, "scored"), (math.nan, "unscored"), (7.0, "failed_scores")],
)
def test_counts_of_a_run_agree_with_its_tables(value, counted, monkeypatch):
    plan = Plan(systems=[], samples=[], scorers=[Fixed(value)], prompt=lambda s, v: ())
    monkeypatch.setattr(Plan, "answer", lambda *_: answered(answer("Said.")))
    walk = plan.evaluation(type("System", (), {"name": "a"}), sample(0), 0)
    with pytest.raises(StopIteration) as stopped:
        next(walk)
    totals = totals_of([stopped.value.value.value])
    expected = {"scored": 0, "unscored": 0, "failed_scores": 0} | {counted: 1}
    assert {name: totals[name] for name in expected} == expected


def answered(outcome):
    """A walk that has ended."""
    return outcome
    yield


@pytest.mark.parametrize("name", [*SCORERS, "judge:mmie-score"])
def test_every_scorer_declares_its_scale_and_direction(name):
    scorer = resolve_scorer(name, "tiny", {})
    assert bounds(scorer.scale) is not None
    assert scorer.direction in DIRECTIONS


def test_a_users_scorer_declares_both_or_is_unbounded_and_better_higher():
    lower = resolve_scorer("users_own:Errors", "pretrained", {})
    assert (lower.scale, lower.direction) == ("0-10", "lower")
    plain = resolve_scorer("users_own:Plain", "pretrained", {})
    assert (plain.scale, plain.direction) == ("unbounded", "higher")
    with pytest.raises(UsageError, match=r"sideways.*higher.*lower"):
        resolve_scorer("users_own:Sideways", "pretrained", {})
