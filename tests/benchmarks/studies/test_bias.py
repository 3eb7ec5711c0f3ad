"""Bias of judges by hand: what a few verdicts, and a few scores, come to."""

from __future__ import annotations

import errno
import math
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contents import document
from hypothesis import given, settings
from hypothesis import strategies as st
from judging_helpers import STAND_IN, chat_spec, judge_of, picture, sample, stand_in_digests
from scipy.stats import spearmanr
from trial import filled

from plait.benchmarks.results.files import writing
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.rulings import (
    Ruling,
    Side,
    read_rulings,
    ruling_of,
    table_of,
    write_rulings,
)
from plait.benchmarks.results.files.writing import keep_comparison
from plait.benchmarks.runs.config import RunConfig
from plait.benchmarks.runs.experiment import Experiment
from plait.benchmarks.studies.bias import (
    Finding,
    JudgeIdentity,
    Measured,
    Preference,
    Scored,
    Section,
    family,
    find_rulings,
    lengths,
    positions,
    preferences,
    rank_correlation,
    repeatability,
    reword,
    rewording,
    rubric_judge,
    self_preference,
)
from plait.benchmarks.tasks.published import as_asked
from plait.benchmarks.tasks.task_set import TaskSet
from plait.cluster.plan import evaluations
from plait.cluster.store import Store, StoreError
from plait.generators.errors import UsageError
from plait.generators.given import GivenAnswers
from plait.generators.keys import derived_seed
from plait.scorers.judging import mmie
from plait.scorers.judging.judge import RubricJudge
from plait.scorers.judging.sources import OWN_WORDING, RubricSource

pytestmark = pytest.mark.contract

JUDGE = JudgeIdentity("gpt-4o", "creation", "corrected", "w1", "s1")


def side(system: str, words: int = 10, images: int = 0) -> Side:
    return Side(system=system, writer=system, words=words, images=images)


def ruling(question: str, preference: int | None, **about: Any) -> Ruling:
    usual = {
        "protocol": "creation",
        "mode": "corrected",
        "wording": "w1",
        "judge": "gpt-4o",
        "stage": "s1",
        "repeat": 0,
        "judging": 0,
        "swapped": False,
        "first": side("a"),
        "second": side("b"),
        "aspect": "preference",
        "outcome": "unscored" if preference is None else "done",
    }
    return Ruling(question=question, preference=preference, **(usual | about))


def both(question: str, named: Any, swapped: Any, **about: Any) -> list[Ruling]:
    """Preferences for the answer shown first, in both orders."""
    swapped_too = ruling(question, swapped, swapped=True, **about)
    return [ruling(question, named, **about), swapped_too]


def split(measured: Measured) -> tuple[list[Finding], list[str]]:
    """Findings, and reasons for what is absent."""
    section = Section("", measured)
    return section.findings, section.absent


def values(findings: Iterable[Finding]) -> dict[str, tuple[float | None, int, int]]:
    return {f.measure: (f.estimate.value, f.estimate.n, f.judgements) for f in findings}


def test_positions_by_hand() -> None:
    lines = [
        *both("1", 2, -1),  # the same answer, though less so
        *both("2", 0, 0),
        *both("3", 1, 1),  # whatever is first
        *both("4", 0, 1),  # first, half-heartedly
        *both("5", -2, -1),  # whatever is last
        *both("6", 1, None),  # one order cannot be read
    ]
    found, _ = split(positions({JUDGE: lines}))
    first = pytest.approx((0.5 + 0 + 1 + 0.5 - 1.5) / 5)
    assert values(found) == {
        "same verdict either way, %": (40.0, 5, 5),
        "goes to the first shown, %": (40.0, 5, 5),
        "goes to the last shown, %": (20.0, 5, 5),
        "preference for the first shown, levels": (first, 5, 5),
    }
    assert found[3].estimate.ci95 is not None
    assert split(positions({JUDGE: both("1", None, 2)})) == (
        [],
        [f"{JUDGE.label}: no pair was read in both orders"],
    )


