"""A run made by an earlier version stays readable, and is not made again unasked."""

from __future__ import annotations

import io
import json
import shlex
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_helpers import plait as run_plait
from clipscore_helpers import picture
from trial import as_asked, filled, painter, sample, system_of_stages, writer
from users_own import Thinker

import plait
import plait.cli
from plait import commands
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.config import RunConfig, load_config
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.reopening import reopen
from plait.benchmarks.runs.run_directory import RecordedStages, digest_in_run, stage_facts
from plait.cluster.plan import Plan, evaluations
from plait.cluster.store import Store
from plait.generators.base import Kind, Result, StageSpec
from plait.generators.document import Document, Score, Text
from plait.generators.errors import PlaitWarning, UsageError
from plait.scorers import resolve_scorer
from plait.scorers.texts import BleuSettings

pytestmark = [
    pytest.mark.slow,
]

TEXTS = ("leaderboard.md", "leaderboard.tex", "report.html")
LEGACY = {
    "kind": "draft",
    "class": "m:C",
    "version": 1,
    "identity": "hub:x@1",
    "weights": "tiny",
    "settings": {"temperature": 0.0},
}


def plan_of(*stages: StageSpec) -> Plan:
    system = system_of_stages(name="s", draft=stages[0], render=stages[1])
    return Plan(
        systems=(system,), queries=(sample(0), sample(1)), scorers=(), prompt=as_asked
    )


def manifest_of(plan: Plan) -> dict:
    return {"stages": {s.folder: stage_facts(s) for s in plan.stages}}


def test_digests_of_manifests_that_hold_none_are_computed_as_they_were() -> None:
    assert digest_in_run(LEGACY) == "1549df222248bd7b603f0c93153414c1"


def test_a_run_of_another_version_is_read_by_its_own_digests(tmp_path: Path) -> None:
    former = plan_of(writer(), painter())
    store = filled(former, tmp_path)
    today = plan_of(replace(writer(), version=9), replace(painter(), stage="brush"))
    recorded = RecordedStages(manifest_of(former))
    systems = tuple(s.with_stages(recorded.as_recorded) for s in today.systems)
    read = evaluations(replace(today, systems=systems), store)
    assert all(isinstance(e.document, Result) for e in read)
    draft = systems[0].roles["draft"]
    assert draft is not None
    assert (draft.version, draft.digest) == (writer().version, writer().digest)
    # What would be made again is named with its reason.
    changes = recorded.find_superseded(today.stages, Store(tmp_path))
    assert [c.records for c in changes] == [2, 2]
    assert "version 1 is now 9" in str(changes[0])
    assert "an earlier version of plait named its results differently" in str(changes[1])


def test_a_users_stage_that_is_given_seeds_now_was_not_given_any(tmp_path: Path) -> None:
    former = plan_of(writer(), painter())
    store = filled(former, tmp_path)
    manifest = manifest_of(former)
    for facts in manifest["stages"].values():
        del facts["seeded"]  # as in manifests of that time
    recorded = RecordedStages(manifest)
    today = plan_of(replace(writer(), seeded=True), painter())
    (change,) = recorded.find_superseded(today.stages, store)
    assert "its inputs have seeds now" in str(change)
    systems = tuple(s.with_stages(recorded.as_recorded) for s in today.systems)
    read = evaluations(replace(today, systems=systems), store)
    assert all(isinstance(e.document, Result) for e in read)
    assert RecordedStages(manifest_of(today)).find_superseded(today.stages, store) == []


def test_nothing_is_said_of_stages_without_records_or_with_todays_key(
    tmp_path: Path,
) -> None:
    former = plan_of(writer(), painter())
    filled(former, tmp_path, Kind.DRAFT)
    recorded = RecordedStages(manifest_of(former))
    assert recorded.find_superseded(former.stages, Store(tmp_path)) == []
    today = plan_of(writer(), replace(painter(), version=9))
    assert recorded.find_superseded(today.stages, Store(tmp_path)) == []


@pytest.mark.parametrize("count", [0, 2])
def test_a_stage_is_only_taken_for_the_one_of_its_name(count: int) -> None:
    stages = [replace(writer(), identity=f"hub:x@{i}") for i in range(count)]
    manifest = {"stages": {s.folder: stage_facts(s) for s in stages}}
    assert RecordedStages(manifest).former(writer()) is None


