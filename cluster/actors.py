"""The one module that talks to Ray: connect, start and stop workers, watch nodes."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

# Deaths of workers are expected here and reported by plait itself.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")

import ray
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
)

from cluster import local_ray
from cluster.local_ray import QUIET, import_path, inside_job, is_local
from cluster.manifest import CHECKOUT
from cluster.placement import Node, Resources
from cluster.probe import unreachable
from cluster.usage import committed_usage
from cluster.worker import Worker
from generators.base import StageSpec
from generators.errors import PlaitError

_NOT_SHIPPED = ["runs", "tests", ".git", ".venv", ".mypy_cache", "*.parquet"]
_ACTOR_THREADS = 8

_actor_class = ray.remote(concurrency_groups={"control": 2})(Worker)

ActorDied = (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnavailableError)
WorkerLost = (*ActorDied, ray.exceptions.RayError)


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A connection to the cluster at `address`, or a local one for as long as needed.

    With an address the code is shipped: plait's own as `working_dir`, a user's imported
    modules as `py_modules`. Inside a submitted job workers inherit its working directory.
    """
    if ray.is_initialized():
        yield
        return
    if is_local(address):
        start_local()
    else:
        _join(address, ship=not inside_job())
    try:
        yield
    finally:
        stop_local(wait=False)


def start_local(**params: Any) -> Any:
    """Start a Ray that lives as long as this process, unless `local_ray.begin` has.

    `params` are fields of Ray's `RayParams`, as `num_cpus`. Returns Ray's context.
    """
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if local_ray.starts_lean():
        return ray.init(address=local_ray.begin(**params).address, **quiet)
    with _environment(local_ray.worker_environment()):
        return ray.init(address="local", include_dashboard=False, **quiet, **params)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables are set within; processes started then inherit them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def stop_local(*, wait: bool = True) -> None:
    """Stop what `start_local` has started."""
    ray.shutdown()
    local_ray.stop(wait=wait)


def _join(address: str | None, *, ship: bool) -> None:
    named = address or os.environ.get("RAY_ADDRESS", "auto")
    _refuse_unreachable(named)
    runtime_env: dict[str, Any] = {"env_vars": dict(QUIET)}
    if ship:
        runtime_env |= {
            "working_dir": str(CHECKOUT),
            "py_modules": user_modules(),
            "excludes": _NOT_SHIPPED,
        }
    try:
        ray.init(
            address=address or "auto",
            runtime_env=runtime_env,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except ray.exceptions.RuntimeEnvSetupError as error:
        raise ClusterError(
            f"code cannot be sent to the Ray cluster at {named!r}: {error}"
        ) from error
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ClusterError(f"no Ray cluster answers at {named!r}: {error}") from error


def _refuse_unreachable(address: str) -> None:
    """ClusterError that says what is wrong with an address, within seconds."""
    located = _located(address)
    if located == "local":
        return
    if reason := unreachable(located):
        where = repr(address) if located == address else f"{address!r} ({located})"
        raise ClusterError(f"no Ray cluster can be used at {where}: {reason}")


def _located(address: str) -> str:
    """The address; for `auto`, that of the head which Ray finds on this machine."""
    if address != "auto":
        return address
    try:
        return str(ray._private.services.get_ray_address_from_environment("auto", None))
    except ConnectionError:
        raise ClusterError(
            "no Ray cluster runs on this machine; name one with --address HOST:PORT, or "
            "leave the address out to start a local Ray"
        ) from None


def user_modules() -> list[str]:
    """Files and package folders of imported modules that are a user's own, as `mine.py`.

    They are neither installed nor part of the checkout, so other nodes do not have them.
    The driver has imported every class that is named `module:Class`, and with it what
    that module needs from its folder.
    """
    folders = {os.path.abspath(p) for p in import_path()} - {str(CHECKOUT)}
    top_level = [m for name, m in sorted(sys.modules.items()) if "." not in name]
    sources = [source for m in top_level if (source := _source(m)) is not None]
    return [str(s) for s in dict.fromkeys(sources) if str(s.parent) in folders]


def _source(module: ModuleType) -> Path | None:
    """The file of a module, or the folder of a package; None for any other kind."""
    places = list(getattr(module, "__path__", ()))
    if not places and module.__name__ != "__main__":
        places = [getattr(module, "__file__", None) or ""]
    if len(places) != 1:
        return None
    source = Path(os.path.abspath(places[0]))
    return source if source.is_dir() or source.suffix == ".py" else None


class ClusterError(PlaitError, RuntimeError):
    """The Ray cluster cannot be reached or cannot host a stage."""


@dataclass
class Handle:
    """A worker as the driver holds it."""

    actor: Any
    node: str
    """Id of the node it was placed on."""

    def call(self, method: str, *args: Any, control: bool = False) -> Any:
        """Start `method` on the worker; returns the reference to its answer."""
        remote = getattr(self.actor, method)
        if control:
            remote = remote.options(concurrency_group="control")
        return remote.remote(*args)

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(Exception):
            ray.kill(self.actor, no_restart=True)


def start(spec: StageSpec, root: Path, node: str) -> Handle:
    """Ask Ray for a worker of `spec` on `node`; it is loaded by its own `load` call."""
    placement = spec.placement
    options: dict[str, Any] = {
        "num_cpus": placement.num_cpus,
        "num_gpus": placement.num_gpus,
        "max_concurrency": max(_ACTOR_THREADS, placement.concurrency + 2),
        "max_restarts": 0,
    }
    if placement.memory_gib:
        options["memory"] = int(placement.memory_gib * 2**30)
    affinity = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    options["scheduling_strategy"] = affinity
    secrets = {name: os.environ[name] for name in spec.secrets if name in os.environ}
    # Only stages behind an endpoint have ceilings, and only those read the parts again.
    used = committed_usage(root, spec) if placement.endpoint else {}
    actor = _actor_class.options(**options).remote(spec, str(root), secrets, used)
    return Handle(actor, node)


def nodes() -> list[Node]:
    """The nodes that are alive, with all the resources of each."""
    return [
        Node(n["NodeID"], Resources.of_node(n["Resources"]))
        for n in ray.nodes()
        if n["Alive"] and not n["Resources"].get("plait_excluded")
    ]


def wait(refs: list[Any], timeout_s: float) -> list[Any]:
    """Those of `refs` that are ready, waiting at most `timeout_s` for the first.

    Without any, the whole time: a run that waits for resources must not keep a core busy.
    """
    if not refs:
        time.sleep(timeout_s)
        return []
    ready, _ = ray.wait(refs, num_returns=1, timeout=timeout_s)
    if ready and len(refs) > 1:
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
    return list(ready)


def wait_for_all(refs: list[Any], timeout_s: float) -> None:
    """Wait until all of `refs` are ready, for at most `timeout_s`."""
    if refs:
        ray.wait(refs, num_returns=len(refs), timeout=timeout_s)


def result(ref: Any) -> Any:
    """The value of a ready reference; raises what the call raised."""
    return ray.get(ref)


def cause_of_death(message: str) -> str:
    """The line of Ray's message that says why a worker died."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    words = ("killed", "exit", "died", "memory", "disconnect", "dead")
    causes = (x for x in lines[1:] if any(word in x.lower() for word in words))
    reason = next(causes, lines[0] if lines else "no reason given")
    return reason.partition(" Some common causes include")[0]