def test_lengths_by_hand() -> None:
    games = [
        ("1", 0, side("a", 10), side("b", 30), 2),  # the longer, much so
        ("2", 0, side("a", 30), side("b", 10), 1),  # the shorter
        ("3", 0, side("a", 10), side("b", 15), 0),
        ("4", 0, side("a", 104), side("b", 100), -1),  # the longer, by 4%
        ("5", 0, side("a", 10, 1), side("b", 10), 2),  # no image, equal length
    ]
    found = values(split(lengths({JUDGE: [Preference(*g) for g in games]}))[0])
    assert found["longer answer preferred, %"] == (pytest.approx(250 / 4), 4, 4)
    assert found["preference for the longer, by up to 5%"] == (1.0, 1, 1)
    assert found["preference for the longer, up to twice"] == (0.0, 1, 1)
    assert found["preference for the longer, over twice"] == (0.5, 2, 2)
    assert found["answer with more pictures preferred, %"] == (0.0, 1, 1)
    turned = [(q, r, b, a, -p) if i % 2 else (q, r, a, b, p)
              for i, (q, r, a, b, p) in enumerate(games)]  # fmt: skip
    assert values(split(lengths({JUDGE: [Preference(*g) for g in turned]}))[0]) == found


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(-9, 9), st.integers(-2, 2)), min_size=3, max_size=30
    ).filter(lambda x: any(a for a, _ in x) and any(b for _, b in x))
)
def test_rank_correlation_is_spearmans_of_pairs_named_both_ways(
    pairs: list[tuple[int, int]],
) -> None:
    mirrored = np.array([*pairs, *((-x, -y) for x, y in pairs)], dtype=float)
    wanted = spearmanr(mirrored[:, 0], mirrored[:, 1]).statistic
    x, y = mirrored[: len(pairs)].T
    found = rank_correlation([str(i) for i in range(len(pairs))], x, y)
    assert found.value == (None if math.isnan(wanted) else pytest.approx(wanted, abs=1e-12))


def test_self_preference_beside_other_judges_by_hand() -> None:
    own, foreign = side("openai:gpt-4o"), side("qwen2-vl-72b")
    neither, other = side("llava-34b"), side("published:gpt-4o-1120")
    games = {
        JUDGE: [("1", foreign, own, 1), ("2", own, foreign, -2), ("3", own, foreign, 1),
                ("4", own, foreign, 0), ("5", foreign, neither, 2), ("6", own, other, 2)],
        JUDGE._replace(name="gemini", wording="w2", stage="s2"): [
            ("1", foreign, own, -1), ("2", own, foreign, -1), ("4", own, foreign, 0),
        ],
        # Of the same family, and asked otherwise: no witnesses.
        JUDGE._replace(name="gpt-4.1"): [("3", own, foreign, -1)],
        JUDGE._replace(name="gemini", protocol="probench"): [("3", own, foreign, -1)],
    }  # fmt: skip
    pairs = {
        judge: [Preference(question, 0, *about) for question, *about in rows]
        for judge, rows in games.items()
    }
    found, absent = split(self_preference(pairs))
    told = values(f for f in found if f.judge.startswith("gpt-4o "))
    assert told["answers of gpt preferred, %"] == (62.5, 4, 4)
    # gemini: 0, 100, 50; gpt-4o on the same three: 100, 100, 50
    assert told["answers of gpt preferred by other judges, %"][0] == 50
    assert told["more than by other judges, points of %"][0] == pytest.approx(100 / 3)
    assert any("(gemini)" in reason for reason in absent)
    found, absent = split(self_preference({JUDGE: pairs[JUDGE]}))
    assert (len(found), len(absent)) == (1, 1)


def test_families() -> None:
    names = {"openai:gpt-4.1": "gpt", "hf:Qwen/Qwen2-VL-7B-Instruct": "qwen", "4o": ""}
    assert {name: family(name) for name in names} == names


def test_repeatability_by_hand() -> None:
    lines = [
        ruling("1", 1),
        ruling("1", 1, judging=1),
        ruling("1", -1, judging=2),
        ruling("2", 2),
        ruling("2", None, judging=1),
        ruling("3", 0, judging=1),
    ]
    found, _ = split(repeatability({JUDGE: lines}))
    assert values(found) == {
        "equal, %": (pytest.approx(100 / 3), 1, 3),
        "mean difference, levels": (pytest.approx(4 / 3), 1, 3),
    }
    assert "--judgings" in split(repeatability({JUDGE: lines[:1]}))[1][0]


