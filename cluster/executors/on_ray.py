"""Workers as actors of Ray, on this machine or a cluster; all that plait asks of Ray.

`connect` starts or joins a Ray and yields a `RayExecutor`, the executor (`base.py`) that
the engine knows. Only this module imports Ray; what is to be known before that, such as
whether a head answers, `probe.py` finds out.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pickle import PicklingError
from types import ModuleType
from typing import Any

# Deaths of workers are expected here and reported by plait itself.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")

import psutil  # type: ignore[import-untyped]
import ray
from ray.util import get_node_ip_address
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from plait.cluster.executors.base import ClusterError, Executor, HostLost, Ref
from plait.cluster.executors.exits import LocalExits, reason_of
from plait.cluster.executors.holders import in_words
from plait.cluster.executors.node_watch import NodeWatch
from plait.cluster.executors.probe import (
    has_token,
    is_inside_job,
    is_local,
    locate,
    unreachable,
)
from plait.cluster.lock import self_description
from plait.cluster.manifest import PACKAGE
from plait.cluster.placement import Node, Resources
from plait.cluster.threads import in_background
from plait.cluster.worker import Worker
from plait.generators.base import Placement, StageSpec

_ACTOR_THREADS = 8
"""Of a worker at least: one batch computes while others are read and written."""
_LEAVING_S = 3.0
"""How long the driver waits for Ray when it disconnects."""
_NODES_LIMIT_S = 1.0
"""How long it may take to name the nodes; else those are taken that were named last."""
_STATE_LIMIT_S = 5
"""How long Ray may take to say who holds resources."""
_MOST_LISTED = 10_000
"""As many actors as Ray lists at once."""
_HEAD_SILENCE_S = 45.0
"""After how long a run ends in order; after 60 s Ray ends its process without a word."""
_STARTS = 3
"""How often a local Ray is started: it gives itself 30 s, too few where all is busy."""
_STARTED_LATE = "timed out during startup"
_RAISED_BY_INIT = "error raised in its creation task"
"""What Ray says of a worker whose code could not be imported, or whose class raised."""
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Environment of all workers."""


class _RayWorker(Worker):
    """A worker that says which process it is, and whose batches travel as bytes."""

    def run_pickled(self, batches: bytes) -> bytes:
        """`run_all` of pickled batches; the receipts, pickled.

        Python pickles them several times faster than Ray, which asks for each value
        whether it is one that only Ray can pickle.
        """
        return pickle.dumps(self.run_all(pickle.loads(batches)))

    def process(self) -> tuple[str, dict[str, Any]]:
        """Return its id as an actor, and what tells its process from all others."""
        return ray.get_runtime_context().get_actor_id(), self_description()


_actor_class = ray.remote(concurrency_groups={"control": 2})(_RayWorker)


@dataclass
class RayHost:
    """An actor."""

    actor: Any
    node: Node

    def call(self, method: str, *args: Any, control: bool = False) -> Ref:
        """Start a method of the worker."""
        if method == "run_all":
            return self.actor.run_pickled.remote(pickle.dumps(*args))
        remote = getattr(self.actor, method)
        if control:
            remote = remote.options(concurrency_group="control")
        return remote.remote(*args)

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(Exception):
            ray.kill(self.actor, no_restart=True)


