"""All measurements for a CPU, into the files that the README quotes.

    make bench
    python -m benchmarks.speed.measured --out /tmp/measured --only clipscore

Each measurement is a `plait bench` command in a process of its own and writes `NAME.json`
and `NAME.md`; `summary.md` beside them lists commands and main figures. One that fails is
named and the others continue. `benchmarks.speed.suite` is its counterpart for a GPU.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.bench_program import bench_program, exit_status
from benchmarks.speed.measured_pages import pairings_pages, summary
from benchmarks.speed.series import conclude, make_all
from cluster.manifest import CHECKOUT
from generators.files import write_whole

MEASURED = CHECKOUT / "benchmarks" / "results" / "measured"
app = bench_program()
_WITHOUT_NAIVE = ("--way", "careful", "--way", "plait")
_LOADGEN = ("--scenario", "offline", "--scenario", "single-stream")


@dataclass(frozen=True)
class Measured:
    """One command of `plait bench`.

    In its words `{json}` and `{md}` are its files, and `{run}` is a run directory, of which
    only the pairings are kept.
    """

    words: tuple[str, ...]
    needs: str | None = None
    """A module without which it is left out, with a message."""


_FILES = ("--out", "{json}", "--out", "{md}")


def _stage(*words: str, needs: str | None = None) -> Measured:
    return Measured(("stage", *words, *_FILES), needs)


def _mini(*words: str, needs: str | None = None) -> Measured:
    sizes = ("--batches", "1,4", "--queries", "4", "--rounds", "2")
    return _stage(*words, "--weights", "mini", *sizes, needs=needs)


def _beside_original(*words: str) -> Measured:
    """A stage whose original program's loop is written, at a batch size of both ends."""
    sizes = ("--batches", "1,16", "--queries", "16", "--rounds", "3")
    return _stage(*words, "--weights", "tiny", *sizes)


JOBS: Mapping[str, Measured] = {
    "anole-draft": _beside_original("anole"),
    "gill-draft": _beside_original("gill"),
    "minigpt5-draft": _beside_original("minigpt5"),
    "emu2-condition": _beside_original("emu2", "--part", "condition"),
    "mmie-score": _beside_original("--scorer", "judge:mmie-score"),
    "qwen2-vl": _mini("qwen2-vl-7b", "--set", "max_new_tokens=32"),
    "openjourney": _mini("openjourney", "--part", "render"),
    "openjourney-loadgen": _mini(
        "openjourney", "--part", "render", *_LOADGEN, needs="mlperf_loadgen"
    ),
    "anole-render": _mini("anole", "--part", "render"),
    "clipscore": _mini("--scorer", "clipscore"),
    "decoding": Measured(("decoding", "--requests", "16", "--rounds", "2", *_FILES)),
    "orchestration": Measured(("orchestration", "--batches", "40", *_FILES)),
    "small-jobs": Measured(
        ("small-jobs", "--queries", "40", "--rounds", "1", *_WITHOUT_NAIVE, *_FILES)
    ),
    "pairings": Measured(("pairings", "--out", "{run}")),
}
"""Name -> command. A further command that writes `{json}` and `{md}` is one more line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all measurements, or those named; 1 when one of them failed."""
    return exit_status(app, arguments, "python -m benchmarks.speed.measured")


@app.command()
def measured(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = MEASURED,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this measurement; may be repeated.")
    ] = None,
) -> None:
    """Make all measurements for a CPU, one after another, into one folder."""
    failed = make_all(only, JOBS, lambda name: run(name, out))
    write_whole(out / "summary.md", summary(out, list(JOBS)))
    print(f"wrote {out / 'summary.md'}")
    conclude(failed)


def run(name: str, out: Path) -> int:
    """Make one measurement; the exit status of its command."""
    job, folder_name = JOBS[name], _from_checkout(out)
    if job.needs is not None and importlib.util.find_spec(job.needs) is None:
        print(f"{name} is left out: {job.needs} is not installed", flush=True)
        return 0
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run_directory = Path(folder) / "run"
        places = {
            **{form: str(folder_name / f"{name}.{form}") for form in ("json", "md")},
            "run": str(run_directory),
        }
        words = [word.format_map(places) for word in job.words]
        print(f"plait bench {' '.join(words)}", flush=True)
        command = [sys.executable, "plait.py", "bench", *words]
        status = subprocess.run(command, cwd=CHECKOUT, check=False).returncode
        if status == 0 and run_directory.exists():
            for form, content in pairings_pages(run_directory).items():
                write_whole(out / f"{name}.{form}", content)
    return status


def _from_checkout(out: Path) -> Path:
    """A folder as commands name it that start in the checkout: pages quote them."""
    whole = out.resolve()
    return whole.relative_to(CHECKOUT) if whole.is_relative_to(CHECKOUT) else whole


if __name__ == "__main__":
    sys.exit(main())
