"""`plait serve`: one system or model behind HTTP, until it is stopped."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.local import available
from benchmarks.runs.config import RunConfig, load_config
from benchmarks.runs.experiment import refuse_settings_of_nothing
from benchmarks.serving.admission import ServingLimits
from benchmarks.serving.engine import ServingEngine
from benchmarks.serving.served import ServedModel, served
from generators.errors import PlaitError, UsageError
from pipelines.systems import Models


class ServingError(PlaitError, RuntimeError):
    """The served model could not be loaded."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What `plait serve` was asked for."""

    name: str
    config: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a run's config that were given."""
    settings: Sequence[str] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    api_key_env: str | None = None
    limits: ServingLimits = field(default_factory=ServingLimits)


def serve(options: ServeOptions, console: Console) -> int:
    """Serve until Ctrl-C or SIGTERM; the exit status."""
    key = _key(options.api_key_env)
    model = served_model(options)
    listening = _bound(options.host, options.port)
    try:
        return _run(model, options.limits, listening, key, console)
    finally:
        listening.close()


def served_model(options: ServeOptions) -> ServedModel:
    """What is served; UsageError for unknown names, settings, and missing weights."""
    flags = {**options.flags, "systems": (options.name,)}
    config = load_config(options.config, flags, options.settings)
    refuse_settings_of_nothing(config)
    models = _models(config)
    return available(lambda: served(options.name, models), lambda m: m.stages)


def _models(config: RunConfig) -> Models:
    assert config.weights is not None
    return Models(
        weights=config.weights,
        overrides=config.models,
        gpu_gib=config.engine.gpu_memory_gib,
        max_images=config.composition.max_images,
    )


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if key := os.environ.get(variable, "").strip():
        return key
    raise UsageError(f"--api-key-env names {variable}, which is not set or empty")


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen at {host} port {port}: {reason}") from None


def _run(
    model: ServedModel,
    limits: ServingLimits,
    listening: socket.socket,
    key: str | None,
    console: Console,
) -> int:
    from benchmarks.serving.server import StoppableServer

    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    console.print(f"loading {model.name} ...", soft_wrap=True)
    if key is None and not _is_loopback(host):
        console.print(
            "Warning: other machines can use this server without a key; see --api-key-env."
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
    with _quiet_signals():
        server.run(sockets=[listening])
    return _ended(engine, console)


def _ended(engine: ServingEngine, console: Console) -> int:
    """Say why the server has ended; ServingError where its model could not be loaded."""
    engine.stop()
    if engine.error is not None:
        if isinstance(engine.error, PlaitError):
            raise engine.error
        raise ServingError(f"{engine.model.name} cannot be loaded: {engine.error}")
    console.print("stopped")
    if not engine.join():
        # A thread that still loads or computes would hold up the end of the process.
        sys.stdout.flush()
        os._exit(1 if engine.reason else 0)
    return 1 if engine.reason else 0


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """SIGINT and SIGTERM, which uvicorn raises again after it has stopped, do nothing."""
    signals = (signal.SIGINT, signal.SIGTERM)
    former = {number: signal.signal(number, lambda *_: None) for number in signals}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
