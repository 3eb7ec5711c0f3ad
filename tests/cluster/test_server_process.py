"""Servers that plait starts: ready or not, and ended with all they have started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from own_processes import all_end, living
from paths import HELPERS, SOURCE

from plait.cluster.server_process import ServerError, ServerProcess
from plait.generators.base import ServerCommand

pytestmark = pytest.mark.processes

SERVER = (sys.executable, str(HELPERS / "faulty_server.py"), "--port", "{port}")


def command(*more: str, **settings: Any) -> ServerCommand:
    return ServerCommand(
        name="echo", argv=(*SERVER, *more), **{"start_timeout_s": 120.0, **settings}
    )


@contextlib.contextmanager
def started(folder: Path, *more: str, **settings: Any) -> Iterator[ServerProcess]:
    marked = command(*more, "--marker", str(folder), **settings)
    server = ServerProcess(marked, folder / "server.log")
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.processes
def test_a_server_answers_once_it_is_ready_and_is_gone_once_stopped(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        server.wait_ready()
        with urllib.request.urlopen(server.url.removesuffix("v1") + "version") as reply:
            assert json.loads(reply.read()) == {"version": "1.2.3"}
        assert living(tmp_path)
    assert server.ended.result(60).startswith("server echo: ")
    assert all_end(tmp_path)


@pytest.mark.processes
def test_a_server_that_exits_is_an_error_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that it was not healthy in time, and without the keys that it has printed."""
    monkeypatch.setenv("SOME_TOKEN", "hunter2-hunter2")
    with (
        started(tmp_path, "--exit", "no model for hunter2-hunter2") as server,
        pytest.raises(ServerError, match=r"(?s)status 3.*no model for \*\*\*") as caught,
    ):
        server.wait_ready()
    assert str(tmp_path / "server.log") in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.processes
def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = ServerCommand(name="x", argv=("/no/such/program", "{port}"))
    server = ServerProcess(missing, tmp_path / "log")
    with pytest.raises(ServerError, match=r"could not be started.*/no/such/program"):
        server.wait_ready()


@pytest.mark.processes
def test_a_server_that_is_never_healthy_is_ended(tmp_path: Path) -> None:
    with started(tmp_path, "--never-healthy", start_timeout_s=1.5) as server:
        with pytest.raises(ServerError, match=r"not healthy after 1\.5 s"):
            server.wait_ready()
        assert all_end(tmp_path)


@pytest.mark.processes
def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with started(tmp_path, "--ignore-sigterm", stop_timeout_s=0.5) as server:
        server.wait_ready()
    assert "signal 9" in server.ended.result(60)
    assert all_end(tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize("killed", [False, True])
def test_what_a_server_has_started_ends_with_it(tmp_path: Path, killed: bool) -> None:
    file = tmp_path / "pids"
    with started(tmp_path, "--grandchildren", str(file)) as server:
        server.wait_ready()
        near, lone = map(int, file.read_text().split())
        assert os.getpgid(lone) != os.getpgid(near)
        if killed:
            os.kill(next(p.pid for p in living(file) if _is_leader(p)), 9)
            assert "signal 9" in server.ended.result(60)
    assert all_end(tmp_path, near, lone)


def _is_leader(process: psutil.Process) -> bool:
    return process.cmdline()[1:2] == [SERVER[1]]


OWNER = """
import sys, time
from pathlib import Path
from plait.cluster.server_process import ServerProcess
from plait.generators.base import ServerCommand
command = ServerCommand(name="echo", argv=tuple(sys.argv[2:]))
server = ServerProcess(command, Path(sys.argv[1]))
server.wait_ready()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.processes
def test_a_server_ends_with_a_killed_owner(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    argv = [*SERVER, "--ignore-sigterm", "--grandchildren", str(file)]
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "log"), *argv],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(SOURCE)),
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    assert len(living(file)) >= 3  # the owner, the guardian, the server
    owner.kill()
    owner.wait(60)
    assert all_end(file, *map(int, file.read_text().split()))


@pytest.mark.processes
def test_a_server_ends_with_a_killed_guardian(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        server.wait_ready()
        both = living(tmp_path)
        next(p for p in both if "guardian.py" in " ".join(p.cmdline())).kill()
        assert "together with its guardian" in server.ended.result(60)
        assert all_end(tmp_path)


@pytest.mark.processes
def test_a_mute_server_counts_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.cluster.server_process._HEALTH_EVERY_S", 0.1)
    monkeypatch.setattr("plait.cluster.server_process._HEALTH_TIMEOUT_S", 30.0)
    with started(tmp_path, "--hang-health-after", "1", hung_after_s=0.5) as server:
        server.wait_ready()
        message = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        body = json.dumps(message).encode()
        urllib.request.urlopen(f"{server.url}/chat/completions", body).close()
        monkeypatch.setattr("plait.cluster.server_process._HEALTH_TIMEOUT_S", 0.2)
        assert "gave no answer for 0.5 s" in server.ended.result(60)
        assert all_end(tmp_path)


@pytest.mark.processes
def test_another_version_than_planned_is_refused(tmp_path: Path) -> None:
    settings = {"software": "vllm", "version": "1.2.4"}
    with started(tmp_path, **settings) as server:
        with pytest.raises(
            ServerError, match=r"reports vllm 1\.2\.3.*planned with 1\.2\.4"
        ):
            server.wait_ready()
        assert all_end(tmp_path)
    with started(tmp_path, software="vllm", version="1.2.3+cpu") as server:
        server.wait_ready()


@pytest.mark.processes
def test_a_server_does_not_see_this_environment_s_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("RAY_JOB_ID", "1")
    show = "import os; print(sorted(os.environ)); print(os.environ['MINE'])"
    shown = ServerCommand(
        name="show", argv=(sys.executable, "-c", show), env=(("MINE", "this one"),)
    )
    server = ServerProcess(shown, tmp_path / "log")
    with pytest.raises(ServerError):
        server.wait_ready()
    text = (tmp_path / "log").read_text()
    assert "this one" in text
    assert "PYTHONPATH" not in text
    assert "RAY_JOB_ID" not in text


AT_ONCE = """
import importlib.util, subprocess, sys, time
import psutil

class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        while psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)

spec = importlib.util.spec_from_file_location("guardian", sys.argv[1])
guardian = importlib.util.module_from_spec(spec)
spec.loader.exec_module(guardian)
subprocess.Popen = Popen
guardian.main(["1", sys.executable, "-c", "raise SystemExit(3)"])
"""


@pytest.mark.processes
def test_a_server_that_ends_before_anything_looks_is_seen_to_end() -> None:
    command = [sys.executable, "-c", AT_ONCE, str(SOURCE / "plait/cluster/guardian.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as own:
        said = []
        while len(said) < 2:
            assert select.select([own.stdout], [], [], 30)[0], "no end is told"
            said += os.read(own.stdout.fileno(), 1000).decode().splitlines()
    assert said[1] == "exited 3"
