"""Official mode against the released programs' own output on seeded judgements.

The fixture was written by running VLMEvalKit@e8e78f05 (creation.py), MLLM-Bench@403f82c9
(evaluate.py, cal_clo.py) and ProBench_eval@c17b7ae (show_result.py, utils_math.py) under
numpy 1.26, pandas 2.2 and scikit-learn 1.6, with tokens counted as words; and MMRB2@7ff0552
(local_pairwise_evaluator.py, compute_accuracy.py) with json-repair 0.64.6, of which each
reply is kept as it was given to it and as it came back.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from contents import document
from pairwise_helpers import game, judged, upstream

from plait.generators.base import NotApplicable, Unscored
from plait.scorers.pairwise import resolve_protocol
from plait.scorers.pairwise.games import FactualityScores, Game, Verdict, by_pair
from plait.scorers.pairwise.mllm_bench import K, _medians, battles_by_count
from plait.scorers.pairwise.probench import (
    _fit,
    _rating,
    _resample,
    matrices,
    official_battles,
)
from plait.scorers.pairwise.readers import LEVELS, MIRRORED
from plait.scorers.statistics.ratings import Battle, bradley_terry, online_elo

CREATION = upstream("creation")
MLLM = upstream("mllm")
MMRB2 = upstream("mmrb2")
PROBENCH = upstream("probench")
RATINGS = upstream("ratings")
CREATION_NAMES = {
    "reward": "reward",
    "win_rate": "win_rate",
    "preference_parse_ok": "preference_parse_ok",
    "visual_factuality": "visual_factuality_score",
    "visual_factuality_of_opponent": "visual_factuality_ref_score",
    "visual_factuality_parse_ok": "visual_factuality_parse_ok",
}


@pytest.mark.parametrize(("reply", "form"), CREATION["verdicts"])
def test_creation_verdicts_are_read_as_released(reply: str, form: str | None) -> None:
    result = resolve_protocol("creation", "official").read(reply)
    expected = None if form is None else (LEVELS | MIRRORED)[form]
    assert (result.preference if isinstance(result, Verdict) else None) == expected


@pytest.mark.parametrize(("reply", "scores"), CREATION["marks"])
def test_creation_marks_are_read_as_released(reply: str, scores: str | None) -> None:
    result = resolve_protocol("creation", "official").read(reply, "factuality")
    marker = "NO_OBJECTIVE" if isinstance(result, NotApplicable) else None
    assert (
        f"{result.first}|{result.second}"
        if isinstance(result, FactualityScores)
        else marker
    ) == scores


def test_creation_numbers_equal_the_merged_rating() -> None:
    protocol = resolve_protocol("creation", "official")
    games = [
        Game(
            question=str(r["index"]),
            category=r["category"],
            field=r["task"],
            first="reference",
            second="model",
            outcome=judged(protocol, r["pref"], r["fact"] or ()),
        )
        for r in CREATION["rows"]
    ]
    rows = protocol.aggregate(games, "reference").rows
    assert {r.group or "overall" for r in rows} == set(CREATION["merged"])
    for row in rows:
        expected = CREATION["merged"][row.group or "overall"]
        for ours, theirs in CREATION_NAMES.items():
            assert row.values[ours].value == pytest.approx(expected.get(theirs), abs=1e-12)
        levels = ("much_worse", "worse", "tie", "better", "much_better")
        n = sum(row.counts[level] for level in levels)
        for level, value in zip(levels, range(-2, 3), strict=True):
            share = expected["preference_dist"][str(value)]
            assert row.counts[level] / n == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("reply", "cleaned", "loaded", "chosen"), MMRB2["replies"])
def test_mmrb2_replies_are_read_as_released(
    reply: str, cleaned: str, loaded: object, chosen: list | None
) -> None:
    """`chosen` is None where the program fails; only a true value is a judgement."""
    given = []
    protocol = resolve_protocol(
        "mmrb2", "official", loads=lambda t: given.append(t) or loaded
    )
    result = protocol.read(reply)
    assert given == [cleaned]
    if chosen is None or not chosen[0]:
        assert isinstance(result, Unscored)
    else:
        preference = {"A": 1, "B": -1}.get(str(chosen[0]), 0)
        assert result == Verdict(str(chosen[0]), preference)


def mllm_games() -> list[Game]:
    protocol = resolve_protocol("mllm-bench", "official")
    return [
        game(question, judged(protocol, replies), *pair.split())
        for pair, answered in MLLM["replies"].items()
        for question, replies in answered.items()
    ]


def test_mllm_bench_counts_equal_the_count_files() -> None:
    table = resolve_protocol("mllm-bench", "official").aggregate(mllm_games())
    rows = [r for r in table.rows if r.opponent and r.part == "overall"]
    assert len(rows) == len(MLLM["counts"])
    for row in rows:
        expected = dict(MLLM["counts"][f"{row.opponent} {row.system}"])
        total = expected.pop("total")
        names = {row.system: "win", row.opponent: "lose"}
        assert {k: row.counts[names.get(k, k)] for k in expected} == expected
        assert row.values["win_rate"].n == total
        assert row.values["win_rate"].value == 100 * expected[row.system] / total


def test_mllm_bench_elo_equals_the_released_ratings() -> None:
    played = by_pair(mllm_games(), None)
    battles = [b for pair, games in played.items() for b in battles_by_count(pair, games)]
    assert online_elo(battles, K) == pytest.approx(MLLM["elo"], abs=1e-9)
    assert _medians(battles) == pytest.approx(MLLM["median"], abs=1e-9)
    table = resolve_protocol("mllm-bench", "official").aggregate(mllm_games())
    printed = {r.system: r.values["elo"] for r in table.rows if not r.opponent}
    expected = {name: int(v + 0.5) for name, v in MLLM["elo"].items()}
    assert {name: e.value for name, e in printed.items()} == expected
    for name, estimate in printed.items():
        pairs = [dict(c) for pair, c in MLLM["counts"].items() if name in pair.split()]
        decided = ("tie", *MLLM["elo"])
        assert estimate.n == sum(n for c in pairs for k, n in c.items() if k in decided)


def probench_games(case: dict) -> list[Game]:
    protocol = resolve_protocol("probench", "official", count=lambda t: len(t.split()))
    games = []
    for uuid, baseline, model, one, zero in case["questions"]:
        styles = (
            protocol.style_of(document(baseline), first=True),
            protocol.style_of(document(model), first=False),
        )
        games.append(game(uuid, judged(protocol, (one, zero)), styles=styles))
    return games


@pytest.mark.parametrize("case", PROBENCH)
def test_probench_style_and_ratings_equal_the_released_ones(case: dict) -> None:
    games = probench_games(case)
    for played, expected in zip(games, case["styles"], strict=True):
        styles = [[s.tokens, s.headers, s.lists, s.bold] for s in played.styles]
        assert styles == expected
    battles = official_battles(games)
    assert len(battles) == case["battles"]
    x, y = matrices(battles)
    coefficients = _fit(x, y)
    assert _rating(coefficients) == pytest.approx(case["rating"], abs=1e-3)
    assert coefficients[2:] == pytest.approx(case["style"], abs=1e-5)
    samples = _resample(x, y, np.array([b.score == 0.5 for b in battles]))
    ends = [case["lower"], case["upper"]]
    assert np.percentile(samples, [2.5, 97.5]) == pytest.approx(ends, abs=1e-2)
    row = resolve_protocol("probench", "official").aggregate(games).rows[0]
    line = next(x for x in case["printed"].splitlines() if x.startswith("model "))
    fields = [part.partition(":")[2].strip() for part in line.split("|")[1:]]
    rating, ends = row.values["rating"].value, row.values["rating"].ci95
    assert int(fields[0]) == rating
    assert fields[1] == str((int(ends[0] - rating), int(ends[1] - rating)))
    assert int(fields[2]) == int(row.values["tokens"].value)
    assert float(fields[3]) == row.values["win_rate"].value


def battles_by_rule(replies: list[str], weight: int) -> int:
    """`get_battles_from_row` of show_result.py: one verdict counts, `>>` so often."""
    total = 0
    for reply in replies:
        stated = {*re.findall(r"\[\[([AB<>=]+)\]\]", reply)} - {""}
        if len(stated) == 1 and stated <= {"A>>B", "A>B", "A=B", "B>A", "B>>A"}:
            total += weight if stated <= {"A>>B", "B>>A"} else 1
    return total


@pytest.mark.parametrize("weight", [1, 3, 5])
@pytest.mark.parametrize("first_game_only", [False, True])
@pytest.mark.parametrize("case", PROBENCH)
def test_probench_counts_as_it_is_told(
    case: dict, first_game_only: bool, weight: int
) -> None:
    """Of the two games of a question, `1` is the one with the baseline shown first."""
    settings = {"weight": weight, "first_game_only": first_game_only}
    protocol = resolve_protocol("probench", "official", settings=settings)
    counted = [one for *_, one, _ in case["questions"]]
    if not first_game_only:
        counted += [zero for *_, zero in case["questions"]]
    row = protocol.aggregate(probench_games(case)).rows[0]
    assert row.counts["battles"] == battles_by_rule(counted, weight)


def test_plain_fits_equal_the_released_maximum_and_evalica_elo() -> None:
    battles = [
        Battle(question=str(i), first=a, second=b, score=score)
        for i, (a, b, score) in enumerate(RATINGS["battles"])
    ]
    fitted = bradley_terry(battles, "x", order=False, draws=2).systems
    assert {k: e.value for k, e in fitted.items()} == pytest.approx(
        RATINGS["mle"], abs=1e-3
    )
    assert online_elo(battles, 4) == pytest.approx(RATINGS["online"], abs=1e-9)
