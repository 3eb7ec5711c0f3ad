"""Whatever is printed, a terminal is sent no command that plait did not write."""

from __future__ import annotations

import io
import re

import pytest
from paths import CHECKOUT
from rich.console import RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from plait.benchmarks.plain_console import PlainConsole

OBEYED = "\x1b[2J\x1b]0;t\x07\x9b\x08\r\x7f\u202e\u2067\u2028\ud800[red]:smile:"
SEEN = r"\x1b[2J\x1b]0;t\x07\x9b\x08\r\x7f\u202e\u2067\u2028\ud800[red]:smile:"


def printed(*parts: RenderableType, terminal: bool = False) -> str:
    file = io.StringIO()
    PlainConsole(file=file, width=200, force_terminal=terminal).print(*parts)
    return file.getvalue()


def in_a_table() -> Table:
    table = Table(OBEYED, title=OBEYED)
    table.add_row(OBEYED)
    return table


@pytest.mark.parametrize(
    ("parts", "times"),
    [((OBEYED,), 1), ((Text("note", "yellow"), OBEYED), 1), ((in_a_table(),), 3)],
)
def test_what_a_terminal_would_obey_is_seen(
    parts: tuple[RenderableType, ...], times: int
) -> None:
    assert printed(*parts).count(SEEN) == times
    assert not set(OBEYED).difference(SEEN).intersection(printed(*parts))


def test_a_styled_text_is_no_way_around() -> None:
    shown = printed(Panel(Text.assemble(("\x1b[2J", "bold"), "\x9b\u202e")))
    assert r"\x1b[2J\x9b\u202e" in shown


def test_text_in_all_scripts_newlines_and_tabs_stay() -> None:
    text = "é 漢字\u3000🏳️\u200d🌈 \u0627\u200c\u0628\u00a0\\x1b\n|"
    assert printed(text) == f"{text}\n"
    assert printed("a\tb") == "a       b\n"


def test_plait_s_own_commands_reach_the_terminal() -> None:
    assert printed(Text("x", "bold"), terminal=True) == "\x1b[1mx\x1b[0m\n"
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=True)
    with Live("\x1b[2J", console=console):
        console.print("12 of 600", end="\r")
    assert "12 of 600\r" in file.getvalue()
    assert "\x1b[?25l" in file.getvalue()
    assert r"\x1b[2J" in file.getvalue()


@pytest.mark.parametrize(
    ("word", "places"),
    [
        (r"\bConsole\(|rich\.markup", set()),
        (r"\bcsv\.(w|DictW)riter\(", {"results/table.py"}),
    ],
)
def test_one_place_prints_and_one_writes_csv(word: str, places: set[str]) -> None:
    room = CHECKOUT / "benchmarks"
    files = {str(p.relative_to(room)): p.read_text() for p in room.rglob("*.py")}
    assert {name for name, text in files.items() if re.search(word, text)} == places


def test_lines_of_text_are_left_whole_and_tables_fit() -> None:
    file, line, table = io.StringIO(), "word " * 9 + "end", Table("text")
    table.add_row(line)
    console = PlainConsole(file=file, width=20)
    console.print(Text("note"), line)
    console.print(table)
    first, *rest = file.getvalue().splitlines()
    assert first == f"note {line}"
    assert max(map(len, rest)) <= 20
