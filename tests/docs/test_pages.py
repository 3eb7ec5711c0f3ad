"""README.md and docs/: every command and block is valid, and runs where it can."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import pages as made
import pytest
from api_helpers import SYSTEM, fill
from blocks import (
    PAGES,
    README,
    Block,
    Command,
    blocks,
    commands,
    extras,
    inline_commands,
    parse,
    targets,
)
from paths import CHECKOUT
from typer.testing import CliRunner

import plait.cli
from plait.benchmarks.runs.config import RunConfig, load_config
from plait.benchmarks.runs.resolving import models_of, scorer_named, with_variant
from plait.benchmarks.tasks.task_set import load
from plait.generators.catalogue import Named, by_name, by_prefix, is_custom, planners
from plait.generators.errors import PlaitError, UsageError
from plait.pipelines.systems import (
    Models,
    is_lvlm,
    is_t2i,
    lvlm_spec,
    planned_stages,
    resolve,
    t2i_stages,
)
from plait.scorers.judging.rubric_file import RubricText
from plait.scorers.judging.user_rubric import read_user_rubric

pytestmark = pytest.mark.slow

DOCS = CHECKOUT / "docs"
OWN = tuple(DOCS / f"own-{about}.md" for about in ("model", "data", "judge"))
"""Pages of which `test_own_pages.py` runs all commands."""
ERRORS = DOCS / "errors.md"
ROOMS = sorted(CHECKOUT.glob("*/README.md")) + sorted(CHECKOUT.glob("*/*/README.md"))
ALL = [*commands(), *inline_commands()]
OF_PLAIT = list({c.text: c for c in ALL if c.words[0] == "plait"}.values())
PROGRAMS = ("chromium", "jq", "kubectl", "make", "pip", "plait", "python", "ray", "sbatch")
PROGRAMS += ("scancel",)
"""Whose commands the pages show; those of `make` and `pip` are checked."""
WITHOUT_WEIGHTS = ("gt", "bleu")
ELSEWHERE = ("gpt-6.1-sol", "judge:gpt-6.1-sol", "wandb", "eval-results", "every-eval-ever")
ELSEWHERE += ("ctl", "forget")
"""Words of commands that need a key, a network, a data set of the Hub, a run that a command
made or a running job, or take something out of the run which the others read."""


@pytest.mark.parametrize("command", OF_PLAIT, ids=str)
def test_every_command_is_one_that_plait_understands(command: Command) -> None:
    parse(command.words[1:])


@pytest.mark.parametrize("command", commands(), ids=str)
def test_other_programs_are_given_what_there_is(command: Command) -> None:
    program, *words = command.words
    assert program in PROGRAMS or command.text == "source .venv/bin/activate"
    if program == "make":
        assert set(words) <= targets()
    if program == "pip":
        assert set(re.findall(r"plait\[(\w+)\]", command.text)) <= {*extras(), "all"}


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_every_config_is_valid(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text(block.text)
    if "criteria" in tomllib.loads(block.text):
        _check_rubric(tmp_path / "config.toml", block)
        return
    config = load_config(tmp_path / "config.toml", {})
    config = config.model_copy(update={"weights": "tiny"})
    given = tomllib.loads(block.text)
    for name in given.get("systems", ()):
        resolve(*with_variant(name, config, models_of(config)))
    for name in given.get("scorers", ()):
        _scorer(name, config)
    for name, settings in config.models.items():
        judges = name in config.scorers or name.partition(":")[0] in by_prefix(Named.SCORER)
        if not judges and "engine" not in settings:  # whose program need not be here
            _resolve_model(name, models_of(config))


def _check_rubric(path: Path, block: Block) -> None:
    if block.title == "wrong.toml":
        with pytest.raises(UsageError):
            read_user_rubric(RubricText.at(path))
    else:
        assert read_user_rubric(RubricText.at(path)).criteria


def _scorer(name: str, config: RunConfig) -> None:
    scorer_named(name, config.models.get(name, {}), models_of(config))


def _resolve_model(name: str, models: Models) -> None:
    if name in by_name(Named.NATIVE):
        resolve(name, models)
    elif is_t2i(name):
        assert t2i_stages(name, models)
    elif name in planners():
        assert planned_stages(f"{name}+flux2-klein", models)
    elif is_lvlm(name):
        lvlm_spec(name, models)
    else:
        resolve(name, models)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_every_program_is_python(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_every_row_is_json(block: Block) -> None:
    assert all(isinstance(json.loads(line), dict) for line in block.text.splitlines())


@pytest.mark.models
@pytest.mark.parametrize(
    "block",
    [b for b in blocks("python") if b.text.startswith("import plait") and not b.title],
    ids=str,
)
def test_programs_that_name_no_file_run(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, str(block), "exec"), {})


def _alone(command: Command) -> bool:
    words = command.words
    if words[1] in ("run", "sensitivity"):
        named = [w for flag, w in pairwise(words) if flag in ("--system", "--scorer")]
        own = [name.partition("@")[0] for name in named]
        light = all(is_custom(name) or name in WITHOUT_WEIGHTS for name in own)
        return bool({"tiny", "mini"} & {*words}) or ("--scorer" in words and light)
    reads = {"RUN", "RUN..."} & {*words}
    return words[1] in ("list", "plan") or bool(reads and not {*ELSEWHERE} & {*words})


PRINTED = [
    *commands([page for page in PAGES if page not in (ERRORS, *OWN)]),
    *inline_commands([DOCS / "commands.md"]),
]
PRINTED = [command for command in PRINTED if command.words[0] == "plait"]
RUN = list({command.text: command for command in PRINTED if _alone(command)}.values())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the bundled queries, people's scores of one, and the files of pages."""
    folder = tmp_path_factory.mktemp("docs")
    about = {"data": "sample", "weights": "tiny", "scorers": ["bleu"], "limit": 6}
    for name in ("run", "other"):
        fill(folder / name, **about, systems=[SYSTEM, "gt"])
    for block in (b for b in blocks("toml", "python", "text") if b.title):
        (folder / block.title).write_text(_of_this_machine(block.text))
    samples = load("sample").samples
    rows = [f"{sample.id},gt,{i % 7}" for i, sample in enumerate(samples)]
    (folder / "human.csv").write_text("\n".join(["id,system,score", *rows]))
    return folder


