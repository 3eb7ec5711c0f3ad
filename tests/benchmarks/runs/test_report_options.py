"""How many queries the page of a run shows: a setting that changes no result."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from report_helpers import at_hand, mixed_board
from rich.console import Console

from benchmarks import commands
from benchmarks.results.report import write_report
from benchmarks.runs.config import RunConfig, load_config
from generators.errors import UsageError


def test_the_setting_names_no_run() -> None:
    limited = load_config(None, {}, ["report.queries=10"])
    assert limited.report.queries == 10
    assert limited.digest == load_config(None, {}).digest
    assert limited.root == load_config(None, {}).root


@pytest.mark.parametrize("value", ["0", "-3", "true", '"all"'])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(UsageError, match="queries in report"):
        load_config(None, {}, [f"report.queries={value}"])


@pytest.mark.parametrize(
    ("config", "flag", "shown"), [(None, None, None), (5, None, 5), (5, 2, 2), (None, 3, 3)]
)
def test_the_flag_overrides_the_config(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: int | None,
    flag: int | None,
    shown: int | None,
) -> None:
    class Reopened:
        config = RunConfig()

        def board(self, store: object) -> str:
            return "board"

    Reopened.config = load_config(None, {}, [f"report.queries={config}"] if config else [])
    limits: list[int | None] = []

    def written(board: object, root: Path, console: Console, queries: int | None) -> Path:
        limits.append(queries)
        return root / "report.html"

    monkeypatch.setattr(commands, "reopen", lambda root: Reopened())
    monkeypatch.setattr(commands, "write_outputs", written)
    assert commands.report(tmp_path, Console(file=io.StringIO()), flag) == 0
    assert limits == [shown]


def test_progress_counts_every_picture_once(tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        counts.append((done, total))

    write_report(mixed_board(30, ["a"]), tmp_path, {}, at_hand, on_progress=note)
    total = counts[-1][1]
    assert counts == [(done, total) for done in range(1, total + 1)]
    assert total == len(list((tmp_path / "report" / "thumbs").iterdir()))


@pytest.mark.parametrize(("terminal", "total", "lines"), [(True, 900, 9), (True, 90, 0)])
def test_a_long_task_is_counted_on_a_terminal(
    terminal: bool, total: int, lines: int
) -> None:
    file = io.StringIO()
    show = commands._progress(Console(file=file, force_terminal=terminal), "pictures")
    for done in range(1, total + 1):
        show(done, total)
    assert file.getvalue().count("pictures: ") == lines
    quiet = io.StringIO()
    commands._progress(Console(file=quiet, force_terminal=False), "pictures")(900, 900)
    assert quiet.getvalue() == ""
