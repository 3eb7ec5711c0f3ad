"""Published figures beside a run's own: the rule by numbers, else nothing is claimed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import plait

from plait.benchmarks.results.published import RULE, verdict_of
from plait.benchmarks.runs.opening import open_results
from plait.scorers.statistics.estimate import Estimate

pytestmark = pytest.mark.contract
SYSTEM = "guided:Painter@t2i"
SCORER = "guided:Brightness"
PROTOCOL = """
["toy/1"]
help = "a toy"
run = {{ repeats = 1, source = "a/b@1234567" }}
["toy/1".data]
task = "prompts"
form = "prompts:FILE"
get = "anywhere"
queries = {queries}
source = "a/b@1234567"
["toy/1".scorers."guided:Brightness"]
average = "avg_micro"
scale = "{scale}"
barred = "{barred}"
source = "a/b@1234567"
["toy/1".models."guided:Painter"]
settings = {{ guidance = {guidance} }}
source = "a/b@1234567"
[["toy/1".figures]]
scorer = "guided:Brightness"
values = {{ "{system}" = {value} }}
source = "the paper, arXiv 1234.56789"
"""


def table(value: float, **changes: object) -> str:
    same = {
        "queries": 12,
        "scale": "0-100",
        "barred": "",
        "guidance": 2.0,
        "system": SYSTEM,
    }
    return PROTOCOL.format(value=value, **{**same, **changes})


def prompts(folder: Path, n: int = 12) -> Path:
    file = folder / "prompts.txt"
    file.write_text("".join(f"picture {i} of a house\n" for i in range(n)))
    return file


@pytest.mark.parametrize(
    ("ends", "published", "verdict"),
    [
        ((40.0, 60.0), 50.0, "repeated"),
        ((40.0, 60.0), 60.0, "repeated"),
        ((40.0, 60.0), 40.0, "repeated"),
        ((40.0, 60.0), 60.01, "off"),
        ((40.0, 60.0), 12.4, "off"),
        (None, 50.0, "undecided"),
    ],
)
def test_a_figure_is_repeated_inside_the_interval(ends, published, verdict) -> None:
    here = Estimate(50.0, ends, 100, "" if ends else "too few values (n=3)")
    found, reason = verdict_of(here, published)
    assert found == verdict
    assert bool(reason) == (ends is None)


def test_without_a_mean_nothing_is_compared() -> None:
    assert verdict_of(Estimate(None, reason="no scored query"), 1.0) == (
        "not comparable",
        "no scored query",
    )


def test_the_rule_repeats_19_of_20_true_figures() -> None:
    """Of runs of the same thing, the true mean is repeated in 95%: that of the interval."""
    from plait.scorers.statistics.means import mean

    generator = np.random.default_rng(3)
    repeated = 0
    for _ in range(400):
        sample = np.clip(generator.normal(50, 12, 40), 0, 100)
        verdict, _ = verdict_of(mean(sample, (0.0, 100.0)), 50.0)
        repeated += verdict == "repeated"
    assert 0.925 <= repeated / 400 <= 0.975


@pytest.fixture
def run(tmp_path: Path, own_protocols: Callable[[str], None]) -> Callable[..., dict]:
    """Runs the toy with a figure; the row of the leaderboard, and what was printed."""

    def go(value: float, *words: str, n: int = 12, **changes: object) -> dict:
        own_protocols(table(value, **changes))
        data = f"prompts:{prompts(tmp_path, n)}"
        place = tmp_path / "run"
        named = ("--pinned", "toy/1", "--data", data, "--out", str(place), *words)
        done = plait("run", *named, "--executor", "local")
        assert done.returncode == 0, done.stderr
        (row,) = json.loads((place / "leaderboard.json").read_text())
        return row | {"printed": done.stdout, "place": place}

    return go


def test_a_run_repeats_a_figure_or_is_off_by_so_much(run) -> None:
    row = run(50.0)
    cell = row["scores"][SCORER]["avg_micro"]
    low, high = cell["ci95"]
    (found,) = row["published"]
    assert found["here"]["mean"] == cell["mean"]
    inside = low <= 50.0 <= high
    assert found["verdict"] == ("repeated" if inside else "off")
    assert found["off"] == (None if inside else pytest.approx(cell["mean"] - 50.0))
    assert found["differs"] == []
    row = run(high + 3.0)
    (found,) = row["published"]
    assert found["verdict"] == "off"
    assert found["off"] == pytest.approx(cell["mean"] - high - 3.0)
    assert f"off by {found['off']:+.2f}" in " ".join(row["printed"].split())
    row = run(cell["mean"])
    assert row["published"][0]["verdict"] == "repeated"


def test_a_figure_of_another_scale_is_compared_on_that_of_the_scorer(run) -> None:
    (found,) = run(5.0, scale="0-10")["published"]
    assert (found["published"], found["scale"]) == (50.0, "0-100")


def test_differences_are_listed_and_the_run_goes_on(run) -> None:
    words = ("--set", 'models."guided:Painter".guidance=3.0', "--limit", "9")
    row = run(50.0, *words)
    (found,) = row["published"]
    assert found["verdict"] in ("repeated", "off")
    assert found["differs"] == [
        "9 of 12 queries",
        "guided:Painter: guidance 3.0 instead of 2.0",
    ]
    manifest = json.loads((row["place"] / "manifest.json").read_text())
    assert manifest["pinned"]["protocol"] == "toy/1"
    assert manifest["pinned"]["differs"] == found["differs"]
    assert "differs: guided:Painter: guidance 3.0 instead of 2.0" in row["printed"]


@pytest.mark.parametrize("weights", ["tiny", "dummy"])
def test_nothing_is_claimed_of_random_weights(run, weights: str) -> None:
    row = run(50.0, "--weights", weights)
    (found,) = row["published"]
    assert found["verdict"] == "not comparable"
    assert found["here"]["mean"] is None
    assert found["off"] is None
    assert found["reason"] == f"{weights} weights"


def test_nothing_is_claimed_of_another_judge(run) -> None:
    (found,) = run(50.0, "--scorer", "guided:Other")["published"]
    assert found["verdict"] == "not comparable"
    assert found["reason"] == "judged by guided:Other, not by guided:Brightness"
    assert found["here"]["mean"] is None


def test_nothing_is_claimed_where_the_protocol_bars_it(run) -> None:
    (found,) = run(50.0, barred="a judge of its own")["published"]
    assert (found["verdict"], found["reason"]) == ("not comparable", "a judge of its own")


def test_the_table_stands_in_every_file(run) -> None:
    row = run(50.0)
    place = row["place"]
    assert "Published figures of toy/1" in (place / "leaderboard.md").read_text()
    assert "Published figures of toy/1" in (place / "leaderboard.tex").read_text()
    assert 'id="section-published"' in (place / "report.html").read_text()
    assert "Published figures of toy/1" in row["printed"]
    assert RULE in (place / "leaderboard.md").read_text()


def test_a_run_that_is_added_to_keeps_its_protocol(run) -> None:
    place = run(50.0)["place"]
    done = plait("score", str(place), "--scorer", "guided:Other", "--executor", "local")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((place / "leaderboard.json").read_text())
    assert {*row["scores"]} == {SCORER, "guided:Other"}
    (found,) = row["published"]
    assert found["verdict"] in ("repeated", "off")


def test_a_protocol_that_is_not_known_any_more_has_no_table(
    run, own_protocols: Callable[[str], None]
) -> None:
    place = run(50.0)["place"]
    own_protocols(table(50.0).replace("toy/1", "toy/2"))
    board = open_results(place).board
    assert board.pinned is not None
    assert board.pinned.pinned is None
    done = plait("report", str(place))
    assert done.returncode == 0
    (row,) = json.loads((place / "leaderboard.json").read_text())
    assert "published" not in row
