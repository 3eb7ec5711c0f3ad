"""Pairings of LVLM and text-to-image model: matrix, scores, costs, frontier and files."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from pairings_helpers import crossed, pairing_board, scores_of
from report_helpers import (
    MMIE,
    Judge,
    answer,
    answers_of,
    board,
    board_of,
    evaluation,
    mixed_board,
    picture,
    sample,
)
from report_helpers import stage as named_stage
from report_helpers import system as named_system
from scipy.stats import spearmanr
from trial import rebuild, system_of_stages

from plait.benchmarks.results.contact_sheet import sheet_of_systems
from plait.benchmarks.results.costs import DocumentCost, RecordCost, amounts_of
from plait.benchmarks.results.leaderboard_files import write_leaderboard
from plait.benchmarks.results.page_files import FolderFiles
from plait.benchmarks.results.pairings.comparison import Pairings, pairings_of
from plait.benchmarks.results.pairings.matrix import PairingMatrix, matrices_of
from plait.benchmarks.results.pairings.page import pairings_section, plot_of
from plait.benchmarks.results.pairings.sheet import sheet_of, write_sheet
from plait.benchmarks.results.pairings.tables import (
    FILES,
    agreement_tables,
    ranking_table,
    tables_of,
)
from plait.cluster.plan import Evaluation
from plait.cluster.records import Item, encode
from plait.cluster.store import Store
from plait.generators.base import (
    Failure,
    Fault,
    Job,
    Kind,
    NotApplicable,
    Placement,
    Result,
    ServerCommand,
    StageSpec,
)
from plait.generators.document import Draft, Image, ImageRequest, Request, Text, Turn
from plait.generators.errors import UsageError
from plait.generators.images import decode
from plait.scorers.statistics.means import mean, of_differences
from plait.scorers.statistics.multiple import paired_p_value
from plait.scorers.statistics.two_way import two_way

pytestmark = [pytest.mark.contract, pytest.mark.figures]

SCALE = (0.0, 6.0)
LOWER = (Judge("judge", "0-6", "lower"),)


def pairings(made) -> Pairings:
    (found,) = pairings_of(made)
    return found


def matrices(*names: str) -> list[PairingMatrix]:
    """Of systems as they are resolved: `w+a`, `w+a@outline`, `w@text`, natives."""
    made = []
    for name in names:
        pair, _, protocol = name.partition("@")
        lvlm, _, t2i = pair.partition("+")
        label = lvlm + (f"@{protocol}" if protocol == "outline" else "")
        parts = {"lvlm": label, "t2i": t2i} if t2i else {}
        if protocol == "text":
            parts = {"lvlm": lvlm, "t2i": "no images"}
        made.append(system_of_stages(name=name, draft=named_stage(lvlm), **parts))
    return matrices_of(made)


@pytest.mark.parametrize(
    ("names", "lvlms", "t2is", "aside"),
    [
        (["anole", "gt", *crossed("xy", "ab"), "x@text", "y@text"], "xy", "ab", []),
        # Of 4 x 4 cells two are not there: 3 x 4 is larger than 4 x 2, 4 x 3 and 3 x 3.
        (
            [n for n in crossed("wxyz", "abcd") if n not in ("z+c", "z+d")],
            *("wxy", "abcd", ["z+a", "z+b"]),
        ),
        # Two by two is taken before a longer row.
        ([*crossed("x", "abcde"), "y+c", "y+b"], "xy", "bc", ["x+a", "x+d", "x+e"]),
        ([*crossed("x", "abc"), *crossed("y", "bcd")], "xy", "bc", ["x+a", "y+d"]),
        (["x+a", "x+b"], "x", "ab", []),
        (["x+a", "y+a"], "xy", "a", []),
    ],
)
def test_the_largest_part_without_holes_is_taken(names, lvlms, t2is, aside):
    (matrix,) = matrices(*names)
    assert (matrix.lvlms, matrix.t2is) == (tuple(lvlms), tuple(t2is))
    assert [s.name for s in matrix.cells] == crossed(lvlms, t2is)
    assert matrix.left_aside == tuple(aside)
    assert matrix.is_crossed == (len(lvlms) > 1 < len(t2is))


def test_single_cells_are_none_and_protocols_are_never_mixed():
    assert matrices("x+a", "anole") == matrices("x+a", "y+b") == []
    names = ["x+a", "x+b", "y+a", "y+b@outline", "x+a@outline", "y+a@outline"]
    mmie, outline = matrices(*names)
    assert [s.name for s in mmie.cells] == ["x+a", "x+b"]
    assert mmie.left_aside == ("y+a",)
    assert (outline.lvlms, outline.t2is) == (("y",), ("b", "a"))


def repeated(first, second):
    """A board with the answers of two as repeats."""
    again = [replace(e, repeat=1) for e in answers_of(second)]
    return board([*answers_of(first), *again], systems=first.systems)


def test_cells_are_compared_on_shared_queries_alone():
    scores = scores_of(2, 2, 30)
    # The cell that skips the hard queries would be the best one by its own mean.
    scores[:5] = 0.5
    skipped, failed = {(0, 0): range(5)}, {(1, 1): [4, 29]}
    (judged,) = pairings(pairing_board(scores, skipped=skipped, failed=failed)).scores
    assert judged.model == two_way(scores[5:29], SCALE)
    assert judged.left_out == {"skipped": 4, "failed and skipped": 1, "failed": 1}


def test_repeats_are_averaged_and_one_score_is_enough():
    one, two = scores_of(2, 2, 12, seed=1), scores_of(2, 2, 12, seed=2)
    skip = {"skipped": {(0, 1): [0]}, "costs": False}
    boards = pairing_board(one, **skip), pairing_board(two, failed={(0, 0): [0]}, **skip)
    (judged,) = pairings(repeated(*boards)).scores
    expected = two_way(((one + two) / 2)[1:], SCALE)
    assert judged.left_out == {"skipped": 1}
    assert judged.model.cells[1][0].ci95 == pytest.approx(expected.cells[1][0].ci95)


def test_a_scorer_that_applies_to_nothing_shows_no_number():
    found = pairings(board_of({n: [NotApplicable("no")] * 6 for n in crossed("xy", "ab")}))
    (judged,) = found.scores
    assert (judged.model.n, judged.left_out) == (0, {"not applicable": 6})
    assert {d.estimate.value for d in judged.differences} == {None}
    assert (judged.from_best, found.costs, found.frontier(judged)) == ([], None, [])


def test_tables_leave_out_and_name_scorers_without_a_shared_query():
    found = pairings(mixed_board(24, crossed("xy", "ab")))
    silent = replace(found.scores[1], model=two_way(np.full((3, 2, 2), np.nan), SCALE))
    first, *others = tables_of(replace(found, scores=[silent, found.scores[0]]))
    assert first.title.startswith("judge ")
    assert any("clipscore" in note for note in first.notes)
    assert not any("clipscore" in table.title for table in others)


@pytest.mark.parametrize(("scorers", "pick"), [((Judge(),), max), (LOWER, min)])
def test_differences_are_from_the_best_and_say_how_many_queries_they_need(scorers, pick):
    scores = scores_of(2, 2, 40)
    found = pairings(pairing_board(scores, scorers=scorers))
    (judged,) = found.scores
    means = scores.mean(axis=0)
    best = pick(np.ndindex(2, 2), key=lambda at: means[at])
    assert [d.a for d in judged.from_best] == ["writer-{}+artist-{}".format(*best)] * 3
    for d in judged.from_best:
        other = tuple(int(part[-1]) for part in d.b.split("+"))
        difference = scores[:, *best] - scores[:, *other]
        expected = mean(difference, of_differences(SCALE))
        assert d.estimate.value == pytest.approx(expected.value)
        assert d.estimate.ci95 == pytest.approx(expected.ci95)
        assert d.sd == pytest.approx(difference.std(ddof=1))
        # What is larger than the detectable difference needs fewer queries.
        assert (abs(d.estimate.value) > d.detectable) == (d.needed <= 40)
    assert len(judged.differences) == 6
    # On the page the best mean is marked.
    rows = next(tables_of(found)).rows[:2]
    marked = [(i, j) for i, row in enumerate(rows) for j in (0, 1) if row[1 + j].marked]
    assert marked == [best]


@pytest.mark.parametrize("scorers", [(Judge(),), LOWER])
def test_the_order_says_what_cannot_be_told_apart_and_what_is_on_the_frontier(scorers):
    scores = scores_of(2, 3, 20)
    found = pairings(pairing_board(scores, scorers=scorers))
    (judged,) = found.scores
    best_first = np.argsort(scores.mean(axis=0).ravel() * (-1 if scorers != LOWER else 1))
    names = np.array([s.name for s in found.matrix.cells])
    assert judged.ranked == names[best_first].tolist()
    columns, table = scores.reshape(20, -1)[:, best_first], ranking_table(found, judged)
    alone = {}
    for i, j in combinations(range(6), 2):
        ends = of_differences(SCALE)
        alone[i, j] = paired_p_value(columns[:, i] - columns[:, j], ends)
    # Holm, one pair after another: the first that is not rejected ends it.
    apart = set()
    for left, pair in enumerate(sorted(alone, key=alone.__getitem__)):
        if alone[pair] * (len(alone) - left) >= 0.05:
            break
        apart |= {pair, pair[::-1]}
    told = 0
    for i, row in enumerate(table.rows):
        others = {j + 1 for j in set(range(6)) - {i} if (i, j) not in apart}
        told += 5 - len(others)
        parts = [p.split("-") for p in row[5].text.split(", ") if p != "-"]
        assert others == {n for p in parts for n in range(int(p[0]), int(p[-1]) + 1)}
        assert (row[7].text == "frontier") == (row[0].text in found.frontier(judged))
        assert row[1].text == str(i + 1)
    assert 0 < told < 30


def two_scorers(one, other, second: Judge):
    """A board of the first scorer's scores and, beside them, those of the second."""
    made, beside = (pairing_board(scores, costs=False) for scores in (one, other))
    pairs = zip(answers_of(made), answers_of(beside), strict=True)
    both = [
        replace(e, scores={"judge": e.scores["judge"], second.name: o.scores["judge"]})
        for e, o in pairs
    ]
    return board(both, systems=made.systems, scorers=(Judge(), second))