def test_of_stages_of_one_name_that_with_the_same_settings_is_the_former(
    tmp_path: Path,
) -> None:
    red = replace(writer(), settings={"colour": "red"})
    blue = replace(writer(), settings={"colour": "blue"})
    plans = [plan_of(spec, painter()) for spec in (red, blue)]
    for plan in plans:
        filled(plan, tmp_path)
    stages = manifest_of(plans[0])["stages"] | manifest_of(plans[1])["stages"]
    recorded = RecordedStages({"stages": stages})
    today = [replace(red, version=9), replace(blue, version=9)]
    formers = [recorded.as_recorded(spec).digest for spec in today]
    assert formers == [red.digest, blue.digest]
    changes = recorded.find_superseded(today, Store(tmp_path))
    assert [c.records for c in changes] == [2, 2]


def test_a_further_variant_makes_no_record_of_another_again(tmp_path: Path) -> None:
    former = plan_of(writer(), painter())
    filled(former, tmp_path)
    recorded = RecordedStages(manifest_of(former))
    variant = replace(writer(), settings={"temperature": 0.5})
    stages = [*former.stages, variant]
    assert recorded.find_superseded(stages, Store(tmp_path)) == []


@pytest.mark.parametrize("name", ["clipscore", "clipscore-prompt", "consistency"])
def test_the_one_record_of_a_document_that_earlier_versions_made_is_read(
    name: str, truth: Path, tmp_path: Path
) -> None:
    manifest = json.loads((truth / "manifest.json").read_text())
    today = resolve_scorer(name, "tiny", {})
    about = {"name": "clipscore", "stage": "clipscore", "kind": Kind.SCORE}
    former = replace(today.stage, version=2, **about)
    manifest["config"]["scorers"] = [name]
    manifest["stages"] = {former.folder: stage_facts(former)}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (scorer,) = reopen(tmp_path).scorers
    assert (scorer.stage.folder, scorer.stage.digest) == (former.folder, former.digest)
    document = Document((Text("a"), picture(1), Text("b"), picture(2)))
    walk = scorer.judge(sample(0), document)
    ((job,), score) = next(walk), Score(0.5, {"likeness": 0.5, "scored_pairs": 2})
    assert (job.spec.digest, len(job.input.document.images)) == (former.digest, 2)
    with pytest.raises(StopIteration) as end:
        walk.send([Result(score)])
    assert end.value.value.value.value == 0.5
    store: Any = SimpleNamespace(rows=lambda spec: {"k": 1} if spec == scorer.stage else {})
    (change,) = RecordedStages(manifest).find_superseded([today.stage], store, [today])
    assert "clipscore: 1 record (kind 'score' is now 'embed'" in str(change)
    assert reopen(tmp_path, {}, current=[name]).scorers == (today,)


def score_by_two(root: Path, console: PlainConsole) -> RunConfig:
    flags = {"systems": ("gt",), "scorers": ("bleu", "chrf"), "limit": 4, "out": root}
    config = load_config(None, flags | {"weights": "tiny"})
    assert commands.run(config, console).exit_status == 0
    return config


