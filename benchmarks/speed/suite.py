"""All measurements for a GPU, one after another, into one folder.

    python -m benchmarks.speed.suite --weights dummy --out results/h100
    python -m benchmarks.speed.suite --weights tiny --out /tmp/dry --only anole

Needs no Ray and no checkpoint. Each measurement runs in its own process, so that peak
memory is measured separately, and writes one JSON file; one that fails is named and the
others continue. `benchmarks.speed.measured` is its counterpart for a CPU.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmarks.bench_program import bench_program, exit_status
from benchmarks.speed.series import conclude, make_all

Random = Literal["dummy", "tiny"]
app = bench_program()

_SHORT = ("max_images=1", "max_text_tokens=64")

MEASUREMENTS: Mapping[str, Sequence[str]] = {
    "anole-draft": (
        *("--system", "anole", "--batches", "1,8", "--queries", "8", "--rounds", "1"),
        *(word for setting in _SHORT for word in ("--set", f"draft.{setting}")),
    ),
    "anole-render": ("--system", "anole", "--part", "render", "--batches", "1,8"),
    "gill-documents": ("--system", "gill", "--part", "all", "--batches", "1,8"),
    "minigpt5-documents": ("--system", "minigpt5", "--part", "all", "--batches", "1,8"),
    "gill-draft": ("--system", "gill", "--batches", "1,8", "--rounds", "1"),
    "minigpt5-draft": ("--system", "minigpt5", "--batches", "1,8", "--rounds", "1"),
    "emu2-render": (
        *("--system", "emu2", "--part", "render", "--batches", "1,2"),
        *("--queries", "2", "--rounds", "1"),
    ),
    "mmie-score": (
        *("--scorer", "judge:mmie-score", "--batches", "1,8,16", "--rounds", "1"),
        *("--set", "max_new_tokens=128"),
    ),
    "mmie-score-systems": (
        *("--scorer", "judge:mmie-score", "--batches", "1,20", "--rounds", "1"),
        *("--queries", "4", "--answers", "5", "--set", "max_new_tokens=128"),
    ),
    "openjourney": ("--system", "openjourney", "--part", "render"),
    "sdxl-turbo": ("--system", "sdxl-turbo", "--part", "render"),
    "sdxl": ("--system", "sdxl", "--part", "render", "--batches", "1,4"),
    "sd3": ("--system", "sd3", "--part", "render", "--batches", "1,4"),
    "flux": (
        *("--system", "flux", "--part", "render", "--batches", "1,2"),
        *("--queries", "2", "--rounds", "1"),
    ),
    "qwen2-vl-7b": ("--system", "qwen2-vl-7b", "--batches", "1,8", "--rounds", "1"),
    "clipscore": (
        *("--scorer", "clipscore", "--batches", "1,16"),
        *("--set", "remembered=0"),
    ),
}
"""Name -> arguments of `plait bench stage`."""


def run(name: str, weights: str, out: Path) -> int:
    """Make one measurement; the exit status of its process."""
    words = [*MEASUREMENTS[name], "--weights", weights, "--out", str(out / f"{name}.json")]
    print(" ".join(words), flush=True)
    command = [sys.executable, "-m", "benchmarks.speed.stage.command", *words]
    return subprocess.run(command, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all measurements, or those named; 1 when one of them failed."""
    return exit_status(app, arguments, "python -m benchmarks.speed.suite")


@app.command()
def suite(
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    weights: Annotated[Random, typer.Option(help="Random values, full size or tiny.")] = (
        "dummy"
    ),
    only: Annotated[
        list[str] | None, typer.Option(help="Only this measurement; may be repeated.")
    ] = None,
) -> None:
    """Make all measurements for a GPU, one after another, into one folder."""
    out.mkdir(parents=True, exist_ok=True)
    conclude(make_all(only, MEASUREMENTS, lambda name: run(name, weights, out)))


if __name__ == "__main__":
    sys.exit(main())
