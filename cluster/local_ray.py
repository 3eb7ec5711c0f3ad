"""A Ray on this machine that lives as long as the command, with what its workers need.

`ray.init` also starts an autoscaler, a log monitor and a server for the dashboard, of no
use to one command on one machine, and its raylet starts workers only once its agents have
imported all they need. On two idle cores that takes three seconds more. Here those three
are left out, and workers start together with the agents. Ray itself is imported only in
the thread that starts it, which a command can begin before it has anything to compute.

This builds on parts of Ray that are its own affair, so only releases with which it has been
tested are started so (`starts_lean`); others start by `ray.init`, only later.
"""

from __future__ import annotations

import atexit
import os
import random
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from cluster.manifest import CHECKOUT

QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Environment of all workers."""
_TESTED = ("2.60.",)
"""Releases of Ray."""
_PORTS = range(20_000, 32_000)
"""Below those that Linux gives to connections, so that a free one stays free."""


class LocalRay:
    """The processes of a Ray of one machine, from `begin` to `stop`."""

    def __init__(self, env: Mapping[str, str], **params: Any) -> None:
        """`env` is of its workers; `params` are fields of Ray's `RayParams`."""
        self._env, self._params = dict(env), params
        self._node: Any = None
        self._error: Exception | None = None
        self._settled, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._live, name="local-ray", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    @property
    def address(self) -> str:
        """Where drivers connect, once it has started; raises what starting it raised."""
        self._settled.wait()
        if self._error is not None:
            raise self._error
        return str(self._node.address)

    def stop(self, *, wait: bool = True) -> None:
        """End its processes, and wait for that or have it happen meanwhile."""
        self._stopping.set()
        if wait:
            self._thread.join()
            atexit.unregister(self.stop)

    def _live(self) -> None:
        try:
            self._node = _started(self._env, self._params)
        except Exception as error:
            self._error = error
        finally:
            self._settled.set()
        # Linux ends child processes together with the thread that has started them.
        self._stopping.wait()
        if self._node is not None:
            self._node.kill_all_processes(check_alive=False, allow_graceful=True)


def _started(env: Mapping[str, str], params: Mapping[str, Any]) -> Any:
    """A started node, which is Ray's own but for what it leaves out."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    class LocalNode(Node):  # type: ignore[misc]
        def start_monitor(self) -> None:
            """No autoscaler: one machine never grows."""

        def start_log_monitor(self) -> None:
            """No log monitor: what workers print is not sent to the driver."""

        def start_api_server(self, **_: Any) -> None:
            """No dashboard, and no reports of usage to Ray's makers."""

        def start_raylet(self, *args: Any, **kwargs: Any) -> None:
            _disown_metrics(self.get_session_dir_path(), self.node_id)
            with _minimal_agent():
                super().start_raylet(*args, **kwargs)

    about = RayParams(
        include_dashboard=False,
        env_vars=dict(env),
        runtime_env_agent_port=_free_port(),
        **params,
    )
    # As `ray.init` does; the hooks of `shutdown_at_exit` would replace those of the run.
    return LocalNode(about, head=True, shutdown_at_exit=False, ray_init_cluster=True)


def _disown_metrics(session: str, node: str) -> None:
    """Tell the raylet that the dashboard's agent will serve nothing.

    A minimal agent says so itself, but the raylet starts no worker before it has.
    """
    from ray import _raylet

    raylet: Any = _raylet
    for name in (
        raylet.METRICS_AGENT_PORT_NAME,
        raylet.METRICS_EXPORT_PORT_NAME,
        raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
    ):
        raylet.persist_port(session, node, name, -1)


@contextmanager
def _minimal_agent() -> Iterator[None]:
    """The dashboard's agent starts as of `ray` without the extra `default`.

    Ray finds out by importing all that the extra brings, here and in the agent.
    """
    from ray._private import utils

    asked = utils.get_dashboard_dependency_error
    utils.get_dashboard_dependency_error = lambda: ImportError("no dashboard is wanted")
    try:
        yield
    finally:
        utils.get_dashboard_dependency_error = asked


def _free_port() -> int:
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as trial:
            try:
                trial.bind(("", port))
            except OSError:
                continue
            return port


_begun: LocalRay | None = None


def begin(**params: Any) -> LocalRay:
    """The Ray of this process, which begins to start unless it has before.

    Workers are configured by the environment they inherit: with a `runtime_env`, Ray could
    not use the processes that it starts in advance.
    """
    global _begun
    if _begun is None:
        _begun = LocalRay(worker_environment(), **params)
    return _begun


def starts_lean() -> bool:
    """Whether Ray is of a tested release, and not to be protected by a token."""
    protected = os.environ.get("RAY_AUTH_MODE", "disabled").lower() != "disabled"
    return metadata.version("ray").startswith(_TESTED) and not protected


def anticipate(address: str | None) -> None:
    """Begin to start Ray for a run with this address, if it will start its own."""
    ray = sys.modules.get("ray")
    begins = is_local(address) and starts_lean()
    if begins and not (ray is not None and ray.is_initialized()):
        begin()


def stop(*, wait: bool = True) -> None:
    """Stop what `begin` has started; without `wait`, at the latest when Python ends."""
    global _begun
    if _begun is not None:
        _begun.stop(wait=wait)
        _begun = None


def worker_environment() -> dict[str, str]:
    """Environment variables of the workers on this machine, besides the inherited ones."""
    path = os.pathsep.join([*import_path(), os.environ.get("PYTHONPATH", "")])
    return QUIET | {"PYTHONPATH": path.rstrip(os.pathsep)}


def import_path() -> list[str]:
    """Where this process finds code that is not installed: local workers look there."""
    installed = (sys.prefix, sys.base_prefix)
    folders = [p for p in sys.path if p and not p.startswith(installed)]
    return list(dict.fromkeys([str(CHECKOUT), *folders]))


def is_local(address: str | None) -> bool:
    """Whether a run with this address starts its own Ray, which never grows."""
    return address is None and "RAY_ADDRESS" not in os.environ and not inside_job()


def inside_job() -> bool:
    """Whether this process is the driver of a job that was submitted to a cluster."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
