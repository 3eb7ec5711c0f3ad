"""All measurements for a CPU, into the files that the README quotes.

    make bench
    python -m benchmarks.speed.measured --out /tmp/measured --only clipscore

Each measurement is a `plait bench` command in a process of its own and writes `NAME.json`
and `NAME.md`; `README.md` beside them lists commands and main figures. One that fails is
named and the others continue. `benchmarks.speed.suite` is its counterpart for a GPU.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.speed.stage import exit_status
from benchmarks.speed.tables import markdown_table, number
from generators.files import write_whole
from generators.names import unknown

CHECKOUT = Path(__file__).resolve().parents[2]
MEASURED = CHECKOUT / "benchmarks" / "results" / "measured"
app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
_OUTPUTS = ("--out", "{json}", "--out", "{md}")
_LOADGEN = ("--scenario", "offline", "--scenario", "single-stream")
_SHORT = ("--set", "draft.max_images=1", "--set", "draft.max_text_tokens=32")


_LITTLE = ("--set", "max_new_tokens=32")


@dataclass(frozen=True)
class Measured:
    """One command of `plait bench`; `{json}` and `{md}` in its words are its files."""

    words: tuple[str, ...]
    needs: str | None = None
    """A module without which it is left out, with a message."""


def _stage(*words: str, needs: str | None = None) -> Measured:
    sizes = ("--batches", "1,4", "--queries", "4", "--rounds", "2")
    return Measured(("stage", *sizes, *words, *_OUTPUTS), needs)


JOBS: Mapping[str, Measured] = {
    "qwen2-vl": _stage("qwen2-vl-7b", "--weights", "mini", *_LITTLE),
    "openjourney": _stage("openjourney", "--part", "render", "--weights", "mini"),
    "openjourney-loadgen": _stage(
        *("openjourney", "--part", "render", "--weights", "mini", *_LOADGEN),
        needs="mlperf_loadgen",
    ),
    "anole-draft": _stage("anole", "--weights", "mini", *_SHORT),
    "anole-render": _stage("anole", "--part", "render", "--weights", "mini"),
    "gill-draft": _stage("gill", "--weights", "tiny"),
    "gill-render": _stage("gill", "--part", "render", "--weights", "tiny"),
    "clipscore": _stage("--scorer", "clipscore", "--weights", "mini"),
    "mmie-score": _stage("--scorer", "judge:mmie-score", "--weights", "tiny"),
    "orchestration": Measured(("orchestration", "--batches", "40", "--out", "{json}")),
    "small-jobs": Measured(("small-jobs", "--queries", "40", "--rounds", "1", *_OUTPUTS)),
}
"""Name -> command. A further command of `plait bench` that writes JSON is one more line."""
FIGURES = (
    "request_throughput",
    "image_throughput",
    "output_token_throughput",
    "request_latency",
    "time_to_first_token",
    "inter_token_latency",
    "denoise_step_latency",
)
"""Shown in the summary: a value, or the median of a distribution."""


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
    names = only or list(JOBS)
    for name in names:
        if name not in JOBS:
            raise unknown("measurement", name, JOBS)
    failed = [name for name in names if not run(name, out)]
    write_whole(out / "README.md", summary(out))
    print(f"wrote {out / 'README.md'}")
    if failed:
        print(f"with failures: {', '.join(failed)}", file=sys.stderr)
    raise typer.Exit(1 if failed else 0)


def run(name: str, out: Path) -> bool:
    """Make one measurement; False where its command failed or wrote nothing."""
    job = JOBS[name]
    if job.needs is not None and importlib.util.find_spec(job.needs) is None:
        print(f"== {name}: left out, {job.needs} is not installed", flush=True)
        return True
    paths = {"json": str(out / f"{name}.json"), "md": str(out / f"{name}.md")}
    words = [word.format_map(paths) for word in job.words]
    print(f"== {name}: plait bench {' '.join(words)}", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    command = [sys.executable, str(CHECKOUT / "plait.py"), "bench", *words]
    status = subprocess.run(command, check=False).returncode
    print(f"== {name}: {time.monotonic() - began:.0f} s, exit status {status}", flush=True)
    if status == 0 and not Path(paths["md"]).exists():
        data = json.loads(Path(paths["json"]).read_text())
        write_whole(Path(paths["md"]), orchestration_page(data, words))
    return status == 0


def summary(out: Path) -> str:
    """The main figures of all measurements of a folder, and their commands."""
    lines = [
        "# Measured speeds",
        "",
        "Written by `make bench`. Each file names its command, its versions and its "
        "machine; random weights (`tiny`) and `mini` weights are far smaller than the "
        "published models of these names, so the figures say how fast plait is around a "
        "model and not how fast the models are.",
    ]
    for name in JOBS:
        path = out / f"{name}.json"
        if path.exists():
            lines += ["", f"## [{name}]({name}.md)", ""]
            lines += _section(json.loads(path.read_text()))
    return "\n".join(lines) + "\n"


def _section(data: Mapping[str, Any]) -> list[str]:
    if "table" in data:
        return markdown_table(data["table"])
    if "speeds" not in data:
        return markdown_table(orchestration_rows(data))
    speeds = data["speeds"]
    names = [n for n in FIGURES if any(n in speed["figures"] for speed in speeds)]
    rows = [["way", *(_headed(n, speeds) for n in names)]]
    rows += [[s["way"], *(_shown(s["figures"].get(n)) for n in names)] for s in speeds]
    about = data["about"]
    return [f"{about['measured']}; {about['device']}", "", *markdown_table(rows)]


def _headed(name: str, speeds: Sequence[Mapping[str, Any]]) -> str:
    figure = next(s["figures"][name] for s in speeds if name in s["figures"])
    median = "median, " if "median" in figure else ""
    return f"{name} ({median}{figure['unit']})"


def _shown(figure: Mapping[str, Any] | None) -> str:
    return "–" if figure is None else number(figure.get("median", figure.get("value")))


def orchestration_page(data: Mapping[str, Any], words: Sequence[str]) -> str:
    """The figures of `plait bench orchestration` as Markdown."""
    about = data["about"]
    packages = ", ".join(f"{n} {v}" for n, v in about["packages"].items())
    lines = [
        "# What orchestration costs",
        "",
        f"`plait bench {' '.join(words[:-2])}`",
        "",
        f"* {about['batches']} batches of {about['batch_size']} records, "
        f"{about['actors']} actors (the loop: none), a stage that sleeps",
        f"* {about['hardware']['cpus']} CPUs; plait {about['git']['commit'][:12]}, Python "
        f"{about['python']}, {packages}; {about['platform']}",
        "",
        *markdown_table(orchestration_rows(data)),
    ]
    return "\n".join(lines) + "\n"


def orchestration_rows(data: Mapping[str, Any]) -> list[list[str]]:
    """A heading, and one row per sleep and method."""
    heads = ["records/s", "ideal/wall", "CPU ms/record", "start-up s"]
    rows = [["sleep, method", *heads]]
    for row in data["summary"]:
        share = f"{row['ideal_over_wall']:.1%}" if row["sleep_ms"] else "–"
        parts = (row["records_per_s"], row["cpu_ms_per_record"], row["startup_s"])
        rate, cpu, startup = map(number, parts)
        name = f"{row['sleep_ms']} ms, {row['method']}"
        rows.append([name, rate, share, cpu, startup])
    return rows


if __name__ == "__main__":
    sys.exit(main())