def test_wordings_and_modes_of_one_model_are_compared() -> None:
    other = JUDGE._replace(mode="official", wording="w2")
    lines = {
        JUDGE: [*both("1", 2, -2), ruling("2", 1)],
        other: [*both("1", 2, -1), ruling("3", 1)],
        JUDGE._replace(name="gemini", stage="s2"): [*both("1", 0, 0)],
    }
    found, absent = split(rewording(lines))
    wanted = {"equal, %": (50.0, 1, 2), "mean difference, levels": (0.5, 1, 2)}
    assert values(found) == wanted
    (alone,) = absent
    assert alone.startswith("gemini (creation)")
    # A mode alone is no wording.
    lines = {JUDGE: both("1", 2, -2), JUDGE._replace(mode="official"): both("1", 2, -1)}
    found, absent = split(rewording(lines))
    name = "gpt-4o (creation)"
    modes = f"{name}: modes corrected and official, one wording w1"
    assert ({f.judge for f in found}, len(absent)) == ({modes}, 1)
    lines[JUDGE._replace(mode="official", wording="w2")] = both("1", 2, 0)
    found, absent = split(rewording(lines))
    assert {f.judge for f in found} == {
        modes,
        f"{name}: wordings w1 and w2, both official",
        f"{name}: corrected w1 and official w2, modes differ too",
    }
    assert not absent


def test_rulings_of_several_files_count_once(tmp_path: Path) -> None:
    folder = tmp_path / "compare" / "creation"
    write_rulings(both("1", 2, None), folder / "judgements-1.jsonl")
    turned = both("1", -1, 2, first=side("b"), second=side("a"))
    marks = [ruling("9", None, aspect="factuality", marks=(8.0, 6.0), outcome="done")]
    write_rulings([*turned, *marks], folder / "judgements-2.jsonl")
    (folder / "judgements-x.jsonl").write_text("nothing of the kind\n")
    results = written(Experiment(**run_of()), tmp_path)
    ((judge, lines),) = find_rulings(results).items()
    assert judge == JUDGE
    # The order with `b` shown first was unread in one file, and read in the other.
    assert {(r.swapped, r.preference) for r in lines} == {(False, 2), (True, -1)}
    assert {(r.first.system, r.second.system) for r in lines} == {("a", "b")}
    ((*_, preference),) = preferences(lines)
    assert preference == pytest.approx((-2 - 1) / 2)
    # Judges that differ in settings have labels of their own.
    others = [*both("1", 0, 0, stage="bbbbbbbb"), *both("1", 1, 1, judge="gemini")]
    write_rulings(others, folder / "judgements-3.jsonl")
    results = written(Experiment(**run_of()), tmp_path)
    assert results.table("comparisons", ["series"]).column(0).to_pylist() == [
        *("1", "1", "2", "2", "2", "3", "3", "3", "3")
    ]
    assert [judge.label for judge in find_rulings(results)] == [
        "gemini (creation, corrected, wording w1)",
        "gpt-4o [settings bbbbbb] (creation, corrected, wording w1)",
        "gpt-4o [settings s1] (creation, corrected, wording w1)",
    ]


def test_a_comparison_replaces_its_own_rows_alone(tmp_path: Path) -> None:
    results = written(Experiment(**run_of()), tmp_path)
    assert not results.table("comparisons").num_rows
    job = {"key": "k", "stage": "chatty-1", "prompt": "p", "seed": 3}
    first = both("1", 2, -1, jobs=(job,), repeat=1, said="A>>B")
    marks = ruling("9", None, aspect="factuality", marks=(8.0, 6.0), outcome="done")
    failed = ruling("9", None, outcome="failed", fault="refused", said="no", swapped=True)

    def keep(series: str, said: list[Ruling]) -> RunResults:
        keep_comparison(tmp_path / "results", series, said, {f"judge-{series}": {}})
        return RunResults.at(tmp_path)

    keep("one", first)
    kept = keep("other", [marks, failed])
    assert [ruling_of(row) for row in kept.rows("comparisons")] == [*first, marks, failed]
    rows = [*kept.rows("comparisons", ["repeat", "order", "system_a", "value"])]
    assert [row["repeat"] for row in rows] == [2, 2, 1, 1]
    assert [row["order"] for row in rows] == ["ab", "ba", "ab", "ba"]
    assert [row["value"] for row in rows] == [2, -1, None, None]
    kept = keep("one", first[:1])
    assert [ruling_of(row) for row in kept.rows("comparisons")] == [marks, failed, first[0]]
    assert kept.about.judges == {"judge-one": {}, "judge-other": {}}
    assert kept.about.as_json == results.about.as_json | {"judges": kept.about.judges}
    assert {**kept.tables, **results.tables} == kept.tables
    listed = {entry["file"] for files in kept.tables.values() for entry in files}
    assert {p.name for p in (tmp_path / "results").glob("*.parquet")} == listed
    # Who writes the run again keeps them, though no lines are there.
    again = written(Experiment(**run_of()), tmp_path)
    assert again.table("comparisons").equals(kept.table("comparisons"))
    assert again.about.judges == kept.about.judges


