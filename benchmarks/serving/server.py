"""`plait serve`: a system or model, or scorers, behind HTTP, until it is stopped."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from rich.console import Console

from plait.benchmarks.local import available
from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.resolving import models_of, refuse_settings_of_nothing
from plait.benchmarks.serving.app import make_app
from plait.benchmarks.serving.engine import ServingEngine
from plait.benchmarks.serving.gate import ServingLimits
from plait.benchmarks.serving.served import (
    ServedModel,
    resolve_scorers,
    resolve_served,
)
from plait.benchmarks.tasks.controls import TRUTH
from plait.cluster.run import handling_signals
from plait.generators.errors import PlaitError, UsageError

_SENDING_S = 5


class ServingError(PlaitError, RuntimeError):
    """The served model could not be loaded."""


class StoppableServer(uvicorn.Server):
    """Ends what waits as soon as it is told to stop; a batch in progress has the grace."""

    def __init__(self, engine: ServingEngine, key: str | None) -> None:
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


def resolve_model(
    name: str | None,
    config: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    scorers: Sequence[str] = (),
) -> ServedModel:
    """Return what is served: a system or model, scorers, or both.

    UsageError for unknown names, settings, missing weights, and where nothing is named.
    """
    if name is None and not scorers:
        raise UsageError(
            "name what is to be served: a system or model, such as anole, or scorers, such "
            "as --scorer clipscore"
        )
    # The ground truth needs no model; a config that names nothing is the quickstart's.
    given = {**(flags or {}), "systems": (name or TRUTH,)}
    own = load_config(config, given, settings)
    asked = {**given, "scorers": tuple(dict.fromkeys(scorers))}
    run = load_config(config, asked, settings)
    # A config may have settings of scorers that are not served.
    every = {"scorers": (*own.scorers, *run.scorers)}
    refuse_settings_of_nothing(run.model_copy(update=every))
    models = replace(models_of(run), servers={})  # none is started here

    def resolve() -> ServedModel:
        served = resolve_scorers(run, models) if scorers else {}
        if name is None:
            title = ", ".join(served)
            return ServedModel(name=title, weights=models.weights, scorers=served)
        return replace(resolve_served(name, models), scorers=served)

    return available(resolve, lambda model: model.every_stage)


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
    with _listen(*listen) as listening:
        host, port = listening.getsockname()[:2]
        path = "v1" if model.has_model else "score"
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/{path}"
        console.print(f"loading {model.title} ...")
        if key is None and not ipaddress.ip_address(host).is_loopback:
            console.print(
                "Warning: other machines can use this server without a key; see "
                "--api-key-env."
            )
        engine = ServingEngine(
            model,
            limits,
            on_loaded=lambda seconds: console.print(
                f"serving {model.title} at {url} (loaded in {seconds:.0f} s)"
            ),
            on_failure=lambda: server.stop(),
        )
        server = StoppableServer(engine, key)
        server.run(sockets=[listening])
    return _tell_end(engine, console)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
        # A reply's head and body are sent apart: else its body waits for the client to say
        # that it has the head, which takes 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host} port {port}: {reason}") from None


def _tell_end(engine: ServingEngine, console: Console) -> int:
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
