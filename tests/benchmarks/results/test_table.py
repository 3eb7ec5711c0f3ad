"""A table of results in each of its forms, and the numbers and texts in it."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from paths import CHECKOUT
from report_helpers import Judge, board_of

from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.results.leaderboard_files import write_leaderboard
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.pairings.tables import AMOUNT
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn, csv_text
from plait.scorers.statistics.estimate import Estimate

pytestmark = pytest.mark.contract

NASTY = r"50% & $1_000 #1 {x} ~ ^ \input <a> |"
PERCENT, SIGNED = NumberForm.of("0-100"), NumberForm.of("0-100", signed=True)


def table(direction="higher", values=(1.0, 3.0, 2.0)) -> ResultTable:
    scores = [TableCell("-" if v is None else f"{v:.2f}", "n=4", v) for v in values]
    head = ["system", TableColumn("score", direction, numeric=True)]
    return ResultTable.of("Scores", head, [[f"s{i}", c] for i, c in enumerate(scores)])


def shown(table: ResultTable) -> str:
    console = PlainConsole(width=80, file=io.StringIO(), force_terminal=True)
    console.print(table.rich)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("direction", "values", "best"),
    [
        ("higher", (1.0, 3.0, 2.0), {1}),
        ("lower", (1.0, 3.0, 2.0), {0}),
        ("lower", (None, 3.0, 2.0), {2}),
        ("higher", (3.001, 3.0, 2.0), {0, 1}),
        ("higher", (None, 3.0, None), set()),
        ("higher", (), set()),
        (None, (1.0, 3.0), set()),
    ],
)
def test_best_follows_the_direction_and_what_reads_the_same(direction, values, best):
    assert table(direction, values).best == {(i, 1) for i in best}


def test_best_is_bold_in_every_form_and_numbers_are_set_to_the_right():
    lower = table("lower")
    assert "| s0 | **1.00** n=4 |" in lower.markdown
    assert r"s0 & \textbf{1.00} {\scriptsize n=4} \\" in lower.latex
    assert "\x1b[1m1.00\x1b[0m" in shown(lower)
    assert re.findall("<b>.*?</small>", lower.html) == ["<b>1.00</b> <small>n=4</small>"]
    assert lower.csv == "system,score\ns0,1.00 n=4\ns1,3.00 n=4\ns2,2.00 n=4\n"
    assert "| --- | ---: |" in lower.markdown
    assert r"\begin{tabular}{lr}" in lower.latex
    assert ResultTable.of("", ["name", "n"], [["a", "1"], ["b", "-"]]).right == [
        False,
        True,
    ]
    assert ResultTable.of("", ["n"], [["1"]], numeric=False).right == [False]


def test_no_text_is_taken_for_a_command():
    nasty = ResultTable.of(NASTY, [NASTY], [[NASTY]], [NASTY])
    escaped = (
        r"50\% \& \$1\_000 \#1 \{x\} \textasciitilde{} \textasciicircum{} "
        r"\textbackslash{}input \textless{}a\textgreater{} \textbar{}"
    )
    assert nasty.latex.count(escaped) == 4
    bare = re.sub(r"\\[&%$#_{}]", "", nasty.latex.replace(r" \\", ""))
    assert not re.search(r"[&%$#_~^<>|]", bare)
    assert list(csv.reader(io.StringIO(nasty.csv))) == [[NASTY]] * 2
    assert "\\|" in nasty.markdown
    assert "\\<a>" in nasty.markdown
    assert nasty.html.count("&lt;a&gt;") == 5
    assert "<a" not in nasty.html


@pytest.mark.parametrize(
    ("direction", "order", "best"), [("higher", "bac", "b"), ("lower", "cab", "c")]
)
def test_everything_is_ranked_with_the_best_in_bold(tmp_path, direction, order, best):
    made = board_of({"a": [2, 2], "b": [3, 5], "c": [1, 1], "d_": [None, None]})
    scorers = [Judge("judge", "0-6", direction)]
    write_leaderboard(replace(made, scorers=scorers, categories={}), tmp_path)
    text = (tmp_path / "leaderboard.tex").read_text()
    rows = re.findall(r"^(\d?) & (\w\\?_?) & (.*) \\\\$", text, re.M)
    ranked = [(str(i + 1), name) for i, name in enumerate(order)]
    assert [(rank, name) for rank, name, _ in rows] == [*ranked, ("", r"d\_")]
    assert [name for _, name, cells in rows if "textbf" in cells] == [best]
    listed = json.loads((tmp_path / "leaderboard.json").read_text())
    assert [row["system"] for row in listed] == [*order, "d_"]
    page = (tmp_path / "leaderboard.md").read_text()
    for heading in (" (0-6, ", "By field", "Outcomes"):
        shown = re.findall(r"^\| ([\w\\]+) \|", page[page.index(heading) :], re.M)
        names = [name.replace("\\", "") for name in shown]
        assert names[1 : len(order) + 2] == [*order, "d_"]


def test_example_of_the_readme_does_what_it_says(capsys):
    page = CHECKOUT / "benchmarks" / "results" / "README.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(example, str(page), "exec"), {})
    printed = capsys.readouterr().out
    assert "| gill | **3.25** |" in printed
    assert r"gill & \textbf{3.25} \\" in printed
    for name in re.findall(r"`([\w/]+\.py)`", page.read_text()):
        assert (page.parent / name).exists() or (CHECKOUT / name).exists(), name


@pytest.mark.parametrize(
    ("form", "ends", "text"),
    [
        (PERCENT, (8.0, 17.1), "[8.00, 17.10]"),
        (NumberForm.of("0-2.5"), (0.053, 1.589), "[0.053, 1.589]"),
        (SIGNED, (-0.001, 12.0), "[+0.00, +12.00]"),
        (NumberForm.of("1-3", signed=True), (-2.0, 1.0), "[-2.000, +1.000]"),
        (NumberForm.of("unbounded"), (-3.0, 1e4), "[-3.00, 10000.00]"),
        (AMOUNT, (0.05, 5.5), "[0.05, 5.50]"),
        (PERCENT, None, ""),
    ],
)
def test_an_interval_is_written_with_the_digits_of_its_scale(form, ends, text) -> None:
    assert form.interval(ends) == text


@pytest.mark.parametrize("value", [-0.0, -1e-9, 0.0])
def test_zero_has_no_minus(value: float) -> None:
    plain = Estimate(value, (value, 1.0), 9).as_json()
    assert [math.copysign(1, n) for n in (plain["value"], *plain["ci95"])] == [1, 1, 1]
    assert (NumberForm().number(value), SIGNED.number(value)) == ("0.00", "+0.00")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((t, f"'{t}") for t in ("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "-(1)", "=é")),
        ("-2 +3+cmd|' /C calc'!A0", "'-2 +3+cmd|' /C calc'!A0"),
        *((n, str(n)) for n in (-0.5, -3, "+1.5", "-", "- n=0", "-1e-05", "a=b", "")),
        ("-0.52 [-0.91, -0.13] n=1,037", "-0.52 [-0.91, -0.13] n=1,037"),
        ("a\x1b[2J\r\n\tb\u202e", "a\\x1b[2J\\r\n\tb\\u202e"),
    ],
)
def test_csv_holds_nothing_that_a_spreadsheet_computes_or_a_terminal_obeys(
    value: Any, text: str
) -> None:
    (head, (cell,)) = csv.reader(io.StringIO(csv_text([value], [[value]])))
    assert head == [cell] == [text]
