"""Pairings of LVLM and text-to-image model: their tables, costs and frontier."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from benchmarks.results.pairings.plot import plot_of, points_of
from pairings_helpers import costs_by_hand, crossed, pairing_board, scores_of
from report_helpers import MANIFEST, Judge, answers_of, at_hand, board, board_of

from benchmarks.results.costs import RecordCost
from benchmarks.results.leaderboard import write_leaderboard
from benchmarks.results.pairings import FILES, pairings_of
from benchmarks.results.pairings.page import _matrix
from benchmarks.results.pairings.tables import (
    against_best,
    frontier_texts,
    tables_of,
)
from benchmarks.results.report import write_report
from generators.base import Kind, NotApplicable
from scorers.statistics.means import mean
from scorers.statistics.two_way import two_way


def test_cells_are_compared_on_shared_queries_alone():
    scores = scores_of(2, 2, 30)
    # The cell that skips the hard queries would be the best one by its own mean.
    scores[:5] = 0.5
    made = pairing_board(scores, skipped={(0, 0): range(5)}, failed={(1, 1): [4, 29]})
    (pairings,) = pairings_of(made)
    (judged,) = pairings.scores
    assert judged.model == two_way(scores[5:29])
    assert judged.left_out == {"skipped": 4, "failed and skipped": 1, "failed": 1}
    text = str(next(tables_of(pairings)).markdown)
    assert (
        "Compared on the 24 of 30 queries that have a score in every cell; left out for "
        "every cell: 4 skipped; 1 failed and skipped; 1 failed." in text
    )


def repeated(first, second):
    """A board with the answers of two as repeats."""
    again = [replace(e, repeat=1) for e in answers_of(second)]
    return board([*answers_of(first), *again], systems=first.systems)


def test_repeats_are_averaged_within_a_query():
    first, second = scores_of(2, 2, 12, seed=1), scores_of(2, 2, 12, seed=2)
    boards = [pairing_board(s, costs=False) for s in (first, second)]
    both = repeated(*boards)
    (pairings,) = pairings_of(both)
    model = pairings.scores[0].model
    assert model.n == 12
    expected = two_way((first + second) / 2)
    assert model.cells[1][0].ci95 == pytest.approx(expected.cells[1][0].ci95)


def test_a_cell_with_one_of_two_repeats_scored_is_not_why_a_query_is_left_out():
    scores = scores_of(2, 2, 6)
    first = pairing_board(scores, skipped={(0, 1): [0]}, costs=False)
    second = pairing_board(scores, skipped={(0, 1): [0]}, failed={(0, 0): [0]}, costs=False)
    assert pairings_of(repeated(first, second))[0].scores[0].left_out == {"skipped": 1}


def test_a_scorer_that_applies_to_nothing_shows_no_number():
    made = board_of({n: [NotApplicable("no")] * 6 for n in crossed("xy", "ab")})
    (pairings,) = pairings_of(made)
    (judged,) = pairings.scores
    assert judged.model.n == 0
    assert judged.left_out == {"not applicable": 6}
    assert {d.estimate.value for d in judged.differences} == {None}
    assert pairings.costs is None
    assert frontier_texts(pairings) == []


def test_differences_say_how_many_queries_they_need():
    scores = scores_of(2, 2, 40)
    (pairings,) = pairings_of(pairing_board(scores))
    (judged,) = pairings.scores
    assert len(judged.differences) == 6
    first = judged.differences[0]
    difference = scores[:, 0, 0] - scores[:, 0, 1]
    assert (first.a, first.b) == ("writer-0+artist-0", "writer-0+artist-1")
    assert first.estimate.value == pytest.approx(mean(difference).value)
    assert first.sd == pytest.approx(difference.std(ddof=1))
    assert first.detectable is not None
    # What is larger than the detectable difference needs fewer queries, and vice versa.
    for d in judged.differences:
        assert (abs(d.estimate.value) > d.detectable) == (d.needed <= 40)


def test_the_best_cell_comes_first_in_each_difference():
    scores = scores_of(2, 2, 40)
    for direction, pick in (("higher", max), ("lower", min)):
        made = pairing_board(scores, scorers=(Judge("judge", "0-6", direction),))
        (pairings,) = pairings_of(made)
        (judged,) = pairings.scores
        means = scores.mean(axis=0)
        best = pick(np.ndindex(2, 2), key=lambda at: means[at])
        against = against_best(pairings, judged)
        assert [d.a for d in against] == ["writer-{}+artist-{}".format(*best)] * 3
        for d in against:
            other = tuple(int(part[-1]) for part in d.b.split("+"))
            expected = mean(scores[:, *best] - scores[:, *other])
            assert d.estimate.value == pytest.approx(expected.value)
            assert d.estimate.ci95 == pytest.approx(expected.ci95)


def test_a_document_costs_its_text_and_its_pictures():
    (pairings,) = pairings_of(pairing_board(scores_of(2, 3, 8)))
    assert pairings.costs is not None
    own = pairings.costs.cells["writer-1+artist-2"]
    # A text of 2 seconds on one GPU, two pictures of 8 seconds on two.
    assert own["seconds"].value == pytest.approx(2 + 2 * 8)
    assert own["gpu_seconds"].value == pytest.approx(2 + 2 * 16)
    assert own["pictures"].value == 2
    assert own["output_tokens"].value == 51
    assert set(own) == {
        *("seconds", "gpu_seconds", "input_tokens", "output_tokens", "pictures")
    }


def test_what_is_shared_is_spent_once():
    (pairings,) = pairings_of(pairing_board(scores_of(2, 3, 8)))
    assert pairings.costs is not None
    sharing = pairings.costs.sharing
    assert (sharing.texts, sharing.texts_requested) == (16, 48)
    assert (sharing.pictures, sharing.pictures_requested) == (96, 96)
    assert (sharing.seeds, sharing.same_seeds) == (16, 16)
    texts, pictures = 8 * (1 + 2), 8 * 2 * 2 * (2 + 5 + 8)
    assert sharing.spent["seconds"] == pytest.approx(texts + pictures)
    assert sharing.unshared["seconds"] == pytest.approx(3 * texts + pictures)


def test_repeats_of_a_document_count_by_their_mean_and_have_seeds_of_their_own():
    made = pairing_board(scores_of(2, 2, 6))
    records = dict(made.costs.records)
    again = []
    for document in made.costs.documents:
        # The second answer takes three times as long for its text; other seeds draw it.
        (text,) = (key for key in document.records if key.startswith("t"))
        old = records[text]
        amounts = {**old.amounts, "seconds": 3 * old.amounts["seconds"]}
        records[f"again-{text}"] = RecordCost(old.stage, old.kind, amounts)
        keys = document.records - {text} | {f"again-{text}"}
        seeds = {place: seed + 10**6 for place, seed in document.seeds.items()}
        again.append(replace(document, repeat=1, records=keys, seeds=seeds))
    documents = [*made.costs.documents, *again]
    twice = replace(made.costs, records=records, documents=documents)
    costs = pairings_of(replace(made, costs=twice))[0].costs
    seconds = costs.cells["writer-0+artist-0"]["seconds"]
    assert (seconds.value, seconds.n) == (pytest.approx((1 + 3) / 2 + 2 * 2), 6)
    assert (costs.sharing.seeds, costs.sharing.same_seeds) == (24, 24)


def test_other_seeds_are_counted_as_such():
    made = pairing_board(scores_of(2, 2, 6))
    assert made.costs is not None
    documents = list(made.costs.documents)
    documents[0] = replace(documents[0], seeds={0: 7, 1: documents[0].seeds[1]})
    other = replace(made, costs=replace(made.costs, documents=documents))
    sharing = pairings_of(other)[0].costs.sharing
    assert (sharing.seeds, sharing.same_seeds) == (12, 11)


def test_only_documents_that_every_cell_has_made_are_compared_in_cost():
    made = pairing_board(scores_of(2, 2, 8))
    assert made.costs is not None
    documents = [
        replace(d, done=d.query != "Q-0003" or d.system != "writer-0+artist-0")
        for d in made.costs.documents
    ]
    costs = pairings_of(replace(made, costs=replace(made.costs, documents=documents)))[
        0
    ].costs
    assert costs.queries == 7
    assert {own["seconds"].n for own in costs.cells.values()} == {7}


@pytest.mark.parametrize(("measure", "told"), [("joules", False), ("joules", True)])
def test_energy_is_shown_where_every_stage_tells_it(measure, told):
    costs = costs_by_hand(6, 2, 2)
    records = {
        key: RecordCost(r.stage, r.kind, {**r.amounts, measure: 10.0})
        for key, r in costs.records.items()
        if told or r.kind is Kind.DRAFT
    }
    silent = {} if told else {measure: frozenset({"artist-0", "artist-1"})}
    costs = replace(costs, records={**costs.records, **records}, unmeasured=silent)
    if not told:
        # One query is answered by text alone, which does tell.
        texts = frozenset(k for k in costs.records if k.startswith("t"))
        documents = [
            replace(d, records=d.records & texts) if d.query == "Q-0000" else d
            for d in costs.documents
        ]
        costs = replace(costs, documents=documents)
    made = replace(pairing_board(scores_of(2, 2, 6)), costs=costs)
    own = pairings_of(made)[0].costs.cells["writer-0+artist-0"]
    assert (measure in own) == told
    if told:
        assert own[measure].value == pytest.approx(30)


def test_the_frontier_holds_what_nothing_beats():
    scores = np.full((6, 2, 2), 3.0) + np.arange(6).reshape(-1, 1, 1) / 10
    # Cheapest first: 0+0 (5 s), 1+0 (6 s), 0+1 (11 s), 1+1 (12 s).
    scores[:, 1, 0] -= 1
    scores[:, 1, 1] += 1
    (pairings,) = pairings_of(pairing_board(scores))
    (judged,) = pairings.scores
    frontier = pairings.frontier(judged, "seconds")
    # 0+1 is as good as 0+0 and dearer; 1+0 is worse and dearer.
    assert frontier == ["writer-0+artist-0", "writer-1+artist-1"]
    lower = pairing_board(scores, scorers=(Judge("judge", "0-6", "lower"),))
    (pairings,) = pairings_of(lower)
    frontier = pairings.frontier(pairings.scores[0], "seconds")
    assert frontier == ["writer-0+artist-0", "writer-1+artist-0"]


def test_the_plot_has_a_point_for_each_cell_and_the_frontier_as_steps():
    scores = np.full((6, 2, 2), 3.0) + np.arange(6).reshape(-1, 1, 1) / 10
    scores[:, 1, 0] -= 1
    scores[:, 1, 1] += 1
    (pairings,) = pairings_of(pairing_board(scores))
    points = points_of(pairings, pairings.scores[0], "seconds")
    assert {p.name: (p.best, *p.place) for p in points} == {
        "writer-0+artist-0": (True, 5.0, 3.25),
        "writer-0+artist-1": (False, 11.0, 3.25),
        "writer-1+artist-0": (False, 6.0, 2.25),
        "writer-1+artist-1": (True, 12.0, 4.25),
    }
    root = ElementTree.fromstring(plot_of(points, "seconds").replace("xlink:href", "href"))
    texts = [e.text for e in root.iter("text")]
    assert set("1234") | {"seconds per document"} <= set(texts)
    (steps,) = (e for e in root.iter("path") if "dasharray" in e.get("style", ""))
    numbers = [float(n) for n in re.findall(r"[\d.]+", steps.get("d"))]
    across, up = numbers[::2], numbers[1::2]
    # Across at the score of the cheaper one, then up to the better one.
    assert across[0] < across[1] == across[2]
    assert up[0] == up[1] > up[2]
    assert plot_of(points[:1], "seconds") == ""


def test_files_hold_every_number(tmp_path):
    made = pairing_board(scores_of(2, 3, 20), others=["native"])
    write_leaderboard(made, tmp_path)
    (matrix,) = json.loads((tmp_path / "pairings.json").read_text())["matrices"]
    (pairings,) = pairings_of(made)
    model = pairings.scores[0].model
    judged = matrix["scores"]["judge"]
    assert (matrix["lvlms"], matrix["t2is"]) == (
        ["writer-0", "writer-1"],
        ["artist-0", "artist-1", "artist-2"],
    )
    assert judged["interaction"][1][2]["mean"] == pytest.approx(
        model.interaction[1][2].value, abs=1e-5
    )
    assert sum(judged["variance_shares"].values()) == pytest.approx(1)
    first, known = judged["differences"][0], pairings.scores[0].differences[0]
    about = (known.sd, known.detectable, known.needed)
    assert (first["sd"], first["detectable"], first["queries_needed"]) == about
    assert first["mean"] == pytest.approx(known.estimate.value, abs=1e-5)
    assert judged["frontier"]["against"] == "gpu_seconds"
    lines = list(csv.DictReader((tmp_path / "pairings.csv").open()))
    parts = {line["part"] for line in lines}
    assert {"mean", "cell", "lvlm effect", "t2i effect", "interaction"} <= parts
    cell = next(
        n
        for n in lines
        if (n["part"], n["lvlm"], n["t2i"]) == ("cell", "writer-1", "artist-0")
    )
    assert float(cell["mean"]) == pytest.approx(model.cells[1][0].value, abs=1e-5)
    assert (cell["protocol"], cell["n"]) == ("mmie", "20")
    low, high = model.cells[1][0].ci95
    ends = [float(cell["ci95_low"]), float(cell["ci95_high"])]
    assert ends == pytest.approx([low, high], abs=1e-5)
    (paid,) = (
        float(n["mean"])
        for n in lines
        if (n["part"], n["lvlm"], n["t2i"]) == ("cost: seconds", "writer-1", "artist-2")
    )
    assert paid == pytest.approx(2 + 2 * 8)
    latex = (tmp_path / "pairings.tex").read_text()
    assert latex.count(r"\toprule") == len(list(tables_of(pairings)))
    page = (tmp_path / "pairings.md").read_text()
    assert "16 places" not in page
    assert "40 of 40 places of pictures" in page
    assert "40 texts served 120 requests of 6 cells" in page
    # Texts of 1 and 2 s by query for 3 artists, two pictures of 2, 5 and 8 s for 2 LVLMs.
    spent, alone = 20 * 3 + 20 * 2 * 2 * 15, 20 * 3 * 3 + 20 * 2 * 2 * 15
    assert f"taken {alone:,} ({1 - spent / alone:.0%} saved)" in page


@pytest.mark.parametrize(("direction", "pick"), [("higher", max), ("lower", min)])
def test_the_best_mean_has_the_most_colour_and_a_mark(direction, pick):
    scores = scores_of(2, 2, 12)
    made = pairing_board(scores, scorers=(Judge("judge", "0-6", direction),))
    (panel,) = _matrix(pairings_of(made)[0])["panels"]
    means = scores.mean(axis=0)
    cells = {at: panel["cells"][at[0]][at[1]] for at in np.ndindex(2, 2)}
    best = pick(cells, key=lambda at: means[at])
    assert max(cells, key=lambda at: cells[at].tint) == best
    assert [at for at, cell in cells.items() if cell.marked] == [best]


def test_small_interactions_are_drawn_pale_beside_large_effects():
    scores = np.full((8, 2, 2), 3.0) + np.arange(8).reshape(-1, 1, 1) / 10
    scores[:, 1] += 2
    scores[:, 0, 0] += 0.04
    (pairings,) = pairings_of(pairing_board(scores))
    (panel,) = _matrix(pairings)["panels"]
    assert {abs(cell.tint) for row in panel["interaction"] for cell in row} == {0}
    scores[:, 0, 0] += 3
    (pairings,) = pairings_of(pairing_board(scores))
    (panel,) = _matrix(pairings)["panels"]
    assert max(cell.tint for row in panel["interaction"] for cell in row) > 30


def test_no_matrix_no_files(tmp_path):
    write_leaderboard(board_of({"a": [1, 2], "b+c": [3, 4]}), tmp_path)
    assert not any((tmp_path / name).exists() for name in FILES)


def test_a_single_row_says_that_it_has_no_interaction(tmp_path):
    made = pairing_board(scores_of(1, 2, 10))
    write_leaderboard(made, tmp_path)
    page = (tmp_path / "pairings.md").read_text()
    assert "main effects only" in page
    assert "interaction," not in page.replace("no interaction", "")
    html = write_report(made, tmp_path, MANIFEST, at_hand).read_text()
    assert "main effects only" in html
    assert "LVLM's effect" not in html
    assert "T2I model's effect" in html
    assert [c.heading for c in next(tables_of(pairings_of(made)[0])).columns][-1] == "mean"
    assert "Interaction:" not in html


def test_the_page_shows_the_section_only_where_there_is_a_matrix(tmp_path):
    without = write_report(board_of({"a": [1, 2]}), tmp_path, MANIFEST, at_hand)
    assert "section-pairings" not in without.read_text()
    made = pairing_board(scores_of(2, 2, 10))
    html = write_report(made, tmp_path, MANIFEST, at_hand).read_text()
    assert html.count('id="section-pairings"') == 1
    model = pairings_of(made)[0].scores[0].model
    assert f"{model.interaction[0][0].value:+.2f}" in html
