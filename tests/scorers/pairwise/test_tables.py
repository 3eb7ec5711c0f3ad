"""Corrected tables against hand-computed values, and what must not change them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise_helpers import game, judged, preferred

from generators.base import Failure, Fault, Result, Skip, Unscored
from scorers.features import Style, difference
from scorers.pairwise import PROTOCOLS, resolve_protocol
from scorers.pairwise.games import (
    Game,
    Judgement,
    PairStanding,
    ReplyReading,
    Standings,
    Verdict,
)
from scorers.pairwise.mllm_bench import merged
from scorers.pairwise.readers import SITUATION_ONE, SITUATION_TWO


def row_of(table: Standings, system: str = "mine", group: str = "") -> PairStanding:
    return next(r for r in table.rows if (r.system, r.group) == (system, group))


def table_of(name: str, games: list[Game], **options: object) -> Standings:
    return resolve_protocol(name, draws=20, **options).aggregate(games, "base")


REPLIES = [("[[B>>A]]", "[[A>B]]"), ("[[A=B]]", "[[B>A]]"), ("[[A>>B]]", "[[A>>B]]")]
MARKS = (
    "Response A Visual Factuality Score: 4/10\nResponse B Visual Factuality Score: 7/10",
    "Response A Visual Factuality Score: 9/10\nResponse B Visual Factuality Score: 2/10",
)


def creation_games() -> list[Game]:
    protocol = resolve_protocol("creation")
    games = [
        game(f"q{i}", judged(protocol, r, MARKS[:i])) for i, r in enumerate(REPLIES[:2])
    ]
    games.append(game("q2", judged(protocol, REPLIES[2])))
    games.append(game("q3", judged(protocol, ("[[B>>A]]", "?"), MARKS), category="d"))
    games.append(game("q4", Failure("no answer", Fault.TIMEOUT)))
    games.append(game("q5", Skip("one picture only")))
    return games


def test_reward_and_factuality_by_hand() -> None:
    # Of `mine`, shown second and then first: (2, 1), (0, -1), (-2, 2); q3 has one order.
    values = row_of(table_of("creation", creation_games())).values
    assert values["reward"].value == pytest.approx(50 * (1.5 - 0.5 + 0) / 3)
    assert values["win_rate"].value == pytest.approx(100 * (1 + 0 + 0.5) / 3)
    assert (values["reward"].n, values["reward"].ci95) == (3, None)
    # Marks of `mine`: 7 as B, then 9 as A; of `base`: 4 as A, then 2 as B.
    assert values["visual_factuality"].value == 8
    assert values["visual_factuality_gap"].value == 5


def test_everything_that_is_missing_is_counted() -> None:
    counts = row_of(table_of("creation", creation_games())).counts
    assert counts["questions"] == 6
    assert counts["unjudged"] == 2
    assert (counts["both_orders"], counts["one_order"], counts["no_order"]) == (3, 1, 0)
    assert (counts["read"], counts["unread"]) == (7, 1)
    assert counts["much_better"] == 3
    assert counts["factuality_read"] == 3
    late = Failure("late", Fault.TIMEOUT)
    readings = tuple(ReplyReading("preference", s, late) for s in (False, True))
    failed = game("q", Result(Judgement(readings)))
    assert row_of(table_of("creation", [failed])).counts["failed"] == 2


def voted(forward: str | None, swapped: str | None) -> Judgement:
    values = {"Answer1": 1, "Answer2": -1}
    readings = tuple(
        ReplyReading(
            "preference",
            s,
            Unscored("?") if v is None else Result(Verdict(v, values.get(v, 0))),
        )
        for s, v in ((False, forward), (True, swapped))
    )
    return Judgement(readings)


@pytest.mark.parametrize(
    ("forward", "swapped", "expected"),
    [
        ("Answer1", "Answer2", "first"),
        ("Answer2", "Answer1", "second"),
        ("Answer1", "Answer1", "tie"),
        ("Answer2", "Answer2", "tie"),
        ("Answer1", SITUATION_ONE, "first"),
        (SITUATION_TWO, "Answer1", "second"),
        (SITUATION_ONE, SITUATION_ONE, SITUATION_ONE),
        (SITUATION_TWO, SITUATION_TWO, SITUATION_TWO),
        (SITUATION_ONE, SITUATION_TWO, "unable to decide"),
        ("Answer1", None, None),
        (None, None, None),
    ],
)
def test_votes_of_two_orders_are_merged(
    forward: str | None, swapped: str | None, expected: str | None
) -> None:
    assert merged(voted(forward, swapped)) == expected
    turned = {"first": "second", "second": "first"}
    flipped = merged(voted(forward, swapped).flipped)
    assert flipped == turned.get(expected, expected)


def mllm_games() -> list[Game]:
    pairs = [("Answer2", "Answer1")] * 3 + [("Answer1", "Answer2")]
    pairs += [("Answer1", "Answer1"), (SITUATION_ONE, SITUATION_TWO), ("Answer1", None)]
    return [game(f"q{i}", Result(voted(*p))) for i, p in enumerate(pairs)]


def test_win_tie_and_lose_by_hand() -> None:
    row = row_of(table_of("mllm-bench", mllm_games()))
    assert (row.counts["win"], row.counts["lose"], row.counts["tie"]) == (3, 1, 1)
    assert row.counts["unable to decide"] == 1
    shares = {name: e.value for name, e in row.values.items()}
    expected = {"win_rate": 50, "tie_rate": 100 / 3, "lose_rate": 100 / 6, "score": 200 / 3}
    assert shares == pytest.approx(expected)
    assert row.values["win_rate"].n == 6


def likert_games() -> list[Game]:
    result = [(-2, 1), (-1, 1), (0, 0), (1, -1), (-1, 2), (-2, 2), (1, 1), (-1, -1)]
    return [preferred(f"q{i}", *f) for i, f in enumerate(result)]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_repeats_are_not_further_questions(name: str) -> None:
    pairs = [(-1, 1), (1, -1), (-1, 1), (0, 0), (-1, -1), (-1, 1), (1, 1), (0, 1)]
    games = [preferred(f"q{i}", *p) for i, p in enumerate(pairs)]
    once, thrice = (table_of(name, games * k) for k in (1, 3))
    for one, other in zip(once.rows, thrice.rows, strict=True):
        for measure, expected in one.values.items():
            result = other.values[measure]
            assert (result.n, result.reason) == (expected.n, expected.reason)
            assert result.value == pytest.approx(expected.value, abs=1e-3)
            assert result.ci95 == (expected.ci95 and pytest.approx(expected.ci95, abs=1e-2))
    assert row_of(thrice).counts["questions"] == 8
    assert row_of(thrice).counts["read"] == 3 * 16


def test_likert_rating_is_a_weighted_logit() -> None:
    # Of `mine`: wins 3+1, 1+1, 1+3, 3+3 and one of each in the last two; losses 1+1 and one
    # of each in the last two; two ties: 18 and a tie's half of each to 4.
    row = row_of(table_of("probench", likert_games()))
    points = 400 * math.log10((18 + 1) / (4 + 1))
    assert row.values["plain_rating"].value == pytest.approx(1000 + points, abs=0.05)
    assert row.values["win_rate"].value == pytest.approx(100 * 19 / 24, abs=0.01)
    # Questions 2 of 2, 2, 1, 0, 2, 2, 1, 1 half wins.
    assert row.values["preferred"].value == pytest.approx(100 * 11 / 16)


def styled(rng: random.Random, n: int = 60) -> list[Game]:
    """Judges who look at nothing but length; `mine` is longer on the whole."""
    games = []
    for i in range(n):
        first = Style(rng.randint(20, 60), images=rng.randint(0, 2))
        second = Style(rng.randint(40, 90), rng.randint(0, 3), images=rng.randint(0, 2))
        odds = 4 * difference(first, second)[0]
        sign = 1 if rng.random() < 1 / (1 + math.exp(-odds)) else -1
        games.append(preferred(f"q{i}", sign, -sign, (first, second)))
    return games


def test_holding_style_equal_takes_away_what_length_won() -> None:
    table = table_of("probench", styled(random.Random(2), 300))
    row = row_of(table)
    assert row.values["plain_rating"].value > 1100
    gap = abs(row.values["rating"].value - 1000)
    assert gap < 0.25 * (row.values["plain_rating"].value - 1000)
    assert row_of(table, "").values["tokens"].ci95[0] > 0
    missing = row_of(table, "").values["bold"]
    assert missing.value is None
    assert missing.reason


@pytest.mark.parametrize("name", PROTOCOLS)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=3, deadline=None)
def test_neither_order_nor_naming_of_games_matters(name: str, seed: int) -> None:
    rng = random.Random(seed)
    games = styled(rng, 12)
    changed = [g.flipped if rng.random() < 0.5 else g for g in games]
    rng.shuffle(changed)
    protocol = resolve_protocol(name, draws=3)
    assert protocol.aggregate(changed, "base") == protocol.aggregate(games, "base")


@pytest.mark.parametrize("mode", ["official", "corrected"])
@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("games", [[], [preferred("q", None, None)]])
def test_nothing_read_is_no_number(name: str, mode: str, games: list[Game]) -> None:
    table = resolve_protocol(name, mode).aggregate(games, "base")
    given_or_zero = {("base", m) for m in ("rating", "plain_rating", "elo")}
    given_or_zero.add(("mine", "preference_parse_ok"))
    for row in table.rows:
        for measure, result in row.values.items():
            if (row.system, measure) not in given_or_zero:
                assert result.value is None
                assert result.reason


def test_probench_counts_the_baselines_tokens_on_every_item() -> None:
    """`avg_tokens_baseline` of show_result.py; the model's are those of judged items."""
    styles = (Style(10, 0, 0, 0, 0), Style(4, 0, 0, 0, 0))
    games = [
        replace(preferred("q0", 1, -1, styles), tokens=(10, 4)),
        # Judged, but no reply came: the program has no file of it.
        replace(game("q1", Result(Judgement(late_readings(), styles))), tokens=(10, 400)),
        replace(game("q2", Skip("mine: no answer")), tokens=(40, None)),
    ]
    row = row_of(table_of("probench", games, mode="official"))
    assert (row.values["tokens"].value, row.values["tokens"].n) == (4, 1)
    other = row.values["tokens_of_opponent"]
    assert (other.value, other.n) == (20, 3)
    turned = [g.flipped for g in games]
    assert row_of(table_of("probench", turned, mode="official")).values == row.values


def late_readings() -> tuple[ReplyReading, ...]:
    late = Failure("late", Fault.TIMEOUT)
    return tuple(ReplyReading("preference", s, late) for s in (False, True))
