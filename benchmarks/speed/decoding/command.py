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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from benchmarks.bench_program import announce, as_json, bench_program, exit_status
from benchmarks.provenance import provenance_line
from benchmarks.results.table import markdown_page
from generators.errors import UsageError
from generators.files import write_whole

if TYPE_CHECKING:
    from benchmarks.speed.decoding.rounds import DecodingTimes

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
    base_url: Annotated[
        str | None, typer.Option(help="URL of a server that serves --model.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the checkpoint, which is made where it is empty. Default: a "
            "temporary one."
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
    if wrong := [path for path in out or () if path.suffix not in (".json", ".md")]:
        raise UsageError(f"--out {str(wrong[0])!r} must end in .json or .md")
    words, console = context.find_root().obj
    asked = DecodingBench(
        requests, tokens, rounds, server_executable, base_url, served_name, words
    )
    with ExitStack() as stack:
        folder = model or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        failures = measured(asked, folder.resolve(), out or (), console)
    raise typer.Exit(1 if failures else 0)


@dataclass(frozen=True)
class DecodingBench:
    """What to measure, as the options name it."""

    requests: int
    tokens: int
    rounds: int
    server_executable: Path | None = None
    base_url: str | None = None
    served_name: str = "model"
    command: Sequence[str] = ()


def measured(
    asked: DecodingBench, folder: Path, outs: Sequence[Path], console: Console
) -> int:
    """Measure all ways, print the table and write files; how many answers failed."""
    from benchmarks.speed.decoding.rounds import table_of, timed
    from benchmarks.speed.decoding.ways import DecodingServer, ways_of
    from benchmarks.speed.decoding.workload import requests_of, save_model
    from cluster.local import stop_servers

    if not (folder / "config.json").exists():
        save_model(folder)
    server = DecodingServer(asked.server_executable, asked.base_url, asked.served_name)
    spec = server.spec(folder, asked.tokens, asked.requests)
    about = _about(asked, None if spec is None else spec.identity)
    try:
        ways = ways_of(folder, asked.tokens, asked.requests, server)
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


def _about(asked: DecodingBench, server: str | None) -> dict[str, Any]:
    from benchmarks.speed.device import device_name
    from cluster.manifest import environment

    return environment() | {
        "device": device_name(),
        "measured": f"a Qwen2-VL of 25 M random parameters, {asked.requests} requests "
        f"with pictures, at most {asked.tokens} tokens, greedy, float32",
        "requests": asked.requests,
        "tokens": asked.tokens,
        "server": server,
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
    forms = {
        ".json": lambda: as_json({"about": about, "ways": ways}),
        ".md": lambda: markdown_page("Decoding", [command, place], [table]),
    }
    for path in outs:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, forms[path.suffix]())
