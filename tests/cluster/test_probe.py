"""The error, within seconds, for an address at which no run can join a Ray head."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from trial import plan_of, run, sample

from plait.cluster.executors import probe
from plait.cluster.executors.base import ClusterError
from plait.cluster.executors.probe import unreachable, use_token

grpc = pytest.importorskip("grpc", reason="needs grpcio, which Ray brings")

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


@contextmanager
def head(*handlers: Any) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


@contextmanager
def other_server() -> Iterator[str]:
    web = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{web.server_port}"
    web.shutdown()
    web.server_close()


@pytest.fixture
def closed() -> Iterator[str]:
    """A port that nobody listens on, nor can as long as the test lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does answer may take its time."""
    monkeypatch.setattr(probe, "_LIMIT_S", 60.0)


@pytest.mark.parametrize(
    ("token", "environ", "reason"),
    [
        (None, {}, None),
        (TOKEN, {}, "needs an authentication token: set RAY_AUTH_MODE=token"),
        (TOKEN, {"RAY_AUTH_TOKEN": "wrong"}, "does not accept"),
        # Ray looks for a token in two places, and sends it only where it is told to.
        (TOKEN, {"RAY_AUTH_TOKEN": TOKEN}, "set RAY_AUTH_MODE=token"),
        (TOKEN, {"RAY_AUTH_TOKEN": TOKEN, "RAY_AUTH_MODE": "disabled"}, "=token"),
        (TOKEN, {"RAY_AUTH_TOKEN": TOKEN, "RAY_AUTH_MODE": "token"}, None),
        (TOKEN, {"RAY_AUTH_TOKEN_PATH": "token", "RAY_AUTH_MODE": "token"}, None),
    ],
)
def test_a_head_that_wants_a_token_says_so(
    tmp_path: Path, token: str | None, environ: dict[str, str], reason: str | None
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    place = tmp_path / environ.get("RAY_AUTH_TOKEN_PATH", "none")
    with head(Head(token)) as address:
        said = unreachable(address, environ | {"RAY_AUTH_TOKEN_PATH": str(place)})
    assert said is None if reason is None else reason in str(said)


@pytest.mark.parametrize(
    ("asked", "given", "mode"),
    [
        (TOKEN, {"RAY_AUTH_TOKEN": TOKEN}, "token"),
        (TOKEN, {"RAY_AUTH_TOKEN_PATH": "token"}, "token"),
        (TOKEN, {"RAY_AUTH_TOKEN": TOKEN, "RAY_AUTH_MODE": "disabled"}, "disabled"),
        (TOKEN, {"RAY_AUTH_TOKEN": "wrong"}, None),
        (TOKEN, {}, None),
        (None, {"RAY_AUTH_TOKEN": TOKEN}, None),
    ],
)
def test_a_token_is_sent_where_it_is_asked_for_and_taken(
    tmp_path: Path, asked: str | None, given: dict[str, str], mode: str | None
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    place = tmp_path / given.get("RAY_AUTH_TOKEN_PATH", "none")
    environ = given | {"RAY_AUTH_TOKEN_PATH": str(place)}
    with head(Head(asked)) as address:
        said = use_token(address, environ)
        if mode == "token":
            assert unreachable(address, environ) is None
    assert environ.get("RAY_AUTH_MODE") == mode
    assert (said is not None) == (mode == "token")
    assert TOKEN not in str(said)


@pytest.mark.parametrize("address", ["head", "ray://127.0.0.1:10001", "127.0.0.1:0"])
def test_no_token_is_sent_to_what_is_no_head(address: str) -> None:
    environ = {"RAY_AUTH_TOKEN": TOKEN}
    assert use_token(address, environ) is None
    assert environ == {"RAY_AUTH_TOKEN": TOKEN}


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        *((text, "HOST:PORT") for text in ("head", "head:", ":6379", "head:99999")),
        ("no-such-host.invalid:6379", "'no-such-host.invalid' is unknown"),
        ("ray://head:10001", "ray job submit"),
    ],
)
def test_an_address_that_is_none_is_refused(address: str, reason: str) -> None:
    assert reason in str(unreachable(address))


def test_what_is_no_ray_head_is_named_and_not_waited_for(
    closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing listens there" in str(unreachable(closed))
    for other in (other_server(), head()):
        with other as address:
            assert "is not a Ray head" in str(unreachable(address))
    monkeypatch.setattr(probe, "_LIMIT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert unreachable(f"127.0.0.1:{silent.getsockname()[1]}") is not None


def test_a_run_with_a_dead_address_ends_within_seconds(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # by another test
    with pytest.raises(ClusterError, match=f"'{closed}': nothing listens there"):
        run(plan_of([sample(0)]), tmp_path, address=closed)
