"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from paths import CHECKOUT, HELPERS


def plait(*words: str, **env_vars: str) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ, NO_COLOR="1", COLUMNS="200", PYTHONPATH=str(HELPERS))
    env |= env_vars
    command = [sys.executable, str(CHECKOUT / "plait.py"), *words]
    return subprocess.run(
        command, cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False
    )
