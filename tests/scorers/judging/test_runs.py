"""Runs with a judge behind an endpoint, as a user issues them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoint_helpers import KEY, MODEL, Answer, Server, completion, serving
from typer.testing import CliRunner
from typer.testing import Result as Done

from plait.benchmarks.runs import requirements
from plait.benchmarks.runs.opening import open_results
from plait.cli import app
from plait.cluster.stage_queue import MOST_UNREAD
from plait.generators.base import Failure, Fault, Result, Unscored
from plait.generators.errors import UsageError

JUDGE = f"judge:openai:{MODEL}"

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]


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
    board = open_results(root).board
    return [evaluation.scores[JUDGE] for evaluation in board.reading(board.keys)]


def test_a_reply_that_is_cut_is_told_as_cut(server: Server, tmp_path: Path) -> None:
    done = plait(server, tmp_path / "run")
    assert done.exit_code == 1, "a scorer that scored nothing"
    assert f"{JUDGE} scored nothing: none of its 3 judgements gave a score" in done.output
    assert "are final" not in done.output
    for outcome in outcomes(tmp_path / "run"):
        assert isinstance(outcome, Unscored)
        assert outcome.reason.startswith("the reply is cut at the model's maximum length: ")
    first = next(iter(open_results(tmp_path / "run").queries))
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run"), first]).output
    assert "reply: ### Feedback" in shown
    assert "user: You grade" in shown
    assert "'role':" not in shown, "the turns are not shown twice"


def test_a_judge_none_of_whose_first_replies_can_be_read_is_not_asked_on(
    server: Server, tmp_path: Path
) -> None:
    words = [tmp_path / "run", "--data", "miniature:60", "--limit", "60"]
    assert plait(server, *words).exit_code == 1
    asked, first = len(server.bodies), outcomes(tmp_path / "run")
    assert MOST_UNREAD <= asked < 60
    assert {o.fault for o in first if isinstance(o, Failure)} == {Fault.UNREAD}
    assert all(isinstance(o, Failure | Unscored) for o in first)

    server.script = lambda body: Answer(completion("### Score\n5"))
    assert plait(server, *words).exit_code == 0
    second = outcomes(tmp_path / "run")
    assert len(server.bodies) - asked == sum(isinstance(o, Failure) for o in first)
    for before, after in zip(first, second, strict=True):
        assert (
            after == before if isinstance(before, Unscored) else isinstance(after, Result)
        )


def test_a_key_is_needed_only_for_what_is_left_to_ask(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(requirements, "_is_public", bool)
    plait(server, tmp_path / "run")
    monkeypatch.delenv("OPENAI_API_KEY")
    assert "; 0 records made" in plait(server, tmp_path / "run").output
    with pytest.raises(UsageError, match="needs the environment variable OPENAI_API_KEY"):
        plait(server, tmp_path / "run", "--limit", "4")
    with pytest.raises(UsageError, match="needs the environment variable OPENAI_API_KEY"):
        plait(server, tmp_path / "another")
