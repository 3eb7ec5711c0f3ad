"""How many queries the page of a run shows, and that no table waits for the page."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from report_helpers import board_of

from plait import commands
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.results import report
from plait.benchmarks.runs.config import load_config
from plait.benchmarks.terminal import LONG, progress
from plait.generators.buckets import any_path
from plait.generators.errors import UsageError

pytestmark = pytest.mark.contract


def written(
    patch: pytest.MonkeyPatch,
    root: Path,
    scores: Mapping[str, Sequence[int]],
    *settings: str,
) -> io.StringIO:
    """Have `plait report` find a run with these scores; what it prints."""
    queries = load_config(None, {}, settings).report.queries
    results = SimpleNamespace(page_queries=queries, board=board_of(scores))
    patch.setattr(commands, "open_results", lambda *_, **__: results)
    (root / "manifest.json").write_text("{}")
    return io.StringIO()


@pytest.mark.parametrize(
    ("config", "flag", "shown"), [("5", None, 5), ("5", "all", 9), ('"all"', "7", 7)]
)
def test_the_flag_overrides_the_config(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: str,
    flag: str | None,
    shown: int,
) -> None:
    file = written(monkeypatch, tmp_path, {"a": [1] * 9}, f"report.queries={config}")
    assert commands.report(tmp_path, PlainConsole(file=file), flag) == 0
    index = (tmp_path / "report" / "index.js").read_text()
    entries = json.loads(f"[{index[len('plait(') : -3]}]")[1]["entries"]
    assert len(entries) == shown


@pytest.mark.parametrize("error", [SystemExit(143), OSError(28, "No space left")])
def test_tables_are_written_and_shown_before_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    def failing(*_: object) -> Path:
        assert (tmp_path / "leaderboard.json").exists()
        raise error

    file = written(monkeypatch, tmp_path, {"a": [1, 2, 3]})
    monkeypatch.setattr(report, "write_report", failing)
    with pytest.raises(type(error)):
        commands.report(tmp_path, PlainConsole(file=file, width=200))
    names = {"leaderboard.json", "leaderboard.csv", "leaderboard.md", "differences.json"}
    assert names <= {path.name for path in tmp_path.iterdir()}
    assert str(tmp_path / "leaderboard.md") in file.getvalue()
    assert ("plait report" in file.getvalue()) == isinstance(error, SystemExit)


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
    file = written(monkeypatch, tmp_path, {"a": [1, 6], "b": [2, 1]})
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: addresses.append(url) or True)
    assert commands.report(tmp_path, PlainConsole(file=file, width=200), show=True) == 0
    assert addresses == [(tmp_path / "report.html").as_uri()]
    last = file.getvalue().splitlines()[-1]
    assert all(text in last for text in ("Q-0001", "a (6.00)", "b (1.00)"))
    bucket = any_path("s3://bucket/run")
    with pytest.raises(UsageError, match="--out"):
        commands.report(bucket, PlainConsole(file=file), show=True)
