"""`plait demo` writes the story of a run, and refuses runs that it cannot tell."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import api, commands, demo
from benchmarks.demo import demo as told
from benchmarks.runs.config import RunConfig
from generators.errors import UsageError

UNCHANGED = "bench_helpers:Unchanged"


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


@pytest.mark.ray
def test_a_run_on_known_truth_is_told(tmp_path: Path) -> None:
    run = api.run(
        data="miniature:6",
        systems=["gt", UNCHANGED],
        scorers=["truth:answer"],
        weights="tiny",
        out=tmp_path / "run",
    )
    assert not run.failed
    assert told(run.results.root, console()) == commands.FINISHED
    text = (run.results.root / "story.html").read_text()
    assert UNCHANGED in text
    assert "What truth sees" in text
    assert "data:image/png;base64," in text
    # It stands beside the report that it points to.
    assert (run.results.root / "report.html").exists()


@pytest.mark.ray
def test_a_run_without_truth_is_refused(tmp_path: Path) -> None:
    run = api.run(
        data="miniature:3", systems=["gt"], scorers=["bleu"], out=tmp_path / "run"
    )
    with pytest.raises(UsageError, match="--scorer truth:answer"):
        told(run.results.root, console())


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        told(tmp_path, console())


def test_a_quickstart_that_fails_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RunConfig] = []

    def failing(config: RunConfig, _: Console) -> int:
        asked.append(config)
        return commands.FAILED_RECORDS

    monkeypatch.setattr(demo.commands, "run", failing)
    assert told(None, console()) == commands.FAILED_RECORDS
    assert asked[0].data.startswith("miniature")
