"""A table of results in each of its forms, and the numbers and texts in it."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from paths import CHECKOUT
from report_helpers import Judge, board_of

from benchmarks.plain_console import PlainConsole
from benchmarks.results.leaderboard import write_leaderboard
from benchmarks.results.numbers import ABOUT_BEYOND, NumberForm
from benchmarks.results.pairings.tables import AMOUNT
from benchmarks.results.table import (
    ResultTable,
    TableCell,
    TableColumn,
    csv_text,
)
from scorers.statistics.estimate import Estimate

NASTY = r"50% & $1_000 #1 {x} ~ ^ \input <a> |"


def table(direction="higher", values=(1.0, 3.0, 2.0)) -> ResultTable:
    columns = [TableColumn("system"), TableColumn("score", direction, numeric=True)]
    rows = [
        [TableCell(f"s{i}"), TableCell("-" if v is None else f"{v:.2f}", "n=4", v)]
        for i, v in enumerate(values)
    ]
    return ResultTable(title="Scores", columns=columns, rows=rows, notes=["One note."])


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


def test_best_is_bold_in_every_form():
    lower = table("lower")
    assert "| s0 | **1.00** n=4 |" in lower.markdown
    assert r"s0 & \textbf{1.00} {\scriptsize n=4} \\" in lower.latex
    assert "\x1b[1m1.00\x1b[0m" in shown(lower)
    assert lower.csv == "system,score\ns0,1.00 n=4\ns1,3.00 n=4\ns2,2.00 n=4\n"


def test_columns_of_numbers_are_set_to_the_right():
    words = ResultTable.of("", ["name", "n"], [["a", "1"], ["b", "-"]])
    assert words.right == [False, True]
    assert "| --- | ---: |" in words.markdown
    assert r"\begin{tabular}{lr}" in words.latex
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


@dataclass(frozen=True)
class Distance(Judge):
    """A scorer of which less is better."""

    name: str = "distance"
    direction: str = "lower"


@pytest.mark.parametrize(
    ("scorer", "order", "best"), [(Judge(), "bac", "b"), (Distance("judge"), "cab", "c")]
)
def test_latex_is_ranked_with_the_best_in_bold(tmp_path, scorer, order, best):
    made = board_of({"a": [2, 2], "b": [3, 5], "c": [1, 1], "d_": [None, None]})
    write_leaderboard(replace(made, scorers=[scorer], categories={}), tmp_path)
    text = (tmp_path / "leaderboard.tex").read_text()
    rows = re.findall(r"^(\d?) & (\w\\?_?) & (.*) \\\\$", text, re.M)
    assert [(rank, name) for rank, name, _ in rows] == [
        *((str(i + 1), name) for i, name in enumerate(order)),
        ("", r"d\_"),
    ]
    assert [name for _, name, cells in rows if "textbf" in cells] == [best]
    assert "is better" in text
    # All other tables and files follow the first scorer.
    listed = [
        row["system"] for row in json.loads((tmp_path / "leaderboard.json").read_text())
    ]
    assert listed == [*order, "d_"]
    page = (tmp_path / "leaderboard.md").read_text()
    for heading in (" (0-6, ", "By field", "Outcomes"):
        table = page[page.index(heading) :]
        assert re.findall(r"^\| (\w+) \|", table, re.M)[1 : len(order) + 2] == listed


def test_example_of_the_readme_does_what_it_says(capsys):
    page = CHECKOUT / "benchmarks" / "results" / "README.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(example, str(page), "exec"), {})
    printed = capsys.readouterr().out
    assert "| gill | **3.25** |" in printed
    assert r"gill & \textbf{3.25} \\" in printed
    for name in re.findall(r"`(\w+\.py)`", page.read_text()):
        assert (page.parent / name).exists(), name


PERCENT = NumberForm.of("0-100")


@pytest.mark.parametrize(
    ("form", "ends", "text"),
    [
        (PERCENT, (8.0, 17.1), "[8.00, 17.10]"),
        (PERCENT, (91.69, 100.6), "[91.69, 100.00*]"),
        (PERCENT, (-3.0, 109.7), "[0.00*, 100.00*]"),
        (PERCENT, (0.0, 100.0), "[0.00, 100.00]"),
        (PERCENT, (-1e-9, 100 + 1e-9), "[0.00, 100.00]"),
        (NumberForm.of("0-2.5"), (-0.053, 1.589), "[0.000*, 1.589]"),
        (NumberForm.of("0-100", signed=True), (-0.001, 12.0), "[+0.00, +12.00]"),
        (NumberForm.of("1-3", signed=True), (-2.5, 1.0), "[-2.000*, +1.000]"),
        (NumberForm.of("pictures"), (-3.0, 1e4), "[-3.00, 10000.00]"),
        (NumberForm.of_measure("equal, %"), (45.27, 109.73), "[45.27, 100.00*]"),
        (NumberForm.of_measure("more, points of %"), (-101, 3), "[-100.00*, 3.00]"),
        (NumberForm.of_measure("rank correlation"), (-0.2, 0.9), "[-0.20, 0.90]"),
        (PERCENT, None, ""),
    ],
)
def test_no_interval_shows_what_cannot_be(
    form: NumberForm, ends: tuple[float, float] | None, text: str
) -> None:
    assert form.interval(ends) == text


def test_no_document_costs_less_than_nothing() -> None:
    cell = TableCell.of(Estimate(2.0, (-1.5, 5.5), 9), AMOUNT)
    assert cell.full == "2.00 [0.00*, 5.50]"


@pytest.mark.parametrize("value", [-0.0, -1e-9, 0.0])
def test_zero_has_no_minus(value: float) -> None:
    plain = Estimate(value, (value, 1.0), 9).as_json()
    assert [math.copysign(1, n) for n in (plain["value"], *plain["ci95"])] == [1, 1, 1]
    assert NumberForm().number(value) == "0.00"
    assert NumberForm(signed=True).number(value) == "+0.00"


def test_the_mark_is_explained_under_the_table_that_has_it() -> None:
    plain = ResultTable.of("t", ["a"], [["1.00 [0.00, 2.00]"]], ["a note"])
    marked = ResultTable.of("t", ["a"], [["1.00 [0.00*, 2.00]"], ["2.00 [0.00*, 3.00]"]])
    assert list(plain.footnotes) == ["a note"]
    for text in (marked.markdown, marked.html, marked.latex):
        assert text.count(ABOUT_BEYOND[2:]) == 1


def test_a_leaderboard_stores_what_was_computed_and_shows_what_can_be(
    tmp_path: Path,
) -> None:
    values = [100.0, 100.0, 99.0, 100.0, 60.0, 100.0, 98.0]
    scorer = Judge(scale="0-100")
    write_leaderboard(board_of({"a": values, "b": values}, scorers=(scorer,)), tmp_path)
    (cell, _) = (
        row["scores"]["judge"]["avg_micro"]
        for row in json.loads((tmp_path / "leaderboard.json").read_text())
    )
    assert cell["ci95"][1] > 100
    for name in ("leaderboard.md", "leaderboard.tex"):
        text = (tmp_path / name).read_text()
        assert ", 100.00*]" in text.replace("\\", "")
        assert f"{cell['ci95'][1]:.2f}" not in text


def read_back(value: Any) -> str:
    (head, (cell,)) = csv.reader(io.StringIO(csv_text([value], [[value]])))
    assert head == [cell]
    return cell


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "-2 +3+cmd|' /C calc'!A0", "-(1)", "=é"],
)
def test_a_text_that_a_spreadsheet_would_compute_begins_with_an_apostrophe(
    text: str,
) -> None:
    assert read_back(text) == f"'{text}"


@pytest.mark.parametrize(
    "value",
    [-0.5, -3, "-0.52 [-0.91, -0.13] n=1,037", "+1.5", "-", "- n=0", "-1e-05", "a=b", ""],
)
def test_numbers_and_other_texts_stay(value: Any) -> None:
    assert read_back(value) == str(value)


def test_control_characters_are_seen_and_lines_stay() -> None:
    assert read_back("a\x1b[2J\r\n\tb\u202e") == "a\\x1b[2J\\r\n\tb\\u202e"
