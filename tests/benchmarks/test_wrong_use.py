"""What a user may get wrong, and what the command then says; nothing needs Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from api_helpers import OWN, SYSTEM, fill
from cli_helpers import invoke as plait
from cli_helpers import plait as process
from judging_helpers import STAND_IN, stand_in_digests
from mmie_helpers import folder
from paths import SOURCE

from plait.benchmarks.runs.exports import FORMATS
from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.reading.sources import snapshot
from plait.generators.catalogue import Named, by_prefix
from plait.generators.errors import PlaitError, UsageError
from plait.scorers.judging import mmie

pytestmark = pytest.mark.contract

TRUTH = ["--system", "gt", "--weights", "tiny", "--limit", "3"]
NO_SCORERS = ["--set", "scorers=[]"]
OWN_TASKS = """
from plait.benchmarks.tasks.published import as_asked
from plait.benchmarks.tasks.task_set import TaskSet
from plait.generators.document import Document, Query, Text, Turn

turns = (Turn("user", (Text("Draw a cat."),)),)
truth = Document((Text("A cat."),))
cat = Query(id="cat", category="SA", field="Animals", turns=turns, reference=truth)


def queries():
    return TaskSet(
        name="mine", samples=(cat,), prompt=as_asked, categories={}, fields=(), about={}
    )


def nothing():
    return []
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def refusal(*words: str) -> str:
    """What is said of wrong use, which nothing is made for."""
    try:
        done = plait(*words)
    except PlaitError as error:
        status, said = error.exit_status, str(error)
    else:
        status, said = done.exit_code, done.output
    assert status == 2, said
    return " ".join(said.split())


JUDGED = ["compare", ".", "--judge", "y", "--protocol"]


