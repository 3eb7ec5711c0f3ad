"""Turn a stage that asks a server into one whose workers start it: program and version.

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
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from plait.generators.base import ServerCommand, StageSpec
from plait.generators.checkpoints import pin
from plait.generators.errors import CheckpointError, UsageError
from plait.generators.names import unknown
from plait.pipelines.chat.settings import ServerSettings
from plait.pipelines.servers.settings import EngineModelSettings, ServerTable

SERVER_KEY = "PLAIT_SERVER_KEY"
"""Where requests to such a server find a key, unless the model names another variable."""
_DEFAULT_KEY: str = ServerSettings.model_fields["api_key_env"].default
_AS_STATED = {"port", "health", "path", "start_timeout_s", "stop_timeout_s"}
_RESOURCES = {"num_gpus", "num_cpus", "memory_gib"}
_LOADING_MARGIN_S = 600.0
"""For the stage itself to load, once its server is ready."""
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


def with_server(
    spec: StageSpec, settings: ServerSettings, servers: Mapping[str, ServerTable]
) -> StageSpec:
    """Return `spec` with the server of the config that its settings name, if they do.

    Without a table, `server` only stands for the URL in keys. UsageError for a name that
    no table has, where the model has no URL.
    """
    name = settings.server or ""
    table = servers.get(name)
    if table is None:
        if servers and name and settings.base_url is None:
            raise unknown(f"server of {spec.name}:", name, servers)
        return spec
    if settings.base_url is not None:
        raise UsageError(
            f"{spec.name}: base_url and server = {name!r} are both set, and "
            f"[servers.{name}] is started by plait at a URL of its own; leave "
            "base_url out"
        )
    software = (
        software_of(table) if table.version is None else _parse_version(table.version)
    )
    identity = f"{spec.identity} {software}" if software else spec.identity
    # Never the key of a provider, which is the default.
    own = settings.api_key_env if settings.api_key_env != _DEFAULT_KEY else SERVER_KEY
    named = replace(spec, identity=identity)
    return with_started_server(
        named, table, name, settings.model, software or Software("", ""), own
    )


def _parse_version(version: str) -> Software | None:
    """Return program and version as a table says them; None for `any`, of no account."""
    name, _, number = version.rpartition(" ")
    return None if version == "any" else Software(name, number)


def with_started_server(
    spec: StageSpec,
    table: ServerTable,
    name: str,
    model: str,
    software: Software,
    key_variable: str,
) -> StageSpec:
    """Return `spec` with the server of `table`, which each of its workers starts.

    `model` is what requests call the model; `key_variable` is where they find a key.
    """
    if spec.placement.batch_api:
        raise UsageError(
            f"{spec.name}: batch_api = true is for providers that take batches, and "
            f"[servers.{name}] is started by plait; leave batch_api out"
        )
    command = ServerCommand(
        name=name,
        argv=tuple(word.replace("{model}", model) for word in table.command),
        env=tuple(sorted(table.env.items())),
        software=software.name,
        version=software.version,
        **table.model_dump(include=_AS_STATED),
    )
    load_timeout_s = table.start_timeout_s + _LOADING_MARGIN_S
    # The address stands for the server's until it has a port.
    here = {"base_url": f"http://127.0.0.1{table.path}", "api_key_env": key_variable}
    return replace(
        spec,
        options={**spec.options, **here},
        secrets=tuple(dict.fromkeys((key_variable, *table.pass_env))),
        placement=replace(
            spec.placement,
            workers=table.replicas,
            load_timeout_s=max(spec.placement.load_timeout_s, load_timeout_s),
            endpoint=f"server:{name}",
            server=command,
            **table.model_dump(include=_RESOURCES),
        ),
    )


def engine_software(settings: EngineModelSettings) -> Software:
    """Return a model's engine with its version; CheckpointError where it is not installed.

    It is pinned like a checkpoint: a plan lists it as missing, and a run that is opened
    again need not have it.
    """
    engine = str(settings.engine)
    version = settings.engine_version
    executable = settings.engine_executable or engine

    def resolve() -> str:
        missing = (
            f"engine {engine!r}: there is no program {executable!r} here. Install it "
            "into an environment of its own and name its program, as in "
            f"engine_executable = '/envs/{engine}/bin/{engine}'"
        )
        path = _found(executable, missing)
        software = _probe(path, "distribution", engine)
        if software is None:
            raise CheckpointError(
                f"engine {engine!r}: the version of {path} cannot be read; state it in "
                "engine_version"
            )
        return software.version

    return Software(engine, version or pin(f"engine:{engine}@{executable}", resolve))


def software_of(table: ServerTable) -> Software | None:
    """Return the distribution that installed a command's program; None where none did.

    CheckpointError where there is no such program.
    """
    argv = table.command
    kind = "script"
    asked = Path(argv[0]).name
    if _IS_PYTHON.search(asked) and "-m" in argv[:-1]:
        kind = "module"
        asked = argv[argv.index("-m") + 1]

    def resolve() -> str:
        path = _found(argv[0], f"there is no program {argv[0]!r} here to start a server")
        return str(_probe(path, kind, asked) or "")

    program = " ".join((argv[0], kind, asked))
    name, _, version = pin(f"server:{program}", resolve).partition(" ")
    return Software(name, version) if version else None


def _found(executable: str, missing: str) -> str:
    if (path := shutil.which(executable)) is None:
        raise CheckpointError(missing)
    return path


def _probe(path: str, kind: str, name: str) -> Software | None:
    try:
        reply = subprocess.run(
            [_interpreter(path), "-I", "-c", _PROBE, kind, name],
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
        entries = json.loads(reply.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Software(*entries[0]) if entries else None


def _interpreter(path: str) -> str:
    """Return the Python that runs a program: itself, or the one that its head names.

    ValueError where there is none; OSError.
    """
    if _IS_PYTHON.search(Path(path).name):
        return path
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES).decode(errors="replace")
    if match := _INTERPRETER.search(head):
        return match[1]
    raise ValueError(f"{path} names no Python")
