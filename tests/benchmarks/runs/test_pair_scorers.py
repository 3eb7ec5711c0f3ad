"""Pairwise protocols as scorers of a run: each answer beside that of a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import manifest, plait
from comparing_helpers import creation_row, write_tsv

import plait as api
from plait.generators.errors import UsageError
from plait.scorers.pairwise import resolve_protocol

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]

TERSE, WORDY = "comparing_helpers:Terse", "comparing_helpers:Wordy"
JUDGE = "creation:comparing_helpers:Longest"
SAYS = ["", "!first", "!mute", "!silent", "!refuse", ""]
"""Two plain, one judged by position, one unread, one unanswered, one refused."""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [
        creation_row(i, question=f"request {i} {said}", criteria="vivid")
        for i, said in enumerate(SAYS)
    ]
    return f"creation:{write_tsv(tmp_path / 'Creation.tsv', rows)}"


def run_of(data: str, out: Path, **more: Any) -> api.api.RunData:
    asked = {"systems": [TERSE, WORDY], "scorers": [JUDGE], "baseline": TERSE} | more
    return api.run(data=data, weights="tiny", out=out, **asked)


def scores_of(run: api.api.RunData, system: str) -> list[dict[str, Any]]:
    return [row for row in run.scores.to_pylist() if row["system"] == system]


def test_answers_are_scored_beside_the_baseline_s(data: str, tmp_path: Path) -> None:
    run = run_of(data, tmp_path / "run")
    own = scores_of(run, WORDY)
    # Wordy is over twice as long; where position decides, one order is won and one lost.
    assert [row["value"] for row in own] == [100, 50, None, None, None, 100]
    outcomes = ["scored", "scored", "unscored", "no_document", "failed", "scored"]
    assert [row["outcome"] for row in own] == outcomes
    assert {row["outcome"] for row in scores_of(run, TERSE)} <= {
        "not_applicable",
        "no_document",
    }
    (mean,) = [row[1] for row in run.leaderboard.rows if row[0].text == WORDY]
    assert "83.33" in mean.text
    # Nothing is made again, and `compare` finds what the judge has said.
    again = run_of(data, tmp_path / "run")
    assert again.outcome.made == 0
    judge = ["--judge", "comparing_helpers:Longest"]
    done = plait(
        *("compare", str(tmp_path / "run"), "--protocol", "creation", *judge),
        *("--baseline", TERSE),
    )
    (page,) = (tmp_path / "run").glob("compare-creation-*.json")
    (row,) = [r for r in json.loads(page.read_text())["table"]["rows"] if not r["group"]]
    assert {"questions": 6, "unjudged": 1, "read": 6, "unread": 2}.items() <= row[
        "counts"
    ].items()
    assert row["values"]["reward"]["value"] == pytest.approx((100 + 100 + 0) / 3)
    assert "0 judgements asked" in done.stdout


def test_a_run_is_scored_in_pairs_later(data: str, tmp_path: Path) -> None:
    run = run_of(data, tmp_path / "run", scorers=[], baseline=None)
    with pytest.raises(UsageError, match="--baseline"):
        api.score(run, scorers=[JUDGE])
    run = api.score(run, scorers=[JUDGE], baseline="published:gpt-4o-1120")
    assert manifest(tmp_path / "run")["systems"] == [TERSE, WORDY]
    assert len([r for r in scores_of(run, TERSE) if r["outcome"] == "scored"]) == 3
    other = run_of(data, tmp_path / "truth", baseline="gt")
    told = {(row["outcome"], row["reason"][:9]) for row in scores_of(other, WORDY)}
    assert ("unscored", "gt has no") in told
    with pytest.raises(UsageError, match="nothing:known"):
        run_of(data, tmp_path / "other", baseline="nothing:known")
    with pytest.raises(UsageError, match="judge pairs"):
        run_of(data, tmp_path / "other", scorers=["bleu"])


def test_a_plan_counts_pairs_and_no_answer_twice(data: str, tmp_path: Path) -> None:
    asked = {"systems": [TERSE, WORDY], "scorers": [JUDGE], "baseline": TERSE}
    plan = api.plan(data=data, weights="tiny", out=tmp_path / "run", **asked)
    rounds = resolve_protocol("creation").rounds
    counts = {tally.spec.name: tally for tally in plan.counts}
    assert [counts[n].distinct for n in ("Terse", "Wordy")] == [6, 6]
    # At most both orders, asked twice, of each answer of either system.
    assert counts["Longest"].to_run == 6 * 2 * 2 * rounds
    run_of(data, tmp_path / "run", scorers=[], baseline=None)
    plan = api.plan(data=data, weights="tiny", out=tmp_path / "run", **asked)
    counts = {tally.spec.name: tally for tally in plan.counts}
    assert [counts[n].requests for n in ("Terse", "Wordy")] == [6, 6]
    assert counts["Longest"].distinct == 2 * 5, "one query has no answer of Terse"


FICKLE = """
from pathlib import Path

from comparing_helpers import Longest
from plait.generators.base import Failure, Fault


class Fickle(Longest):
    def __call__(self, inputs):
        if Path("away").exists():
            return [Failure("the endpoint is away", Fault.ENDPOINT) for _ in inputs]
        return super().__call__(inputs)
"""


def test_a_failure_of_compare_gives_way_to_what_the_run_has_had_judged(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fickle.py").write_text(FICKLE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = run_of(data, tmp_path / "run", scorers=[], baseline=None)
    words = ("compare", "run", "--protocol", "creation", "--baseline", TERSE)
    asked = (*words, "--judge", "fickle:Fickle")
    (tmp_path / "away").touch()
    assert plait(*asked, folder=tmp_path).returncode == 1
    (tmp_path / "away").unlink()
    api.score(run, scorers=["creation:fickle:Fickle"], baseline=TERSE)
    done = plait(*asked, folder=tmp_path)
    assert "0 judgements asked" in done.stdout
    (page,) = (tmp_path / "run").glob("compare-creation-*.json")
    (row,) = [r for r in json.loads(page.read_text())["table"]["rows"] if not r["group"]]
    assert row["counts"]["read"] == 6
