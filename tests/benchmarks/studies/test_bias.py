"""Tables of bias by hand: what a few verdicts come to."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from benchmarks.studies.bias import observations
from benchmarks.studies.bias.observations import (
    JudgeIdentity,
    Preference,
    Section,
    family,
    mean_of,
    rank_correlation,
    upright,
)
from benchmarks.studies.bias.verdicts import (
    lengths,
    positions,
    repeatability,
    rewording,
    self_preference,
)
from benchmarks.studies.pairwise.judgements import Ruling, Side, write_rulings

JUDGE = JudgeIdentity("gpt-4o", "creation", "corrected", "w1", "s1")


def side(system: str, words: int = 10, images: int = 0) -> Side:
    return Side(system=system, writer=system, words=words, images=images)


def ruling(
    question: str,
    preference: int | None,
    *,
    swapped: bool = False,
    first: Side | None = None,
    second: Side | None = None,
    **about: Any,
) -> Ruling:
    told = {
        "protocol": "creation",
        "mode": "corrected",
        "wording": "w1",
        "judge": "gpt-4o",
        "stage": "s1",
        "repeat": 0,
        "judging": 0,
        "aspect": "preference",
        "outcome": "unscored" if preference is None else "done",
    }
    return Ruling(
        question=question,
        preference=preference,
        swapped=swapped,
        first=first or side("a"),
        second=second or side("b"),
        **(told | about),
    )


def both(
    question: str, named: int | None, swapped: int | None, **about: Any
) -> list[Ruling]:
    """Preferences for the answer shown first, in both orders."""
    return [
        ruling(question, named, **about),
        ruling(question, swapped, swapped=True, **about),
    ]


def values(section: Section) -> dict[str, tuple[float | None, int, int]]:
    return {
        f.measure: (f.estimate.value, f.estimate.n, f.judgements) for f in section.findings
    }


def test_positions_by_hand() -> None:
    told = [
        *both("1", 2, -1),  # the same answer, though less so
        *both("2", 0, 0),
        *both("3", 1, 1),  # whatever is first
        *both("4", 0, 1),  # first, half-heartedly
        *both("5", -2, -1),  # whatever is last
        *both("6", 1, None),  # one order cannot be read
    ]
    found = positions({JUDGE: told})
    first = pytest.approx((0.5 + 0 + 1 + 0.5 - 1.5) / 5)
    assert values(found) == {
        "same verdict either way, %": (40.0, 5, 5),
        "goes to the first shown, %": (40.0, 5, 5),
        "goes to the last shown, %": (20.0, 5, 5),
        "preference for the first shown, levels": (first, 5, 5),
    }
    assert "only two different values" in found.findings[0].estimate.reason
    assert found.findings[3].estimate.ci95 is not None
    silent = positions({JUDGE: both("1", None, 2)})
    assert "no pair was read in both orders" in silent.absent[0]


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=20))
def test_positions_do_not_depend_on_which_side_is_named_first(
    pairs: list[tuple[int, int]],
) -> None:
    told = [r for i, (x, y) in enumerate(pairs) for r in both(str(i), x, y)]
    other = [
        r
        for i, (x, y) in enumerate(pairs)
        for r in both(str(i), y, x, first=side("b"), second=side("a"))
    ]
    assert positions({JUDGE: told}) == positions({JUDGE: [upright(r) for r in other]})
    shares = [v[0] for k, v in values(positions({JUDGE: told})).items() if "%" in k]
    assert sum(s or 0 for s in shares) == pytest.approx(100)


def matchup(question: str, preference: float, first: Side, second: Side) -> Preference:
    return Preference(
        question=question, repeat=0, first=first, second=second, preference=preference
    )


def test_lengths_by_hand() -> None:
    games = [
        matchup("1", 2, side("a", 10), side("b", 30)),  # the longer, much so
        matchup("2", 1, side("a", 30), side("b", 10)),  # the shorter
        matchup("3", 0, side("a", 10), side("b", 15)),
        matchup("4", -1, side("a", 104), side("b", 100)),  # the longer, by 4%
        matchup("5", 2, side("a", 10, 1), side("b", 10)),  # no picture, equal length
    ]
    found = values(lengths({JUDGE: games}))
    assert found["longer answer preferred, %"] == (pytest.approx(250 / 4), 4, 4)
    assert found["preference for the longer, by up to 5%"] == (1.0, 1, 1)
    assert found["preference for the longer, up to twice"] == (0.0, 1, 1)
    assert found["preference for the longer, over twice"] == (0.5, 2, 2)
    assert found["answer with more pictures preferred, %"] == (0.0, 1, 1)
    turned = {JUDGE: [g.flipped if i % 2 else g for i, g in enumerate(games)]}
    assert values(lengths(turned)) == found


@given(
    st.lists(
        st.tuples(st.integers(-9, 9), st.integers(-2, 2)), min_size=3, max_size=30
    ).filter(lambda x: any(a for a, _ in x) and any(b for _, b in x))
)
def test_rank_correlation_is_spearmans_of_pairs_told_both_ways(
    pairs: list[tuple[int, int]],
) -> None:
    observed = [(str(i), float(x), float(y)) for i, (x, y) in enumerate(pairs)]
    mirrored = np.array([*pairs, *((-x, -y) for x, y in pairs)])
    wanted = spearmanr(mirrored[:, 0], mirrored[:, 1]).statistic
    found = rank_correlation(observed)
    if math.isnan(wanted):
        assert found.value is None
    else:
        assert found.value == pytest.approx(wanted, abs=1e-12)


def test_observations_of_one_question_are_drawn_together() -> None:
    """Ten copies of each of six questions are no more evidence than one of each."""
    once = [(str(i), float(i)) for i in range(6)]
    often = mean_of(once * 10)
    assert often == mean_of(once)
    assert often.n == 6
    assert often.value == 2.5


def test_self_preference_beside_other_judges_by_hand() -> None:
    own, foreign = side("openai:gpt-4o"), side("qwen2-vl-72b")
    games = {
        JUDGE: [
            matchup("1", 1, foreign, own),
            matchup("2", -2, own, foreign),
            matchup("3", 1, own, foreign),
            matchup("4", 0, own, foreign),
            matchup("5", 2, foreign, side("llava-34b")),  # none of its own
            matchup("6", 2, own, side("published:gpt-4o-1120")),  # both of its own
        ],
        JudgeIdentity("gemini", "creation", "corrected", "w2", "s2"): [
            matchup("1", -1, foreign, own),
            matchup("2", -1, own, foreign),
            matchup("4", 0, own, foreign),
        ],
        JudgeIdentity("gpt-4.1", "creation", "corrected", "w1", "s3"): [
            matchup("3", -1, own, foreign)  # of the same family: no witness
        ],
        JudgeIdentity("gemini", "probench", "corrected", "w1", "s2"): [
            matchup("3", -1, own, foreign)  # asked otherwise: no witness
        ],
    }
    found = self_preference(games)
    told = {f.measure: f for f in found.findings if f.judge.startswith("gpt-4o ")}
    assert told["answers of gpt preferred, %"].estimate.value == 62.5
    assert told["answers of gpt preferred, %"].judgements == 4
    # gemini: 0, 100, 50; gpt-4o on the same three: 100, 100, 50
    assert told["answers of gpt preferred by other judges, %"].estimate.value == 50
    more = told["more than by other judges, points of %"].estimate
    assert more.value == pytest.approx(100 / 3)
    assert any("own family (gemini)" in reason for reason in found.absent)
    alone = self_preference({JUDGE: games[JUDGE]})
    assert len(alone.findings) == 1
    assert "cannot be distinguished from the answers' quality" in alone.absent[0]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gpt-4o", "gpt"),
        ("openai:gpt-4.1", "gpt"),
        ("published:gpt-4o-1120", "gpt"),
        ("hf:Qwen/Qwen2-VL-7B-Instruct", "qwen"),
        ("qwen2-vl-72b", "qwen"),
        ("gemini-1.5", "gemini"),
        ("4o", ""),
    ],
)
def test_families(name: str, wanted: str) -> None:
    assert family(name) == wanted


def test_repeatability_by_hand() -> None:
    told = [
        ruling("1", 1),
        ruling("1", 1, judging=1),
        ruling("1", -1, judging=2),
        ruling("2", 2),
        ruling("2", None, judging=1),
        ruling("3", 0, judging=1),
    ]
    found = values(repeatability({JUDGE: told}))
    assert found == {
        "equal, %": (pytest.approx(100 / 3), 1, 3),
        "mean difference, levels": (pytest.approx(4 / 3), 1, 3),
    }
    assert "asked once" in repeatability({JUDGE: told[:1]}).absent[0]


def test_rewording_by_hand() -> None:
    other = JudgeIdentity("gpt-4o", "creation", "official", "w2", "s1")
    stranger = JudgeIdentity("gemini", "creation", "corrected", "w1", "s2")
    told = {
        JUDGE: [*both("1", 2, -2), ruling("2", 1)],
        other: [*both("1", 2, -1), ruling("3", 1)],
        stranger: [*both("1", 0, 0)],
    }
    found = rewording(told)
    assert values(found) == {
        "equal, %": (50.0, 1, 2),
        "mean difference, levels": (0.5, 1, 2),
    }
    assert any("gemini (creation): asked in one wording" in r for r in found.absent)


def test_modes_are_not_taken_for_wordings() -> None:
    def asked(mode: str, wording: str) -> JudgeIdentity:
        return JudgeIdentity("gpt-4o", "creation", mode, wording, "s1")

    told = {
        asked("corrected", "w1"): both("1", 2, -2),
        asked("official", "w1"): both("1", 2, -1),
    }
    modes = rewording(told)
    assert {f.judge for f in modes.findings} == {
        "gpt-4o (creation): modes corrected and official, one wording w1"
    }
    assert "asked in one wording" in modes.absent[0]
    told[asked("official", "w2")] = both("1", 2, 0)
    every = rewording(told)
    assert {f.judge for f in every.findings} == {
        "gpt-4o (creation): modes corrected and official, one wording w1",
        "gpt-4o (creation): wordings w1 and w2, both official",
        "gpt-4o (creation): corrected w1 and official w2, modes differ too",
    }
    assert not every.absent


def test_judges_that_differ_in_settings_have_labels_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "compare" / "creation"
    told = [*both("1", 2, -1, stage="aaaaaaaa"), *both("1", 0, 0, stage="bbbbbbbb")]
    write_rulings([*told, *both("1", 1, 1, judge="gemini")], folder / "judgements-1.jsonl")
    found = observations.load(tmp_path)
    assert [judge.label for judge in found] == [
        "gemini (creation, corrected, wording w1)",
        "gpt-4o [settings aaaaaa] (creation, corrected, wording w1)",
        "gpt-4o [settings bbbbbb] (creation, corrected, wording w1)",
    ]
    for section in (positions(found), rewording(found), repeatability(found)):
        said = [f.judge for f in section.findings] + list(section.absent)
        assert any("aaaaaa" in line for line in said)
        assert any("bbbbbb" in line for line in said)


def test_rulings_of_several_files_count_once(tmp_path: Path) -> None:
    folder = tmp_path / "compare" / "creation"
    write_rulings(both("1", 2, None), folder / "judgements-1.jsonl")
    turned = both("1", -1, 2, first=side("b"), second=side("a"))
    marks = [ruling("9", None, aspect="factuality", marks=(8.0, 6.0), outcome="done")]
    write_rulings([*turned, *marks], folder / "judgements-2.jsonl")
    ((judge, told),) = observations.load(tmp_path).items()
    assert judge == JUDGE
    # The order with `b` shown first was unread in one file, and read in the other.
    assert {(r.swapped, r.preference) for r in told} == {(False, 2), (True, -1)}
    assert {(r.first.system, r.second.system) for r in told} == {("a", "b")}
    (game,) = observations.preferences_of(told)
    assert game.preference == pytest.approx((-2 - 1) / 2)


@pytest.mark.parametrize(
    "section", [positions, repeatability, rewording, lengths, self_preference]
)
def test_without_judgements_there_is_a_reason(section: Callable[..., Section]) -> None:
    assert section({}).findings == ()
    assert len(section({}).absent) == 1