def test_metrics_agree_by_the_order_they_give_the_pairings_and_with_people():
    one, other = scores_of(3, 3, 40, seed=1), 6 - scores_of(3, 3, 40, seed=2)
    second = Judge("clipscore", "0-6", "lower", stage=named_stage("clip"))
    found = pairings(two_scorers(one, other, second))
    (rho,) = found.rankings.correlations.values()
    means = [scores.mean(axis=0).ravel() for scores in (one, other)]
    assert rho.value == pytest.approx(spearmanr(means[0], -means[1]).statistic)
    assert rho.value > 0.6
    assert rho.ci95[0] < rho.value < rho.ci95[1] <= 1
    first = min(found.rankings.mean_ranks, key=lambda n: found.rankings.mean_ranks[n].value)
    ranks, matrix = agreement_tables(found)
    assert ranks.rows[0][0].text == first
    assert matrix.rows[0][2] == matrix.rows[1][1]
    assert matrix.rows[0][2].value == rho.value
    assert (matrix.rows[0][1].text, matrix.rows[1][2].text) == ("", "")
    # Published figures are those of the scorer's published weights.
    (figure,) = found.scores[1].people
    assert any(figure.text in note for note in ranks.notes)
    # People who rate a third of the answers, as the first scorer does.
    names = [s.name for s in found.matrix.cells]
    people = {
        n: {f"Q-{q:04d}": one.reshape(40, 9)[q, i] for q in range(i % 3, 40, 3)}
        for i, n in enumerate(names)
    }
    with_people = found.showing(["judge"], people)
    assert [s.name for s in with_people.rankings.series] == ["judge", "people"]
    (rho,) = with_people.rankings.correlations.values()
    given = [np.mean([*people[n].values()]) for n in names]
    assert rho.value == pytest.approx(spearmanr(means[0], given).statistic)
    alone = found.showing(["judge"], {}).rankings
    assert with_people.rankings.mean_ranks == alone.mean_ranks
    # Nobody has rated the answers of one pairing.
    del people[names[4]]
    (rho,) = found.showing(["judge"], people).rankings.correlations.values()
    assert (rho.value, rho.reason[:9]) == (None, "undefined")


