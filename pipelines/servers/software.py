"""Which program and version a server will run, asked of the program's own environment.

Results are named before any server runs, so the version is read where the program is
installed: an executable of a Python environment names its interpreter, and the
interpreter knows the distribution that installed it. The program itself is not started,
which would take seconds and may need a GPU.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from generators.checkpoints import pinned
from generators.errors import CheckpointError

_PROBE_TIMEOUT_S = 30.0
_HEAD_BYTES = 1024
_INTERPRETER = re.compile(r"^(?:#!|'''exec' \"?)([^\s\"]*python[^\s\"]*)", re.MULTILINE)
_IS_PYTHON = re.compile(r"python[\d.]*$")
_PROBE = """
import importlib.metadata as m, json, sys
kind, name = sys.argv[1:]
if kind == "distribution":
    found = [d for d in m.distributions(name=name)]
elif kind == "module":
    names = m.packages_distributions().get(name.partition(".")[0], [])
    found = [m.distribution(n) for n in names]
else:
    found = [e.dist for e in m.entry_points(group="console_scripts", name=name)]
print(json.dumps([[d.name, d.version] for d in found]))
"""


class Software(NamedTuple):
    """A program that serves, as results name it."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def engine_software(engine: str, executable: str) -> Software:
    """The version of an engine; CheckpointError where it is not installed.

    It is pinned like a checkpoint: a plan lists it as missing, and a run that is opened
    again need not have it.
    """

    def resolve() -> str:
        path = shutil.which(executable)
        if path is None:
            raise CheckpointError(
                f"engine {engine!r}: there is no program {executable!r} here. Install it "
                "into an environment of its own and name its program, as in "
                f"engine_executable = '/envs/{engine}/bin/{engine}'"
            )
        software = _probed(path, "distribution", engine)
        if software is None:
            raise CheckpointError(
                f"engine {engine!r}: the version of {path} cannot be read; state it in "
                "engine_version"
            )
        return software.version

    return Software(engine, pinned(f"engine:{engine}@{executable}", resolve))


def software_of(argv: Sequence[str]) -> Software | None:
    """The distribution that installed a command's program; None where none did.

    CheckpointError where there is no such program.
    """

    def resolve() -> str:
        path = shutil.which(argv[0])
        if path is None:
            raise CheckpointError(f"there is no program {argv[0]!r} here to start a server")
        software = _probed(path, *_asked(argv))
        return "" if software is None else str(software)

    program = " ".join((argv[0], *_asked(argv)))
    name, _, version = pinned(f"server:{program}", resolve).partition(" ")
    return Software(name, version) if version else None


def _asked(argv: Sequence[str]) -> tuple[str, str]:
    """What to ask for: the module of `python -m MODULE`, else the script's name."""
    if _IS_PYTHON.search(Path(argv[0]).name) and "-m" in argv[:-1]:
        return "module", argv[argv.index("-m") + 1]
    return "script", Path(argv[0]).name


def _probed(path: str, kind: str, name: str) -> Software | None:
    """Ask the interpreter of a program for the distribution of that kind and name."""
    interpreter = _interpreter(path)
    if interpreter is None:
        return None
    try:
        reply = subprocess.run(
            [interpreter, "-I", "-c", _PROBE, kind, name],
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
        entries = json.loads(reply.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Software(*entries[0]) if entries else None


def _interpreter(path: str) -> str | None:
    """The Python that runs a program: itself, or the one that its first lines name."""
    if _IS_PYTHON.search(Path(path).name):
        return path
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return None
    match = _INTERPRETER.search(head)
    return match[1] if match else None
