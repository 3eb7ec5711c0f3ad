"""Workers as threads of this process where Ray has actors, so that no process starts.

For tests of what commands make of answers. Whatever a process can do to a run (die, hang,
run out of memory, see other folders) is tested on Ray.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import ray
from ray import cloudpickle

from cluster import actors, local_ray
from cluster.worker import Worker
from generators.base import StageSpec

_THREADS = 16
_COMPUTING = threading.Lock()
"""Models that share a process share torch's random numbers and switches, too."""


def _sent(value: Any) -> Any:
    """What arrives in another process."""
    return cloudpickle.loads(cloudpickle.dumps(value))


class ThreadActor:
    """Answers as an actor of Ray that hosts a `Worker`."""

    def __init__(self, spec: StageSpec, *others: Any) -> None:
        self.worker = Worker(*_sent((spec, *others)))
        self.threads = ThreadPoolExecutor(_THREADS)
        self.ended = False

    def __getattr__(self, method: str) -> _Method:
        return _Method(self, method)

    def answer(self, method: str, *args: Any) -> Any:
        if self.ended:
            raise ray.exceptions.ActorDiedError
        return _sent(self._answer(method, *_sent(args)))

    def _answer(self, method: str, *args: Any) -> Any:
        if method == "load":
            args = (*args[:1], False)  # stderr is that of the tests
        concurrent = self.worker.spec.placement.endpoint is not None
        waits = method in ("load", "host") or (method == "run" and not concurrent)
        with _COMPUTING if waits else nullcontext():
            return getattr(self.worker, method)(*args)


class _Method:
    """A method of an actor, which is called by `remote`."""

    def __init__(self, actor: ThreadActor, name: str) -> None:
        self._actor, self._name = actor, name

    def options(self, **_: Any) -> _Method:
        return self

    def remote(self, *args: Any) -> Future[Any]:
        return self._actor.threads.submit(self._actor.answer, self._name, *args)


class ThreadActorClass:
    """Starts actors, as a class decorated by `ray.remote`."""

    def options(self, **_: Any) -> ThreadActorClass:
        return self

    def remote(self, *args: Any) -> ThreadActor:
        return ThreadActor(*args)


class ThreadRay:
    """The functions of Ray that the engine calls, for one node."""

    exceptions = ray.exceptions

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        resources = {"CPU": 4.0, "memory": float(8 * 2**30)}
        return [{"NodeID": "0" * 56, "Alive": True, "Resources": resources}]

    def get(self, ref: Future[Any]) -> Any:
        return ref.result()

    def wait(
        self, refs: list[Future[Any]], num_returns: int, timeout: float
    ) -> tuple[list[Future[Any]], list[Future[Any]]]:
        if num_returns == 1:
            wait_for_futures(refs, timeout, FIRST_COMPLETED)
        else:
            wait_for_futures(refs, timeout)
        ready = [r for r in refs if r.done()][:num_returns]
        return ready, [r for r in refs if r not in ready]

    def kill(self, actor: ThreadActor, no_restart: bool) -> None:
        actor.ended = True


@contextmanager
def workers_as_threads() -> Iterator[None]:
    """Whatever runs inside starts threads instead of Ray's processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actors, "ray", ThreadRay())
        patch.setattr(actors, "_actor_class", ThreadActorClass())
        patch.setattr(local_ray, "anticipate", lambda address: None)
        yield