def test_few_pairings_have_no_correlation():
    one = scores_of(2, 2, 10)
    found = pairings(two_scorers(one, one, Judge("other")))
    (rho,) = found.rankings.correlations.values()
    assert (rho.value, rho.ci95) == (None, None)
    assert "fewer than 5" in rho.reason


SPREAD = (0.1, 0.9, 0.3, 0.8, 0.7, 0.2, 0.6, 0.5)
GROUPS = [*MMIE][:2]


def drawn_board(**options):
    """Eight queries of two categories, six of the first; the last has no images."""
    found = []
    for q, spread in enumerate(SPREAD):
        for i, name in enumerate(crossed("xy", "ab")):
            images = [] if q == 7 else [picture(10 * q + i), picture(100 + q)]
            asked = sample(q, GROUPS[q > 4])
            document = answer("Said.", *images)
            found.append(evaluation(name, asked, 3 + spread * i, document=document))
    return board(found, **options)


def test_the_contact_sheet_holds_the_queries_on_which_pairings_differ_most():
    made = drawn_board()
    sheet = sheet_of(made, pairings(made), made.keys)
    # In turn of both categories, those without images aside; shown by category.
    assert [q.key for q in sheet.queries] == [
        f"Q-{q:04d}" for q in sorted((1, 3, 4, 2), key=SPREAD.__getitem__, reverse=True)
    ] + ["Q-0006", "Q-0005"]
    assert {q.category for q in sheet.queries} == {*GROUPS}
    cell = sheet.queries[0].rows["y"][1]
    assert cell.score == "5.70"
    assert [i.digest for i in cell.images] == [picture(13).digest, picture(101).digest]
    few = sheet_of(made, pairings(made), ["Q-0000", "Q-0007"])
    assert [q.key for q in few.queries] == ["Q-0000"]
    assert sheet_of(made, pairings(made), ["Q-0007"]) is None


