"""How many queries the page of a run shows, and that no table waits for the page."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from report_helpers import at_hand, board_of, mixed_board

from benchmarks import commands
from benchmarks.plain_console import PlainConsole
from benchmarks.results import report
from benchmarks.results.report import write_report
from benchmarks.results.report.page import QUERIES
from benchmarks.runs.config import RunConfig, load_config
from benchmarks.terminal import LONG, progress
from generators.errors import UsageError


def test_the_setting_names_no_run() -> None:
    limited = load_config(None, {}, ["report.queries=10"])
    assert limited.report.queries == 10
    assert limited.digest == load_config(None, {}).digest
    assert limited.root == load_config(None, {}).root
    assert load_config(None, {}, ['report.queries="all"']).report.queries == "all"


@pytest.mark.parametrize("value", ["0", "-3", "true", "2.5", '"most"'])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(UsageError, match="queries in report"):
        load_config(None, {}, [f"report.queries={value}"])


class Reopened:
    """What `plait report` finds in a run directory."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config

    def board(self, store: object) -> object:
        return board_of({"a": [1] * (QUERIES + 50)})


@pytest.mark.parametrize(
    ("config", "flag", "shown"),
    [
        (None, None, QUERIES),
        ("5", None, 5),
        ("5", "2", 2),
        (None, "3", 3),
        ("5", "all", QUERIES + 50),
        ('"all"', None, QUERIES + 50),
        ('"all"', "7", 7),
    ],
)
def test_the_flag_overrides_the_config(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: str | None,
    flag: str | None,
    shown: int,
) -> None:
    settings = [f"report.queries={config}"] if config else []
    opened = Reopened(load_config(None, {}, settings))
    monkeypatch.setattr(commands, "reopen", lambda root: opened)
    (tmp_path / "manifest.json").write_text("{}")
    assert commands.report(tmp_path, PlainConsole(file=io.StringIO()), flag) == 0
    index = (tmp_path / "report" / "index.js").read_text()
    entries = json.loads(f"[{index[len('plait(') : -3]}]")[1]["entries"]
    assert len(entries) == shown


def test_another_flag_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="queries in report"):
        commands.report(tmp_path, PlainConsole(file=io.StringIO()), "most")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(143), OSError(28, "No space left")]
)
def test_tables_are_written_and_shown_before_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    def failing(*_: object) -> Path:
        assert (tmp_path / "leaderboard.json").exists()
        raise error

    file = io.StringIO()
    monkeypatch.setattr(commands, "reopen", lambda root: Reopened(load_config(None, {})))
    monkeypatch.setattr(report, "write_report", failing)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(type(error)):
        commands.report(tmp_path, PlainConsole(file=file, width=200))
    names = {"leaderboard.json", "leaderboard.csv", "leaderboard.md", "differences.json"}
    assert names <= {path.name for path in tmp_path.iterdir()}
    assert str(tmp_path / "leaderboard.md") in file.getvalue()
    told = "plait report" in file.getvalue()
    assert told == isinstance(error, KeyboardInterrupt | SystemExit)


def test_progress_counts_every_picture_once(tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        counts.append((done, total))

    write_report(mixed_board(30, ["a"]), tmp_path, {}, at_hand, on_progress=note)
    total = counts[-1][1]
    assert counts == [(done, total) for done in range(1, total + 1)]
    packs = (tmp_path / "report").glob("pictures-*.js")
    assert total == sum(path.read_text().count("data:image/") for path in packs)


@pytest.mark.parametrize("total", [90, 900])
def test_a_long_task_is_shown_with_the_time_left_or_named_once(total: int) -> None:
    def shown(terminal: bool) -> str:
        file = io.StringIO()
        console = PlainConsole(file=file, force_terminal=terminal, width=80)
        with progress(console, "pictures") as show:
            for done in range(1, total + 1):
                show(done, total)
        return file.getvalue()

    long = total > LONG
    assert re.findall(r"\d:\d\d:\d\d", shown(terminal=True))[-1:] == ["0:00:00"] * long
    assert shown(terminal=False) == f"pictures: {total}\n" * long
