"""Whether a Ray head answers at an address; known in seconds, before Ray is started.

`ray.init` tries a dead address for a quarter of an hour, and reports a head that needs a
token only as a failed connection.
"""

from __future__ import annotations

import contextlib
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
    host, _, port = address.removeprefix(_CLIENT_PREFIX).rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        return "it is not of the form HOST:PORT"
    try:
        socket.create_connection((host.strip("[]"), int(port)), _LIMIT_S).close()
    except socket.gaierror:
        return f"host {host!r} is unknown on this machine"
    except TimeoutError:
        return (
            f"nothing answered within {_LIMIT_S:g} s (a firewall, or a host that is down)"
        )
    except OSError as error:
        return f"nothing listens there ({error.strerror or error})"
    if address.startswith(_CLIENT_PREFIX):
        return None
    status = _status(f"{host}:{port}", None)
    if status == "UNAUTHENTICATED":
        refusal = _token_refusal(f"{host}:{port}", environ)
        return refusal and f"the head {refusal}: {_ADVICE}"
    if status in ("UNAVAILABLE", "UNIMPLEMENTED"):
        return "what listens there is not a Ray head (its port is 6379 unless set)"
    if status == "DEADLINE_EXCEEDED":
        return f"something listens there but did not answer within {_LIMIT_S:g} s"
    return None


def _token_refusal(target: str, environ: Mapping[str, str]) -> str | None:
    """Return what a head that needs a token makes of the user's, as Ray would send it."""
    token, mode = environ.get("RAY_AUTH_TOKEN", "").strip(), environ.get("RAY_AUTH_MODE")
    if not token:
        file = environ.get("RAY_AUTH_TOKEN_PATH") or _DEFAULT_TOKEN_FILE
        with contextlib.suppress(OSError):
            token = Path(file).expanduser().read_text().strip()
    if not token:
        return "needs an authentication token"
    if _status(target, token) == "UNAUTHENTICATED":
        return "does not accept your authentication token"
    if mode != "token":
        # Ray then sends no token, although it has found one.
        known = "not set" if mode is None else repr(mode)
        return f"needs an authentication token, but RAY_AUTH_MODE is {known}"
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