class RayExecutor(Executor):
    """The Ray to which this process is connected."""

    def __init__(self, *, fixed: bool, head: str | None = None) -> None:
        """`head` is the address at which a head other than one's own answers."""
        self.fixed = fixed
        # The driver's own machine need not be watched.
        self.signs = None if fixed else NodeWatch()
        self._head: Node | None = None
        if head is not None:
            host, _, port = head.rpartition(":")
            self._head = Node(head, Resources(), host.strip("[]"), int(port))
        self._nodes: list[Node] | None = None
        self._asked: Future[list[Node]] | None = None
        self._exits = LocalExits()

    def nodes(self) -> list[Node]:
        """Return those that Ray takes to be alive; ClusterError where its head is gone."""
        if self._head is not None and self.silent_s(self._head.id) > _HEAD_SILENCE_S:
            raise ClusterError(
                f"the Ray head at {self._head.id} has given no sign for "
                f"{_HEAD_SILENCE_S:.0f} s. Everything committed is kept: run the same "
                "command again once a cluster is there."
            )
        # Without a head Ray does not answer, and nothing else could be done meanwhile.
        if self._asked is None:
            self._asked = in_background(_list_living_nodes)
        # Ray may have named no node at all just before its head was lost.
        wait([self._asked], None if self._nodes is None else _NODES_LIMIT_S)
        if self._asked.done():
            self._nodes = self._asked.result()
            self._asked = None
        assert self._nodes is not None
        return self._nodes

    def watch(self, nodes: Iterable[Node]) -> None:
        """Watch these nodes, and the head."""
        super().watch(nodes if self._head is None else {*nodes, self._head})

    def start(self, placement: Placement, node: Node, given: tuple[Any, ...]) -> RayHost:
        """Ask Ray for an actor; ClusterError where what it is given cannot be sent."""
        options: dict[str, Any] = {
            "num_cpus": placement.num_cpus,
            "num_gpus": placement.num_gpus,
            "max_concurrency": max(_ACTOR_THREADS, placement.concurrency + 2),
            "max_restarts": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False),
        }
        if placement.memory_gib:
            options["memory"] = int(placement.memory_gib * 2**30)
        try:
            host = RayHost(_actor_class.options(**options).remote(*given), node)
        except (TypeError, PicklingError) as error:
            # Of `given`, only what a user gave from Python may be of any type.
            spec: StageSpec = given[0]
            reason = str(error.__cause__ or error).strip().splitlines()[-1]
            raise ClusterError(
                f"{spec.name} cannot be sent to workers on Ray: {reason}. Pass its class, "
                "which each worker then makes for itself, or use --executor local (from "
                "Python, executor='local')"
            ) from error
        if node.address == get_node_ip_address():
            in_background(self._follow, host)
        return host

    def _follow(self, host: RayHost) -> None:
        """Watch how the process of a host on this machine ends, once it is there."""
        self._exits.follow(*ray.get(host.call("process", control=True)))

    def held_by_others(self) -> list[str]:
        """Ask Ray's dashboard, where the cluster has one."""
        if self.fixed:
            return []
        from ray.util.state import list_actors, list_jobs
        from ray.util.state.exception import RayStateApiException

        context = ray.get_runtime_context()
        options: dict[str, Any] = {
            "address": context.gcs_address,
            "timeout": _STATE_LIMIT_S,
            "limit": _MOST_LISTED,
            "raise_on_missing_output": False,
            "detail": True,
        }
        try:
            actors = list_actors(filters=[("state", "=", "ALIVE")], **options)
            drivers = {job.job_id: job.driver_info for job in list_jobs(**options)}
        except (RayStateApiException, OSError, ValueError, RuntimeError):
            return []
        return in_words(actors, drivers, context.get_job_id(), get_node_ip_address())

    def wait(self, refs: Collection[Ref], timeout_s: float) -> list[Ref]:
        """Return those that are ready."""
        if not refs:
            time.sleep(timeout_s)
            return []
        ready, _ = ray.wait(list(refs), num_returns=1, timeout=timeout_s)
        if ready and len(refs) > 1:
            # Ray returned the first; others may be ready by now, too.
            ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=0)
        return list(ready)

    def wait_for_all(self, refs: Sequence[Ref], timeout_s: float) -> None:
        """Wait until all are ready."""
        if refs:
            ray.wait(list(refs), num_returns=len(refs), timeout=timeout_s)

    def result(self, ref: Ref) -> Any:
        """Return the value of a ready reference."""
        try:
            value = ray.get(ref)
        except ray.exceptions.RayError as error:
            raise host_lost(error, self._exits) from error
        return pickle.loads(value) if isinstance(value, bytes) else value

    def close(self) -> None:
        """Watch no node and no process any more."""
        super().close()
        self._exits.close()


def _list_living_nodes() -> list[Node]:
    return [_node_of(about) for about in ray.nodes() if about["Alive"]]


def _node_of(about: Mapping[str, Any]) -> Node:
    has = about["Resources"]
    total = Resources(has.get("CPU", 0.0), has.get("GPU", 0.0), has.get("memory", 0.0))
    address = about["NodeManagerAddress"]
    return Node(about["NodeID"], total, address, about["NodeManagerPort"])


def host_lost(error: Exception, exits: LocalExits | None = None) -> HostLost:
    """Return what an error of Ray's says of a host; `exits` may know more of its end."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    is_without_code = isinstance(error, ray.exceptions.RuntimeEnvSetupError)
    if is_without_code or _RAISED_BY_INIT in text:
        return HostLost(lines[-1], refused=True)
    reason = reason_of(text, exits)
    if reason:
        return HostLost(reason)
    return HostLost(_find_cause(lines).partition(" Some common causes include")[0])


def _find_cause(lines: Sequence[str]) -> str:
    """The line of Ray's message that names a cause, else its first one."""
    for line in lines[1:]:
        words_of_cause = ("killed", "exit", "died", "memory", "disconnect", "dead")
        if any(word in line.lower() for word in words_of_cause):
            return line
    return lines[0] if lines else "no reason given"


# ---------------------------------------------------------------------- connecting


@contextlib.contextmanager
def connect(address: str | None) -> Iterator[RayExecutor]:
    """A connection to the cluster at `address`, or a local one for as long as needed.

    With an address the code is shipped: plait's packages and the modules of the user's own
    that are imported. Inside a submitted job workers inherit its working directory.
    """
    local = is_local(address)
    with contextlib.ExitStack() as stack:
        if not ray.is_initialized():
            # Before it is there: what was begun when a signal came is ended too.
            stack.callback(ray.shutdown if local else _leave)
            if local:
                start_local()
            else:
                _join(address, ship=not is_inside_job())
        head = None if local else ray.get_runtime_context().gcs_address
        executor = RayExecutor(fixed=local, head=head)
        yield stack.enter_context(contextlib.closing(executor))