def test_a_table_that_cannot_be_read_is_made_of_the_lines(tmp_path: Path) -> None:
    lines = both("1", 2, -1)
    write_rulings(lines, tmp_path / "compare" / "creation" / "judgements-one.jsonl")
    (entry,) = written(Experiment(**run_of()), tmp_path).tables["comparisons"]
    (tmp_path / "results" / entry["file"]).write_bytes(b"damaged")
    again = written(Experiment(**run_of()), tmp_path)
    assert again.table("comparisons").equals(table_of("one", lines))


def test_writing_that_ends_early_leaves_the_former_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(Experiment(**run_of()), tmp_path)
    folder = tmp_path / "results"
    keep_comparison(folder, "one", both("1", 2, -1), {})
    before = RunResults.at(tmp_path).table("comparisons")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writing, "write_whole", full)
    with pytest.raises(StoreError, match="No space left"):
        keep_comparison(folder, "other", both("2", 1, 1), {})
    assert RunResults.at(tmp_path).table("comparisons").equals(before)


GRADER = chat_spec(name="grader", target="comparing_helpers:Grader", seeded=True)
GREEDY = chat_spec(target="comparing_helpers:Grader")
SAMPLES = [sample(f"SA-{i}") for i in range(6)]
SHOWN = (picture("one"), picture("two"))
ONE_RUBRIC = ([], ["judge:chatty: scores by one rubric only"])


def test_lines_of_rulings_end_at_line_feeds_alone(tmp_path: Path) -> None:
    (one,) = both("1", 2, None)[:1]
    said = replace(one, said="A\u2028is\x85better\x1c")
    write_rulings([said, one], tmp_path / "judgements-1.jsonl")
    assert list(read_rulings(tmp_path / "judgements-1.jsonl")) == [said, one]
    (tmp_path / "broken.jsonl").write_bytes(b'{"said": "\xe9"}\n')
    with pytest.raises(UsageError, match=r"broken\.jsonl, line 1"):
        list(read_rulings(tmp_path / "broken.jsonl"))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the user's copy of the released rubrics."""
    monkeypatch.setattr(mmie, "DIGESTS", stand_in_digests())
    found = tmp_path / "prompts.py"
    found.write_text(STAND_IN)
    return found


def run_of(**parts: Any) -> dict[str, Any]:
    """What an experiment consists of: without systems, unless they are given."""
    about: dict[str, Any] = {"categories": {}, "fields": (), "about": {}}
    task = TaskSet(name="x", samples=(), prompt=as_asked, **about)
    usual = {"config": RunConfig(weights="tiny"), "queries": (), "systems": ()}
    return {"task": task, "scorers": (), "identities": {}} | usual | parts


def written(run: Experiment, root: Path) -> RunResults:
    """The results of the run whose records are in `root`."""
    config = run.config.model_copy(update={"out": root})
    store, writer = Store(root), replace(run, config=config).results_writer()
    for _ in writer(evaluations(run.plan, store), store):
        pass
    writer.finish(root / "results")
    return RunResults.at(root)


def scored(
    root: Path, *judges: RubricJudge, shown: tuple[Any, ...] = SHOWN, **own: Any
) -> Scored:
    """A run scored by each of the judges, which goes by the first, of settings `own`."""
    texts = {"fair": "good", "long": "good and good and good again"}
    systems = tuple(
        GivenAnswers(name=n, answers={s.id: document(t, *shown) for s in SAMPLES})
        for n, t in texts.items()
    )
    config = RunConfig(weights="tiny", models={"judge:chatty": own})
    parts = {"config": config, "queries": tuple(SAMPLES), "systems": systems}
    runs = [Experiment(**run_of(scorers=(judge,), **parts)) for judge in judges]
    for run in runs:
        filled(run.plan, root)
    results = written(runs[0], root)
    (scorer,) = results.scorers
    assert rubric_judge(scorer, root) == replace(judges[0], stage=scorer.stage)
    return Scored(results)


