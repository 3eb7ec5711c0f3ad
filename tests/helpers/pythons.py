"""The unit tier on each Python that plait supports and that is installed here.

python tests/helpers/pythons.py [VERSION ...]

Each has an environment of its own, `.venv-VERSION`, without the packages of models and of
Ray. Versions that are not installed are named; that of `.venv` is run only if it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from paths import CHECKOUT

VERSIONS = ("3.11", "3.12", "3.13")
EXTRAS = "serve,buckets,datasets,tests"


def main(versions: Sequence[str]) -> int:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    status = 0
    for version in versions or VERSIONS:
        if version == own and not versions:
            print(f"Python {version}: that of .venv, where the other targets run the tests")
        elif (program := interpreter(version)) is None:
            print(f"Python {version}: not installed, not run")
        else:
            status = max(status, run_units(version, program))
    return status


def interpreter(version: str) -> Path | None:
    """Return a Python of this version that runs: one on the path, or one of pyenv's."""
    name = f"python{version}"
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
    for folder in folders:
        program = folder / name
        # pyenv puts a program for every version on the path, of which some only complain.
        if (
            program.is_file()
            and not subprocess.run(
                [program, "-c", ""], stderr=subprocess.DEVNULL
            ).returncode
        ):
            return program
    return None


def run_units(version: str, program: Path) -> int:
    """Install plait for a version, run the tests, and return their exit status."""
    folder = CHECKOUT / f".venv-{version}"
    python = folder / "bin" / "python"
    uv = shutil.which("uv", path=str(CHECKOUT / ".venv" / "bin")) or "uv"
    subprocess.run(
        [uv, "venv", "--quiet", "--clear", "--python", program, folder], check=True
    )
    package = f"{CHECKOUT}[{EXTRAS}]"
    constraints = CHECKOUT / "constraints.txt"
    install = [uv, "pip", "install", "--quiet", "--python", python, "-c", constraints]
    subprocess.run([*install, "--editable", package], check=True)
    tests = [python, "-m", "pytest", "--tier", "unit", "--numprocesses", "2"]
    status = subprocess.run([*tests, "--dist", "loadgroup"], cwd=CHECKOUT).returncode
    print(f"Python {version}: {'passed' if status == 0 else 'FAILED'}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
