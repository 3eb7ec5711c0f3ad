"""Own model, data and judge, in README.md and docs/: their commands print what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from blocks import README, Command, blocks, commands
from cli_helpers import plait
from endpoint_helpers import Server
from paths import CHECKOUT, PYTHON_PATH
from PIL import Image
from stand_in_judge import judging, settings

pytestmark = [pytest.mark.slow, pytest.mark.models]
DOCS = CHECKOUT / "docs"
OWN = tuple(DOCS / name for name in ("own-model.md", "own-data.md", "own-judge.md"))
PAGES = (README, *OWN)
ENV = {"PLAIT_EXECUTOR": "local", "COLUMNS": "100", "OPENAI_API_KEY": "none is sent"}
_WRONG = ("plait:", "refused:", "failed", " line ")
"""Of what stands below a command that does not end with 0."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Server]:
    with judging() as server:
        yield server


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_prints_what_it_says(
    page: Path, tmp_path: Path, judge: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = {*sys.modules}
    _write_files(page, tmp_path)
    for command in commands([page]):
        if _is_its_own(command, page):
            _run(command, tmp_path, judge)
    for block in blocks("markdown", pages=[page]):
        assert _holds((tmp_path / block.title).read_text(), block.text), block
    for name in {file.stem for file in tmp_path.glob("*.py")} - before:
        sys.modules.pop(name, None)


def _write_files(page: Path, folder: Path) -> None:
    """What the page shows as files, and the images that its rows name."""
    for block in blocks("python", "json", "csv", "toml", pages=[page]):
        if block.title:
            (folder / block.title).write_text(block.text)
    (folder / "images").mkdir()
    for name, colour in (("cat", "tan"), ("dog", "brown")):
        Image.new("RGB", (64, 64), colour).save(folder / "images" / f"{name}.png")


def _is_its_own(command: Command, page: Path) -> bool:
    return page in OWN or "questions.jsonl" in command.words


def _run(command: Command, folder: Path, judge: Server) -> None:
    program, *words = command.words
    if program == "python":
        env = {**os.environ, **ENV, "PYTHONPATH": PYTHON_PATH}
        process = subprocess.run(
            [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr
        said = process.stdout
    else:
        asks = any(word.startswith("judge:") for word in words)
        done = plait(*words, *(settings(judge) if asks else ()), folder=folder, **ENV)
        said = done.stdout + done.stderr
        expected = any(mark in command.printed for mark in _WRONG)
        assert (done.returncode != 0) == expected, said
    assert _holds(said, command.printed), f"{command}\n{said}"


def _holds(text: str, shown: str) -> bool:
    """Whether the lines that are shown stand in a text, in order; `...` is anything."""
    lines = iter([_plain(line) for line in text.splitlines()])
    return all(
        any(fnmatchcase(line, _pattern(expected)) for line in lines)
        for expected in shown.splitlines()
        if expected.strip()
    )


def _plain(line: str) -> str:
    return re.sub(r"\s+", " ", line).strip()


def _pattern(line: str) -> str:
    return re.sub(r"([?*[])", r"[\1]", _plain(line)).replace("...", "*")
