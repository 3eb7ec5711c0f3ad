"""The command line: in this process, and in one of its own as users start it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from paths import CHECKOUT, PYTHON_PATH

from plait.benchmarks.bench_program import status_of

# For each command that is run, typer makes all commands of the program anew, which takes an
# eighth of a small run. `typer.testing` keeps the function that it finds: this comes first.
typer.main.get_command = cache(typer.main.get_command)

from typer.testing import CliRunner  # noqa: E402
from typer.testing import Result as Invoked  # noqa: E402

Done = subprocess.CompletedProcess[str]
_TERMINAL = {"NO_COLOR": "1", "COLUMNS": "200"}


def plait(*words: str, folder: Path = CHECKOUT, **env_vars: str) -> Done:
    """What a command in `folder` prints, and its exit status; workers are threads."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (_TERMINAL | {"PLAIT_EXECUTOR": "local"} | env_vars).items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["plait", *words])
        patch.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = _status()
    return Done(words, status, out.getvalue(), err.getvalue())


def invoke(*words: str) -> Invoked:
    """The command in this process and folder; raises what `main` would word."""
    import plait.cli

    return CliRunner().invoke(plait.cli.app, list(words), catch_exceptions=False)


def manifest(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root / "manifest.json").read_text())
    return content


def _status() -> int:
    """The exit status that Python would end with."""
    import plait.cli

    try:
        plait.cli.main()
    except SystemExit as end:
        return status_of(end)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def plait_process(*words: str, **env_vars: str) -> Done:
    """The same in a process of its own, which starts a Ray of its own."""
    env = dict(os.environ, PYTHONPATH=PYTHON_PATH) | _TERMINAL | env_vars
    command = [sys.executable, "-m", "plait", *words]
    return subprocess.run(
        command, cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False
    )
