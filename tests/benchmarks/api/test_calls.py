"""Runs, plans and stages called from Python, without Ray and in this process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from api_helpers import OWN, SCORER, SYSTEM, colour_of, fill, flat

import plait
from plait import api
from plait.benchmarks.runs.run_data import RunData, TaskQuery
from plait.cluster.store import BlobReader
from plait.generators.document import Document, Malformed, Request, Text, Turn

HALF = Request((Turn("user", (Text("half \ud83d"),)),))


def test_run_and_plan_return_values_and_print_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    about = {**OWN, "systems": ["gt"], "scorers": [], "out": tmp_path / "run"}
    planned = plait.plan(**about)
    assert (planned.extent, planned.ready()) == (
        "4 documents: 4 queries, 1 system, 1 repeat",
        True,
    )
    assert not (tmp_path / "run").exists()
    summary = plait.run(**about)
    assert (summary.counts["done"], summary.failed, summary.made) == (4, 0, 0)
    assert summary.results.documents("gt")["Q-1"].document is not None
    assert "leaderboard" in summary.log
    assert (tmp_path / "run" / "report.html").exists()
    assert capfd.readouterr().out == ""
    plait.run(**about, quiet=False)
    assert "4 done" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"systems": ["anloe"]}, "did you mean 'anole'"),
        ({"systems": "anole"}, r'give a list of names, such as \["anole"\]'),
        ({"sed": 1}, "did you mean 'seed'"),
        ({"limit": 0}, "limit"),
    ],
)
@pytest.mark.parametrize("call", ["run", "plan"])
def test_wrong_use_raises_what_the_command_prints(
    tmp_path: Path, call: str, options: dict, said: str
) -> None:
    with pytest.raises(plait.UsageError, match=said):
        getattr(plait, call)(out=tmp_path / "run", weights="tiny", **options)


def test_a_key_that_is_missing_is_named_by_plan_and_by_system(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    planned = plait.plan(systems=["gpt-4o+sdxl-turbo"], weights="tiny", out=tmp_path / "r")
    assert not planned.ready()
    assert "OPENAI_API_KEY" in planned.missing[0]
    assert planned.missing[0] in planned._repr_html_()
    with pytest.raises(plait.UsageError, match="OPENAI_API_KEY"):
        plait.system("gpt-4o+sdxl-turbo", weights="tiny")


def test_a_users_system_answers_text_and_pictures() -> None:
    illustrate = plait.system(SYSTEM, weights="tiny")
    document = illustrate("Look:", flat("red"), "and at", flat("blue"))
    assert document.text.splitlines()[-1] == "Look: and at; last, 2"
    assert [colour_of(p) for p in document.pictures] == ["red", "blue"]
    assert "<img" in document._repr_html_()
    assert isinstance(document, Document)


def test_a_query_of_a_run_is_answered_as_in_the_run(run: RunData) -> None:
    illustrate = plait.system(SYSTEM, weights="tiny")
    there = run.documents(SYSTEM)
    for id, made in zip(there, illustrate.answers([*run.queries.values()]), strict=True):
        assert (made.outcome, made.reason) == (there[id].outcome, there[id].reason)
        if made.document is not None:
            assert made.document.plain == there[id].document.plain  # type: ignore[union-attr]


def test_a_system_without_a_document_raises_with_the_reason() -> None:
    illustrate = plait.system(SYSTEM, weights="tiny")
    with pytest.raises(plait.NoDocument, match="failed: the model refused"):
        illustrate("please !refuse")
    with pytest.raises(plait.NoDocument, match="skipped: takes no"):
        illustrate(plait.query("please !skip"))


def test_a_scorer_gives_a_score_or_the_reason(run: RunData) -> None:
    count = plait.scorer(SCORER, weights="tiny")
    answers = run.documents(SYSTEM)
    verdict = count(answers["Q-1"].query, answers["Q-1"])
    assert (verdict.outcome, verdict.value, str(verdict)) == ("scored", 2.0, "2")
    lost = count("A question", Document((Text("x"),)))
    assert (lost.value, lost.reason) == (None, "nothing to count")
    with pytest.raises(plait.UsageError, match="Q-3 has no document: the model refused"):
        count(answers["Q-3"].query, answers["Q-3"])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plait.system("anloe"), "did you mean 'anole'"),
        (lambda: plait.stage("anole", weights="tiny"), "name one: draft, render"),
        (lambda: plait.stage("anole", "condition", weights="tiny"), "Valid: draft, render"),
        (lambda: plait.scorer("clipscor"), "did you mean 'clipscore'"),
        (lambda: plait.query(), "needs text or an image"),
        (lambda: plait.query(3), "not of int"),
        (lambda: plait.system("gt")("a", plait.query("b")), "one sample alone"),
        (lambda: plait.system("gt")("half \ud83d"), "not Unicode: .* character 5"),
        (lambda: plait.scorer(SCORER, weights="tiny")("\ud83d", Document()), "not Unicode"),
        (
            lambda: plait.stage(SYSTEM, weights="tiny")([HALF]),
            "not Unicode: .* character 5",
        ),
    ],
)
def test_wrong_names_and_values_are_explained(call, said: str) -> None:
    with pytest.raises(plait.UsageError, match=said):
        call()


def test_a_malformed_query_cannot_be_asked() -> None:
    row = Malformed(id="x", row=3, reason="row 3: no text")
    query = TaskQuery(id="x", sample=row, prompt=lambda s, v: s.turns, read=BlobReader())
    with pytest.raises(plait.UsageError, match="x is malformed: row 3: no text"):
        plait.system("gt")(query)
    with pytest.raises(plait.UsageError, match="x is malformed: row 3: no text"):
        plait.scorer(SCORER, weights="tiny")(query, Document())


@pytest.mark.models
def test_the_example_of_the_module_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    about = {"systems": ["anole"], "scorers": ["clipscore"], "weights": "tiny"}
    fill(tmp_path / "runs" / "x", **about, limit=3)
    (example,) = re.findall(
        r"^Example:\n(.*)\Z", api.__doc__ or "", re.DOTALL | re.MULTILINE
    )
    names: dict[str, object] = {}
    exec(re.sub(r"^    ", "", example, flags=re.MULTILINE), names)
    out = capsys.readouterr().out
    assert out.startswith("('anole',) ('clipscore',)\n")
    summary = names["summary"]
    assert isinstance(summary, api.RunSummary)
    assert summary.counts["done"] == 3
    verdict = names["verdict"]
    assert getattr(verdict, "outcome") == "scored"  # noqa: B009
    assert names["picture"].mode == "RGB"  # type: ignore[attr-defined]
