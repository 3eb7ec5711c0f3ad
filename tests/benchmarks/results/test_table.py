"""A table of results in each of its four forms."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace

import pytest
from paths import CHECKOUT
from report_helpers import Judge, board_of, mixed_board
from rich.console import Console

from benchmarks.results.leaderboard import write_leaderboard
from benchmarks.results.table import ResultTable, TableCell, TableColumn, markdown_page

NASTY = r"50% & $1_000 #1 {x} ~ ^ \input <a> |"


def table(direction="higher", values=(1.0, 3.0, 2.0)) -> ResultTable:
    columns = [TableColumn("system"), TableColumn("score", direction, numeric=True)]
    rows = [
        [TableCell(f"s{i}"), TableCell("-" if v is None else f"{v:.2f}", "n=4", v)]
        for i, v in enumerate(values)
    ]
    return ResultTable(title="Scores", columns=columns, rows=rows, notes=["One note."])


def shown(table: ResultTable) -> str:
    console = Console(width=80, file=io.StringIO(), force_terminal=True)
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


def test_notes_and_title_are_said():
    page = markdown_page("All", ["A remark.", ""], [table()])
    assert page.startswith("# All\n\nA remark.\n\n## Scores\n\n| system |")
    assert page.endswith("| s2 | 2.00 n=4 |\n\n- One note.\n")
    assert "One note." in shown(table())
    assert r"\caption{Scores. One note.}" in table().latex


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


def test_latex_says_what_random_weights_mean(tmp_path):
    made = mixed_board(6, ["a"])
    systems = [replace(s, draft=replace(s.draft, weights="tiny")) for s in made.systems]
    write_leaderboard(replace(made, systems=systems), tmp_path)
    text = (tmp_path / "leaderboard.tex").read_text()
    assert text.count(r"\caption{\textbf{Warning: random weights (tiny: a)") == 2
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2


def test_example_of_the_readme_does_what_it_says(capsys):
    page = CHECKOUT / "benchmarks" / "results" / "README.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(example, str(page), "exec"), {})
    printed = capsys.readouterr().out
    assert "| gill | **3.25** |" in printed
    assert r"gill & \textbf{3.25} \\" in printed
    for name in re.findall(r"`(\w+\.py)`", page.read_text()):
        assert (page.parent / name).exists(), name
