"""The README at the root: short, with links that lead somewhere, and true."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from api_helpers import SYSTEM, fill
from paths import CHECKOUT
from stages import stage_by_stage
from typer.testing import CliRunner

import plait.cli
from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.defaults import QUICKSTART
from plait.benchmarks.tasks.controls import CONTROLS
from plait.benchmarks.tasks.task_set import load
from plait.cluster.walks import read
from plait.generators.document import Document, Query
from plait.generators.natives import NATIVE
from plait.generators.registry import PREFIXES, Named
from plait.generators.system import Repetition, answer
from plait.pipelines.presets import LVLMS, RETIRED, T2IS
from plait.pipelines.systems import Models, resolve
from plait.scorers import SCORERS, resolve_scorer

README = (CHECKOUT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """All code blocks of a language, in order."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def commands() -> Iterator[list[str]]:
    """The arguments of every `plait ...` in a console block or between backticks."""
    lines = [
        line.removeprefix("$ ").partition("   #")[0]
        for block in blocks("console")
        for line in block.splitlines()
        if line.startswith("$ plait ")
    ]
    inline = re.findall(r"`(plait [a-z][^`]*)`", README)
    for line in (*lines, *inline):
        yield shlex.split(line, comments=True)[1:]


def parse(words: Sequence[str]) -> None:
    """Parse a command line as `plait` does, without running it."""
    command: Any = typer.main.get_command(plait.cli.app)
    while choices := getattr(command, "commands", None):
        name, *words = words
        assert name in choices, f"{name!r} is not one of {', '.join(choices)}"
        command = choices[name]
    command.make_context(command.name, list(words))


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_is_one_that_plait_understands(words: list[str]) -> None:
    parse(words)


def test_all_commands_are_in_the_table() -> None:
    program: Any = typer.main.get_command(plait.cli.app)
    assert {words[0] for words in commands()} == set(program.commands)


def test_queries_are_named_that_the_quickstart_answers() -> None:
    known = {sample.id for sample in load(QUICKSTART.data).samples}
    named = {words[2] for words in commands() if words[0] == "show"}
    assert named
    assert named <= known


def test_links_lead_to_files() -> None:
    for page in (CHECKOUT / "README.md", *CHECKOUT.glob("*/README.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_rooms_exist() -> None:
    (tree,) = (block for block in blocks("") if block.startswith("plait.py"))
    for line in tree.splitlines():
        room = line.partition(" ")[0]
        assert (CHECKOUT / room).exists(), room
        for inner in re.findall(r"([a-z0-9]+/)", line.partition(" ")[2]):
            assert (CHECKOUT / room / inner).is_dir(), inner


def test_the_names_are_those_of_the_registries() -> None:
    for name in (*NATIVE, *LVLMS, *T2IS, *SCORERS, *CONTROLS):
        assert f"`{name}`" in README, name
    for kind in Named:
        for prefix in PREFIXES[kind]:
            assert f"`{prefix}:" in README, prefix
    for name in ("gpt-4o", "gemini-1.5"):
        assert str(RETIRED[LVLMS[name].model].day) in README


def test_the_run_of_the_example_can_be_planned(tmp_path: Path) -> None:
    text = blocks("toml")[0]
    (tmp_path / "mmie.toml").write_text(text)
    config = load_config(tmp_path / "mmie.toml", {})
    assert config.engine.max_cost == 300
    models = Models(weights="tiny", overrides=config.models)
    resolved = {name: resolve(name, models) for name in config.systems}
    assert set(config.models) <= {s.name for r in resolved.values() for s in r.stages}
    for name in config.scorers:
        resolve_scorer(name, "tiny", config.models.get(name, {}))


def test_the_settings_of_models_are_valid() -> None:
    overrides = tomllib.loads(blocks("toml")[1])["models"]
    models = Models(weights="tiny", overrides=overrides)
    for name in overrides:
        assert resolve(name if name in NATIVE else f"qwen2-vl-7b+{name}", models).stages


def test_the_servers_of_the_example_are_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = (block for block in blocks("toml") if "servers.llama" in block)
    (tmp_path / "servers.toml").write_text(text)
    config = load_config(tmp_path / "servers.toml", {})
    assert config.servers["llama"]


@pytest.mark.models
def test_a_model_and_a_scorer_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = (b for b in blocks("python") if b.startswith("# mine.py"))
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    (words,) = (words for words in commands() if "mine:Brevity" in words)
    options = dict(zip(words[1::2], words[2::2], strict=True))
    flags = {"systems": [options["--system"]], "scorers": [options["--scorer"]]}
    config = load_config(None, {**flags, "weights": "tiny"}, [options["--set"]])
    task = load("sample")
    query = next(s for s in task.samples if isinstance(s, Query) and s.wants_images)
    system = resolve(*config.systems, Models(weights="tiny", overrides=config.models))
    outcome: Any = read(answer(system, query, Repetition(task.prompt)), stage_by_stage)
    document: Document = outcome.value
    assert document.text.strip() == "An echo. An echo."
    assert len(document.images) == 1
    scorer = resolve_scorer(*config.scorers, "tiny", {})
    assert (scorer.scale, scorer.direction) == ("0-10000", "lower")
    score: Any = read(scorer.judge(query, document), stage_by_stage)
    assert score.value.value == len(document.text)


@pytest.mark.models
def test_plait_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = (b for b in blocks("python") if b.startswith("import plait"))
    exec(code, {})
    assert capsys.readouterr().out.startswith("scored ")
    assert (tmp_path / "runs" / "gt" / "report.html").exists()


ALONE = [
    words
    for words in commands()
    if words[0] in ("list", "plan")
    or (
        {"RUN", "RUN..."} & {*words}
        and words[0] not in ("ctl", "forget")
        and "gpt-6.1-sol" not in words[-1]
    )
]
"""Commands that need no network, no cluster, no key and no running job, and that take
nothing out of the run which the others read."""


@pytest.mark.models
@pytest.mark.parametrize("words", ALONE, ids=" ".join)
def test_commands_work_as_printed(
    words: list[str], finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished)
    monkeypatch.setenv("OPENAI_API_KEY", "none is sent")
    names = {"RUN": "run", "RUN...": "run", "OTHER": "other", "anole": SYSTEM}
    names |= {"NEW": f"new-{len(words)}", "SA-0001": "SA-004"}
    done = CliRunner().invoke(
        plait.cli.app, [names.get(w, w) for w in words], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the bundled queries, people's scores of one, and a config."""
    folder = tmp_path_factory.mktemp("readme")
    there = re.sub(r"^(data|rubric|out) = .*$", "", blocks("toml")[0], flags=re.MULTILINE)
    (folder / "mmie.toml").write_text(f'data = "sample"\nweights = "tiny"\n{there}')
    about = {"data": "sample", "weights": "tiny", "scorers": ["bleu"], "limit": 6}
    for name in ("run", "other"):
        fill(folder / name, **about, systems=[SYSTEM, "gt"])
    samples = load("sample").samples
    rows = [f"{sample.id},gt,{i % 7}" for i, sample in enumerate(samples)]
    (folder / "human.csv").write_text("\n".join(["id,system,score", *rows]))
    return folder
