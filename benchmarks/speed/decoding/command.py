"""How fast plait's own language-model stage decodes, beside `generate` and a real server.

    plait bench decoding
    plait bench decoding --server-executable /envs/vllm/bin/vllm
    plait bench decoding --model FOLDER --base-url http://127.0.0.1:8000/v1

A Qwen2-VL of 25 million random parameters answers requests with pictures, greedily and in
float32. The ways take turns, round by round, and every round has requests of its own, so
that nothing is remembered from an earlier one. While one way answers, the others are idle.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from benchmarks.bench_program import (
    announce,
    bench_program,
    check_outs,
    exit_status,
    write_outs,
)
from benchmarks.provenance import provenance_line
from benchmarks.results.table import markdown_page
from benchmarks.speed.decoding.options import DecodingBench, DecodingServer
from generators.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.speed.decoding.rounds import DecodingTimes
    from generators.base import StageSpec

app = bench_program()
_WARM_UP = 16
"""Most requests that every way answers before the timed rounds."""


def main(arguments: Sequence[str], console: Console) -> int:
    """Measure, print, and write files where `--out` says; the exit status."""
    words = list(arguments)
    return exit_status(app, words, "plait bench decoding", (words, console))


@app.command()
def decoding(
    context: typer.Context,
    requests: Annotated[int, typer.Option(min=1, help="Requests of each round.")] = 64,
    tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of each way.")] = 5,
    server_executable: Annotated[
        Path | None, typer.Option(help="vLLM's program, to be measured too.")
    ] = None,
    server_argument: Annotated[
        list[str] | None,
        typer.Option(help="Given to that program, such as --enforce-eager; repeatable."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="URL of a server that serves --model.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a checkpoint of a vision-language model. A small random one is "
            "made in a folder that is new or empty; without a folder, in a temporary one."
        ),
    ] = None,
    served_name: Annotated[
        str, typer.Option(help="What the server at --base-url calls the model.")
    ] = "model",
    out: Annotated[
        list[Path] | None, typer.Option(help="A .json or .md file; repeatable.")
    ] = None,
) -> None:
    """How fast plait's own language-model stage decodes, beside generate and a server."""
    if base_url is not None and (server_executable is not None or model is None):
        raise UsageError(
            "--base-url needs --model, the folder that the server serves, and no "
            "--server-executable"
        )
    check_outs(out or ())
    words, console = context.find_root().obj
    server = DecodingServer(
        server_executable, tuple(server_argument or ()), base_url, served_name
    )
    asked = DecodingBench(requests, tokens, rounds, server, words)
    with ExitStack() as stack:
        folder = model or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _made_if_empty(folder, may_make=base_url is None)
        failures = measured(asked, folder.resolve(), out or (), console)
    raise typer.Exit(1 if failures else 0)


def _made_if_empty(folder: Path, *, may_make: bool) -> None:
    """Make the small model where there is none; UsageError where that is not meant."""
    if (folder / "config.json").exists():
        return
    if not may_make or (folder.exists() and any(folder.iterdir())):
        raise UsageError(
            f"--model {str(folder)!r} holds no checkpoint: config.json is not there"
        )
    from benchmarks.speed.decoding.workload import save_model

    save_model(folder)


def measured(
    asked: DecodingBench, folder: Path, outs: Sequence[Path], console: Console
) -> int:
    """Measure all ways, print the table and write files; how many answers failed."""
    from benchmarks.speed.decoding.rounds import table_of, timed
    from benchmarks.speed.decoding.ways import spec_of_server, ways_of
    from benchmarks.speed.decoding.workload import requests_of
    from cluster.local import stop_servers

    asking = spec_of_server(asked.server, folder, asked.tokens, asked.requests)
    about = _about(asked, folder, asking)
    try:
        ways = ways_of(folder, asked.tokens, asked.requests, asking)
        seeds = range(1, 1 + asked.rounds)
        for _ in timed(ways, [requests_of(min(_WARM_UP, asked.requests), seed=0)]):
            console.print("warmed up", style="dim")
        for times in timed(ways, (requests_of(asked.requests, seed) for seed in seeds)):
            latest = ", ".join(f"{t.way} {t.rates[-1]:.0f}" for t in times)
            console.print(f"tokens/s: {latest}", style="dim", soft_wrap=True)
            # After every round: a measurement that is stopped keeps what it has.
            _write(times, about, outs)
    finally:
        stop_servers()
    console.print(table_of(times, about).rich)
    for path in outs:
        announce(console, path)
    return sum(t.failures for t in times)


def _about(asked: DecodingBench, folder: Path, asking: StageSpec | None) -> dict[str, Any]:
    from benchmarks.speed.decoding.workload import described
    from benchmarks.speed.instruments.device import device_name
    from cluster.manifest import environment

    return environment() | {
        "device": device_name(),
        "measured": f"{described(folder)}, {asked.requests} requests with pictures, "
        f"at most {asked.tokens} tokens, greedy, float32",
        "requests": asked.requests,
        "tokens": asked.tokens,
        "server": None if asking is None else asking.identity,
        "server_arguments": list(asked.server.arguments),
        "command": list(asked.command),
    }


def _write(
    times: Sequence[DecodingTimes], about: Mapping[str, Any], outs: Sequence[Path]
) -> None:
    from benchmarks.speed.decoding.rounds import as_data, table_of

    ways = [as_data(t, times) for t in times]
    table = table_of(times, about)
    place = provenance_line(about)
    command = f"plait bench decoding {' '.join(about['command'])}"
    write_outs(
        outs,
        lambda: {"about": about, "ways": ways},
        lambda: markdown_page("Decoding", [command, place], [table]),
    )
