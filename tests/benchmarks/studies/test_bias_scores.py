"""Bias of rubric judges: scores as preferences, other seeds, other rubrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from judging_helpers import (
    STAND_IN,
    chat_spec,
    document,
    judge_of,
    picture,
    sample,
    stand_in_digests,
)
from trial import filled

from benchmarks.runs.config import RunConfig
from benchmarks.runs.experiment import Experiment
from benchmarks.studies.bias import scores
from benchmarks.studies.bias.observations import Finding, Measured
from benchmarks.studies.bias.scores import Scored
from benchmarks.studies.bias.verdicts import lengths
from benchmarks.tasks.published import as_asked
from benchmarks.tasks.task_set import TaskSet
from cluster.store import Store
from generators.keys import derived_seed
from generators.system import System
from scorers.judging import sources
from scorers.judging.judge import RubricJudge
from scorers.judging.resolve import JudgeSettings
from scorers.judging.sources import OWN_WORDING, RubricSource

GRADER = chat_spec(name="grader", target="comparing_helpers:Grader", seeded=True)
GREEDY = chat_spec(target="comparing_helpers:Grader")
SAMPLES = [sample(f"SA-{i}") for i in range(6)]
SHOWN = (picture("one"), picture("two"))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the user's copy of the released rubrics."""
    monkeypatch.setattr(sources, "DIGESTS", stand_in_digests())
    found = tmp_path / "prompts.py"
    found.write_text(STAND_IN)
    return found


def experiment_of(*judges: RubricJudge) -> Experiment:
    given = {
        "fair": {s.id: document("good", *SHOWN) for s in SAMPLES},
        "long": {s.id: document("good and good and good again", *SHOWN) for s in SAMPLES},
    }
    systems = [System(name=n, draft=None, answers=a) for n, a in given.items()]
    return Experiment(
        config=RunConfig(weights="tiny"),
        task=TaskSet(
            name="x", samples=(), prompt=as_asked, categories={}, fields=(), about={}
        ),
        samples=tuple(SAMPLES),
        systems=tuple(systems),
        scorers=judges,
        identities={},
    )


def scored(root: Path, *judges: RubricJudge) -> Scored:
    """A run scored by each of the judges, which goes by the first."""
    for judge in judges:
        filled(experiment_of(judge).plan, root)
    return Scored.of(experiment_of(judges[0]), Store(root))


def split(measured: Measured) -> tuple[list[Finding], list[str]]:
    found = list(measured)
    findings = [m for m in found if isinstance(m, Finding)]
    return findings, [m for m in found if isinstance(m, str)]


def odd(seed: int) -> Sequence[int]:
    return [derived_seed(seed, s.id, 0, 0) % 2 for s in SAMPLES]


def test_scores_of_one_query_are_preferences(tmp_path: Path) -> None:
    found = scored(tmp_path, judge_of(GRADER)).preferences()
    (judge, games), *none = found.items()
    assert not none
    assert judge.label == "judge:chatty"
    assert len(games) == 6
    # Three times good against once, of 6.
    assert [m.preference for m in games] == [pytest.approx(2 / 6 * 100)] * 6
    told = {f.measure: f for f in lengths(found).findings}["longer answer preferred, %"]
    assert (told.estimate.value, told.estimate.n, told.judgements) == (100.0, 6, 6)


def test_repeatability_of_a_rubric_judge_over_seeds(tmp_path: Path) -> None:
    other = judge_of(GRADER, seed=3)
    findings, absent = split(scores.repeated(scored(tmp_path, judge_of(GRADER), other)))
    same = [x == y for x, y in zip(odd(0), odd(3), strict=True)]
    assert 0 < sum(same) < 6
    told = {f.measure: f.estimate.value for f in findings}
    assert told["equal, %"] == pytest.approx(100 * sum(same) / 6)
    assert told["mean difference, points of 100"] == pytest.approx(
        100 / 6 * (6 - sum(same)) / 6
    )
    assert not absent
    once, why = split(scores.repeated(scored(tmp_path / "once", judge_of(GRADER))))
    assert once == []
    assert why == ["judge:chatty: scored under one seed only"]
    greedy = judge_of(chat_spec(target="comparing_helpers:Grader"))
    assert (
        "nothing at random" in split(scores.repeated(scored(tmp_path / "g", greedy)))[1][0]
    )


def test_rewording_of_a_rubric_judge(tmp_path: Path, path: Path) -> None:
    own = judge_of(chat_spec(target="comparing_helpers:Grader"))
    theirs = judge_of(own.stage, rubric=f"official:{path}")
    assert JudgeSettings(rubric=f"official:{path}").mode == "corrected"
    both_scored = scored(tmp_path / "run", own, theirs)
    findings, _ = split(scores.reworded(both_scored, RubricSource(path)))
    told = {f.measure: f.estimate.value for f in findings}
    # Their wording makes the grader one point of 6 harsher.
    assert told["equal, %"] == 0
    assert told["mean difference, points of 100"] == pytest.approx(100 / 6)
    assert len(findings) == 2
    assert split(scores.reworded(both_scored, OWN_WORDING))[1] == [
        "judge:chatty: scores by one rubric only"
    ]


def test_a_judge_of_its_own_settings_is_no_other_wording(tmp_path: Path) -> None:
    """Another run showed the same judge fewer pictures, by the same rubric."""
    fewer, all_shown = judge_of(GREEDY, max_images=1), judge_of(GREEDY)
    found, absent = split(scores.reworded(scored(tmp_path, fewer, all_shown), OWN_WORDING))
    assert found == []
    assert absent == ["judge:chatty: scores by one rubric only"]


def test_another_rubric_is_asked_for_with_the_judges_own_settings(
    tmp_path: Path, path: Path
) -> None:
    about = {"max_images": 1, "retries": 3, "seed": 5}
    own = judge_of(GRADER, **about)
    theirs = judge_of(GRADER, rubric=f"official:{path}", **about)
    found, _ = split(
        scores.reworded(scored(tmp_path / "run", own, theirs), RubricSource(path))
    )
    assert {f.judge for f in found} == {
        "judge:chatty: the run's rubric and released rubric"
    }
    variants = scores._worded(own, RubricSource(path))
    assert variants["released rubric"] == theirs
    released = judge_of(GRADER, rubric=f"official:{path}", mode="official", seed=5)
    assert variants["released scorer"] == released
    # Equal texts are one rubric, and a mode alone is no rubric.
    both = scored(tmp_path / "modes", theirs, released)
    assert split(scores.reworded(both, RubricSource(path))) == (
        [],
        ["judge:chatty: scores by one rubric only"],
    )


def test_readers_of_one_question_are_no_wordings(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The released scorer asks the same, but does not ask again."""
    shy = chat_spec(target="comparing_helpers:Shy")
    own, theirs = judge_of(shy), judge_of(shy, rubric=f"official:{path}")
    monkeypatch.setitem(globals(), "SHOWN", ())
    found, _ = split(
        scores.reworded(scored(tmp_path / "run", own, theirs), RubricSource(path))
    )
    assert {f.judge for f in found} == {
        "judge:chatty: the run's rubric and released rubric"
    }
