"""All measurements one after another, each by a command in a process of its own.

    make bench                                          # this CPU, into results/measured
    python -m plait.benchmarks.speed.scripts.series cpu --only clipscore --out FOLDER
    python -m plait.benchmarks.speed.scripts.series gpu --out results/gpu
    python -m plait.benchmarks.speed.scripts.series gpu --weights tiny --only 'flux-*'
    python -m plait.benchmarks.speed.scripts.series gpu --page --out results/gpu

Run it in the checkout. Each measurement writes `NAME.json` and `NAME.md`; `summary.md`
beside them repeats their main tables. One that fails is named, and the others continue.
`gpu` needs no Ray and no checkpoint: its weights are random, of full size or tiny. Its
`anchor.md` has a row for every figure, of those that nobody has measured too; `--page`
writes it of what is there and measures nothing.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plait.benchmarks.provenance import versions_of
from plait.benchmarks.results.table import ResultTable, markdown_page
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
_SIXTEEN = "--batches 1,4,16 --queries 16 --rounds 1"
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
_LVLMS = ("qwen2-vl-7b", "qwen2.5-vl-7b", "qwen3-vl-8b", "llava-34b", "gemma-3-27b")
_SIZES = (1, 4, 16)
_DRAWN = (
    *("openjourney", "sdxl-turbo", "sdxl", "sd3", "sd3.5-medium", "sd3.5-large", "flux"),
    *("qwen-image", "z-image-turbo", "flux2-klein", "pixart-sigma", "sana"),
)
_COMPILED = ("sdxl-turbo", "sdxl", "sd3", "flux", "qwen-image")
_FUSED = ("sdxl", "sd3", "flux")
_FUSE = "--set fuse_qkv=true --set channels_last=true"
_BY_GRAPHS = ("openjourney", "sdxl-turbo", "sdxl", "sd3", "flux", "qwen-image")
_BY_GPU = ("flux", "qwen-image", "z-image-turbo")
_IN_FP8 = ("flux", "qwen-image", "z-image-turbo")
_CACHES = ("first-block-cache", "taylorseer-cache", "magcache")
"""Of flux, for which their parameters were published."""


def _drawing() -> Iterator[tuple[str, str]]:
    """Yield a command for each model, lever and batch: what does not fit fails alone."""
    levers = [(name, "", "") for name in _DRAWN]
    levers += [(name, "compiled", "--set compile=true") for name in _COMPILED]
    levers += [(name, "fused", _FUSE) for name in _FUSED]
    levers += [(name, "graphs", "--set cuda_graphs=true") for name in _BY_GRAPHS]
    levers += [(name, "attention", "--set attention=auto") for name in _BY_GPU]
    levers += [(name, "fp8", "--set speed=fp8") for name in _IN_FP8]
    levers += [("flux", cache, f"--set speed={cache}") for cache in _CACHES]
    for name, lever, setting in levers:
        for size in _SIZES:
            parts = filter(None, (name, lever, str(size)))
            words = f"{STAGE} {name} --part render --batches {size} --queries {size}"
            yield "-".join(parts), f"{words} --rounds 2 {setting}".rstrip()


def _writing() -> Iterator[tuple[str, str]]:
    """Yield a command for each LVLM: with CUDA graphs and without, beside transformers."""
    for name in _LVLMS:
        yield name, f"{STAGE} {name} {_SIXTEEN} --eager --set max_new_tokens=128"


GPU = {
    "janus-condition": f"{STAGE} janus-pro-1b --part condition {_SIXTEEN} --eager",
    "janus-7b-condition": f"{STAGE} janus-pro-7b --part condition {_SIXTEEN} --eager",
    "anole-draft": f"{STAGE} anole {_SIXTEEN} --eager {_WORDS}",
    "anole-render": f"{STAGE} anole --part render --batches 1,4,16 {_WITH_IMAGE}",
    "bagel-draft": f"{STAGE} bagel-7b-mot {_SIXTEEN}",
    "bagel-condition": f"{STAGE} bagel-7b-mot --part condition {_SIXTEEN}",
    "bagel-render": f"{STAGE} bagel-7b-mot --part render {_SIXTEEN}",
    "gill-draft": f"{STAGE} gill {_SIXTEEN} --eager",
    "gill-render": f"{STAGE} gill --part render {_SIXTEEN}",
    "minigpt5-draft": f"{STAGE} minigpt5 {_SIXTEEN} --eager",
    "minigpt5-render": f"{STAGE} minigpt5 --part render {_SIXTEEN}",
    "emu2-condition": f"{STAGE} emu2 --part condition {_SIXTEEN}",
    "emu2-render": f"{STAGE} emu2 --part render --batches 1,4 --queries 4 --rounds 1",
    "mmie-score": f"{_JUDGE} --eager --queries 16 --batches 1,4,16",
    "mmie-score-systems": f"{_JUDGE} --batches 1,20 --queries 4 --answers 5",
    "judge-qwen2-vl-7b": (
        f"{STAGE} --scorer judge:qwen2-vl-7b {_SIXTEEN} --eager --set max_new_tokens=128"
    ),
    "clipscore": f"{STAGE} --scorer clipscore --batches 1,4,16",
    **dict(_writing()),
    **dict(_drawing()),
}
"""The figures of `anchor.md`."""
NOT_MEASURED = "not measured"
_ANCHOR = (
    "Each figure is of random weights of full size unless its command says otherwise: "
    "speeds, and nothing about answers. Upstream is the loop of diffusers, transformers "
    "or the original program around the same weights, in the same process, with the same "
    "lever. The share of the roofline is the larger one of the operations at the rate of "
    "a large matrix product and of the weights at that of a copy, both taken in the same "
    "run; the share skipped is that of a cache's steps, which depends on the weights."
)
_GATE = (
    "Whether answers are still as good is told with published weights alone, for each "
    "lever: plait run --data prompts:FILE --system flux@t2i --scorer clipscore-prompt "
    "--out runs/exact; the same with --set models.flux.speed=fp8 --out runs/fp8; then "
    "plait diff runs/exact runs/fp8 --margin clipscore-prompt=0.5% --margin lpips=0.02, "
    "which ends with 1 where it is not shown."
)


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
    for end in (".json", ".md"):
        # What fails now must not stand there with an earlier figure.
        (out / f"{name}{end}").unlink(missing_ok=True)
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
    others = sorted(
        p.stem for p in out.glob("*.md") if p.stem not in (*names, "summary", "anchor")
    )
    if others:
        links = ", ".join(f"[{name}]({name}.md)" for name in others)
        parts.append(f"Measured apart, by commands that the pages name: {links}.")
    return "\n\n".join(parts) + "\n"


def anchor(out: Path, jobs: Mapping[str, str]) -> str:
    """Return the page with a row for every figure of `jobs`, measured in `out` or not."""
    rows: list[list[str]] = []
    places: dict[str, None] = {}
    for name, words in jobs.items():
        file = out / f"{name}.json"
        if not file.is_file():
            rows.append([name, NOT_MEASURED, *["-"] * 6, f"python {words}"])
            continue
        measured = json.loads(file.read_text())
        about = measured["about"]
        places[f"{about['device']}; {versions_of(about)}"] = None
        command = " ".join(("plait bench stage", *about["command"]))
        rows += [[name, *_cells(speed), command] for speed in measured["speeds"]]
    head = ["figure", "variant", "s each", "x upstream", "J each", "of the roofline"]
    head += ["GiB", "skipped", "command"]
    table = ResultTable.of("Figures", head, rows)
    device = "; ".join(places) or "Nothing has been measured."
    return markdown_page("Speeds on a GPU", [device, _ANCHOR, _GATE], [table])


def _cells(speed: Mapping[str, Any]) -> list[str]:
    """Return variant, seconds, ratio, joules, roofline, memory and share skipped."""
    figures = speed["figures"]
    joules = figures.get("energy_per_request")
    rates = ("model_flops_utilization", "memory_bandwidth_utilization")
    reached = [figures[name]["value"] for name in rates if name in figures]
    usage = speed["usage"]
    skipped = usage.get("skipped_steps")
    cells = [
        (speed["seconds_per_input"], ".4g"),
        (speed["ratio"], ".2f"),
        (joules and joules["value"], ".4g"),
        (max(reached, default=None), ".1%"),
        (speed["peak_memory_gib"], ".1f"),
        (None if skipped is None else skipped / usage["steps"], ".1%"),
    ]
    texts = ["-" if value is None else format(value, form) for value, form in cells]
    return [speed["way"], *texts]


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
    kinds = ("dummy", "tiny", "pretrained")
    parser.add_argument("--weights", choices=kinds, default="dummy")
    named = "a measurement, or a pattern such as 'flux-*'; repeatable"
    parser.add_argument("--only", action="append", default=[], help=named)
    parser.add_argument("--page", action="store_true", help="measure nothing")
    options = parser.parse_args(arguments)
    gpu = {name: f"{words} --weights {options.weights}" for name, words in GPU.items()}
    jobs = CPU if options.device == "cpu" else gpu
    names = [] if options.page else list(jobs)
    if options.only:
        names = []
        for pattern in options.only:
            matching = fnmatch.filter(jobs, pattern)
            if not matching:
                parser.error(f"--only {pattern} matches none of {', '.join(jobs)}")
            names += matching
    options.out.mkdir(parents=True, exist_ok=True)
    failed = [name for name in names if run(name, jobs[name], options.out)]
    write_whole(options.out / "summary.md", summary(options.out, list(jobs)))
    if options.device == "gpu":
        write_whole(options.out / "anchor.md", anchor(options.out, jobs))
    if failed:
        print(f"with failures: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
