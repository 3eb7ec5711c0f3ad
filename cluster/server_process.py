"""A server that a worker starts, watches and ends.

The server is not the worker's child but that of a `guardian.py`, so that it ends with the
worker however the worker ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from plait.generators.base import ServerCommand
from plait.generators.errors import PlaitError
from plait.generators.files import safe_name
from plait.generators.secrets import without_known_keys

LOG_FOLDER = "servers"
"""Folder of a run directory that holds what its servers wrote."""
_GUARDIAN = Path(__file__).with_name("guardian.py")
_HOST = "127.0.0.1"
_POLL_S = 0.2
_HEALTH_EVERY_S = 5.0
_HEALTH_TIMEOUT_S = 10.0
_STOP_MARGIN_S = 5.0
"""How much longer than its server the guardian may take to end."""
_PORT_ATTEMPTS = 3
"""Starts on other ports, where another process takes the free one first."""
_SHOWN_LINES = 15
_SHOWN_BYTES = 3000
"""Of the end of a log, in a message."""
_NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "RAY_")
"""Beginnings of variables that are the worker's own: a server may be another
environment's program, and must not find this one's modules."""


class ServerError(PlaitError, RuntimeError):
    """A server that plait starts cannot be used; the message ends with its log's end."""


class ServerProcess:
    """One running server."""

    def __init__(self, command: ServerCommand, log: Path) -> None:
        """Start it; `wait_ready` waits for it."""
        self.command = command
        self.log = log
        self.port = 0
        self.ended: Future[str] = Future()
        """Why it ended, once it has."""
        self._stopping = False
        self._group: int | None = None
        self._guard = threading.Lock()
        self._start()

    @property
    def url(self) -> str:
        """Where requests go."""
        return f"http://{_HOST}:{self.port}{self.command.path}"

    def wait_ready(self) -> None:
        """Wait until it is healthy; ServerError when it is not in time, or ends."""
        for attempt in range(_PORT_ATTEMPTS):
            try:
                self._wait_healthy()
                break
            except ServerError:
                taken = "address already in use" in self.log_end().lower()
                if self._stopping or not taken or attempt == _PORT_ATTEMPTS - 1:
                    raise
            self._start()  # another process took the port first
        self._check_software()
        threading.Thread(target=self._watch_health, daemon=True).start()

    def stop(self) -> None:
        """End it and all it has started, and wait until it has ended."""
        self._stopping = True
        with contextlib.suppress(OSError, ValueError):
            self._guardian_input.write(b"stop\n")
            self._guardian_input.flush()
        limit = self.command.stop_timeout_s + _STOP_MARGIN_S
        with contextlib.suppress(TimeoutError):
            self.ended.result(limit)
        with contextlib.suppress(OSError, ValueError):
            self._guardian_input.close()

    def has_ended(self, within_s: float = 0.0) -> bool:
        """Return whether it has ended, or does `within_s` seconds."""
        with contextlib.suppress(TimeoutError):
            self.ended.result(within_s)
        return self.ended.done()

    def log_end(self) -> str:
        """Return the last lines of its log, without keys."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _SHOWN_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        asked_by_plait = f"GET {self.command.health} "  # every few seconds
        lines: list[str] = []
        for line in without_known_keys(text).splitlines():
            if line.strip() and asked_by_plait not in line:
                lines.append(line.rstrip())
        return "\n".join(lines[-_SHOWN_LINES:])

    # ------------------------------------------------------------------------ starting

    def _start(self) -> None:
        """Start a guardian, which starts the server; `self.ended` is of this start."""
        self.ended = Future()
        self.port = self.command.port or _find_free_port()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        argv = [a.replace("{port}", str(self.port)) for a in self.command.argv]
        timeout = str(self.command.stop_timeout_s)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-I", str(_GUARDIAN), timeout, *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**_environment_to_inherit(), **dict(self.command.env)},
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.wait()  # the guardian goes on in a process that is nobody's child
        self._guardian_input = process.stdin
        reading = (process.stdout, self.ended)
        threading.Thread(target=self._read_guardian, args=reading, daemon=True).start()

    def _read_guardian(self, lines: Any, ended: Future[str]) -> None:
        """Read what the guardian says until it has ended; then `ended` has the reason."""
        reason = "it was killed together with its guardian"
        for line in lines:
            word, _, rest = line.decode(errors="replace").strip().partition(" ")
            if word == "started":
                self._group = int(rest)
            elif word == "exited":
                status = int(rest)
                if status < 0:
                    reason = f"it was killed by signal {-status}"
                else:
                    reason = f"it exited with status {status}"
            elif word == "failed":
                reason = f"it could not be started: {rest}"
        lines.close()
        # Where the guardian was killed, what the server has started may still be there.
        if self._group is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._group, 9)
        self._end(ended, reason)

    def _end(self, ended: Future[str], reason: str) -> None:
        with self._guard:
            if not ended.done():
                ended.set_result(f"server {self.command.name}: {reason}")

    def _wait_healthy(self) -> None:
        until = time.monotonic() + self.command.start_timeout_s
        while time.monotonic() < until:
            if self.has_ended(_POLL_S):
                raise self._error(self.ended.result())
            if self._is_healthy():
                return
        limit = f"{self.command.start_timeout_s:g} s"
        at = f"{self.command.health} on port {self.port}"
        self.stop()
        raise self._error(
            f"server {self.command.name}: {at} was not healthy after {limit} "
            "(raise start_timeout_s where it needs longer)"
        )

    def _error(self, reason: str) -> ServerError:
        end = self.log_end() or "(nothing)"
        return ServerError(f"{reason}. Its log {self.log} ends:\n{end}")

    def _check_software(self) -> None:
        """ServerError where another version runs than the one that names the results."""
        wanted = self.command
        if not wanted.version:
            return
        reported = reported_version(f"http://{_HOST}:{self.port}", wanted.software)
        if reported is None or _public(reported) == _public(wanted.version):
            return
        self.stop()
        raise ServerError(
            f"server {wanted.name} reports {wanted.software} {reported}, and the run was "
            f"planned with {wanted.version}: results are named by the version. Plan again "
            "where the same program is installed, or state the version in the config."
        )

    # ------------------------------------------------------------------------ watching

    def _is_healthy(self) -> bool:
        if self.command.health:
            return _got(f"http://{_HOST}:{self.port}{self.command.health}") is not None
        with contextlib.suppress(OSError):
            socket.create_connection((_HOST, self.port), 1.0).close()
            return True
        return False

    def _watch_health(self) -> None:
        """Count a server as ended whose health path gives no answer for too long."""
        healthy_at = time.monotonic()
        while not self.has_ended(_HEALTH_EVERY_S):
            if self._is_healthy():
                healthy_at = time.monotonic()
            elif time.monotonic() - healthy_at > self.command.hung_after_s:
                limit = f"{self.command.hung_after_s:g} s"
                self._end(self.ended, f"{self.command.health} gave no answer for {limit}")
                self.stop()


def _find_free_port() -> int:
    """A port of this machine that nobody listens on now; another process may take it."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _environment_to_inherit() -> dict[str, str]:
    """The variables of this process that its server is given."""
    inherited: dict[str, str] = {}
    for name, value in os.environ.items():
        if not name.startswith(_NOT_INHERITED):
            inherited[name] = value
    return inherited


