"""`plait correct RUN ANNOTATIONS`: ratings are matched, and their draw is known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from api_helpers import fill
from cli_helpers import plait
from golden_runs import rate
from report_helpers import Judge, board, evaluation

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.table import csv_text
from plait.benchmarks.studies.correct import CorrectSettings, correct
from plait.benchmarks.studies.correction import Correction
from plait.benchmarks.studies.drawing import DRAWN, Draw, draw_text, read_draw
from plait.generators.base import Unscored
from plait.generators.document import Query, Text, Turn
from plait.generators.errors import UsageError
from plait.scorers.base import Scorer
from plait.scorers.statistics.corrected import (
    RatedAnswers,
    correct_difference,
    correct_mean,
)

pytestmark = pytest.mark.contract

QUERIES = 120
SYSTEMS = ("a", "b")
STATED = CorrectSettings(drawn="random")
CATEGORIES = ("situational analysis", "project-based learning")
NOWHERE = Path("/nowhere")


class World(NamedTuple):
    """(queries, systems): how good answers are in people's eyes, and a judge's scores."""

    ratings: np.ndarray
    scores: np.ndarray


def world(top: float = 100.0) -> World:
    """Scores from 0 to `top` that follow the ratings."""
    rng = np.random.default_rng(8)
    quality = rng.normal(3, 1, (QUERIES, 1)) + rng.normal([0.4, 0], 1, (QUERIES, 2))
    ratings = np.clip(np.round(quality), 0, 6)
    scores = np.clip(quality + rng.normal(0, 0.5, quality.shape), 0, 6) / 6 * top
    return World(ratings, scores)


def category_of(number: int) -> str:
    return CATEGORIES[number % 3 == 0]


def board_of(
    made: World, scorer: Scorer | None = None, unscored: int = 0, **options: Any
) -> Board:
    """A run of both systems, the first `unscored` answers of which have no score."""
    scorer = scorer or Judge(scale="0-100")
    evaluations = []
    for number, row in enumerate(made.scores):
        asked = Query(
            id=f"Q-{number:04}",
            category=category_of(number),
            field="art",
            turns=(Turn("user", (Text("Say it."),)),),
        )
        for system, score in zip(SYSTEMS, row, strict=True):
            value: Any = Unscored("cannot be read") if number < unscored else float(score)
            evaluations.append(evaluation(system, asked, value))
    return board(evaluations, scorers=[scorer], **options)


def rated_rows(made: World, count: int = 90) -> list[dict[str, Any]]:
    """Ratings of a random sample of the answers."""
    chosen = np.random.default_rng(9).permutation(QUERIES * 2)[:count]
    rows = []
    for place in chosen.tolist():
        number, system = divmod(place, 2)
        rating = made.ratings[number, system]
        rows.append({"id": f"Q-{number:04}", "system": SYSTEMS[system], "score": rating})
    return rows


def write(folder: Path, rows: list[dict[str, Any]], name: str = "human.csv") -> Path:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    path = folder / name
    path.write_text(csv_text(columns, ([row.get(c, "") for c in columns] for row in rows)))
    return path


def by_hand(made: World, rows: list[dict[str, Any]]) -> dict[str, RatedAnswers]:
    """What the correction is made of, with scores from 0 to 6."""
    given = {(row["id"], row["system"]): row["score"] for row in rows}
    found = {}
    for place, system in enumerate(SYSTEMS):
        ids = [f"Q-{number:04}" for number in range(QUERIES)]
        rated = np.array([given.get((id, system), np.nan) for id in ids])
        found[system] = RatedAnswers(ids, made.scores[:, place] * 6 / 100, rated)
    return found


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_judge_on_another_scale_is_corrected(tmp_path, direction):
    made = world()
    rows = rated_rows(made)
    shown = made if direction == "higher" else made._replace(scores=100 - made.scores)
    judge = Judge(scale="0-100", direction=direction)
    found = correct(board_of(shown, judge), NOWHERE, write(tmp_path, rows), STATED)
    parts = by_hand(made, rows)
    for system, part in parts.items():
        expected = correct_mean([part], (0.0, 6.0))
        one = found.systems[system]
        for name in ("judge", "ratings", "corrected"):
            ours = getattr(one, name)
            theirs = getattr(expected, name)
            assert ours.value == pytest.approx(theirs.value, rel=1e-9)
            assert ours.ci95 == pytest.approx(theirs.ci95, rel=1e-9)
        assert one.effective > one.rated == int(part.is_rated.sum())
    expected = correct_difference([parts["a"]], [parts["b"]], (0.0, 6.0))
    ours = found.pairs["a", "b"]
    assert ours.corrected.ci95 == pytest.approx(expected.corrected.ci95, rel=1e-9)
    assert ours.answers == 2 * QUERIES
    plain = json.loads(json.dumps(found.as_json))
    assert plain["pairs"][0]["corrected"]["mean"] == pytest.approx(
        expected.corrected.value, abs=1e-6
    )
    assert plain["systems"][0]["effective"] == pytest.approx(
        found.systems["a"].effective, abs=1e-3
    )
    assert [len(table.rows) for table in found.tables] == [2, 1]
    for table in found.tables:
        assert found.drawn in table.notes[0]


def test_several_raters_count_as_their_mean(tmp_path):
    made = world()
    rows = []
    for row in rated_rows(made):
        for rater, more in (("ann", 0.5), ("bo", -0.5)):
            score = min(6, max(0, row["score"])) * 0.8 + 0.6 + more
            rows.append(row | {"annotator": rater, "score": round(score, 3)})
    found = correct(board_of(made), NOWHERE, write(tmp_path, rows), STATED)
    alone = [r["score"] * 0.8 + 0.6 for r in rated_rows(made) if r["system"] == "a"]
    assert found.raters == 2
    assert found.systems["a"].ratings.value == pytest.approx(np.mean(alone), rel=1e-9)
    assert found.systems["a"].rated == len(alone)


def test_strata_are_rated_at_shares_of_their_own(tmp_path):
    made = world()
    rows = []
    rng = np.random.default_rng(3)
    for place in range(QUERIES * 2):
        number, system = divmod(place, 2)
        rare = category_of(number) == CATEGORIES[1]
        if rng.random() < (0.8 if rare else 0.3):
            score = made.ratings[number, system]
            rows.append({"id": f"Q-{number:04}", "system": SYSTEMS[system], "score": score})
    settings = CorrectSettings(strata="category")
    found = correct(board_of(made), NOWHERE, write(tmp_path, rows), settings)
    whole = by_hand(made, rows)["a"]
    parts = []
    for name in sorted(CATEGORIES):
        own = np.array([category_of(number) == name for number in range(QUERIES)])
        names = [id for id, inside in zip(whole.queries, own, strict=True) if inside]
        parts.append(RatedAnswers(names, whole.judged[own], whole.rated[own], name))
    expected = correct_mean(parts, (0.0, 6.0))
    assert found.systems["a"].corrected.ci95 == pytest.approx(
        expected.corrected.ci95, rel=1e-9
    )
    shares = {one.name: (one.answers, one.rated) for one in found.strata}
    assert {name: answers for name, (answers, _) in shares.items()} == {
        CATEGORIES[1]: 80,
        CATEGORIES[0]: 160,
    }
    assert sum(rated for _, rated in shares.values()) == len(rows)
    assert found.tables[-1].rows[0][1].text == "80"


VOTES = {1: "system", 0: "undecided", -1: "baseline"}


def vote_rows(made: World, count: int = 60) -> list[dict[str, Any]]:
    rows = []
    for number in np.random.default_rng(2).permutation(QUERIES)[:count].tolist():
        better = int(np.sign(made.ratings[number, 0] - made.ratings[number, 1]))
        about = {"id": f"Q-{number:04}", "system": "a", "baseline": "b"}
        if number % 2:  # named the other way round
            about |= {"system": "b", "baseline": "a"}
            better = -better
        rows.append(about | {"vote": VOTES[better]})
    return rows


def wins(made: World) -> RatedAnswers:
    """The same votes by hand, beside which of two scores is the better one."""
    rated = np.full(QUERIES, np.nan)
    for row in vote_rows(made):
        number = int(row["id"][2:])
        rated[number] = 50 + 50 * np.sign(made.ratings[number, 0] - made.ratings[number, 1])
    judged = 50 + 50 * np.sign(made.scores[:, 0] - made.scores[:, 1])
    return RatedAnswers([f"Q-{n:04}" for n in range(QUERIES)], judged, rated)


@pytest.mark.parametrize("column", ["vote", "preference"])
def test_votes_correct_a_win_rate(tmp_path, column):
    made = world()
    rows = vote_rows(made)
    if column == "preference":
        values = {"system": 2, "undecided": 0, "baseline": -1}
        for row in rows:
            row["preference"] = values[row.pop("vote")]
    found = correct(board_of(made), NOWHERE, write(tmp_path, rows), STATED)
    expected = correct_mean([wins(made)], (0.0, 100.0))
    (one,) = found.win_rates.values()
    assert [*found.win_rates] == [("a", "b")]
    assert one.corrected.value == pytest.approx(expected.corrected.value, rel=1e-9)
    assert one.corrected.ci95 == pytest.approx(expected.corrected.ci95, rel=1e-9)
    assert (one.rated, one.answers, found.systems, found.pairs) == (60, QUERIES, {}, {})
    plain = found.as_json["win_rates"][0]
    assert (plain["apart"], plain["ratings_needed"]) == (
        not one.corrected.ci95[0] <= 50 <= one.corrected.ci95[1],
        one.ratings_needed(50.0),
    )


class Beside(Judge):
    """A scorer of pairs: how often it prefers an answer to the one of `a`."""

    @property
    def opponent(self) -> str:
        return "a"


def test_a_scorer_of_pairs_says_itself_who_won(tmp_path):
    made = world()
    shares = np.stack([np.full(QUERIES, 50.0), 100 - wins(made).judged], axis=1)
    found = correct(
        board_of(made._replace(scores=shares), Beside(scale="0-100")),
        NOWHERE,
        write(tmp_path, vote_rows(made)),
        STATED,
    )
    part = wins(made)
    turned = RatedAnswers(part.queries, 100 - part.judged, 100 - part.rated)
    expected = correct_mean([turned], (0.0, 100.0))
    assert [*found.win_rates] == [("b", "a")]
    assert found.win_rates["b", "a"].corrected.ci95 == pytest.approx(
        expected.corrected.ci95, rel=1e-9
    )


def test_people_and_a_judge_who_say_yes_or_no(tmp_path):
    made = world()
    rows = rated_rows(made)
    for row in rows:
        row["score"] = int(row["score"] >= 3)
    judge = made._replace(scores=(made.scores > 50) * 1.0)
    settings = CorrectSettings(drawn="random", scale="0-1")
    scorer = Judge(scale="0-1")
    found = correct(board_of(judge, scorer), NOWHERE, write(tmp_path, rows), settings)
    assert found.yes_no.keys() == {"a", "b"}
    share = found.yes_no["a"].share
    assert share.value == pytest.approx(found.systems["a"].corrected.value, abs=0.1)
    assert found.tables[-1].rows[0][0].text == "a"
    # A single rating in between, and shares of yes say nothing.
    rows[0]["score"] = 0.5
    found = correct(board_of(judge, scorer), NOWHERE, write(tmp_path, rows), settings)
    assert found.yes_no == {}


def test_what_is_left_out_is_counted(tmp_path):
    made = world()
    rows = rated_rows(made)
    own = [row for row in rows if int(row["id"][2:]) >= 12 and row["system"] == "a"]
    strangers = [
        {"id": "Q-9999", "system": "a", "score": 3},
        {"id": "Q-0001", "system": "c", "score": 3},
        {"id": "Q-0001", "system": "a", "score": 3, "repeat": 4},
        {"id": "Q-0050", "system": "b", "score": "", "annotator": "bo"},
    ]
    path = write(tmp_path, [*rows, *strangers])
    found = correct(board_of(made, unscored=12), NOWHERE, path, STATED)
    assert found.systems["a"].answers == QUERIES - 12
    assert found.systems["a"].rated == len(own)
    said = " ".join(found.notes)
    lost = sum(int(row["id"][2:]) < 12 for row in rows)
    for part in (
        "left blank, which are left out: 1",
        "1 unknown id",
        "1 unknown system",
        f"24 of 240 have no score (24 unscored), {lost} of which are rated",
    ):
        assert part in said


def test_one_system_alone_has_no_difference(tmp_path):
    made = world()
    rows = [row for row in rated_rows(made) if row["system"] == "a"]
    found = correct(board_of(made), NOWHERE, write(tmp_path, rows), STATED)
    assert (found.systems.keys(), found.pairs) == ({"a"}, {})
    assert "no ratings, so nothing is corrected: b" in found.notes
    few = write(tmp_path, rows[:4])
    one = correct(board_of(made), NOWHERE, few, STATED).systems["a"]
    assert (one.corrected.value, "fewer than 5" in one.corrected.reason) == (None, True)
    assert one.ratings.value is not None


def refusals() -> Iterator[Any]:
    """Settings, changes of the ratings, and what the error names."""
    of_others = {"id": "X-1"}
    yield CorrectSettings(), {}, ["--drawn random", "--strata category", "plait annotate"]
    yield STATED, of_others, ["none of the", "X-1 of", "Q-0000 of a"]
    yield STATED, {"score": 7}, ["human.csv line 2", "7", "from 0 to 6", "--scale"]
    yield CorrectSettings(drawn="chosen"), {}, ["'chosen'", "random"]
    yield CorrectSettings(strata="colour"), {}, ["'colour'", "category, field"]
    yield CorrectSettings(drawn="random", scorer="judg"), {}, ["'judg'", "judge"]
    yield CorrectSettings(drawn="random", scale="high"), {}, ["'high'", "LOW-HIGH"]


@pytest.mark.parametrize(("settings", "change", "said"), refusals())
def test_wrong_use_is_explained(tmp_path, settings, change, said):
    made = world()
    rows = [row | change for row in rated_rows(made)[: 1 if change else None]]
    with pytest.raises(UsageError) as error:
        correct(board_of(made), NOWHERE, write(tmp_path, rows), settings)
    for part in said:
        assert part in str(error.value)


def test_a_judge_that_scored_none_of_what_is_rated(tmp_path):
    made = world()
    path = write(tmp_path, rated_rows(made))
    with pytest.raises(UsageError, match=r"no score of any of the 90 .*90 unscored"):
        correct(board_of(made, unscored=QUERIES), NOWHERE, path, STATED)
    with pytest.raises(UsageError, match=r"is not there; `plait annotate"):
        correct(board_of(made), tmp_path, None, STATED)
    two = board_of(made, systems=None)
    vote = write(tmp_path, [{"id": "Q-0001", "system": "a", "vote": "system"}], "v.csv")
    with pytest.raises(UsageError, match="column baseline"):
        correct(two, NOWHERE, vote, STATED)


DRAW = Draw(items=90, of=240, seed=0, systems=SYSTEMS, pairs=False)


def state(folder: Path, path: Path, draw: Draw = DRAW) -> None:
    """Say beside a file how its answers were drawn."""
    text = draw_text({"drawn": draw.as_json}, path.name, path.read_text())
    assert text is not None
    (folder / DRAWN).write_text(text)


def test_a_draw_that_was_noted_needs_no_statement(tmp_path):
    made = world()
    path = write(tmp_path, rated_rows(made))
    state(tmp_path, path)
    assert read_draw(path) == DRAW
    usual = CorrectSettings()
    found = correct(board_of(made), NOWHERE, path, usual)
    assert found.drawn == str(DRAW)
    # Of another file it says nothing; of one that was changed neither.
    with pytest.raises(UsageError, match="--drawn random"):
        correct(board_of(made), NOWHERE, write(tmp_path, rated_rows(made), "b.csv"), usual)
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UsageError, match="was changed since"):
        correct(board_of(made), NOWHERE, path, usual)
    assert correct(board_of(made), NOWHERE, path, STATED).systems["a"].rated > 0
    state(tmp_path, path, Draw(items=90, of=300, seed=0, systems=SYSTEMS, pairs=False))
    with pytest.raises(UsageError, match=r"drawn from 300 .*now 240"):
        correct(board_of(made), NOWHERE, path, usual)
    state(tmp_path, path, Draw(items=9, of=240, seed=0, systems=("a", "z"), pairs=False))
    with pytest.raises(UsageError, match="no longer has z"):
        correct(board_of(made), NOWHERE, path, usual)
    (tmp_path / DRAWN).write_text("[]")
    with pytest.raises(UsageError, match=DRAWN):
        correct(board_of(made), NOWHERE, path, usual)


SYSTEM_B = "gt:shuffled-images"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("correct") / "run"
    asked = {"data": "miniature:24", "systems": ["gt", SYSTEM_B]}
    fill(root, **asked, weights="tiny", scorers=["truth:match"])
    return root


def collected(root: Path, folder: Path, *words: str) -> Mapping[str, Any]:
    """What is written beside the ratings of two raters."""
    for more in (words, ("--collect",)):
        done = plait("annotate", str(root), "--out", str(folder), *more)
        assert done.returncode == 0, done.stderr
        if more is words:
            for number, rater in enumerate(("ann", "bo")):
                rate(folder, rater, number)
    drawn: dict[str, Any] = json.loads((folder / DRAWN).read_text())
    return drawn


def test_annotate_says_how_it_drew(root, tmp_path):
    gold = tmp_path / "gold.csv"
    gold.write_text("id,system,criteria,penalty\nSA-0001,gt,1;1;1;1;1;1,0\n")
    folder = tmp_path / "pages"
    words = ("--items", "30", "--repeated", "3", "--gold", str(gold), "--seed", "4")
    drawn = collected(root, folder, *words)
    assert (drawn["items"], drawn["of"], drawn["seed"]) == (30, 39, 4)
    assert drawn["systems"] == ["gt", SYSTEM_B]
    assert drawn["gold"] == [["SA-0001", "gt", 0, ""]]
    assert drawn["file"] == "annotations.csv"
    out = tmp_path / "out.json"
    ratings = str(folder / "annotations.csv")
    done = plait("correct", str(root), ratings, "--out", str(out))
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text())
    assert content["drawn"].startswith("drawn at random by plait annotate: 30 of 39")
    assert content["drawn"] in " ".join(done.stdout.split())
    assert [one["system"] for one in content["systems"]] == ["gt", SYSTEM_B]
    # The scorer applies to 16 queries, and the gold answer could not be drawn.
    assert [one["answers"] for one in content["systems"]] == [15, 16]
    assert content["raters"] == 2
    # The same from Python.
    import plait as surface

    again: Correction = surface.open_run(root).correct(ratings)
    assert again.as_json == content
    assert content["drawn"] in str(again)
    assert again._repr_html_().count("<table") == len(again.tables)


def test_pairs_that_annotate_drew(root, tmp_path):
    folder = tmp_path / "pages"
    drawn = collected(root, folder, "--items", "12", "--repeated", "0", "--pairs")
    assert (drawn["items"], drawn["of"], drawn["pairs"]) == (12, 16, True)
    done = plait("correct", str(root), str(folder / "annotations.csv"))
    assert done.returncode == 0, done.stderr
    assert "Win rates" in done.stdout


def test_the_usual_place_of_ratings(root, tmp_path):
    done = plait("correct", str(root))
    assert (done.returncode, "annotations.csv" in done.stderr) == (2, True)
    collected(root, root / "annotate", "--items", "20")
    done = plait("correct", str(root), "--scorer", "truth:match", "--strata", "category")
    assert done.returncode == 0, done.stderr
    assert "Ratings by stratum" in done.stdout
