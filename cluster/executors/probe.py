"""Whether a Ray head answers at an address; known in seconds, before Ray is started.

`ray.init` tries a dead address for a quarter of an hour, and reports a head that needs a
token only as a failed connection.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

_LIMIT_S = 5.0
_CHECK_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_CLIENT_PREFIX = "ray://"
_DEFAULT_TOKEN_FILE = "~/.ray/auth_token"
_ADVICE = (
    "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH for a file other "
    f"than {_DEFAULT_TOKEN_FILE}. That file alone makes `ray start` and `ray "
    "symmetric-run` ask for tokens; RAY_AUTH_MODE=disabled on all nodes prevents it"
)


def unreachable(address: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return why no driver can join the Ray head at `address`; None where nothing is wrong.

    Args:
        address: `HOST:PORT` of a head, or `ray://HOST:PORT` of its client server.
        environ: Environment variables, which may name a token for the head.
    """
    host, port = _host_and_port(address)
    if port is None:
        return "it is not of the form HOST:PORT"
    if reason := _connection_refusal(host, port):
        return reason
    if address.startswith(_CLIENT_PREFIX):
        return None
    return _head_refusal(f"{host}:{port}", environ)


def _host_and_port(address: str) -> tuple[str, int | None]:
    host, _, port = address.removeprefix(_CLIENT_PREFIX).rpartition(":")
    valid = host and port.isdecimal() and 0 < int(port) < 2**16
    return host, int(port) if valid else None


def _connection_refusal(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host.strip("[]"), port), _LIMIT_S).close()
    except socket.gaierror:
        return f"host {host!r} is unknown on this machine"
    except TimeoutError:
        return (
            f"nothing answered within {_LIMIT_S:g} s (a firewall, or a host that is down)"
        )
    except OSError as error:
        return f"nothing listens there ({error.strerror or error})"
    return None


def _head_refusal(target: str, environ: Mapping[str, str]) -> str | None:
    """Return why the head refuses a driver, without a token or with the user's."""
    status = _status(target, None)
    if status == "UNAUTHENTICATED":
        return _token_refusal(target, environ)
    if status in ("UNAVAILABLE", "UNIMPLEMENTED"):
        return "what listens there is not a Ray head (its port is 6379 unless set)"
    if status == "DEADLINE_EXCEEDED":
        return f"something listens there but did not answer within {_LIMIT_S:g} s"
    return None


def _token_refusal(target: str, environ: Mapping[str, str]) -> str | None:
    token, mode = _token(environ), environ.get("RAY_AUTH_MODE")
    if token is None:
        return f"the head needs an authentication token: {_ADVICE}"
    if _status(target, token) == "UNAUTHENTICATED":
        return f"the head does not accept your authentication token: {_ADVICE}"
    if mode != "token":
        # Ray then sends no token, although it has found one.
        known = "not set" if mode is None else repr(mode)
        return (
            f"the head needs an authentication token, but RAY_AUTH_MODE is {known}: "
            f"{_ADVICE}"
        )
    return None


def _token(environ: Mapping[str, str]) -> str | None:
    """Return the token that Ray would send, from where Ray looks for one."""
    if token := environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    file = environ.get("RAY_AUTH_TOKEN_PATH") or _DEFAULT_TOKEN_FILE
    try:
        return Path(file).expanduser().read_text().strip() or None
    except OSError:
        return None


def _status(target: str, token: str | None) -> str:
    """Name of the gRPC status with which a head answers `CheckAlive`."""
    import grpc  # type: ignore[import-untyped]

    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    # Ray's own connections use no proxy.
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(target, options=options) as channel:
        call = channel.unary_unary(_CHECK_ALIVE)
        try:
            call(b"", timeout=_LIMIT_S, metadata=metadata)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"
