"""Runs, plans and stages called from Python, without Ray and in this process."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from api_helpers import OWN, SCORER, SYSTEM, colour_of, flat
from cli_helpers import invoke
from paths import CHECKOUT

import plait
from plait import api
from plait.benchmarks.runs.answers import TaskQuery
from plait.benchmarks.runs.run_data import RunData
from plait.cluster.store import BlobReader
from plait.generators.document import Candidate, Document, Malformed, Request, Text, Turn

pytestmark = [
    pytest.mark.slow,
]

SAMPLE = CHECKOUT / "benchmarks" / "tasks" / "mmie" / "sample"
HALF = Request((Turn("user", (Text("half \ud83d"),)),))


def test_run_and_plan_return_values_and_print_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    about = {**OWN, "systems": ["gt"], "scorers": [], "out": tmp_path / "run"}
    planned = plait.plan(**about)
    assert (planned.extent, planned.ready()) == (
        "4 answers: 4 queries, 1 system, 1 repeat",
        True,
    )
    assert not (tmp_path / "run").exists()
    run = plait.run(**about)
    done = run.outcome
    assert (done.counts["done"], done.failed, done.made, done.interrupted) == (
        4,
        0,
        0,
        False,
    )
    assert run.answer("Q-1", "gt").text == "the truth"
    assert "leaderboard" in run.log
    assert plait.open_run(run.root).outcome.counts == done.counts
    assert (tmp_path / "run" / "report.html").exists()
    assert capfd.readouterr().out == ""
    plait.run(**about, quiet=False)
    assert "4 done" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"systems": ["anloe"]}, "did you mean 'anole'"),
        ({"systems": "anole"}, r'give a list of names, such as \["anole"\]'),
        ({"models": {"gt": {"steps": 1}}}, "unknown name in models 'gt'"),
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
    there = run.answers(system=SYSTEM)
    for old, made in zip(there, illustrate.answers([*run.queries.values()]), strict=True):
        assert (made.outcome, made.reason) == (old.outcome, old.reason)
        if made.document is not None:
            assert made.document.plain == old.document.plain  # type: ignore[union-attr]


def test_a_system_without_a_document_raises_with_the_reason() -> None:
    illustrate = plait.system(SYSTEM, weights="tiny")
    with pytest.raises(plait.NoDocument, match="failed: the model refused"):
        illustrate("please !refuse")
    with pytest.raises(plait.NoDocument, match="skipped: takes no"):
        illustrate(plait.query("please !skip"))


def test_a_scorer_gives_a_score_or_the_reason(run: RunData) -> None:
    count = plait.scorer(SCORER, weights="tiny")
    answers = {a.query.id: a for a in run.answers(system=SYSTEM)}
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
        (lambda: plait.system("gt")("a", plait.query("b")), "one query alone"),
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


def test_a_run_is_scored_again(tmp_path: Path) -> None:
    about = {**OWN, "systems": ["gt"], "scorers": [], "executor": "local"}
    run = plait.run(**about, out=tmp_path / "run")
    changed = {"models": {"bleu": {"lowercase": True}}, "executor": "local"}
    again = plait.score(run, scorers=["bleu"], **changed)
    assert (again.root, again.scorers) == (run.root, ("bleu",))
    assert (again.outcome.counts["scored"], again.outcome.made) == (4, 1)
    assert again.manifest["config"]["models"] == changed["models"]
    more = plait.score(run.root, scorers=["chrf"], executor="local")
    assert more.scorers == ("bleu", "chrf")


@pytest.mark.parametrize("named", [False, True])
def test_answers_made_elsewhere_are_scored(root: Path, tmp_path: Path, named: bool) -> None:
    about = {"data": OWN["data"], "scorers": ["bleu"], "executor": "local"}
    given = {"truth": root} if named else [root]
    run = plait.score(given, **about, out=tmp_path / "run")
    assert any(name.startswith("truth/") for name in run.systems) is named
    assert run.outcome.counts["scored"] == sum(
        answer.scores["bleu"].value is not None for answer in run.answers(outcome="done")
    )
    with pytest.raises(plait.UsageError, match="there is no such folder or file"):
        plait.score(tmp_path / "nothing", **about)


def test_places_are_paths_or_texts(tmp_path: Path, root: Path) -> None:
    about = {"weights": "tiny", "scorers": [], "out": tmp_path / "run"}
    planned = plait.plan(data=SAMPLE, systems=["gt"], **about)
    assert planned.experiment.config.data == str(SAMPLE)
    planned = plait.plan(data=OWN["data"], answers={"theirs": root}, **about)
    assert planned.experiment.config.answers == {"theirs": str(root)}


def test_no_scorer_is_named_by_an_empty_sequence_of_either_kind(tmp_path: Path) -> None:
    for none in ((), []):
        planned = plait.plan(systems=["gt"], scorers=none, weights="tiny", out=tmp_path)
        assert planned.experiment.config.scorers == ()


@pytest.mark.processes
@pytest.mark.models
def test_the_example_of_the_module_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(
        r"^Example:\n(.*)\Z", api.__doc__ or "", re.DOTALL | re.MULTILINE
    )
    names: dict[str, Any] = {}
    exec(re.sub(r"^    ", "", example, flags=re.MULTILINE), names)
    assert "'done': 8" in capsys.readouterr().out
    assert names["run"].scorers == ("clipscore", "bleu")
    assert names["verdict"].outcome == "scored"
    assert (tmp_path / "sheet.png").exists()


class Echo:
    """A model of the script that runs it."""

    kind = "draft"
    closed = 0

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def __call__(self, requests: list[Request]) -> list[Any]:
        return [[f"{r.text} " * self.times, flat("red", 8)] for r in requests]

    def close(self) -> None:
        self.closed += 1


COLOUR = "red"


def paint(query: Request) -> list[Any]:
    return ["painted", flat(COLOUR, 8)]


def brevity(candidate: Candidate) -> int:
    return len(candidate.document.text)


def pictures(candidate: Candidate) -> int:
    return len(candidate.document.images)


def given(tmp_path: Path, *systems: Any, **options: Any) -> dict[str, Any]:
    about = {"systems": [*systems], "scorers": [brevity, pictures], "weights": "tiny"}
    about |= {"data": OWN["data"], "executor": "local", "out": tmp_path / "run"}
    return about | options


def test_a_run_of_a_class_an_instance_and_a_function(tmp_path: Path) -> None:
    echo = Echo(times=2)
    options = given(tmp_path, Echo, echo, paint)
    run = plait.run(**options)
    names = [f"{__name__}:{name}" for name in ("Echo", "Echo(times=2)", "paint")]
    assert list(run.systems) == names
    assert (run.outcome.counts["done"], run.outcome.counts["scored"]) == (12, 24)
    answer = run.answer("Q-1", names[1])
    assert answer.document is not None
    assert [colour_of(p) for p in answer.document.pictures] == ["red"]
    assert answer.scores[f"{__name__}:pictures"].value == 1
    assert (plait.run(**options).outcome.made, echo.closed) == (0, 0)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"]["systems"] == names


def test_a_function_that_is_edited_is_another(tmp_path: Path, monkeypatch) -> None:
    assert plait.run(**given(tmp_path, paint)).outcome.made == 12
    monkeypatch.setattr(f"{__name__}.COLOUR", "blue")
    planned = plait.plan(**given(tmp_path, paint))
    assert (len(planned.made_again), planned.ready()) == (1, False)
    with pytest.raises(plait.UsageError, match="remake=True"):
        plait.run(**given(tmp_path, paint))
    assert plait.run(**given(tmp_path, paint), remake=True).outcome.made == 12


def test_the_command_line_reads_what_python_ran_and_does_not_run_it(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[__name__])
    local = type("Local", (Echo,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules[__name__], "Local", local, raising=False)
    root = plait.run(**given(tmp_path, local, Echo(times=2))).root
    monkeypatch.undo()
    assert invoke("report", str(root)).exit_code == 0
    assert "Echo(times=2)" in plait.open_run(root).leaderboard.markdown
    options = ["--data", OWN["data"], "--weights", "tiny", "--out", str(root)]
    for name in ("__main__:Local", f"{__name__}:Echo(times=2)"):
        for command in ("run", "plan"):
            with pytest.raises(plait.UsageError, match="given from Python"):
                invoke(command, "--system", name, *options)


def test_what_is_given_answers_without_a_run() -> None:
    document = plait.system(Echo(times=2))("Hi")
    assert (document.text, len(document.pictures)) == ("Hi Hi ", 1)
    verdict = plait.scorer(pictures)("Hi", ["text", flat("red"), flat("blue")])
    assert verdict.value == 2


def test_a_stage_that_answers_for_one_of_two_fails_both(tmp_path: Path) -> None:
    class First(Echo):
        def __call__(self, requests: list[Request]) -> list[Any]:
            return super().__call__(requests[:1])

    run = plait.run(**given(tmp_path, First(), scorers=[]))
    assert (run.outcome.counts["done"], run.outcome.failed) == (0, 4)
    (reason,) = {row["reason"] for row in run.failures.to_pylist()}
    assert "First (test_calls.py:" in reason
