"""What a user may get wrong, and what the command then says; nothing needs Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import plait as process
from judging_helpers import STAND_IN, stand_in_digests
from mmie_helpers import folder
from paths import CHECKOUT
from typer.testing import CliRunner
from typer.testing import Result as Done

from benchmarks.tasks.reading.rules import TaskError
from benchmarks.tasks.reading.sources import snapshot
from benchmarks.tasks.task_set import READERS
from generators.errors import UsageError
from generators.natives import NATIVE
from plait import app
from scorers.judging import sources

TRUTH = ["--system", "gt", "--weights", "tiny", "--limit", "3"]
NO_SCORERS = ["--set", "scorers=[]"]
OWN_TASKS = """
from benchmarks.tasks.published import as_asked
from benchmarks.tasks.task_set import TaskSet
from generators.document import Document, Sample, Text, Turn

turns = (Turn("user", (Text("Draw a cat."),)),)
truth = Document((Text("A cat."),))
cat = Sample(id="cat", category="SA", field="Animals", turns=turns, reference=truth)


def queries():
    return TaskSet(
        name="mine", samples=(cat,), prompt=as_asked, categories={}, fields=(), about={}
    )


def nothing():
    return []
"""


def plait(*words: str) -> Done:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('systems = "anole"', 'systems: give a list of names, such as ["anole"]; got'),
        ("scorers = 3", 'scorers: give a list of names, such as ["NAME"]; got 3'),
        ("limit = true", "limit: Input should be a valid integer; got True"),
        ("seed = true", "seed: Input should be a valid integer"),
        ("repeats = 2.0", "repeats: Input should be a valid integer"),
        ("[composition]\nmax_images = true", "max_images in composition: Input should be"),
        ("systems = []", "systems is empty: name at least one, or leave the key out"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_values_of_the_wrong_kind_are_refused(
    here: Path, command: str, text: str, message: str
) -> None:
    (here / "c.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        plait(command, "c.toml")
    assert message in str(error.value)
    assert "tuple" not in str(error.value)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_task_set_without_queries_is_refused(here: Path, command: str) -> None:
    folder(here / "d", [])
    with pytest.raises(TaskError, match="holds no queries"):
        plait(command, *TRUTH[:4], *NO_SCORERS, "--data", "d", "--out", "run")
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    ("rubric", "message"),
    [
        ("theirs", "'own' or 'official:PATH'"),
        ("official:", "must be followed by the path"),
        ("official:nowhere.py", r"nowhere\.py': No such file"),
        ("official:.", r"prompts\.py': No such file"),
        ("official:broken.py", "is not Python"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("setting", [False, True])
def test_a_rubric_is_checked_whether_or_not_a_judge_asks(
    here: Path, command: str, rubric: str, message: str, setting: bool
) -> None:
    (here / "broken.py").write_text("def (")
    option = ["--rubric", rubric]
    if setting:
        option = ["--set", f'models."judge:gpt-4o".rubric={rubric}']
    with pytest.raises(UsageError, match=message):
        plait(command, *TRUTH, *NO_SCORERS, *option, "--out", "run")
    assert not (here / "run").exists()


def test_a_mode_is_checked_whether_or_not_a_judge_asks(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["plan", *TRUTH, *NO_SCORERS, "--mode", "official"]
    with pytest.raises(UsageError, match="needs the released rubrics"):
        plait(*words)
    monkeypatch.setattr(sources, "DIGESTS", stand_in_digests())
    (here / "prompts.py").write_text(STAND_IN)
    assert plait(*words, "--rubric", "official:prompts.py").exit_code == 0


def test_an_unknown_judge_is_answered_with_all_that_there_are() -> None:
    with pytest.raises(UsageError) as error:
        plait("plan", *TRUTH, "--scorer", "judge:foo")
    for name in ("mmie-score", "gpt-4o", "openai:MODEL", *NATIVE):
        assert name in str(error.value)


def test_help_and_the_list_name_every_form_of_data() -> None:
    shown = "".join(plait("run", "--help").output.split())
    listed = "".join(plait("list", "data").output.split())
    for form in (*(f"{name}:PLACE" for name in READERS), "module:function", "sample"):
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


def test_modules_in_the_current_folder_are_found(here: Path) -> None:
    (here / "own_tasks.py").write_text(OWN_TASKS)
    words = ["plan", "--system", "gt", "--weights", "tiny", *NO_SCORERS]
    command = [sys.executable, "-P", str(CHECKOUT / "plait.py"), *words]
    done = subprocess.run(
        [*command, "--data", "own_tasks:queries"],
        cwd=here,
        env={"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200", "HOME": str(here)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 documents: 1 queries" in done.stdout
    assert "own_tasks-queries-" in done.stdout


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("own_tasks:nothing", "must return a TaskSet, not a value of type list"),
        ("own_tasks:queris", "has no attribute 'queris'"),
        ("nowhere_at_all:queries", "No module named 'nowhere_at_all'.*probench:PLACE"),
    ],
)
def test_a_task_set_of_one_s_own_that_cannot_be_had_is_explained(
    here: Path, data: str, message: str
) -> None:
    (here / "own_tasks.py").write_text(OWN_TASKS)
    with pytest.raises(UsageError, match=message):
        plait("plan", *TRUTH, *NO_SCORERS, "--data", data)


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


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        (["run", "--weights", "large"], ("pretrained", "dummy", "tiny")),
        (["plan", "--mode", "so"], ("corrected", "official")),
        (["export", "x", "--out", "y", "--system", "z", "--format", "csv"], ("parquet",)),
        (["compare", "x", "--judge", "y", "--protocol", "no"], ("creation", "probench")),
        (["bench", "stage", "--system", "anole", "--part", "whole"], ("draft", "render")),
    ],
)
def test_flags_with_few_values_name_them(
    words: list[str], choices: tuple[str, ...]
) -> None:
    done = plait(*words)
    assert done.exit_code == 2
    for choice in choices:
        assert choice in done.output


@pytest.mark.parametrize("command", ["run", "plan", "score", "compare"])
def test_a_mini_model_that_only_answers_is_no_judge(command: str) -> None:
    words = {
        "run": [*TRUTH, "--scorer", "judge:anole", "--out", "new"],
        "score": ["run", "--scorer", "judge:qwen2-vl-72b"],
        "compare": ["run", "--protocol", "creation", "--judge", "qwen2-vl-7b"],
    }
    words["plan"] = words["run"]
    if command in ("score", "compare"):
        plait("run", *TRUTH, *NO_SCORERS, "--weights", "mini", "--out", "run")
    weights = ["--weights", "mini"] * (command in ("run", "plan"))
    with pytest.raises(UsageError, match=r"is no judge .* judge:mmie-score"):
        plait(command, *words[command], *weights)
    assert not Path("new").exists()


def test_compare_takes_a_protocol_of_the_users() -> None:
    with pytest.raises(UsageError, match="'nowhere_at_all:Mine' cannot be imported"):
        plait("compare", "x", "--judge", "y", "--protocol", "nowhere_at_all:Mine")


def test_run_and_plan_have_the_same_options() -> None:
    shown = [plait(command, "--help").output for command in ("run", "plan")]
    options = [output[output.index("Arguments:") :] for output in shown]
    assert options[0] == options[1]


def test_the_version_is_shown() -> None:
    done = process("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("plait 0.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name either a --system or a --scorer"),
        (["--system", "anole", "--scorer", "bleu"], "either a --system or a --scorer"),
        (["--system", "anole", "--answers", "9"], "--answers"),
    ],
)
def test_bench_stage_explains_wrong_use(words: list[str], message: str) -> None:
    done = plait("bench", "stage", *words)
    assert done.exit_code == 2
    assert message in done.output


def test_bench_stage_refuses_batches_that_are_no_sizes() -> None:
    with pytest.raises(UsageError, match="--batches '1,x' must be numbers such as 1,2,4,8"):
        plait("bench", "stage", "--system", "anole", "--batches", "1,x")


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["score"], ["manifest.json", "data.json"]),
        (["report"], ["manifest.json"]),
        (["show", "id"], ["manifest.json"]),
        (["verify"], ["manifest.json"]),
    ],
    ids=" ".join,
)
def test_a_folder_that_holds_no_run_is_told_so(
    here: Path, words: list[str], files: list[str]
) -> None:
    command, *rest = words
    with pytest.raises(UsageError) as error:
        plait(command, str(here), *rest)
    assert all(text in str(error.value) for text in (str(here), *files))


def test_what_an_error_names_is_shown_and_not_obeyed() -> None:
    done = process("report", "\x1b[2J\x07")
    assert (done.returncode, "\x1b" in done.stderr) == (2, False)
    assert r"\x1b[2J\x07 is not a run directory" in done.stderr
