"""How many queries the page of a run shows, and that no table waits for the page."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from report_helpers import board_of

from benchmarks import commands
from benchmarks.plain_console import PlainConsole
from benchmarks.results import report
from benchmarks.results.report.page import QUERIES
from benchmarks.runs.config import RunConfig, load_config
from benchmarks.terminal import LONG, progress
from generators.buckets import any_path
from generators.errors import UsageError


class Reopened:
    """What `plait report` finds in a run directory."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config

    def board(self, store: object) -> object:
        return board_of({"a": [1] * (QUERIES + 50)})


@pytest.mark.parametrize(
    ("config", "flag", "shown"),
    [
        ("5", None, 5),
        ("5", "2", 2),
        ("5", "all", QUERIES + 50),
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


def test_the_page_is_opened_and_what_to_look_at_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = board_of({"a": [1, 6], "b": [2, 1]})
    opened = Reopened(load_config(None, {}))
    monkeypatch.setattr(Reopened, "board", lambda self, store: made)
    monkeypatch.setattr(commands, "reopen", lambda root: opened)
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: addresses.append(url) or True)
    (tmp_path / "manifest.json").write_text("{}")
    file = io.StringIO()
    assert commands.report(tmp_path, PlainConsole(file=file, width=200), show=True) == 0
    assert addresses == [(tmp_path / "report.html").as_uri()]
    last = file.getvalue().splitlines()[-1]
    assert all(text in last for text in ("Q-0001", "a (6.00)", "b (1.00)"))
    bucket = any_path("s3://bucket/run")
    with pytest.raises(UsageError, match="--out"):
        commands.report(bucket, PlainConsole(file=file), show=True)
