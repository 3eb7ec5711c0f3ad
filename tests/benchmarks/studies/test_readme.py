"""The worked example in the README of the studies runs as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pairwise_helpers import document, sample
from paths import CHECKOUT
from trial import filled
from typer.testing import CliRunner

from benchmarks.studies.pairwise.match import judgement_of, plan_of
from cluster.plan import lookup_in
from generators.base import Kind, Result, StageSpec
from generators.errors import UsageError
from plait import app
from scorers.pairwise import resolve_protocol
from scorers.pairwise.matchup import Matchup, PairwiseJudge

README = CHECKOUT / "benchmarks" / "studies" / "README.md"


def test_the_worked_example_judges_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "plain_words.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    protocol = resolve_protocol("plain_words:PlainWords")
    monkeypatch.delitem(sys.modules, "plain_words")
    chat = StageSpec(name="judge", kind=Kind.DRAFT, target="comparing_helpers:Firstborn")
    judge = PairwiseJudge(protocol=protocol, chat=chat, seed=0, repeats=1)
    matchup = Matchup(
        sample=sample("See"),
        repeat=0,
        first="base",
        second="mine",
        answers=(Result(document("one")), Result(document("two"))),
    )
    store = filled(plan_of([matchup], judge, 1), tmp_path / "run")
    outcome = judgement_of(matchup, judge, 0, lookup_in(store))
    (row,) = protocol.aggregate([matchup.game(outcome, protocol)], "base").rows
    # The judge prefers what it is shown first, so the system wins in one order of two.
    assert (row.system, row.opponent) == ("mine", "base")
    assert row.values["win_rate"].value == 50
    assert row.counts["both_orders"] == 1


def test_other_classes_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be imported"):
        resolve_protocol("nowhere_at_all:Protocol")
    with pytest.raises(UsageError, match="did you mean 'creation'"):
        resolve_protocol("creatoin")


def test_the_command_takes_a_protocol_of_the_users(tmp_path: Path) -> None:
    words = ["compare", str(tmp_path), "--judge", "gpt-4o", "--protocol"]
    own = CliRunner().invoke(app, [*words, "games_of_mine:Words"])
    assert isinstance(own.exception, UsageError)
    assert "'games_of_mine:Words' cannot be imported" in str(own.exception)