@pytest.mark.parametrize("scorer", [None, Judge()])
def test_a_sheet_of_repeats_says_which_one_its_images_are_of(scorer):
    found = []
    for repeat, score in enumerate((2, 4)):
        for name in ("a", "b"):
            drawn = answer(picture(repeat))
            own = evaluation(name, sample(0), score, repeat=repeat, document=drawn)
            found.append(own)
    sheet = sheet_of_systems(board(found, repeats=2), ["a", "b"], 1, scorer)
    assert sheet.repeats == 2
    assert [*sheet.images] == [picture(0).digest]
    assert [cell.score for cell in sheet.cells] == ["3.00" if scorer else ""] * 2
    assert "repeat 1" in sheet.about_repeats
    assert ("mean score of 2" in sheet.about_repeats) == bool(scorer)
    once = sheet_of_systems(board(found[:2]), ["a", "b"], 1, scorer)
    assert (once.repeats, once.about_repeats) == (1, "")


def test_images_of_a_system_outside_the_matrix_bring_no_query_onto_its_sheet():
    made = drawn_board()
    truth = evaluation("gt", sample(7, GROUPS[1]), 6, document=answer("", picture(7)))
    with_truth = board([*answers_of(made), truth])
    assert [s.name for s in pairings(with_truth).matrix.cells] == crossed("xy", "ab")
    assert sheet_of(with_truth, pairings(with_truth), ["Q-0007"]) is None


def test_the_page_writes_the_images_of_its_sheet_and_says_which_cannot_be_read(tmp_path):
    made, folder = drawn_board(), tmp_path / "report"
    folder.mkdir()
    (folder / "sheet-0123.webp").write_bytes(b"of a former sheet")
    lost = picture(13).digest

    def read(image: Image) -> bytes:
        if image.digest == lost:
            raise OSError("the disk is gone")
        return image.read()

    (section,) = pairings_section(made, ["Q-0001"], FolderFiles(folder), read)
    files = sorted(folder.glob("sheet-*"))
    assert len(files) == 4
    assert all(decode(file.read_bytes()).size == (64, 64) for file in files)
    sources = re.findall(r'src="(report/[^"]+)"[^>]* loading="lazy"', section["sheet"])
    assert {tmp_path / source for source in sources} == {*files}
    assert len(sources) == 7
    assert "the disk is gone" in section["sheet"]


def test_the_page_says_what_became_of_an_answer_without_images(tmp_path):
    failure = Failure("out of memory", Fault.OUT_OF_MEMORY)
    found = []
    for i, name in enumerate(crossed("xy", "ab")):
        for repeat in range(2):
            document = answer("Said.", *([] if i == 1 else [picture(10 * i + repeat)]))
            if i == 2 and not repeat:
                document = failure
            own = evaluation(name, sample(0), 3 + i, repeat=repeat, document=document)
            found.append(own)
    made = board(found, repeats=2)
    (section,) = pairings_section(made, made.keys, FolderFiles(tmp_path / "r"), Image.read)
    told = re.findall(r"<td[^>]*>\s*<small>([^<]*)</small>", section["sheet"])
    assert told == ["no image", "failed"]