def reported_version(base: str, software: str) -> str | None:
    """Return the version that a running server reports; None where it reports none.

    vLLM answers at `/version`, SGLang at `/server_info` (before 0.5.6:
    `/get_server_info`).
    """
    paths = {"vllm": ["/version"], "sglang": ["/server_info", "/get_server_info"]}
    for path in paths.get(software, []):
        with contextlib.suppress(ValueError, AttributeError):
            version = json.loads(_got(base + path) or b"{}").get("version")
            if isinstance(version, str):
                return version
    return None


def _got(url: str) -> bytes | None:
    """What a path of this machine answers with a status of 2xx; no proxy is asked."""
    import http.client
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_HEALTH_TIMEOUT_S) as reply:
            content: bytes = reply.read()
            return content
    except (http.client.HTTPException, OSError):
        return None


def _public(version: str) -> str:
    """Return a version without the part after `+`, which names a build."""
    return version.partition("+")[0].strip()


def log_path(root: Path, name: str) -> Path:
    """Return where a server of this process writes, under a run directory."""
    place = f"{safe_name(name)[:60]}-{socket.gethostname()}-{os.getpid()}.log"
    return root / LOG_FOLDER / place


def bypass_proxies() -> None:
    """Let requests of this process to its own machine go there directly."""
    for name in ("NO_PROXY", "no_proxy"):
        before = os.environ.get(name)
        os.environ[name] = f"{before},{_HOST},localhost" if before else f"{_HOST},localhost"
