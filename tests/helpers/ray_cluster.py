"""A Ray cluster as its users start it, by `ray start` in processes of their own.

Neither its nodes nor the commands that are run on it see the process of the tests: their
Python is an environment of its own, which has all packages but no plait unless a wheel is
installed in it, and no environment variable names the checkout.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray
from paths import CHECKOUT
from tiers import WORKERS_IN_TIME

_NOT_OF_A_CLONE = (".git", ".venv", "build", "dist", ".*_cache", "__pycache__")
_RAY = "import sys\nfrom ray.scripts.scripts import main\nsys.exit(main())\n"
_SMALL = ["--object-store-memory=100000000", "--disable-usage-stats"]
_STARTED = "Ray runtime started"
_LATE = "timed out during startup"
_START_S = 240.0
_STOP_S = 20.0


def environment(folder: Path, *wheels: Path) -> Path:
    """A virtual environment with all packages of this one, and these wheels; its `bin`.

    Packages are linked one by one: a `.pth` file would put them where a program does not
    take them for installed.
    """
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for entry in Path(ray.__file__).parents[1].iterdir():
        if "plait" not in entry.name and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    program = folder / "bin" / "ray"
    program.write_text(f"#!{folder}/bin/python\n{_RAY}")
    program.chmod(0o755)
    if wheels:
        install = ["--python", str(folder / "bin" / "python"), "install", "--no-index"]
        _pip(*install, "--no-deps", *map(str, wheels))
    return folder / "bin"


def wheel(clone: Path, folder: Path) -> Path:
    """The wheel of a clone, built into `folder`."""
    _pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", str(clone))
    return next(folder.glob("*.whl"))


def _pip(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *words], check=True)


def clone(folder: Path) -> Path:
    """A copy of the checkout without what git ignores."""
    ignored = shutil.ignore_patterns(*_NOT_OF_A_CLONE)
    shutil.copytree(CHECKOUT, folder, ignore=ignored, symlinks=True)
    return folder


def users_environ(bin_folder: Path, **variables: str) -> dict[str, str]:
    """Environment variables of a user of this virtual environment."""
    ours = ("PYTHON", "RAY_", "VIRTUAL_ENV", "TRIAL_")
    others = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    path = os.pathsep.join([str(bin_folder), os.environ["PATH"]])
    plain = {"PATH": path, "NO_COLOR": "1", "COLUMNS": "200"}
    return others | plain | {"RAY_AUTH_MODE": "disabled"} | WORKERS_IN_TIME | variables


def free_port() -> int:
    """A port below those of connections, where Ray's workers have none either."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.bind(("", port))
            return port


@dataclass
class RayNode:
    """A `ray start --block` and what it has started."""

    process: subprocess.Popen[str]
    log: Path

    @property
    def has_started(self) -> bool:
        """Whether it has joined; AssertionError with what it printed where it ended."""
        text = self.log.read_text()
        assert self.process.poll() is None or self.was_late, text[-3000:]
        return _STARTED in text

    @property
    def was_late(self) -> bool:
        """Whether it has ended for want of the 30 s that Ray gives a node to start."""
        return self.process.poll() is not None and _LATE in self.log.read_text()

    def raylet(self) -> psutil.Process:
        """The process without which a node is lost."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return next(p for p in children if p.name() == "raylet")

    def stop(self) -> None:
        """Have it leave its cluster, which else would list it on, and end it."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_S)
        self.kill()

    def kill(self) -> None:
        """End all its processes at once: some outlive the one that started them."""
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == self.process.pid:
                    os.kill(pid, 9)
        self.process.wait()


class RayCluster:
    """A head on this machine, and nodes that join it; a context manager."""

    def __init__(
        self,
        bin_folder: Path,
        cpus: int,
        *start: str,
        host: str = "127.0.0.1",
        within: Sequence[str] = (),
    ) -> None:
        """`start` are further options of `ray start --head`, `within` runs it elsewhere."""
        # Ray's sockets need a short path.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.bin_folder = bin_folder
        self.environ = users_environ(bin_folder, RAY_USAGE_STATS_ENABLED="0")
        self.port = free_port()
        self.address = f"{host}:{self.port}"
        self.nodes: list[RayNode] = []
        self._within = within
        self._head = (
            "--head",
            f"--port={self.port}",
            f"--ray-client-server-port={free_port()}",
            f"--temp-dir={self.folder}",
            f"--num-cpus={cpus}",
            *start,
        )

    def __enter__(self) -> "RayCluster":
        try:
            self._start(*self._head, within=self._within)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        for node in reversed(self.nodes):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def joined(self, cpus: int, within: Sequence[str] = ()) -> Iterator[RayNode]:
        """One more node as long as needed; `within` is a command that starts its own."""
        node = self._start(f"--address={self.address}", f"--num-cpus={cpus}", within=within)
        try:
            yield node
        finally:
            node.stop()
            self.nodes.remove(node)

    def _start(self, *words: str, within: Sequence[str] = (), tries: int = 3) -> RayNode:
        log = self.folder / f"node{len(self.nodes)}.log"
        own_ports = [
            f"--dashboard-agent-listen-port={free_port()}",
            "--min-worker-port=0",
            "--max-worker-port=0",
        ]
        with log.open("w") as file:
            process = subprocess.Popen(
                [*within, "ray", "start", *words, *own_ports, *_SMALL, "--block"],
                cwd=self.folder,
                env=self.environ,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        node = RayNode(process, log)
        self.nodes.append(node)
        until = time.monotonic() + _START_S
        while not all(each.has_started for each in self.nodes):
            assert time.monotonic() < until, log.read_text()[-3000:]
            if node.was_late and tries:
                node.stop()
                self.nodes.remove(node)
                return self._start(*words, within=within, tries=tries - 1)
            time.sleep(0.1)
        return node
