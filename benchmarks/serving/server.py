"""`plait serve`: one system or model behind HTTP, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import uvicorn
from rich.console import Console

from benchmarks.local import available
from benchmarks.runs.config import load_config
from benchmarks.runs.experiment import refuse_settings_of_nothing
from benchmarks.serving.gate import RequestRoom, ServingLimits
from benchmarks.serving.metrics import ServingMetrics
from benchmarks.serving.refusals import RequestRefused, refusal, stopping
from benchmarks.serving.served import ServedModel, served
from cluster.local import LocalStages
from cluster.run import handling_signals
from cluster.walks import through
from generators.base import Outcome, Result, StageSpec, Walk, add_usage
from generators.errors import PlaitError, UsageError
from generators.secrets import print_error, without_keys
from pipelines.systems import Models

T = TypeVar("T")
_RETRY_WHILE_LOADING_S = 5
_SENDING_S = 5


class ServingError(PlaitError, RuntimeError):
    """The served model could not be loaded."""


class ServingEngine:
    """One model in this process: loads in a thread of its own, which then answers."""

    def __init__(
        self,
        model: ServedModel,
        limits: ServingLimits | None = None,
        *,
        on_loaded: Callable[[float], None] = lambda seconds: None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_loaded` is told the seconds; both are called from the engine's thread."""
        self.model, self.limits = model, limits or ServingLimits()
        self.metrics = ServingMetrics()
        self.room = RequestRoom(self.limits, self.metrics)
        self.error: Exception | None = None
        """Why the stages could not be loaded."""
        self._on_loaded, self._on_failure = on_loaded, on_failure
        self._stages = LocalStages(
            patience_s=self.limits.batch_wait_s, on_batch=self.metrics.batch
        )
        self._loaded = False
        self._stopped_at: float | None = None
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def _work(self) -> None:
        began = time.monotonic()
        try:
            for spec in self.model.stages:
                self._stages.stage(spec)
        except Exception as error:
            print_error(error)
            self.error = error
            self._on_failure()
            return
        self._loaded = True
        self._on_loaded(time.monotonic() - began)
        self._stages.engine.run()

    @property
    def status(self) -> Literal["loading", "ready", "failed", "stopping"]:
        """Whether requests are answered now."""
        if self._stopped_at is not None:
            return "stopping"
        if self.reason:
            return "failed"
        return "ready" if self._loaded else "loading"

    @property
    def reason(self) -> str:
        """Why no request will ever be answered, once that is so."""
        if self.error is not None:
            return without_keys(str(self.error))
        return self._stages.engine.broken or ""

    def refuse_unless_ready(self) -> None:
        """RequestRefused while no requests are answered."""
        match self.status:
            case "loading":
                message, wait = f"{self.model.name} is being loaded", _RETRY_WHILE_LOADING_S
                raise RequestRefused("not_ready", message, retry_after_s=wait)
            case "failed":
                message = f"{self.model.name} cannot compute: {self.reason}"
                raise RequestRefused("not_ready", message)
            case "stopping":
                raise stopping()

    def takes_max_tokens(self, spec: StageSpec) -> bool:
        """Whether a loaded stage can be told the longest answer of one request."""
        return bool(getattr(self._stages.stage(spec), "takes_max_tokens", False))

    async def answer(self, walk: Walk[T]) -> Result[T]:
        """Return the result of a walk, with all its usage; RequestRefused where none is.

        Where this is cancelled, the walk's jobs that have not begun are dropped.
        """
        self.refuse_unless_ready()
        loop, used = asyncio.get_running_loop(), defaultdict[str, float](float)
        reply: asyncio.Future[Outcome[T]] = loop.create_future()

        def count(outcomes: Sequence[Outcome[Any]]) -> None:
            for outcome in outcomes:
                add_usage(used, getattr(outcome, "usage", {}))

        def settle(outcome: Outcome[T]) -> None:
            if not reply.done():
                reply.set_result(outcome)

        def ended(outcome: Outcome[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome)

        live = self._stages.engine.add(through(walk, told=count), ended)
        try:
            outcome = await reply
        finally:
            self._stages.engine.drop(live)
        self.metrics.used(used)
        if not isinstance(outcome, Result):
            raise refusal(outcome)
        return replace(outcome, usage=used)

    def stop(self) -> None:
        """Take no more requests; only those whose batch has begun have the grace.

        From any thread, also from a handler of signals.
        """
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            self.room.close()
            self._stages.engine.stop()

    def join(self) -> bool:
        """After `stop`: whether nothing computes any more after the grace."""
        if self._loaded and self._stopped_at is not None:
            passed = time.monotonic() - self._stopped_at
            self._thread.join(max(0.0, self.limits.grace_s - passed))
        return not self._thread.is_alive()


class StoppableServer(uvicorn.Server):
    """Ends what waits as soon as it is told to stop; a batch in progress has the grace."""

    def __init__(self, engine: ServingEngine, key: str | None) -> None:
        from benchmarks.serving.app import make_app

        self._engine = engine
        # The engine ends requests after the grace; the rest is for sending replies.
        grace = int(engine.limits.grace_s) + _SENDING_S
        app = make_app(engine, key=key)
        super().__init__(
            uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=grace)
        )

    def stop(self, *_: object) -> None:
        """Stop as on Ctrl-C; from any thread."""
        self._engine.stop()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, which uvicorn itself would raise again at the end."""
        with handling_signals(self.stop):
            yield


def served_model(
    name: str,
    config: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> ServedModel:
    """Return what is served; UsageError for unknown names, settings, missing weights."""
    run = load_config(config, {**(flags or {}), "systems": (name,)}, settings)
    refuse_settings_of_nothing(run)
    assert run.weights is not None
    models = Models(
        weights=run.weights,
        overrides=run.models,
        gpu_gib=run.engine.gpu_memory_gib,
        max_images=run.composition.max_images,
    )
    return available(lambda: served(name, models), lambda m: m.stages)


def serve(
    model: ServedModel,
    limits: ServingLimits,
    console: Console,
    listen: tuple[str, int],
    key_variable: str | None = None,
) -> int:
    """Serve at an address until Ctrl-C or SIGTERM; return the exit status."""
    key = os.environ.get(key_variable, "").strip() if key_variable else None
    if key == "":
        raise UsageError(f"--api-key-env names {key_variable}, which is not set or empty")
    with _bound(*listen) as listening:
        host, port = listening.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
        console.print(f"loading {model.name} ...", soft_wrap=True)
        if key is None and not ipaddress.ip_address(host).is_loopback:
            console.print(
                "Warning: other machines can use this server without a key; see "
                "--api-key-env."
            )
        engine = ServingEngine(
            model,
            limits,
            on_loaded=lambda seconds: console.print(
                f"serving {model.name} at {url} (loaded in {seconds:.0f} s)", soft_wrap=True
            ),
            on_failure=lambda: server.stop(),
        )
        server = StoppableServer(engine, key)
        server.run(sockets=[listening])
    return _ended(engine, console)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen at {host} port {port}: {reason}") from None


def _ended(engine: ServingEngine, console: Console) -> int:
    """Say why the server has ended; ServingError where its model could not be loaded."""
    engine.stop()
    if isinstance(engine.error, PlaitError):
        raise engine.error
    if engine.error is not None:
        raise ServingError(f"{engine.model.name} cannot be loaded: {engine.error}")
    console.print("stopped")
    status = 1 if engine.reason else 0
    if not engine.join():
        # A thread that still loads or computes would hold up the end of the process.
        sys.stdout.flush()
        os._exit(status)
    return status
