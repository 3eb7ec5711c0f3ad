"""The studies of examples/ run by the commands of their READMEs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blocks import commands, parse
from cli_helpers import Done, plait
from paths import CHECKOUT, PYTHON_PATH
from stand_in_judge import judging, settings

pytestmark = [pytest.mark.slow, pytest.mark.models]
EXAMPLES = CHECKOUT / "examples"
STUDIES = sorted(page.parent.name for page in EXAMPLES.glob("*/README.md"))
ENV = {"PYTHONPATH": PYTHON_PATH, "PLAIT_EXECUTOR": "local"}


@pytest.mark.parametrize("study", STUDIES)
def test_an_example_has_a_short_readme_with_its_commands(study: str) -> None:
    page = EXAMPLES / study / "README.md"
    given = commands([page])
    assert given
    for command in given:
        assert command.words[0] in ("plait", "python", "jupyter")
        if command.words[0] == "plait":
            parse(command.words[1:])
    prose = re.sub("```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert len([line for line in prose.splitlines() if line]) <= 5
    assert f"{study}/README.md" in (EXAMPLES / "README.md").read_text()


def test_a_class_and_a_function_stand_beside_models_of_plait(tmp_path: Path) -> None:
    folder = _copy("own-model", tmp_path)
    said = _python(folder, *_words("own-model", "python"))
    assert r"\_\_main\_\_:Mirror(colour='pink')" in said
    root = folder / "runs/own-model"
    assert _documents(root) == {
        "__main__:Mirror": 12,
        "__main__:Mirror(colour='pink')": 12,
        "__main__:text_alone": 12,
        "qwen2-vl-7b+sdxl": 12,
        "gt": 12,
    }


def test_own_questions_are_judged_by_an_own_rubric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _copy("own-study", tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none is sent")
    data, rubric, run = commands([EXAMPLES / "own-study/README.md"])
    assert "5 rows: 5 queries, 0 refused" in _done(plait(*data.words[1:], folder=folder))
    assert "5 of 5 queries" in _done(plait(*rubric.words[1:], folder=folder))
    with judging() as judge:
        _done(plait(*run.words[1:], *settings(judge), folder=folder))
    root = folder / "runs/own-study"
    systems = ["qwen2-vl-7b+openjourney@outline", "qwen2-vl-7b+sdxl"]
    assert _documents(root) == dict.fromkeys(systems, 5)
    for row in _rows(root):
        criteria = row["scores"]["judge:gpt-6.1-sol"]["criteria"]
        scales = {name: (part["scale"], part["n"]) for name, part in criteria.items()}
        assert scales == {
            "Right": ("1-5", 5),
            "Order": ("1-5", 5),
            "Text": ("0-1", 5),
            "query criteria": ("0-1", 1),
        }


def test_two_models_draw_a_list_of_prompts_from_two_seeds(tmp_path: Path) -> None:
    folder = _copy("text-to-image", tmp_path)
    _done(plait(*_words("text-to-image", "plait"), folder=folder))
    root = folder / "runs/text-to-image"
    assert _documents(root) == {"openjourney@t2i": 8, "sdxl@t2i": 8}
    assert "### Paired differences" in (root / "leaderboard.md").read_text()


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs .[dev]")
    nbclient = pytest.importorskip("nbclient", reason="needs .[dev]")
    pytest.importorskip("ipykernel", reason="needs .[dev]")
    folder = _copy("notebook", tmp_path)
    for name, value in (ENV | {"IPYTHONDIR": str(tmp_path / "ipython")}).items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(folder / "study.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    about = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=about).execute()
    assert _documents(folder / "runs/notebook") == {
        "__main__:Dots": 8,
        "__main__:Dots(colour='teal')": 8,
        "qwen2-vl-7b@text": 8,
        "gt": 8,
    }
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("text/html" in output.get("data", {}) for output in shown)
    assert any("image/png" in output.get("data", {}) for output in shown)


def _copy(study: str, folder: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / study, folder / study))


def _words(study: str, program: str) -> list[str]:
    (command,) = commands([EXAMPLES / study / "README.md"])
    assert command.words[0] == program
    return command.words[1:]


def _done(done: Done) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _python(folder: Path, *words: str) -> str:
    process = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **ENV},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def _documents(root: Path) -> dict[str, int]:
    """How many answers of each system are there."""
    return {row["system"]: row["done"] for row in _rows(root)}


def _rows(root: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((root / "leaderboard.json").read_text())
    return rows
