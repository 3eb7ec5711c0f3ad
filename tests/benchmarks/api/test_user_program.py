"""A user's own program: a type checker knows what everything is, and it runs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from paths import CHECKOUT, TESTS

pytestmark = pytest.mark.contract

PROGRAM = TESTS / "data" / "user_program.py"


def check_types(*programs: Path) -> str:
    """What mypy says of programs in which nothing may be `Any`, by their names.

    With the options of `make check`, so that what it has found of plait is found again.
    """
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"]
    command += map(str, programs)
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_program_is_typed_throughout(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong_program.py"
    wrong.write_text(
        "import plait\n"
        "plait.run(systems=[3])\n"
        "plait.run(sed=1)\n"
        "plait.plan(sed=1)\n"
        'plait.plan(executor="rai")\n'
        "plait.score()\n"
        'plait.open_run("x").answers(sistem="gt")\n'
        'plait.open_run("x").answers().text\n'
    )
    said = check_types(PROGRAM, wrong)
    errors = [line.split(":") for line in said.splitlines() if ": error: " in line]
    assert {Path(file).name for file, *_ in errors} == {wrong.name}, said
    assert {int(line) for _, line, *_ in errors} == {*range(2, 9)}, said


@pytest.mark.models
def test_the_program_runs(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("user_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.main(tmp_path)
