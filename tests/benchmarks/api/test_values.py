"""plait from Python: a run as values, imported without weight."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from api_helpers import OWN, SCORER, SYSTEM, colour_of, fill

import plait
from plait import api
from plait.benchmarks.runs.config import RunConfig
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


def test_run_and_plan_take_every_key_of_a_config() -> None:
    assert set(api.RunOptions.__annotations__) == set(RunConfig.model_fields)


def test_a_run_gives_its_documents_as_frozen_values(run: RunData) -> None:
    assert (run.systems, run.scorers) == ((SYSTEM, "gt"), (SCORER,))
    answers = run.documents(SYSTEM)
    assert {id: answer.outcome for id, answer in answers.items()} == OUTCOMES
    first = answers["Q-1"]
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
    answers = run.documents(SYSTEM)
    assert len(answers) == len(list(answers)) == 4
    assert "2 done, 1 skipped, 1 failed" in repr(answers)
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


def test_what_is_not_made_yet_is_missing_and_says_so(tmp_path: Path) -> None:
    fill(tmp_path, Kind.DRAFT, **OWN)
    run = plait.open_run(tmp_path)
    answer = run.documents(SYSTEM)["Q-1"]
    assert answer.document is not None, "a document is there before it is judged"
    assert answer.scores[SCORER].outcome == "missing"
    assert "run the same command again" in answer.scores[SCORER].reason
    fill(tmp_path / "half", Kind.SCORE, **OWN)
    half = plait.open_run(tmp_path / "half")
    assert half.documents(SYSTEM)["Q-1"].outcome == "missing"
    assert half.documents(SYSTEM)["Q-1"].document is None
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
        (lambda run: run.documents("gtt"), "unknown system 'gtt'; did you mean 'gt'"),
        (lambda run: run.documents("gt", repeat=2), "repeat 2 is not from 1 to 1"),
        (lambda run: run.documents("gt")["Q-9"], "unknown query 'Q-9'"),
    ],
)
def test_wrong_names_are_explained(run: RunData, ask, said: str) -> None:
    with pytest.raises((plait.UsageError, KeyError), match=said):
        ask(run)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(plait.UsageError, match="is not a run directory"):
        plait.open_run(tmp_path)
