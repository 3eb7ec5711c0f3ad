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


def check_types(program: Path) -> tuple[str, int]:
    """What mypy says of a program in which nothing may be `Any`, and its exit status."""
    # As in a program of one's own, plait itself is not checked.
    strict = ("--strict", "--disallow-any-expr", "--follow-imports=silent")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", *strict]
    command.append(str(program))
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    return done.stdout + done.stderr, done.returncode


@pytest.mark.processes
def test_the_program_is_typed_throughout(tmp_path: Path) -> None:
    said, status = check_types(PROGRAM)
    assert status == 0, said
    wrong = tmp_path / "wrong.py"
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
    said, status = check_types(wrong)
    lines = {int(line.split(":")[1]) for line in said.splitlines() if ": error: " in line}
    assert lines == {*range(2, 9)}, said


@pytest.mark.models
def test_the_program_runs(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("user_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.main(tmp_path)
