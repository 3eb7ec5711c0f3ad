"""The unit tier on each Python that plait supports and that is installed here.

python tests/helpers/pythons.py [VERSION ...]

Each has an environment of its own, `.venv-VERSION`, without the packages of models and of
Ray. Versions that are not installed are named; that of `.venv` is run only if it is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

from paths import CHECKOUT

VERSIONS = ("3.11", "3.12", "3.13")
EXTRAS = "serve,buckets,datasets,tests"


def main(versions: Sequence[str]) -> int:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    status = 0
    for version in versions or VERSIONS:
        if version == own and not versions:
            print(f"Python {version}: that of .venv, where the other targets run the tests")
        elif shutil.which(f"python{version}") is None:
            print(f"Python {version}: not installed, not run")
        else:
            status = max(status, run_units(version))
    return status


def run_units(version: str) -> int:
    """Install plait for a version, run the tests, and return their exit status."""
    folder = CHECKOUT / f".venv-{version}"
    python = folder / "bin" / "python"
    uv = shutil.which("uv", path=str(CHECKOUT / ".venv" / "bin")) or "uv"
    subprocess.run([uv, "venv", "--quiet", "--python", version, folder], check=True)
    package = f"{CHECKOUT}[{EXTRAS}]"
    constraints = CHECKOUT / "constraints.txt"
    install = [uv, "pip", "install", "--quiet", "--python", python, "-c", constraints]
    subprocess.run([*install, "--editable", package], check=True)
    tests = [python, "-m", "pytest", "--tier", "unit", "--numprocesses", "2"]
    status = subprocess.run([*tests, "--dist", "loadfile"], cwd=CHECKOUT).returncode
    print(f"Python {version}: {'passed' if status == 0 else 'FAILED'}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