def test_a_sheet_is_written_as_one_image(tmp_path):
    made = drawn_board()
    sheet = sheet_of(made, pairings(made), made.keys)
    for name in ("sheet.png", "sheet.webp"):
        write_sheet(sheet, tmp_path / name, Image.read)
        whole = decode((tmp_path / name).read_bytes())
        pixels = np.asarray(whole)
        # The second image of the first cell of the second row.
        expected = decode(picture(101).read()).resize((152, 152))
        at = pixels[44 + 186 : 44 + 186 + 152, 180 + 160 : 180 + 160 + 152]
        assert abs(at.astype(int) - np.asarray(expected)).mean() < 8
    with pytest.raises(UsageError, match=r"\.png, \.webp"):
        write_sheet(sheet, tmp_path / "sheet.jpg", Image.read)
    many = replace(sheet, queries=sheet.queries * 8)
    with pytest.raises(UsageError, match="16,383"):
        write_sheet(many, tmp_path / "sheet.webp", Image.read)


def test_a_document_costs_its_text_and_its_images_and_shared_texts_are_spent_once():
    costs = pairings(pairing_board(scores_of(2, 3, 8))).costs
    own = {name: e.value for name, e in costs.cells["writer-1+artist-2"].items()}
    # A text of 2 seconds on one GPU, two images of 8 seconds on two.
    seconds = {"seconds": 2 + 2 * 8, "gpu_seconds": 2 + 2 * 16}
    tokens = {"input_tokens": 100, "output_tokens": 51}
    assert own == pytest.approx({**seconds, **tokens, "pictures": 2})
    sharing, texts, images = costs.sharing, 8 * (1 + 2), 8 * 2 * 2 * (2 + 5 + 8)
    assert sharing["spent"]["seconds"] == pytest.approx(texts + images)
    assert sharing["unshared"]["seconds"] == pytest.approx(3 * texts + images)
    counts = {"texts": 16, "texts_requested": 48, "pictures": 96, "pictures_requested": 96}
    assert sharing.items() >= {**counts, "seeds": 16, "same_seeds": 16}.items()


def with_costs(change, queries: int = 6):
    """Costs of a matrix of 2 x 2 whose documents are changed."""
    made = pairing_board(scores_of(2, 2, queries))
    documents = [one for d in made.costs for one in change(d)]
    return pairings(replace(made, costs=documents)).costs


def test_repeats_of_a_document_count_by_their_mean_and_have_seeds_of_their_own():
    def twice(d: DocumentCost) -> list[DocumentCost]:
        # The second answer takes three times as long for its text; other seeds draw it.
        records = dict(d.records)
        (key,) = (key for key in records if key.startswith("t"))
        text = records.pop(key)
        slow = {**text.amounts, "seconds": 3 * text.amounts["seconds"]}
        records["again"] = replace(text, amounts=slow)
        seeds = {place: seed + 10**6 for place, seed in d.seeds.items()}
        return [d, replace(d, repeat=1, records=records, seeds=seeds)]

    costs = with_costs(twice)
    seconds = costs.cells["writer-0+artist-0"]["seconds"]
    assert (seconds.value, seconds.n) == (pytest.approx((1 + 3) / 2 + 2 * 2), 6)
    assert (costs.sharing["seeds"], costs.sharing["same_seeds"]) == (24, 24)


def test_other_seeds_and_documents_that_a_cell_lacks_are_told():
    def changed(d: DocumentCost) -> list[DocumentCost]:
        first = d.system == "writer-0+artist-0"
        seeds = {**d.seeds, 0: 7} if first and d.query == "Q-0000" else d.seeds
        return [replace(d, seeds=seeds, done=not first or d.query != "Q-0003")]

    costs = with_costs(changed)
    assert (costs.sharing["seeds"], costs.sharing["same_seeds"]) == (12, 11)
    assert costs.queries == 5
    assert {own["seconds"].n for own in costs.cells.values()} == {5}


@pytest.mark.parametrize("told", [False, True])
def test_energy_is_shown_where_every_stage_tells_it(told):
    def measured(d: DocumentCost) -> list[DocumentCost]:
        def record(r: RecordCost) -> RecordCost:
            if told or r.kind is Kind.DRAFT:
                return replace(r, amounts={**r.amounts, "joules": 10.0})
            return replace(r, untold=frozenset({"joules"}))

        return [replace(d, records={key: record(r) for key, r in d.records.items()})]

    own = with_costs(measured).cells["writer-0+artist-0"]
    assert own.get("joules", mean([])).value == (pytest.approx(30) if told else None)