def _of_this_machine(text: str) -> str:
    """A config over bundled queries with tiny weights; other files as they are."""
    if not re.search("^systems = ", text, re.MULTILINE):
        return text
    rest = re.sub(r"^(data|rubric|out) = .*$", "", text, flags=re.MULTILINE)
    return f'data = "sample"\nweights = "tiny"\n{rest}'


@pytest.fixture
def there(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of `finished` is the current one, and its modules are found anew."""
    monkeypatch.setenv("PLAIT_EXECUTOR", "local")
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(finished)
    before = {*sys.modules}
    yield finished
    for name in {file.stem for file in finished.glob("*.py")} - before:
        sys.modules.pop(name, None)


@pytest.mark.models
@pytest.mark.parametrize("command", RUN, ids=str)
def test_commands_work_as_printed(
    command: Command, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none is sent")
    names = {"RUN": "run", "RUN...": "run", "OTHER": "other", "anole": SYSTEM}
    names |= {"SA-0001": "SA-004", "CONFIG.toml": "mmie.toml"}
    words = [names.get(word, word) for word in command.words[1:]]
    if words[0] == "export":
        words[words.index("--out") + 1] = f"new-{len(list(there.iterdir()))}"
    done = CliRunner().invoke(plait.cli.app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output


@pytest.mark.models
@pytest.mark.parametrize("command", commands([ERRORS]), ids=str)
def test_errors_are_as_printed(
    command: Command, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    try:
        done = CliRunner().invoke(plait.cli.app, command.words[1:], catch_exceptions=False)
        said = done.output
    except PlaitError as error:
        said = f"plait: {error}"
    shown = command.printed.strip().replace("...", "*").replace("[", "[[]")
    assert fnmatchcase(said.strip(), f"{shown}*")


def test_all_commands_are_in_the_table() -> None:
    import typer

    program: Any = typer.main.get_command(plait.cli.app)
    named = inline_commands([DOCS / "commands.md"])
    assert {command.words[1] for command in named} == set(program.commands)


def test_every_public_name_is_in_the_api() -> None:
    named = re.findall(r"^::: plait\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(plait.__all__)


@pytest.mark.parametrize("page", [*PAGES, *ROOMS], ids=lambda page: str(page.parent.name))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub("`[^`]*`", "", page.read_text())
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_every_page_is_in_the_site() -> None:
    config = tomllib.loads((CHECKOUT / "zensical.toml").read_text())
    named = re.findall(r"[\w-]+\.md", str(config["project"]["nav"]))
    assert sorted(named) == sorted(page.name for page in DOCS.glob("*.md"))


@pytest.mark.parametrize("page", made.pages(), ids=lambda page: page.name)
def test_what_is_made_of_the_program_is_of_today(page: Path) -> None:
    text = page.read_text()
    assert made.page_of(text) == text, "run python tests/helpers/pages.py"


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 150


def test_the_map_of_the_source_is_true() -> None:
    (tree,) = blocks("", pages=[README])
    for line in tree.text.splitlines():
        room = line.partition(" ")[0]
        assert (CHECKOUT / room).exists(), room
        for inner in re.findall(r"([a-z0-9]+/)", line.partition(" ")[2]):
            assert (CHECKOUT / room / inner).is_dir(), inner
