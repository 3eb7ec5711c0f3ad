"""The error, within seconds, for an address at which no run can join a Ray head."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from paths import CHECKOUT

from cluster.executors import probe
from cluster.executors.probe import unreachable

TOKEN = "0123456789abcdef0123456789abcdef"


class Head(grpc.GenericRpcHandler):
    """Answers the one call as a head does, with or without a token."""

    def __init__(self, token: str | None) -> None:
        self.token = token

    def service(self, details: Any) -> Any:
        if details.method != "/ray.rpc.NodeInfoGcsService/CheckAlive":
            return None
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: Any) -> bytes:
        sent = dict(context.invocation_metadata()).get("authorization")
        if self.token and sent != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
        return b""


def head(*handlers: Any) -> tuple[Any, str]:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


@pytest.fixture
def guarded() -> Iterator[str]:
    server, address = head(Head(TOKEN))
    yield address
    server.stop(None)


@pytest.fixture
def closed() -> str:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def no_token(tmp_path: Path) -> dict[str, str]:
    return {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}


def test_a_head_without_a_token_can_be_joined() -> None:
    server, address = head(Head(None))
    assert unreachable(address, {}) is None
    server.stop(None)


def test_a_head_that_wants_a_token_says_so(guarded: str, no_token: dict[str, str]) -> None:
    reason = unreachable(guarded, no_token)
    assert reason is not None
    assert "the head needs an authentication token: set RAY_AUTH_MODE=token" in reason
    wrong = unreachable(guarded, {"RAY_AUTH_TOKEN": "wrong"})
    assert wrong is not None
    assert "does not accept your authentication token" in wrong


@pytest.mark.parametrize("mode", [None, "disabled", "token"])
@pytest.mark.parametrize("name", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
def test_a_token_is_sent_only_in_token_mode(
    guarded: str, tmp_path: Path, name: str, mode: str | None
) -> None:
    """Ray looks for a token in both places, and sends it only where it is told to."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    environ = {name: TOKEN if name == "RAY_AUTH_TOKEN" else str(tmp_path / "token")}
    environ |= {"RAY_AUTH_MODE": mode} if mode else {}
    reason = unreachable(guarded, environ)
    assert (reason is None) == (mode == "token")
    assert mode == "token" or "set RAY_AUTH_MODE=token" in str(reason)


def test_a_port_where_nothing_listens_is_named_so(closed: str) -> None:
    assert unreachable(closed) == "nothing listens there (Connection refused)"
    assert unreachable(f"ray://{closed}") == "nothing listens there (Connection refused)"


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "head:port", "head:99999"])
def test_an_address_without_host_and_port_is_refused(address: str) -> None:
    assert unreachable(address) == "it is not of the form HOST:PORT"


def test_a_host_that_is_not_known_is_named() -> None:
    assert unreachable("no-such-host.invalid:6379") == (
        "host 'no-such-host.invalid' is unknown on this machine"
    )


def test_servers_of_another_kind_are_no_ray_heads() -> None:
    web = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    other, address = head()
    for place in (f"127.0.0.1:{web.server_port}", address):
        assert "is not a Ray head" in str(unreachable(place))
    web.shutdown()
    web.server_close()
    other.stop(None)


def test_a_server_that_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "_LIMIT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        reason = unreachable(f"127.0.0.1:{silent.getsockname()[1]}")
        assert reason is not None
        assert time.monotonic() - began < 5


def test_a_run_with_a_dead_address_ends_within_seconds(closed: str, tmp_path: Path) -> None:
    command = ["plait.py", "run", "--weights", "tiny", "--system", "anole", "--limit", "1"]
    where = ["--address", closed, "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / command[0]), *command[1:], *where],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert (
        f"plait: no Ray cluster can be used at '{closed}': nothing listens there"
        in done.stderr
    )