@pytest.mark.models
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--system", "anloe"], "did you mean 'anole'"),
        (["run", "--set", "sed=1"], "did you mean 'seed'"),
        (["run", "--set", "models.sdxl-trubo.steps=2"], "did you mean 'sdxl-turbo'"),
        (["run", "--data", "/nowhere/at/all"], "/nowhere/at/all': give a file"),
        (["run", "--data", "sampel"], "did you mean 'sample'? Otherwise give a file"),
        (["run", *TRUTH, "--data", "own_tasks:nothing"], "must return a TaskSet"),
        (["run", *TRUTH, "--data", "own_tasks:queris"], "has no attribute 'queris'"),
        (["run", *TRUTH, "--data", "nowhere_at_all:x"], "probench:PLACE"),
        (["run", *TRUTH, "--data", "d"], "holds no queries"),
        (["run", "no-such.toml"], "no-such.toml"),
        (["run", "--weights", "large"], "'large' is not valid. Valid: pretrained, mini"),
        (["run", "--weights", "tny"], "'tny' is not valid; did you mean 'tiny'?"),
        (["bench", "stage", "gill", "--weights", "tny"], "did you mean 'tiny'?"),
        (["run", "--limit", "0"], "limit"),
        (["run", "--set", 'systems="anole"'], 'systems: give a list of names, such as ["'),
        (["run", "--set", "scorers=3"], 'scorers: give a list of names, such as ["NAME"]'),
        (["run", "--set", "limit=true"], "valid integer; got True"),
        (["plan", "--set", "repeats=2.0"], "repeats: Input should be a valid integer"),
        (["plan", "--set", "systems=[]"], "systems is empty"),
        (["plan", "--mode", "so"], "Valid: corrected, official"),
        (["plan", "--mode", "offical"], "did you mean 'official'?"),
        (["plan", *TRUTH, *NO_SCORERS, "--mode", "official"], "needs the released rubrics"),
        (["plan", *TRUTH, "--scorer", "judge:foo"], "openai:MODEL"),
        (["run", *TRUTH, "--weights", "mini", "--scorer", "judge:anole"], "is no judge"),
        (["run", *TRUTH, "--weights", "mini", "--scorer", "criteria:anole"], "is no judge"),
        (["run", "--system", "gpt-4o+sdxl-turbo"], "OPENAI_API_KEY"),
        (["run", "--ids", "."], ": Is a directory"),
        (["run", *TRUTH, "--ids", "no_ids"], "holds no query id"),
        (["run", *TRUTH, "--ids", "bytes"], "can't decode"),
        (["run", *TRUTH, "--ids", "ids"], "no query 'SA-404'"),
        (["run", *TRUTH, "--out", "ids"], "--out"),
        (["report", "."], "not a run directory: it has no manifest.json"),
        (["report", "newer"], "has format 2, and this version of plait reads format 1"),
        (["report", ".", "--out", "ids"], "'ids' is a file"),
        (["leaderboard", ".", "--out", "ids"], "'ids' is a file"),
        (["diff", ".", ".", "--out", "d"], "'d' is a directory"),
        (["show", ".", "id"], "manifest.json"),
        (["verify", "."], "manifest.json"),
        (["score", "nowhere"], "there is no such folder or file"),
        (["score", "."], "manifest.json"),
        (["score", "d", "d"], "would both be called 'd'"),
        (["score", "d", "x=d"], "no rows"),
        (["list", "sistems"], "did you mean 'systems'"),
        (["fetch", "sdxl-trubo"], "names no weights"),
        ([*JUDGED, "no"], "creation, mllm-bench, mmrb2, opening, probench"),
        ([*JUDGED, "creation", "--mode", "so"], "mode"),
        ([*JUDGED, "nowhere_at_all:Mine"], "cannot be imported"),
        (["export", "x", "--out", "y", "--system", "z", "--format", "csv"], "parquet"),
        (["bench", "stage"], "name either a --system or a --scorer"),
        (
            ["bench", "stage", "--system", "anole", "--part", "whole"],
            "draft, condition, render",
        ),
        (["bench", "stage", "--system", "anole", "--batches", "1,x"], "such as 1,2,4,8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_explained(
    here: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (here / "own_tasks.py").write_text(OWN_TASKS)
    monkeypatch.syspath_prepend(str(here))
    folder(here / "d", [])
    (here / "newer").mkdir()
    (here / "newer" / "manifest.json").write_text('{"plait": 2, "config": {}}')
    marked = b"\xef\xbb\xbfSA-404"
    for name, content in {"no_ids": b"", "bytes": b"SA-\xff", "ids": marked}.items():
        (here / name).write_bytes(content)
    there = {*here.iterdir()}
    assert said in refusal(*words)
    assert {*here.iterdir()} <= there | {here / "__pycache__"}


@pytest.mark.parametrize(
    ("rubric", "message"),
    [
        ("theirs", "or 'official:PATH'"),
        ("official:", "must be followed by the path"),
        ("official:nowhere.py", "nowhere.py': No such file"),
        ("official:broken.py", "is not Python"),
    ],
)
def test_a_rubric_is_checked_whether_or_not_a_judge_asks(
    here: Path, rubric: str, message: str
) -> None:
    (here / "broken.py").write_text("def (")
    setting = f'models."judge:gpt-4o".rubric={rubric}'
    for option in (["--rubric", rubric], ["--set", setting]):
        assert message in refusal("run", *TRUTH, *NO_SCORERS, *option, "--out", "run")


def test_a_mode_is_checked_whether_or_not_a_judge_asks(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["plan", *TRUTH, *NO_SCORERS, "--mode", "official"]
    monkeypatch.setattr(mmie, "DIGESTS", stand_in_digests())
    (here / "prompts.py").write_text(STAND_IN)
    assert plait(*words, "--rubric", "official:prompts.py").exit_code == 0


def test_help_and_the_list_name_every_form_of_data() -> None:
    shown = "".join(plait("run", "--help").output.split())
    listed = "".join(plait("list", "data").output.split())
    read = (entry.form for entry in by_prefix(Named.DATA).values())
    for form in (*read, "module:function", "sample"):
        assert form in shown
        assert form in listed


@pytest.mark.parametrize(
    ("name", "its_own"), [("MMIE/MMIE", True), ("someone/else", False)]
)
def test_advice_about_access_is_about_the_repository_asked_for(
    monkeypatch: pytest.MonkeyPatch, name: str, its_own: bool
) -> None:
    def refused(*_: object, **__: object) -> str:
        raise OSError("403 Client Error")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refused)
    with pytest.raises(TaskError) as error:
        snapshot(f"hf:{name}", ("*",))
    assert ("MMIE/MMIE asks for access" in str(error.value)) is its_own
    assert "hf auth login" in str(error.value)


def test_plan_exits_with_2_where_keys_or_weights_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = plait("plan", *TRUTH, "--scorer", "judge:gpt-4o")
    assert done.exit_code == 2
    assert "OPENAI_API_KEY" in done.output
    words = ["--system", "gt", "--weights", "pretrained", "--limit", "3"]
    done = plait("plan", *words, "--set", "models.clipscore.model=/nowhere/at/all")
    assert done.exit_code == 2
    assert "/nowhere/at/all" in done.output
    # What no job needs is not missing.
    assert plait("plan", *TRUTH, *NO_SCORERS).exit_code == 0


@pytest.mark.processes
def test_modules_in_the_current_folder_are_found(here: Path) -> None:
    (here / "own_tasks.py").write_text(OWN_TASKS)
    words = ["plan", "--system", "gt", "--weights", "tiny", *NO_SCORERS]
    command = [sys.executable, "-m", "plait", *words]
    done = subprocess.run(
        [*command, "--data", "own_tasks:queries"],
        cwd=here,
        env={"PYTHONPATH": str(SOURCE), "COLUMNS": "200", "HOME": str(here)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 answer: 1 query" in done.stdout
    assert "own_tasks-queries-" in done.stdout


@pytest.mark.parametrize("form", ["mmie", "parquet"])
def test_an_export_overwrites_nothing(here: Path, form: str) -> None:
    plait("run", *TRUTH, *NO_SCORERS, "--out", "run")
    words = ["export", "run", "--system", "gt", "--format", form, "--out"]
    (here / "full").mkdir()
    (here / "full" / "notes.txt").write_text("of somebody else")
    with pytest.raises(TaskError, match="is not empty; name another folder"):
        plait(*words, "full")
    assert [p.name for p in (here / "full").iterdir()] == ["notes.txt"]
    assert plait(*words, "new").exit_code == 0
    before = {p: p.read_bytes() for p in (here / "new").rglob("*") if p.is_file()}
    with pytest.raises(TaskError, match="is not empty"):
        plait(*words, "new")
    assert {p: p.read_bytes() for p in before} == before


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_of_no_document_writes_nothing(here: Path, form: str) -> None:
    (here / "ids").write_text("Q-2")
    fill(here / "run", **OWN | {"systems": [SYSTEM], "ids": here / "ids"})
    words = ["export", "run", "--system", SYSTEM, "--format", form, "--out", "new"]
    assert "1 skipped" in refusal(*words)
    assert not (here / "new").exists()


@pytest.mark.parametrize("command", ["score", "compare"])
def test_a_mini_model_that_only_answers_is_no_judge(command: str) -> None:
    words = {
        "score": ["run", "--scorer", "judge:qwen2-vl-72b"],
        "compare": ["run", "--protocol", "creation", "--judge", "qwen2-vl-7b"],
    }
    plait("run", *TRUTH, *NO_SCORERS, "--weights", "mini", "--out", "run")
    with pytest.raises(UsageError, match=r"is no judge .* judge:mmie-score"):
        plait(command, *words[command])


def test_run_and_plan_have_the_same_options() -> None:
    shown = [plait(command, "--help").output for command in ("run", "plan")]
    options = [output[output.index("Arguments:") :] for output in shown]
    assert options[0] == options[1]


def test_what_an_error_names_is_shown_and_not_obeyed() -> None:
    done = process("report", "\x1b[2J\x07")
    assert (done.returncode, "\x1b" in done.stderr) == (2, False)
    assert r"\x1b[2J\x07 is not a run directory" in done.stderr


DRAWING = ("--data", "prompts:cats.txt", "--system", "sdxl-turbo@t2i", "--weights", "tiny")


def test_a_scorer_that_can_score_nothing_is_refused_before_anything_is_made(
    here: Path,
) -> None:
    (here / "cats.txt").write_text("a red cat\na blue cat\n")
    words = (*DRAWING, "--scorer", "clipscore", "--scorer", "siglip2", "--out", "run")
    said = refusal("run", *words)
    assert "clipscore can score none of the 2 answers" in said
    assert "clipscore-prompt" in said
    assert "siglip2" not in said
    assert not (here / "run").exists()
    planned = plait("plan", *words)
    assert planned.exit_code == 2
    assert "clipscore-prompt" in planned.output


def test_a_scorer_of_a_part_is_told(here: Path) -> None:
    words = ("--data", "miniature:8", "--system", "anole", "--scorer", "clipscore")
    planned = plait("plan", *words, "--weights", "tiny", "--out", "run")
    assert planned.exit_code == 0
    assert "clipscore can score 6 of 8 answers" in planned.output
    (here / "ids.txt").write_text("MSR-0003\n")
    some = plait("plan", *words, "--weights", "tiny", "--ids", "ids.txt")
    assert some.exit_code == 0, "other queries of the data suit it"
    assert "clipscore can score 0 of 1 answers" in some.output


@pytest.mark.models
def test_a_scorer_that_a_run_has_already_stays_in_it(here: Path) -> None:
    (here / "cats.txt").write_text("a red cat\n")
    out = ("--out", "run", "--set", "engine.grace_s=1")
    done = process("run", *DRAWING, *out, "--set", "scorers=[]", folder=here)
    assert done.returncode == 0, done.stderr
    made = json.loads((here / "run" / "manifest.json").read_text())
    for about in (made, made["config"]):
        about["scorers"] = ["clipscore"]
    (here / "run" / "manifest.json").write_text(json.dumps(made))
    planned = plait("plan", *DRAWING, "--scorer", "bleu", *out)
    assert planned.exit_code == 2
    assert "bleu can score none" in planned.output
    assert "clipscore can score none" not in planned.output