def test_scores_of_one_query_are_preferences(tmp_path: Path) -> None:
    ((judge, pairs),) = scored(tmp_path, judge_of(GRADER)).pairs().items()
    assert judge.label == "judge:chatty"
    # Three times good against once, of 6.
    assert [p.value for p in pairs] == pytest.approx([2 / 6 * 100] * 6)
    found = values(split(lengths({judge: pairs}))[0])
    assert found["longer answer preferred, %"] == (100.0, 6, 6)


def test_repeatability_of_a_rubric_judge_over_seeds(tmp_path: Path) -> None:
    judges = judge_of(GRADER), judge_of(GRADER, seed=3)
    findings, absent = split(scored(tmp_path, *judges).repeatability())
    odd = [[derived_seed(seed, s.id, 0, 0) % 2 for s in SAMPLES] for seed in (0, 3)]
    same = sum(x == y for x, y in zip(*odd, strict=True))
    assert 0 < same < 6
    found = values(findings)
    assert found["equal, %"][0] == pytest.approx(100 * same / 6)
    apart = found["mean difference, points of 100"][0]
    assert apart == pytest.approx(100 / 6 * (6 - same) / 6)
    assert not absent
    for root, judge in (("once", judge_of(GRADER)), ("greedy", judge_of(GREEDY))):
        findings, absent = split(scored(tmp_path / root, judge).repeatability())
        assert (findings, len(absent)) == ([], 1)


def test_without_a_judges_records_its_scores_alone_are_measured(tmp_path: Path) -> None:
    run = scored(tmp_path, judge_of(GRADER), judge_of(GRADER, seed=3))
    shutil.rmtree(tmp_path / "stages")
    moved = Scored(RunResults.at(tmp_path))
    assert moved.pairs() == run.pairs()
    reason = "judge:chatty: of its judgements only the results are here"
    for measured in (moved.repeatability(), moved.rewording(OWN_WORDING)):
        assert split(measured) == ([], [reason])


def test_rewording_of_a_rubric_judge(tmp_path: Path, path: Path) -> None:
    own = judge_of(GREEDY)
    theirs = judge_of(own.stage, rubric=f"official:{path}")
    run = scored(tmp_path / "run", own, theirs)
    found = values(split(run.rewording(RubricSource(path)))[0])
    # Their wording makes the grader one point of 6 harsher.
    assert {name: value for name, (value, _, _) in found.items()} == {
        "equal, %": 0,
        "mean difference, points of 100": pytest.approx(100 / 6),
    }
    assert split(run.rewording(OWN_WORDING)) == ONE_RUBRIC
    # Another run showed the same judge fewer images, by the same rubric.
    judges = judge_of(GREEDY, max_images=1), own
    fewer = scored(tmp_path / "fewer", *judges, max_images=1)
    assert split(fewer.rewording(OWN_WORDING)) == ONE_RUBRIC


def test_another_rubric_is_asked_for_with_the_judges_own_settings(
    tmp_path: Path, path: Path
) -> None:
    about = {"max_images": 1, "retries": 3, "seed": 5}
    own = judge_of(GRADER, **about)
    theirs = judge_of(GRADER, rubric=f"official:{path}", **about)
    run = scored(tmp_path / "run", own, theirs, **about)
    found, _ = split(run.rewording(RubricSource(path)))
    both = "judge:chatty: the run's rubric and released rubric"
    assert {f.judge for f in found} == {both}
    variants = reword(own, RubricSource(path))
    assert variants["released rubric"] == theirs
    released = judge_of(GRADER, rubric=f"official:{path}", mode="official", seed=5)
    assert variants["released scorer"] == released
    # Equal texts are one rubric, and a mode alone is no rubric.
    as_theirs = about | {"rubric": f"official:{path}"}
    modes = scored(tmp_path / "modes", theirs, released, **as_theirs)
    assert split(modes.rewording(RubricSource(path))) == ONE_RUBRIC
    # The released scorer asks the same, but does not ask again.
    shy = chat_spec(target="comparing_helpers:Shy")
    judges = judge_of(shy), judge_of(shy, rubric=f"official:{path}")
    run = scored(tmp_path / "shy", *judges, shown=())
    found, _ = split(run.rewording(RubricSource(path)))
    assert {f.judge for f in found} == {both}