def test_the_frontier_holds_what_nothing_beats_and_is_drawn_as_steps():
    scores = np.full((6, 2, 2), 3.0) + np.arange(6).reshape(-1, 1, 1) / 10
    # Cheapest first: 0+0, 1+0, 0+1 (as good as 0+0), 1+1.
    scores[:, 1, 0] -= 1
    scores[:, 1, 1] += 1
    lower = pairings(pairing_board(scores, scorers=LOWER))
    assert lower.frontier(lower.scores[0]) == ["writer-0+artist-0", "writer-1+artist-0"]
    found = pairings(pairing_board(scores))
    frontier, points = found.frontier(found.scores[0]), found.points(found.scores[0])
    assert frontier == ["writer-0+artist-0", "writer-1+artist-1"]
    assert {n: (c.value, s.value) for n, (c, s) in points.items()} == {
        "writer-0+artist-0": (9.0, 3.25),
        "writer-0+artist-1": (21.0, 3.25),
        "writer-1+artist-0": (10.0, 2.25),
        "writer-1+artist-1": (22.0, 4.25),
    }
    svg = plot_of(points, frontier, "GPU-seconds").replace("xlink:href", "href")
    root = ElementTree.fromstring(svg)
    assert set("1234") <= {e.text for e in root.iter("text")}
    (steps,) = (e for e in root.iter("path") if "dasharray" in e.get("style", ""))
    x, y = np.array(re.findall(r"[\d.]+", steps.get("d")), float).reshape(-1, 2).T
    # Across at the score of the cheaper one, then up to the better one.
    assert x[0] < x[1] == x[2]
    assert y[0] == y[1] > y[2]


ENDPOINT = {"endpoint": "https://models.example/v1"}
SERVED = {**ENDPOINT, "server": ServerCommand(name="s", argv=("serve",))}


def stage(kind: Kind, **placement: Any) -> StageSpec:
    return StageSpec(
        name=kind.value, kind=kind, target="none:x", placement=Placement(**placement)
    )


@pytest.mark.parametrize(
    ("spec", "gpus", "silent"),
    [
        (stage(Kind.DRAFT, num_gpus=2), 2, {"joules"}),
        (stage(Kind.RENDER, num_gpus=0.5), 0.5, {"joules"}),
        (stage(Kind.DRAFT, **ENDPOINT), 0, {"joules", "cost"}),
        (stage(Kind.DRAFT, **SERVED), 0, {"joules"}),
    ],
)
def test_a_record_costs_its_seconds_and_gpus_and_says_what_is_unknown(spec, gpus, silent):
    def record(seconds: float | None, **usage: float) -> RecordCost:
        told = {"usage": [json.dumps(usage)], "seconds": [seconds]}
        schema = pa.schema([("usage", pa.string()), ("seconds", pa.float64())])
        columns = amounts_of(spec, pa.table(told, schema=schema))
        amounts = {name: column[0].as_py() for name, column in columns.items()}
        known = {name: value for name, value in amounts.items() if value is not None}
        return RecordCost.with_amounts(spec, known)

    found = record(3.0, input_tokens=10, output_tokens=4, steps=9)
    expected = {"seconds": 3.0, "gpu_seconds": 3 * gpus}
    expected |= {"input_tokens": 10.0, "output_tokens": 4.0}
    expected |= {"pictures": 1.0} if spec.kind is Kind.RENDER else {}
    assert (found.amounts, found.untold) == (expected, silent)
    found = record(None, cost=0.25, joules=3.0)
    assert (found.untold, found.amounts["cost"], found.amounts["seconds"]) == (
        set(),
        0.25,
        0,
    )


