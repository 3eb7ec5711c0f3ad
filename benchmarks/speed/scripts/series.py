"""All measurements one after another, each by a command in a process of its own.

    make bench                                          # this CPU, into results/measured
    python -m plait.benchmarks.speed.scripts.series cpu --only clipscore --out FOLDER
    python -m plait.benchmarks.speed.scripts.series gpu --weights dummy --out results/h100

Run it in the checkout. Each measurement writes `NAME.json` and `NAME.md`; `summary.md`
beside them repeats their main tables. One that fails is named, and the others continue.
`gpu` needs no Ray and no checkpoint: its weights are random, of full size or tiny.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from plait.cluster.manifest import CHECKOUT
from plait.generators.files import write_whole

ABOUT = (
    "Each file names its command, its versions and its machine. `tiny` and `mini` weights "
    "are far smaller than the published ones: their figures say how fast plait is around a "
    "model. *upstream* is the original program's loop around the same weights, alone."
)
MEASURED = CHECKOUT / "benchmarks" / "speed" / "measured"
STAGE = "-m plait bench stage"
_BESIDE_ORIGINAL = "--weights tiny --batches 1,16 --queries 16 --rounds 3"
_MINI = "--weights mini --batches 1,4 --queries 4 --rounds 2"
_SIXTEEN = "--batches 1,16 --queries 16 --rounds 1"
_FOUR = "--batches 1,4 --queries 4 --rounds 1"
_WORDS = "--set draft.max_images=0 --set draft.max_text_tokens=128"
_WITH_IMAGE = "--set draft.max_images=1 --set draft.max_text_tokens=64"
_SCENARIOS = "--scenario offline --scenario single-stream"
_JUDGE = f"{STAGE} --scorer judge:mmie-score --rounds 1 --set max_new_tokens=128"
_SCRIPTS = "-m plait.benchmarks.speed.scripts"
CPU = {
    "anole-draft": f"{STAGE} anole {_BESIDE_ORIGINAL}",
    "gill-draft": f"{STAGE} gill {_BESIDE_ORIGINAL}",
    "minigpt5-draft": f"{STAGE} minigpt5 {_BESIDE_ORIGINAL}",
    "emu2-condition": f"{STAGE} emu2 --part condition {_BESIDE_ORIGINAL}",
    "janus-condition": (
        f"{STAGE} janus-pro-1b --part condition --set image_greedy=true {_BESIDE_ORIGINAL}"
    ),
    "mmie-score": f"{STAGE} --scorer judge:mmie-score {_BESIDE_ORIGINAL}",
    "qwen2-vl": f"{STAGE} qwen2-vl-7b --set max_new_tokens=32 {_MINI}",
    "openjourney": f"{STAGE} openjourney --part render {_MINI}",
    "openjourney-loadgen": f"{STAGE} openjourney --part render {_SCENARIOS} {_MINI}",
    "anole-render": f"{STAGE} anole --part render {_MINI}",
    "clipscore": f"{STAGE} --scorer clipscore {_MINI}",
    "orchestration": f"{_SCRIPTS}.orchestration --batches 40",
    "small-jobs": f"{_SCRIPTS}.small_jobs --queries 40 --rounds 1",
}
"""Name -> words for Python."""
GPU = {
    "janus-condition": f"{STAGE} janus-pro-1b --part condition {_SIXTEEN}",
    "anole-draft": f"{STAGE} anole {_SIXTEEN} {_WORDS}",
    "anole-render": f"{STAGE} anole --part render --batches 1,8 {_WITH_IMAGE}",
    "gill-draft": f"{STAGE} gill {_SIXTEEN}",
    "minigpt5-draft": f"{STAGE} minigpt5 {_SIXTEEN}",
    "emu2-render": f"{STAGE} emu2 --part render --batches 1,2 --queries 2 --rounds 1",
    "mmie-score": f"{_JUDGE} --queries 8 --batches 1,8",
    "mmie-score-systems": f"{_JUDGE} --batches 1,20 --queries 4 --answers 5",
    "qwen2-vl-7b": f"{STAGE} qwen2-vl-7b {_SIXTEEN} --set max_new_tokens=128",
    "openjourney": f"{STAGE} openjourney --part render {_FOUR}",
    "sdxl-turbo": f"{STAGE} sdxl-turbo --part render {_FOUR}",
    "sdxl": f"{STAGE} sdxl --part render {_FOUR}",
    "sd3": f"{STAGE} sd3 --part render {_FOUR}",
    "flux": f"{STAGE} flux --part render --batches 1,2 --queries 2 --rounds 1",
    "clipscore": f"{STAGE} --scorer clipscore --batches 1,16",
}


def run(name: str, words: str, out: Path) -> int:
    """Make one measurement; return the exit status of its command."""
    if "--scenario" in words and importlib.util.find_spec("mlperf_loadgen") is None:
        print(f"{name} is left out: mlperf_loadgen is not installed", flush=True)
        return 0
    folder = out.resolve()
    if folder.is_relative_to(CHECKOUT):
        folder = folder.relative_to(CHECKOUT)  # pages quote the command
    outs = (f"--out={folder / name}{end}" for end in (".json", ".md"))
    command = [*words.split(), *outs]
    print("==", name, *command, flush=True)
    done = subprocess.run([sys.executable, *command], cwd=CHECKOUT, check=False)
    return done.returncode


def summary(out: Path, names: Sequence[str]) -> str:
    """Repeat the main table of each page that is in a folder."""
    parts = ["# Measured speeds", ABOUT]
    for name in names:
        page = out / f"{name}.md"
        if page.exists():
            parts += [f"## [{page.stem}]({page.name})", _first_table(page.read_text())]
    others = sorted(p.stem for p in out.glob("*.md") if p.stem not in (*names, "summary"))
    if others:
        links = ", ".join(f"[{name}]({name}.md)" for name in others)
        parts.append(f"Measured apart, by commands that the pages name: {links}.")
    return "\n\n".join(parts) + "\n"


def _first_table(page: str) -> str:
    """Return the first table of a page, with the heading above it."""
    before, _, rest = page.partition("\n|")
    heading = [line for line in before.splitlines() if line.startswith("#")][-1]
    return f"{heading.lstrip('# ')}\n\n|{rest.partition(chr(10) * 2)[0].rstrip()}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all measurements, or those named; return 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("device", choices=("cpu", "gpu"))
    parser.add_argument("--out", type=Path, default=MEASURED)
    parser.add_argument("--weights", choices=("dummy", "tiny"), default="dummy")
    parser.add_argument("--only", action="append", help="repeatable")
    options = parser.parse_args(arguments)
    gpu = {name: f"{words} --weights {options.weights}" for name, words in GPU.items()}
    jobs = CPU if options.device == "cpu" else gpu
    if wrong := set(options.only or ()) - jobs.keys():
        parser.error(f"--only {', '.join(wrong)} is not one of {', '.join(jobs)}")
    options.out.mkdir(parents=True, exist_ok=True)
    failed = [n for n in options.only or jobs if run(n, jobs[n], options.out)]
    write_whole(options.out / "summary.md", summary(options.out, list(jobs)))
    if failed:
        print(f"with failures: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
