"""The options of `plait serve`; imports no more, so that `plait --help` stays quick."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.options import Settings, WeightsKind
from benchmarks.terminal import console
from generators.errors import UsageError

PACKAGES = ("fastapi", "prometheus_client", "uvicorn")
"""What the extra `serve` installs."""


def serve(
    name: Annotated[
        str,
        typer.Argument(help="Such as anole, qwen2-vl-7b+sdxl-turbo@outline or sdxl-turbo."),
    ],
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings of models.")
    ] = None,
    weights: WeightsKind = None,
    set_: Settings = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 for a free one.")
    ] = 8000,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the key to ask for.")
    ] = None,
    queue: Annotated[
        int, typer.Option(min=1, help="Requests taken on at a time; then status 429.")
    ] = 128,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds for one request; then status 504.")
    ] = 600.0,
    batch_wait: Annotated[
        float, typer.Option(min=0, help="Milliseconds a batch waits for more requests.")
    ] = 5.0,
    max_body: Annotated[
        int, typer.Option(min=1, help="MiB of one request; then status 413.")
    ] = 64,
) -> None:
    """Serve a system or model over HTTP, in OpenAI's formats.

    One model in one process, on this machine. Ctrl-C stops it.
    """
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise UsageError(
            f"plait serve needs {', '.join(missing)}: pip install 'plait[serve]' "
            "(in a checkout: pip install -e '.[serve]')"
        )
    from benchmarks.serving import gate, server

    limits = gate.ServingLimits(
        queue=queue,
        timeout_s=timeout,
        batch_wait_s=batch_wait / 1000,
        body_bytes=max_body * 2**20,
    )
    model = server.served_model(name, config, {"weights": weights}, tuple(set_ or ()))
    listen = (host, port)
    status = server.serve(model, limits, console(), listen, key_variable=api_key_env)
    raise typer.Exit(status)
