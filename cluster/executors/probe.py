"""Whether a Ray head answers at an address; known in seconds, before Ray is started.

`ray.init` tries a dead address for a quarter of an hour, and reports a head that needs a
token only as a failed connection. Nothing here imports Ray, which reads `RAY_AUTH_MODE`
when it is imported.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from plait.cluster.executors.base import ClusterError

_LIMIT_S = 5.0
_CHECK_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_CLIENT_PREFIX = "ray://"
_MODE = "RAY_AUTH_MODE"
_DEFAULT_TOKEN_FILE = "~/.ray/auth_token"
_ADVICE = (
    "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH for a file other "
    f"than {_DEFAULT_TOKEN_FILE}. That file alone makes `ray start` and `ray "
    "symmetric-run` ask for tokens; RAY_AUTH_MODE=disabled on all nodes prevents it"
)


def is_local(address: str | None) -> bool:
    """Return whether a run with this address starts its own Ray, which never grows."""
    return address is None and "RAY_ADDRESS" not in os.environ and not is_inside_job()


def is_inside_job() -> bool:
    """Return whether this process is the driver of a job submitted to a cluster."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def locate(address: str | None) -> str:
    """Return the address of a head; for `auto`, of the one that runs on this machine.

    Raises:
        ClusterError: Where none has been started here.
    """
    if address and address != "auto":
        return address
    named = os.environ.get("RAY_ADDRESS", "auto")
    if named != "auto":
        return named
    # `ray start` notes it there.
    temporary = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray"
    try:
        return (temporary / "ray_current_cluster").read_text().strip()
    except OSError:
        raise ClusterError(
            "no Ray cluster runs on this machine; name one with --address HOST:PORT, or "
            "leave the address out to start a local Ray"
        ) from None


def use_token(address: str, environ: MutableMapping[str, str] = os.environ) -> str | None:
    """Have Ray send the token that is there to a head that asks for it and takes it.

    Ray sends none before `RAY_AUTH_MODE` is `token`, which it reads when it is imported. A
    mode that the user has set stays as it is.

    Returns:
        What is sent, for people; None where nothing is changed.
    """
    if _MODE in environ or _port(address) is None:
        return None
    if _status(address, None) != "UNAUTHENTICATED":
        return None
    token, source = _token(environ)
    if not token or _status(address, token) == "UNAUTHENTICATED":
        return None
    environ[_MODE] = "token"
    return f"the Ray head at {address} asks for a token: it is sent the one in {source}"


def unreachable(address: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return why no driver can join the Ray head at `address`; None where nothing is wrong.

    Args:
        address: `HOST:PORT` of a head.
        environ: Environment variables, which may name a token for the head.
    """
    if address.startswith(_CLIENT_PREFIX):
        return (
            "Ray Client (ray://) is not supported, as it lacks what workers need; give "
            "HOST:PORT of the head (its port is 6379 unless set), or submit the command "
            "as a job (ray job submit)"
        )
    port = _port(address)
    if port is None:
        return "it is not of the form HOST:PORT"
    host = address.rpartition(":")[0]
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
    status = _status(address, None)
    if status == "UNAUTHENTICATED":
        refusal = _token_refusal(address, environ)
        return refusal and f"the head {refusal}: {_ADVICE}"
    if status in ("UNAVAILABLE", "UNIMPLEMENTED"):
        return "what listens there is not a Ray head (its port is 6379 unless set)"
    if status == "DEADLINE_EXCEEDED":
        return f"something listens there but did not answer within {_LIMIT_S:g} s"
    return None


def _port(address: str) -> int | None:
    """Return the port of `HOST:PORT`; None for what is of another form."""
    host, _, port = address.rpartition(":")
    if address.startswith(_CLIENT_PREFIX) or not (host and port.isdecimal()):
        return None
    return int(port) if 0 < int(port) < 2**16 else None


def _token_refusal(target: str, environ: Mapping[str, str]) -> str | None:
    """Return what a head that needs a token makes of the user's, as Ray would send it."""
    token, source = _token(environ)
    if not token:
        return "needs an authentication token"
    if _status(target, token) == "UNAUTHENTICATED":
        return f"does not accept the authentication token in {source}"
    mode = environ.get(_MODE)
    if mode != "token":
        # Ray then sends no token, although it has found one.
        known = "not set" if mode is None else repr(mode)
        return f"needs an authentication token, but {_MODE} is {known}"
    return None


def has_token(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether Ray would find a token."""
    return bool(_token(environ)[0])


def _token(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the token that Ray would find, empty if none, and where it is."""
    token = environ.get("RAY_AUTH_TOKEN", "").strip()
    if token:
        return token, "RAY_AUTH_TOKEN"
    file = environ.get("RAY_AUTH_TOKEN_PATH") or _DEFAULT_TOKEN_FILE
    with contextlib.suppress(OSError):
        token = Path(file).expanduser().read_text().strip()
    return token, file


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