@pytest.mark.parametrize("document", [answer("Said."), Failure("no"), None])
def test_a_document_costs_the_records_that_are_there(document, tmp_path) -> None:
    write = Job(stage(Kind.DRAFT), Request((Turn("user", (Text("Why?"),)),)), "Q")
    paint, store = stage(Kind.RENDER), Store(tmp_path)
    cat, dog = (
        Job(paint, ImageRequest(prompt=prompt, seed=seed), "Q")
        for prompt, seed in (("a cat", 5), ("a dog", 6))
    )
    said = Result(Draft((Text("Said."),)))
    for job, made, seconds in ((write, said, 3.0), (dog, Result(picture(1)), 6.0)):
        item = Item(job.key, job.label, job.input)
        store.commit(job.spec, encode(job.spec.kind, [item], [made], seconds))
    names = [f"writer+{a}" for a in "ab"]
    pairs = [rebuild(named_system(n), draft=write.spec, render=paint) for n in names]
    jobs = {"": [write, cat, dog]}
    made = board(
        [Evaluation(n, sample(0), 0, document, {}, jobs) for n in ("native", "writer+a")],
        systems=[*pairs, named_system("native")],
        store=store,
    )
    (found,) = made.costs
    about = ("writer+a", "Q-0000", isinstance(document, Result))
    assert (found.system, found.query, found.done) == about
    assert set(found.records) == {write.key, dog.key}
    assert found.amounts == {"seconds": 9.0, "gpu_seconds": 0.0, "pictures": 1.0}
    assert found.requests == {Kind.DRAFT: 1, Kind.RENDER: 2}
    assert found.seeds == {0: 5, 1: 6}


def test_files_hold_every_number(tmp_path):
    made = pairing_board(scores_of(2, 3, 20), others=["native"])
    write_leaderboard(made, tmp_path)
    (matrix,) = json.loads((tmp_path / "pairings.json").read_text())["matrices"]
    found = pairings(made)
    model, judged = found.scores[0].model, matrix["scores"]["judge"]
    assert matrix["lvlms"] == ["writer-0", "writer-1"]
    assert judged["interaction"][1][2] == model.interaction[1][2].as_json("mean")
    assert sum(judged["variance_shares"].values()) == pytest.approx(1)
    assert judged["not_told_apart"] == found.scores[0].not_told_apart
    ranks = {n: e.as_json("mean") for n, e in found.rankings.mean_ranks.items()}
    assert matrix["mean_ranks"] == ranks
    first, known = judged["differences"][0], found.scores[0].differences[0]
    about = (known.sd, known.detectable, known.needed)
    assert (first["sd"], first["detectable"], first["queries_needed"]) == about
    assert judged["frontier"]["against"] == "gpu_seconds"
    lines = {
        (line["part"], line["lvlm"], line["t2i"]): line
        for line in csv.DictReader((tmp_path / "pairings.csv").open())
    }
    cell = lines["cell", "writer-1", "artist-0"]
    ends = [cell[name] for name in ("mean", "ci95_low", "ci95_high")]
    plain = model.cells[1][0].as_json("mean")
    assert ends == [str(n) for n in (plain["mean"], *plain["ci95"])]
    assert (cell["protocol"], cell["n"]) == ("mmie", "20")
    paid = lines["cost: seconds", "writer-1", "artist-2"]
    assert float(paid["mean"]) == pytest.approx(2 + 2 * 8)
    assert {"mean", "lvlm effect", "t2i effect", "interaction"} <= {p for p, *_ in lines}
    latex = (tmp_path / "pairings.tex").read_text()
    assert latex.count(r"\toprule") == len(list(tables_of(found)))
    # Texts of 1 and 2 s by query for 3 artists, two images of 2, 5 and 8 s for 2 LVLMs.
    spent, alone = 20 * 3 + 20 * 2 * 2 * 15, 20 * 3 * 3 + 20 * 2 * 2 * 15
    page = (tmp_path / "pairings.md").read_text()
    for told in ("40 of 40", "40 texts served 120", f"{alone:,} ({1 - spent / alone:.0%}"):
        assert told in page


def test_no_matrix_no_files_and_a_single_row_has_no_interaction(tmp_path):
    without = board_of({"a": [1, 2], "b+c": [3, 4]})
    write_leaderboard(without, tmp_path)
    assert not any((tmp_path / name).exists() for name in FILES)
    assert pairings_section(without, without.keys, FolderFiles(tmp_path), Image.read) == []
    made = pairing_board(scores_of(1, 2, 10))
    write_leaderboard(made, tmp_path)
    assert "main effects only" in (tmp_path / "pairings.md").read_text()
    titles = [table.title for table in tables_of(pairings(made))]
    assert not any("interaction" in title for title in titles)
    assert next(tables_of(pairings(made))).columns[-1].heading == "mean"
