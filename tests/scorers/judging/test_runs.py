"""Runs with a judge behind an endpoint, as a user issues them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoint_helpers import KEY, MODEL, Answer, Server, completion, serving
from typer.testing import CliRunner
from typer.testing import Result as Done

from benchmarks.runs import experiment
from benchmarks.runs.experiment import reopen
from cluster.store import Store
from generators.base import Failure, Unscored
from generators.errors import UsageError
from plait import app

JUDGE = f"judge:openai:{MODEL}"

pytestmark = pytest.mark.usefixtures("worker_threads")


@pytest.fixture
def server() -> Iterator[Server]:
    """All its replies are cut."""
    with serving() as server:
        cut = Answer(completion("### Feedback\nIt", finish="length"))
        server.script = lambda body: cut
        yield server


def plait(server: Server, root: Path, *words: str) -> Done:
    base = f'models."openai:{MODEL}".base_url="{server.url}"'
    arguments = ["--system", "gt", "--scorer", JUDGE, "--weights", "tiny", "--limit", "3"]
    arguments += ["--set", base, "--out", str(root), *words]
    return CliRunner().invoke(app, ["run", *arguments], catch_exceptions=False)


def outcomes(root: Path) -> list[Any]:
    board = reopen(root).board(Store(root))
    return [evaluation.scores[JUDGE] for evaluation in board.evaluations]


def test_a_reply_that_is_cut_is_told_as_cut(server: Server, tmp_path: Path) -> None:
    done = plait(server, tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "are final" not in done.output
    for outcome in outcomes(tmp_path / "run"):
        assert isinstance(outcome, Unscored)
        assert outcome.reason.startswith("the reply is cut at the model's maximum length: ")
    first = reopen(tmp_path / "run").samples[0].id
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run"), first]).output
    assert "reply: ### Feedback" in shown
    assert "user: You grade" in shown
    assert "'role':" not in shown, "the turns are not shown twice"


def test_failures_that_stay_are_told(server: Server, tmp_path: Path) -> None:
    refusal = Answer(completion(None, refusal="I would rather not."))
    server.script = lambda body: refusal
    done = plait(server, tmp_path / "run")
    assert done.exit_code == 1
    assert "3 of 3 failures are final" in done.output
    assert all(isinstance(outcome, Failure) for outcome in outcomes(tmp_path / "run"))
    requests = len(server.bodies)
    plait(server, tmp_path / "run")
    assert len(server.bodies) == requests


def test_a_key_is_needed_only_for_what_is_left_to_ask(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(experiment, "_is_public", bool)
    assert plait(server, tmp_path / "run").exit_code == 0
    monkeypatch.delenv("OPENAI_API_KEY")
    assert "; 0 records made" in plait(server, tmp_path / "run").output
    with pytest.raises(UsageError, match="needs the environment variable OPENAI_API_KEY"):
        plait(server, tmp_path / "run", "--limit", "4")
    with pytest.raises(UsageError, match="needs the environment variable OPENAI_API_KEY"):
        plait(server, tmp_path / "another")
