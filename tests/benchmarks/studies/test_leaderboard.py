"""Systems of several runs on one page: averages, ranks, and what may be put together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from api_helpers import SCORER, SYSTEM, fill
from report_helpers import Judge, answer, board, evaluation, sample, system
from scipy.stats import spearmanr
from typer.testing import CliRunner

from plait.benchmarks.results.leaderboard import FIXED
from plait.benchmarks.studies import leaderboard as study
from plait.benchmarks.studies.leaderboard import Benchmark, Overview, Part
from plait.cli import app
from plait.generators.base import NotApplicable, Unscored

pytestmark = pytest.mark.contract

CATEGORIES = ("situational analysis", "project-based learning", "multi-step reasoning")


def part(
    means: dict[str, float], seed: int, n: int = 30, silent: bool = False, **judge: str
) -> Part:
    """A run whose systems have these means, some answers of the first unscored."""
    rng, not_applicable = np.random.default_rng(seed), NotApplicable("never")
    evaluations = [
        evaluation(
            name,
            sample(i, CATEGORIES[i % 3]),
            not_applicable
            if i % 3 == 2 and silent
            else Unscored("no")
            if i < 4 and name == "a"
            else float(rng.normal(mean, 0.5)),
            scorer=judge.get("name", "judge"),
        )
        for name, mean in means.items()
        for i in range(n)
    ]
    scorer = Judge(scale="any", **judge)
    made = board(evaluations, scorers=(scorer,))
    return Part(Path(f"run-{seed}"), "data", made, scorer)  # type: ignore[arg-type]


MEANS = dict(zip("abcdef", (1.0, 2.0, 3.0, 3.0, 4.0, 5.0), strict=True))


@pytest.fixture(scope="module")
def overview() -> Overview:
    others = {"g": 9.0, **MEANS}
    two = Benchmark(
        [part({s: MEANS[s] for s in "abc"}, 1), part({s: MEANS[s] for s in "def"}, 2)]
    )
    three = Benchmark([part(others, 3, silent=True, name="errors", direction="lower")])
    return Overview([two, three])


def test_the_first_draw_is_the_average_that_leaderboards_show(overview: Overview) -> None:
    for benchmark in overview.benchmarks:
        assert benchmark.average == FIXED
        shown = [benchmark.cells[name]["mean"] for name in "abcdef"]
        drawn = benchmark.draws([*"abcdef"])
        assert drawn[0] == pytest.approx(shown, abs=1e-6)
        spread = np.nanstd(drawn[1:], axis=0)
        ends = np.array([benchmark.cells[name]["ci95"] for name in "abcdef"])
        assert spread * 2 * 1.96 == pytest.approx(ends[:, 1] - ends[:, 0], rel=0.25)


def test_ranks_follow_the_direction_and_say_what_cannot_be_told_apart(overview) -> None:
    assert sorted(overview.common) == [*"abcdef"], "g has no score on the first benchmark"
    assert overview.systems[-1] == "g"
    up, down = ([r[name].value for name in "abcdef"] for r in overview.rankings.ranks)
    means = [[b.cells[name]["mean"] for name in "abcdef"] for b in overview.benchmarks]
    assert up == [1 + sum(other > mine for other in means[0]) for mine in means[0]]
    assert down == [1 + sum(other < mine for other in means[1]) for mine in means[1]]
    first = overview.rankings.ranks[0]
    assert first["f"].ci95 is None, "it is the best in all draws"
    assert first["c"].ci95 == first["d"].ci95 == (3, 4)
    (rho,) = overview.rankings.correlations.values()
    signed = [-np.array(means[0]), np.array(means[1])]
    assert rho.value == pytest.approx(spearmanr(*signed).statistic)
    assert -1 <= rho.ci95[0] <= rho.value <= rho.ci95[1] < 0


def test_scorers_of_sets_are_left_out_and_named(overview: Overview) -> None:
    first, *_ = Overview(overview.benchmarks, ("fid", "kid")).tables()
    assert sum("fid, kid" in note for note in first.notes) == 1
    assert len(next(overview.tables()).notes) == len(first.notes) - 1


def test_a_system_of_two_runs_is_one_unless_it_answered_otherwise() -> None:
    one, other = part({"a": 1.0, "b": 2.0}, 1), part({"a": 1.5}, 2)
    assert [*Benchmark([one, other]).cells] == ["a", "b", "a (run-2)"]
    assert [*Benchmark([one, one]).cells] == ["a", "b"]


def test_no_run_is_lost_where_folders_have_one_name() -> None:
    means = {"x/run": 1.0, "y/run": 2.0, "z/run": 3.0}
    parts = [
        replace(part({"a": mean}, seed), run=Path(run))
        for seed, (run, mean) in enumerate(means.items())
    ]
    assert [*Benchmark(parts).cells] == ["a", "a (run)", "a (z/run)"]


def test_references_are_shown_last_without_a_rank() -> None:
    one = part({"gt": 9.0, "b": 2.0, "a": 1.0, "gt:no-images": 3.0}, 1)
    other = part({"gt": 8.0, "c": 3.0}, 2)
    made = Overview([Benchmark([one, other])])
    references = ["gt", "gt:no-images", "gt (run-2)"]
    assert made.systems == ["c", "b", "a", *references]
    assert made.common == ["b", "a", "c"]
    (ranks,) = made.rankings.ranks
    assert {name: rank.value for name, rank in ranks.items()} == {"c": 1, "b": 2, "a": 3}
    first, *_ = made.tables()
    assert [row[0].text for row in first.rows] == made.systems
    assert {first.rows[i][0].text for i, _ in first.best} == {"c"}
    (told,) = made.as_json()["benchmarks"]
    assert {*told["systems"]} - {*told["ranks"]} == {*references}
    alone = Overview([Benchmark([part({"gt": 9.0}, 1)])])
    assert (alone.systems, alone.as_json()["mean_ranks"]) == (["gt"], {})
    assert [*alone.tables()]
    whole = Benchmark([part({"gt": 9.0, "b": 2.0, "a": 1.0}, 1)])
    half = Benchmark([part({"gt": 9.0, "a": 1.0}, 2, name="errors")])
    assert Overview([whole, half]).systems == ["a", "b", "gt"]


def test_what_is_said_of_a_run_before_any_number_is_said_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [sample(i, CATEGORIES[i % 3]) for i in range(6)]
    thinking = answer("<think>So?</think>So.")
    parts = []
    for run, weights in (("one", "tiny"), ("two", "mini"), ("three", "tiny")):
        own = [evaluation("a", s, 1.0, document=thinking) for s in asked]
        systems = [system("a", weights)]
        made = board(own, systems=systems, scorers=(Judge(),))
        parts.append(Part(Path(run), "data", made, Judge()))  # type: ignore[arg-type]
    overview = Overview([Benchmark(parts)])
    random, thoughts, mini = overview.warnings
    assert random.startswith("one, three: random weights (tiny: a)")
    assert mini.startswith("two: mini weights (a)")
    assert thoughts.startswith("answers that hold")
    monkeypatch.setattr(study, "overview_of", lambda runs: overview)
    words = ["leaderboard", "one", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    page, markdown = (tmp_path / name for name in ("index.html", "leaderboard.md"))
    for text in (done.output, page.read_text(), markdown.read_text()):
        assert "Warning: one, three: random weights" in text
        assert "Warning: two: mini weights" in text
        assert "Warning: answers that hold" in text
    told = json.loads((tmp_path / "leaderboard.json").read_text())
    assert told["warnings"] == overview.warnings
    row = told["benchmarks"][0]["systems"]["a"]
    assert (row["weights"], row["answers_with_thoughts"]) == ("tiny", 6)


def test_runs_of_the_same_queries_are_one_benchmark(tmp_path: Path) -> None:
    scorers = [SCORER, "known-answer"]  # which applies to none of these queries
    about = {"data": "api_helpers:queries", "scorers": scorers, "weights": "tiny"}
    for name, answering in (("one", SYSTEM), ("two", "gt")):
        fill(tmp_path / name, **about, systems=[answering])
    out = tmp_path / "out"
    words = ["leaderboard", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(out)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (written,) = json.loads((out / "leaderboard.json").read_text())["benchmarks"]
    assert {*written["systems"]} == {SYSTEM, "gt"}
    assert len(written["runs"]) == 2
    page = (out / "index.html").read_text().replace("<wbr>", "")
    assert all(name in page for name in (SYSTEM, "gt", SCORER))
