"""plait from Python: a run as values, imported without weight."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from api_helpers import COLOURS, OWN, SCORER, SYSTEM, colour_of, fill

import plait
from plait import api
from plait.benchmarks.results.comparisons import differences
from plait.benchmarks.results.paired import PairedMeans, SystemComparison
from plait.benchmarks.runs import run_data
from plait.benchmarks.runs.config import RunConfig
from plait.benchmarks.runs.planning import ForecastOptions
from plait.benchmarks.runs.run_data import RunData
from plait.generators.base import Kind
from plait.generators.document import Document, Query, Text
from plait.generators.images import decode

OUTCOMES = {"Q-1": "done", "Q-2": "skipped", "Q-3": "failed", "Q-4": "done"}


def test_plait_exports_the_api_and_nothing_else() -> None:
    assert set(api.__all__) <= set(dir(plait))
    for name in api.__all__:
        assert getattr(plait, name) is getattr(api, name)
    with pytest.raises(AttributeError, match="'plait' has no attribute 'open_ruin'"):
        plait.open_ruin  # noqa: B018


@pytest.mark.parametrize("call", [plait.run, plait.plan, plait.score])
def test_calls_declare_and_describe_each_argument(call: Callable[..., object]) -> None:
    taken = set(inspect.signature(call).parameters)
    if call is not plait.score:
        assert taken >= {"config", *RunConfig.model_fields} - {"reading"}  # within data
        assert taken >= {f.name for f in fields(ForecastOptions)}
    if call is not plait.plan:
        words = inspect.getdoc(call) or ""
        about = words.partition("Args:")[2].partition("Returns:")[0]
        assert taken == set(re.findall(r"^    (\w+): ", about, re.MULTILINE))


def test_plan_takes_what_run_does() -> None:
    names = [list(inspect.signature(call).parameters) for call in (plait.run, plait.plan)]
    assert names[0] == names[1]
    with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
        plait.plan(sed=1)  # type: ignore[call-arg]


def test_a_run_gives_its_documents_as_frozen_values(run: RunData) -> None:
    assert (run.systems, run.scorers) == ((SYSTEM, "gt"), (SCORER,))
    answers = run.answers(system=SYSTEM)
    assert {answer.query.id: answer.outcome for answer in answers} == OUTCOMES
    first = answers[0]
    assert first.document is not None
    assert first.document.text.startswith("<i>first</i>")
    assert [colour_of(p) for p in first.document.pictures] == ["red", "blue"]
    assert [colour_of(decode(i)) for i in first.document.images] == ["red", "blue"]
    assert first.document.plain == Document(first.document.segments)
    assert first.scores[SCORER].value == 2
    assert first.notes["Illustrator"] == [{"prompt": "Tell <b>all</b> & show & tell"}]
    assert isinstance(first.query.sample, Query)
    assert first.query.sample.turns[0].content[0] == Text("Tell <b>all</b> & show & tell")
    with pytest.raises(FrozenInstanceError):
        first.outcome = "failed"  # type: ignore[misc]


def test_failures_and_skips_keep_their_place_and_reason(run: RunData) -> None:
    asked = run.answers(system=SYSTEM)
    assert len(asked) == len(list(asked)) == 4
    assert repr(asked) == "Answers(4: 2 done, 1 skipped, 1 failed)"
    answers = {answer.query.id: answer for answer in asked}
    assert answers["Q-2"].reason == "takes no <such> query"
    assert (answers["Q-3"].reason, answers["Q-3"].fault) == ("the model refused", "refused")
    assert answers["Q-3"].document is None
    assert answers["Q-4"].scores[SCORER].outcome == "failed"
    assert answers["Q-4"].scores[SCORER].reason == "nothing to count"
    lost = [
        (r["system"], r["query"], r["scorer"], r["outcome"])
        for r in run.failures.to_pylist()
    ]
    assert [row for row in lost if row[0] == SYSTEM] == [
        (SYSTEM, "Q-2", None, "skipped"),
        (SYSTEM, "Q-3", None, "failed"),
        (SYSTEM, "Q-4", SCORER, "failed"),
    ]
    assert len(lost) == 3 + 4, "no answer of the ground truth has a picture to count"


def test_scores_are_rows_of_which_none_is_left_out(run: RunData) -> None:
    rows = run.scores.to_pylist()
    assert len(rows) == 2 * 4
    by_query = {r["query"]: r for r in rows if r["system"] == SYSTEM}
    assert {q: (r["outcome"], r["value"]) for q, r in by_query.items()} == {
        "Q-1": ("scored", 2.0),
        "Q-2": ("no_document", None),
        "Q-3": ("no_document", None),
        "Q-4": ("failed", None),
    }
    assert by_query["Q-3"]["reason"] == "failed (refused): the model refused"
    assert (by_query["Q-1"]["category"], by_query["Q-1"]["repeat"]) == ("SA", 1)


def test_scores_are_frames_of_every_kind(run: RunData) -> None:
    frame = run.scores.to_pandas()
    assert list(frame.columns) == list(run.scores.columns)
    assert frame["value"].sum() == 2
    assert pa.table(run.scores).equals(run.scores.arrow), "read as an Arrow stream"
    assert len(run.scores) == len(frame) == 8


def test_answers_are_a_sequence_by_system_repeat_and_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_data, "_AT_ONCE", 3)
    fill(tmp_path, **OWN, repeats=2)
    run = plait.open_run(tmp_path)
    answers = run.answers()
    places = [(a.system, a.repeat, a.query.id) for a in answers]
    assert places == [(s, n, q) for s in run.systems for n in (1, 2) for q in OUTCOMES]
    assert answers[-1].system == answers[15].system == "gt"
    assert [a.query.id for a in answers[4:6]] == ["Q-1", "Q-2"]
    with pytest.raises(IndexError):
        answers[16]
    some = run.answers(system="gt", category=["SA"], repeat=2)
    assert [(a.query.id, a.text) for a in some] == [
        ("Q-1", "the truth"),
        ("Q-2", "the truth"),
    ]
    assert {a.query.id for a in run.answers(outcome="done", system=SYSTEM)} == {
        "Q-1",
        "Q-4",
    }
    assert len(run.answers(query="Q-3")) == 4
    assert len(run.answers(query=["Q-3", "Q-4"], outcome=["failed"])) == 2
    first = run.answer("Q-1", SYSTEM, repeat=2)
    assert (first.repeat, [colour_of(i) for i in first.images]) == (2, ["red", "blue"])
    assert run.answers(system=SYSTEM, query="Q-1")[0].repeat == 1


def test_two_systems_are_compared_on_the_queries_that_both_have_scores_of(
    tmp_path: Path,
) -> None:
    other = "api_helpers:Terse"
    about = {**OWN, "systems": [SYSTEM, other], "scorers": ["bleu", SCORER, "fid"]}
    fill(tmp_path, **about)
    run = plait.open_run(tmp_path)
    compared = run.compare(SYSTEM, other)
    assert list(compared) == ["bleu", SCORER]
    count = compared[SCORER]
    assert (count.difference.value, count.difference.n) == (1.0, 1)
    assert (count.first.value, count.second.value) == (2.0, 1.0)
    assert (count.higher, count.equal, count.lower) == (1, 0, 0)
    back = run.compare(other, SYSTEM, scorer=SCORER)
    assert (list(back), back[SCORER].difference.value) == ([SCORER], -1.0)
    (row,) = (r for r in differences(run.board) if r["scorer"] == SCORER)
    assert (row["a"], row["b"], row["mean"]) == (SYSTEM, other, 1.0)
    shown = str(compared)
    assert f"{SCORER} (0-9)" in shown
    assert "too few values (n=1, fewer than 5)" in shown
    assert "<td" in compared._repr_html_()
    with pytest.raises(plait.UsageError, match="fid has no score of a single query"):
        run.compare(SYSTEM, other, scorer="fid")


def test_lower_scores_are_better_where_the_scorer_says_so() -> None:
    means = PairedMeans.of(np.array([1.0, 2, 2, np.nan]), np.array([3.0, 2, 5, 0]), "0-9")
    assert (means.higher, means.equal, means.lower) == (0, 1, 2)
    compared = SystemComparison("a", "b", {"lpips": means}, {"lpips": "lower"})
    (row,) = compared.table.rows
    texts = {
        c.heading: cell.text for c, cell in zip(compared.table.columns, row, strict=True)
    }
    assert (texts["a"], texts["b"], texts["better on"]) == ("1.67", "3.33", "2")


def test_the_sheet_holds_the_images_of_queries_by_system(run: RunData) -> None:
    sheet = run.sheet(["Q-1", "Q-3"], systems=["gt", SYSTEM])
    assert sheet.size == (8 + 2 * (2 * 160 + 8), 2 * (44 + 186))
    column = 8 + 328

    def colour(x: int, y: int) -> tuple[int, ...]:
        pixel = sheet.getpixel((x, y))
        assert isinstance(pixel, tuple)
        return pixel

    assert [colour(column + 5, 60), colour(column + 165, 60)] == [*COLOURS.values()]
    assert colour(column + 5, 44 + 186 + 60) == (255, 255, 255), "it failed on Q-3"
    assert colour(8 + 5, 60) == (255, 255, 255), "the truth holds no image"
    assert run.sheet(6).size == (8 + 2 * 328, 44 + 186), "one query has images"
    with pytest.raises(plait.UsageError, match="no answer of gt holds an image"):
        run.sheet(systems=["gt"])


def test_what_is_not_made_yet_is_missing_and_says_so(tmp_path: Path) -> None:
    fill(tmp_path, Kind.DRAFT, **OWN)
    run = plait.open_run(tmp_path)
    answer = run.answer("Q-1", SYSTEM)
    assert answer.document is not None, "a document is there before it is judged"
    assert answer.scores[SCORER].outcome == "missing"
    assert "run the same command again" in answer.scores[SCORER].reason
    fill(tmp_path / "half", Kind.SCORE, **OWN)
    half = plait.open_run(tmp_path / "half")
    assert half.answer("Q-1", SYSTEM).outcome == "missing"
    assert half.answer("Q-1", SYSTEM).document is None
    assert ("Q-1", "missing") in [
        (r["query"], r["outcome"]) for r in half.failures.to_pylist()
    ]


def test_the_leaderboard_is_a_table_with_its_warning(run: RunData) -> None:
    table = run.leaderboard
    assert [row[0].text for row in table.rows] == [SYSTEM, "gt"]
    assert any(", 1 failed, 1 skipped" in note for note in table.notes)
    assert "<td" in table._repr_html_()
    assert "| system |" in table._repr_markdown_()
    assert "random weights" in table._repr_html_(), "tiny weights are named"
    assert "the model refused" in run.reasons.markdown
    shown = run._repr_html_()
    assert table.html in shown
    assert "Q-1" in shown[shown.index(table.html) + len(table.html) :]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda run: run.answers(system="gtt"), "unknown system 'gtt'; did you mean 'gt'"),
        (lambda run: run.answers(repeat=2), "repeat 2 is not from 1 to 1"),
        (lambda run: run.answers(outcome="dome"), "unknown outcome 'dome'; did you mean"),
        (lambda run: run.answers(category=["SA", "SB"]), "unknown category 'SB'"),
        (lambda run: run.answer("Q-9", "gt"), "unknown query 'Q-9'"),
        (
            lambda run: run.answer("Q-2", SYSTEM).text,
            "Q-2 has no answer of .*: skipped: takes",
        ),
        (
            lambda run: run.answer("Q-3", SYSTEM).images,
            "Q-3 has no answer of .*: failed .refused",
        ),
        (lambda run: run.show("Q-9"), "unknown query 'Q-9'"),
        (lambda run: run.show("Q-1", systems=["gtt"]), "unknown system 'gtt'"),
        (lambda run: run.compare("gt", "gtt"), "unknown system 'gtt'"),
        (lambda run: run.compare("gt", SYSTEM, scorer="blue"), "unknown scorer 'blue'"),
        (lambda run: run.compare("gt", SYSTEM)["blue"], "unknown scorer 'blue'"),
        (lambda run: run.sheet(0), "0 names no query"),
        (lambda run: run.sheet([]), "names no query"),
        (lambda run: run.sheet(["Q-9"]), "unknown query 'Q-9'"),
        (lambda run: run.sheet(systems=["gtt"]), "unknown system 'gtt'"),
        (lambda run: run.sheet(scorer="blue"), "unknown scorer 'blue'"),
    ],
)
def test_wrong_names_are_explained(run: RunData, ask, said: str) -> None:
    with pytest.raises((plait.PlaitError, KeyError), match=said):
        ask(run)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(plait.UsageError, match="is not a run directory"):
        plait.open_run(tmp_path)
