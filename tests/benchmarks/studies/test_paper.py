"""Tables, figures and sheets for a publication, of runs whose numbers are known."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import plait
from PIL import Image

import plait as api
from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import compare_systems, ranges_of_ranks
from plait.benchmarks.results.repeats import spread_over_repeats
from plait.benchmarks.studies.paper.columns import PaperChoice, content_of
from plait.benchmarks.studies.paper.costs import AnswerCosts, frontier_of
from plait.benchmarks.studies.paper.figures import figures_of, save
from plait.benchmarks.studies.paper.sheet import SheetChoice, grid_of
from plait.benchmarks.studies.paper.tables import main_table
from plait.generators.errors import UsageError
from plait.scorers.statistics.estimate import Estimate

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]

PAINTER = "seeded_painter:Seeded@t2i"
FIRST, SECOND = "first", "second"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> api.RunData:
    """Two variants of a painter, one of them brighter, with three seeds of 12 prompts."""
    place = tmp_path_factory.mktemp("paper")
    (place / "prompts.txt").write_text("".join(f"a house, number {i}\n" for i in range(12)))
    variants = {
        FIRST: {"system": PAINTER, "models": {"seeded_painter:Seeded": {"guidance": 2}}},
        SECOND: {"system": PAINTER, "models": {"seeded_painter:Seeded": {"guidance": 6}}},
    }
    return api.run(
        data=f"prompts:{place / 'prompts.txt'}",
        systems=[FIRST, SECOND],
        variants=variants,
        scorers=["seeded_painter:Brightness", "seeded_painter:Middle"],
        weights="dummy",
        repeats=3,
        out=place / "run",
        executor="local",
    )


def board_of(run: api.RunData) -> Board:
    return run.board


def test_the_table_is_the_leaderboard_with_ranks_and_spread(run: api.RunData) -> None:
    content = content_of([run.root], PaperChoice())
    assert [column.name for column in content.columns] == [
        s.name for s in run.board.scorers
    ]
    for column in content.columns:
        values = run.board.values[column.scorer.name]
        names = [system.name for system in run.board.systems]
        for i, name in enumerate(names):
            cell = column.cells[name]
            assert cell.estimate.value == pytest.approx(np.nanmean(values[:, i]), abs=1e-5)
            spread = spread_over_repeats(run.board, column.scorer)[name]
            assert cell.spread == spread
            assert spread.n == 12
            assert len(spread.means) == 3
            assert np.mean(spread.means) == pytest.approx(np.mean(values[:, i]))
        compared = compare_systems(column.scorer, names, values)
        places = {n: -float(np.mean(values[:, i])) for i, n in enumerate(names)}
        ranks = ranges_of_ranks(places, compared)
        assert {n: column.cells[n].ranks for n in names} == ranks
    bright = content.columns[0]
    assert bright.cells[SECOND].is_best
    assert bright.cells[SECOND].ranks == (1, 1)
    assert not bright.cells[FIRST].is_tied


def test_the_latex_has_a_row_for_each_system_with_as_many_cells(run: api.RunData) -> None:
    table = main_table(content_of([run.root], PaperChoice()))
    for interval in ("brackets", "subscript", "pm", "none"):
        latex = table.latex(interval)
        body = latex.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip()
        rows = [row.strip() for row in body.split(r"\\") if row.strip()]
        assert [row.split(" ")[0] for row in rows] == [SECOND, FIRST]
        (align,) = re.findall(r"begin\{tabular\}\{(.*)\}", latex)
        columns = len(re.findall(r"S\[|l|r", re.sub(r"\[[^\]]*\]", "[", align)))
        assert {row.count("&") + 1 for row in rows} == {columns}
        assert latex.count(r"\bfseries") == len(table.groups)
        assert latex.count("{") == latex.count("}")
    assert "12 queries" in latex
    assert "n=" not in latex


def test_all_files_are_written_and_equal_the_next_time(
    run: api.RunData, tmp_path: Path
) -> None:
    done = plait("paper", str(run.root), "--out", str(tmp_path / "a"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    written = api.paper(run, tmp_path / "b")
    assert written.without == []
    for name in written.files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert {"forest.pdf", "forest.svg", "scorers.pdf", "differences.svg"} <= {
        *written.files
    }
    assert (tmp_path / "a" / "forest.pdf").read_bytes().startswith(b"%PDF")
    assert b"Type3" not in (tmp_path / "a" / "forest.pdf").read_bytes()
    rows = [*csv.DictReader((tmp_path / "a" / "tables.csv").open())]
    assert len(rows) == 4
    for row in rows:
        cell = written.content.column(row["scorer"]).cells[row["system"]]
        assert float(row["mean"]) == pytest.approx(cell.estimate.value, rel=1e-5)
        assert float(row["sd_over_repeats"]) == pytest.approx(cell.spread.sd, abs=1e-6)
    for form in ("png", "webp"):
        with Image.open(tmp_path / "a" / f"sheet.{form}") as sheet:
            assert min(sheet.size) > 500
    latex = (tmp_path / "a" / "sheet.tex").read_text()
    for name in re.findall(r"\{(sheet/[^}]*)\}", latex):
        assert (tmp_path / "a" / name).is_file()


@pytest.mark.parametrize(
    ("choice", "shape"),
    [
        (SheetChoice(), (6, 2)),
        (SheetChoice(rows="query", columns="repeat", best=4), (4, 3)),
        (SheetChoice(rows="system", columns="query", random=5, seed=1), (2, 5)),
        (SheetChoice(rows="repeat", columns="system", ids=("0003",)), (3, 2)),
    ],
)
def test_a_sheet_has_rows_and_columns_as_chosen(
    run: api.RunData, choice: SheetChoice, shape: tuple[int, int]
) -> None:
    grid = grid_of(run.board, choice)
    assert (len(grid.rows), len(grid.columns)) == shape
    assert all(len(cell.images) == 1 for row in grid.cells for cell in row)
    if "repeat" in (choice.rows, choice.columns):
        names = grid.columns if choice.columns == "repeat" else grid.rows
        assert [*names] == ["repeat 1", "repeat 2", "repeat 3"]


def test_the_best_and_the_worst_queries_are_those_of_the_mean(run: api.RunData) -> None:
    name = run.scorers[1]
    means = dict(zip(run.board.keys, run.board.values[name].mean(axis=1), strict=True))
    prompts = {query.sample.question[0].text: id for id, query in run.queries.items()}
    order = sorted(means.values())
    worst = grid_of(run.board, SheetChoice(worst=3, scorer=name))
    assert [means[prompts[text]] for text in worst.rows] == order[:3]
    best = grid_of(run.board, SheetChoice(best=3, scorer=name))
    assert [means[prompts[text]] for text in best.rows] == order[:-4:-1]
    drawn = [grid_of(run.board, SheetChoice(random=4, seed=s)).rows for s in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--scorer", "clipscore"), "seeded_painter:Brightness"),
        (("--system", "gill"), FIRST),
        (("--pair", FIRST), "two systems"),
        (("--rows", "query", "--columns", "query"), "repeat"),
        (("--ids", "nothing"), "0001"),
    ],
)
def test_bad_input_is_named(run: api.RunData, words: tuple[str, ...], named: str) -> None:
    done = plait("paper", str(run.root), *words)
    assert done.returncode == 2
    assert named in done.stderr


def test_a_run_without_images_or_scores_says_what_is_missing(tmp_path: Path) -> None:
    asked = {"data": "miniature:6", "weights": "tiny", "executor": "local"}
    asked["systems"] = ["comparing_helpers:Terse@text"]
    bare = api.run(**asked, scorers=[], out=tmp_path / "bare")
    with pytest.raises(UsageError, match="plait score RUN"):
        api.paper(bare, tmp_path / "paper")
    scored = api.run(**asked, scorers=["bleu"], out=tmp_path / "scored")
    written = api.paper(scored, tmp_path / "paper")
    assert "image" in written.without[-1]
    with pytest.raises(UsageError, match="image"):
        api.paper(scored, tmp_path / "paper", sheet={"best": 2})


def test_figures_are_drawn_of_many_systems_and_nothing_is_beaten_on_the_frontier(
    run: api.RunData, tmp_path: Path
) -> None:
    content = content_of([run.root], PaperChoice(correction="none"))
    means = {FIRST: Estimate(1.0, (0.5, 1.5), 12), SECOND: Estimate(3.0, (2.5, 3.5), 12)}
    costs = AnswerCosts("seconds per answer", means)
    assert frontier_of(costs, content.columns[0]) == [FIRST, SECOND]
    dear = AnswerCosts("", {FIRST: means[SECOND], SECOND: means[FIRST]})
    assert frontier_of(dear, content.columns[0]) == [SECOND]
    names = []
    for figure in figures_of(content, costs, (FIRST, SECOND)):
        names += save(figure, tmp_path)
    assert {"cost.pdf", "cost.svg"} <= {*names}
    for name in names:
        text = (tmp_path / name).read_bytes()
        assert len(text) > 1000
        if name.endswith("svg"):
            assert b"<text" not in text, "letters are outlines, whatever fonts there are"