def test_who_reads_a_run_is_told_which_scorer_had_a_fault(
    tmp_path: Path, worker_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "my run"
    console = PlainConsole(file=io.StringIO(), width=200)
    config = score_by_two(root, console)
    monkeypatch.setattr(BleuSettings, "version", 3)
    monkeypatch.setattr(BleuSettings, "superseded", {1: "which lied", 2: "which erred"})
    said = "bleu was made by version 1, which lied and which erred; `plait score"
    with pytest.warns(PlaitWarning, match=said) as warned:
        known = open_results(root).scorers
    assert [s.superseded != "" for s in known] == [True, False]
    (told,) = warned
    command = shlex.split(str(told.message).split("`")[1])
    assert command == ["plait", "score", str(root), "--scorer", "bleu", "--remake"]
    with pytest.warns(PlaitWarning, match=said):
        assert commands.report(root, console) == 0
    assert "version 1, which lied and which erred" in (root / "leaderboard.md").read_text()
    with pytest.raises(UsageError, match="1, which lied and which erred, is now 3"):
        commands.run(config, console)
    again = dict.fromkeys(("weights", "out", "address", "mode", "rubric"))
    again |= {"set": (), "remake": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert commands.score([str(root)], ["bleu"], again, console).exit_status == 0
        assert open_results(root).scorers[0].stage.version == 3
        assert commands.report(root, console) == 0
    assert "which lied" not in (root / "leaderboard.md").read_text()


def test_report_names_means_that_are_no_longer_those_of_the_tables(
    tmp_path: Path, worker_threads: None
) -> None:
    root, told = tmp_path / "run", io.StringIO()
    console = PlainConsole(file=told, width=200)
    score_by_two(root, console)
    table = root / "leaderboard.json"
    (row,) = json.loads(table.read_text())
    for average in ("avg_fixed", "avg_micro"):
        row["scores"]["bleu"][average]["mean"] = 12.0
    for written, changes in (([row], ["bleu"]), ([], []), ([{}], []), (None, [])):
        table.write_text(json.dumps(written))
        told.seek(0)
        told.truncate()
        assert commands.report(root, console) == 0
        lines = [line.split() for line in told.getvalue().splitlines()]
        assert [words[1] for words in lines if words[:1] == ["changed"]] == changes


def test_the_command_line_prints_warnings_of_plait_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plait.cli._show_warning(PlaitWarning("made by version 1"), PlaitWarning, "f.py", 1)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_run_stops_before_it_makes_records_again(
    tmp_path: Path, worker_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"systems": ("gt",), "scorers": ("bleu",), "limit": 4, "out": tmp_path / "run"}
    config = load_config(None, flags | {"weights": "tiny"})
    console = PlainConsole(file=io.StringIO(), width=200)
    assert commands.run(config, console).exit_status == 0
    leaderboard = (tmp_path / "run" / "leaderboard.json").read_bytes()
    monkeypatch.setattr(BleuSettings, "version", 99)
    with pytest.raises(UsageError, match=r"records that would be made again.*\n.*now 99"):
        commands.run(config, console)
    again = {"weights": None, "out": None, "address": None, "set": ()}
    again |= {"mode": None, "rubric": None, "remake": False}
    assert (
        commands.score([str(tmp_path / "run")], ["bleu"], again, console).exit_status == 0
    )
    assert (tmp_path / "run" / "leaderboard.json").read_bytes() == leaderboard
    assert commands.run(config, console, remake=True).exit_status == 0
    assert len(list((tmp_path / "run" / "stages").glob("bleu-*"))) == 2


def test_answers_that_hold_a_thought_are_told_and_made_again_only_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, name = tmp_path / "run", "users_own:Thinker"
    words = ["--data", "api_helpers:queries", "--weights", "tiny", "--out", str(root)]
    words += ["--system", name, "--system", "gt", "--scorer", "bleu"]

    def answers() -> list[str]:
        found = evaluations(reopen(root).plan, Store(root))
        documents = (e.document for e in found if e.system == name)
        return [d.value.text if isinstance(d, Result) else "failed" for d in documents]

    def told() -> dict[str, int | None]:
        rows = json.loads((root / "leaderboard.json").read_text())
        warned = ["answers that hold" in (root / f).read_text() for f in TEXTS]
        assert len({*warned, "answers_with_thoughts" in rows[0]}) == 1
        return {row["system"]: row.get("answers_with_thoughts") for row in rows}

    done = run_plait("run", *words)
    assert done.returncode == 0
    assert f"({name}: 4 of 4)" in done.stdout
    assert told() == {name: 4, "gt": 0}
    before, scores = answers(), (root / "leaderboard.json").read_bytes()
    monkeypatch.setattr(Thinker, "thinks", False)
    assert "0 records made" in run_plait("run", *words).stdout
    assert f"({name}: 4 of 4)" in run_plait("report", str(root)).stdout
    assert answers() == before
    assert (root / "leaderboard.json").read_bytes() == scores
    # What is made again replaces the answer, even where it fails; the truth's scores stay.
    assert run_plait("run", *words, "--remake").returncode == 1
    assert answers() == ["It is C.", "It is C.", "failed", "It is C."]
    assert told() == {name: None, "gt": None}
    assert "1 record made" in run_plait("run", *words, "--remake").stdout, "the failed one"