def start_local(**params: Any) -> Any:
    """Start a Ray that lives as long as this process; `params` as of `ray.init`."""
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    folders = list(dict.fromkeys([str(PACKAGE.parent), *_users_folders()]))
    path = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
    own = _QUIET | {"PYTHONPATH": path.rstrip(os.pathsep)} | _own_token()
    # Workers inherit their environment: with a `runtime_env`, Ray could not use the
    # processes that it starts in advance.
    # Ray sets its mode for all that this process starts later, too.
    with _environment(own, "RAY_AUTH_MODE"):
        left = _STARTS
        while True:
            left -= 1
            before = set(psutil.Process().children())
            try:
                return ray.init(address="local", **quiet, **params)
            except Exception as error:
                # Not subclasses such as ConnectionError: Ray has its own reasons for those.
                if type(error) in (OSError, FileNotFoundError, PermissionError):
                    raise ClusterError(_no_folder(error)) from error
                if not left or _STARTED_LATE not in str(error):
                    raise
            # What came up too late would stand beside the next one.
            for process in set(psutil.Process().children()) - before:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def _no_folder(error: Exception) -> str:
    """Return what to do where Ray cannot make its files and sockets."""
    place = tempfile.gettempdir()
    for name in ("RAY_TMPDIR", "TMPDIR"):  # as Ray looks for it
        if os.environ.get(name):
            place = f"{os.environ[name]} ({name})"
            break
    return (
        f"Ray cannot start in the temporary folder {place}: {error}. Set RAY_TMPDIR to a "
        "folder that can be written and has a short path, such as /tmp, or use "
        "--executor local"
    )


@cache
def _process_token() -> str:
    return secrets.token_hex(32)


def _own_token() -> dict[str, str]:
    """Return a token for a local Ray, as environment variables, where the user has none.

    Since 2.60 Ray makes one, in the home folder: every head that is started on the machine
    from then on would ask for it. A process keeps its own, as Ray remembers the first.
    """
    if os.environ.get("RAY_AUTH_MODE", "token") != "token" or has_token():
        return {}
    return {"RAY_AUTH_TOKEN": _process_token()}


@contextlib.contextmanager
def _environment(variables: Mapping[str, str], *others: str) -> Iterator[None]:
    """These variables are set within; processes started then inherit them.

    They, and what becomes of `others` within, are as before afterwards.
    """
    names = {*variables, *others}
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def _leave() -> None:
    """Disconnect, without waiting for a cluster that has ended before its driver.

    Ray waits for it a quarter of a minute, and a batch system kills the driver by then.
    """
    leaving = threading.Thread(target=ray.shutdown, daemon=True)
    leaving.start()
    leaving.join(_LEAVING_S)


def _join(address: str | None, *, ship: bool) -> None:
    """Connect to a cluster, and send it the code with `ship`; ClusterError."""
    named = address or os.environ.get("RAY_ADDRESS", "auto")
    located = locate(address)
    reason = None if located == "local" else unreachable(located)
    if reason:
        where = repr(named) if located == named else f"{named!r} ({located})"
        raise ClusterError(f"no Ray cluster can be used at {where}: {reason}")
    runtime_env: dict[str, Any] = {"env_vars": dict(_QUIET)}
    if ship:
        runtime_env |= {"py_modules": modules_to_ship(), "excludes": ["__pycache__"]}
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


def modules_to_ship() -> list[str]:
    """Package folders and files that workers on other nodes need and may not have.

    Plait's packages, by name since an installed plait has no folder of its own, and all
    imported modules that are a user's own, as `mine.py`. The driver has imported every
    class that is named `module:Class`, and with it what that module needs from its folder.
    """
    folders = {Path(folder) for folder in _users_folders()}
    sources = {str(PACKAGE): None}
    for name, module in sorted(sys.modules.items()):
        if "." in name:
            continue  # it is shipped with its package
        source = _source(module)
        if source is not None and source.parent in folders:
            sources[str(source)] = None
    return list(sources)


def _users_folders() -> list[str]:
    """Return the folders of `sys.path` in which nothing was installed."""
    installed = (sys.prefix, sys.base_prefix)
    return [os.path.abspath(p) for p in sys.path if p and not p.startswith(installed)]


def _source(module: ModuleType) -> Path | None:
    """Return the file of a module, or the folder of a package; None for any other kind."""
    places = list(getattr(module, "__path__", ()))
    if not places and module.__name__ != "__main__":
        places = [getattr(module, "__file__", None) or ""]
    if len(places) != 1:
        return None  # a script, or a package that is spread over several folders
    source = Path(os.path.abspath(places[0]))
    return source if source.is_dir() or source.suffix == ".py" else None
