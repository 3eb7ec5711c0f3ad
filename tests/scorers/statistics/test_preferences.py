"""Creation-MMBench's MAE and Consistency and MLLM-Bench's votes, by hand."""

from __future__ import annotations

import itertools

import pytest

from plait.scorers.statistics.preferences import (
    Measures,
    creation_agreement,
    creation_people,
    majority,
    mllm_agreement,
    mllm_people,
)

S, B, U = "system", "baseline", "undecided"


def preferred(query: str, judge: float, *human: float) -> tuple[str, float, dict]:
    return query, judge, {f"h{i}": value for i, value in enumerate(human)}


def seen(measures: Measures) -> dict[str, tuple[float | None, int]]:
    return {name: (e.value, e.n) for name, e in measures.items()}


def test_mae_and_consistency_by_hand():
    pairs = [
        preferred("q1", 2, 1, 2, 2, 1),  # people 1.5: 0.5 away
        preferred("q2", 0, -1, -1, -1, -1),  # 1 away: still consistent
        preferred("q3", 1, -1, 0, 0, 0),  # 1.25 away
        preferred("q4", -0.5, 0, 1),  # both orders averaged: 1 away
        preferred("q5", -2, -2),
    ]
    result = creation_agreement(pairs)
    mae = pytest.approx((0.5 + 1 + 1.25 + 1 + 0) / 5)
    assert seen(result) == {"mae": (mae, 5), "consistency": (80.0, 5)}
    assert result["mae"].ci95 == pytest.approx((0.319060, 1.522281), abs=1e-6)
    assert result["consistency"].ci95 is None


def test_people_are_held_against_the_mean_of_the_others():
    ratings = [
        ("q1", {"a": 2.0, "b": 0.0, "c": 1.0}),  # a: 2 - 0.5, b: 1.5, c: 0
        ("q2", {"a": -1.0, "b": -1.0}),
        ("q3", {"a": 2.0}),  # nobody to agree with
    ]
    assert {
        name: seen(measures) for name, measures in creation_people(ratings).items()
    } == {
        "a": {"mae": (0.75, 2), "consistency": (50.0, 2)},
        "b": {"mae": (0.75, 2), "consistency": (50.0, 2)},
        "c": {"mae": (0.0, 1), "consistency": (100.0, 1)},
    }
    assert creation_people(ratings[2:]) == {}


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([S, S, B, U], S),
        ([B, B, B, S], B),
        ([S, S, B, B], U),
        ([S, U, U, B], U),
        ([S, S, U, U], S),  # as many undecided as votes: not more
        ([S, U, U, U], U),
        ([B], B),
    ],
)
def test_majority_by_hand(votes, expected):
    for order in itertools.permutations(votes):
        assert majority(order) == expected


def test_votes_by_hand():
    pairs = [
        ("q1", S, {"a": S, "b": S, "c": B}),  # majority S
        ("q2", B, {"a": S, "b": S, "c": S}),  # S
        ("q3", U, {"a": S, "b": B}),  # undecided
        ("q4", S, {"a": U, "b": B}),  # 1 U, 1 B: B
        ("q5", B, {"b": B}),
    ]
    result = mllm_agreement(pairs)
    names = ["majority", "annotator a", "annotator b", "annotator c", "annotators"]
    assert list(result) == names
    # equal: q1, q3 (both undecided), q5; both decided: q1, q2, q4, q5
    assert seen(result["majority"]) == {"decided": (50.0, 4), "all": (60.0, 5)}
    # a: q1 equal, q2 not, q3 and q4 one undecided
    assert seen(result["annotator a"]) == {"decided": (50.0, 2), "all": (25.0, 4)}
    # pooled: 4 of a, 5 of b, 2 of c; equal are q1 a, q1 b, q5 b
    everyone = {"decided": (37.5, 8), "all": (pytest.approx(300 / 11), 11)}
    assert seen(result["annotators"]) == everyone
    among = mllm_people([(query, human) for query, _, human in pairs])
    assert seen(among["a and b"]) == {
        "decided": (pytest.approx(200 / 3), 3),
        "all": (50, 4),
    }


def test_intervals_draw_questions_with_all_their_pairs():
    once = [preferred(f"q{i}", i % 5 - 2, (i * 3) % 5 - 2) for i in range(30)]
    many = [pair for pair in once for _ in range(5)]
    first, second = (creation_agreement(pairs)["mae"] for pairs in (once, many))
    assert (first.n, second.n) == (30, 150)
    assert second.ci95 == pytest.approx(first.ci95)
    assert second.value == pytest.approx(first.value)
    assert creation_agreement(many[:20])["mae"].ci95 is None
