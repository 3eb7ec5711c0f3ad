"""Forecast and actual figures of real jobs, as a page.

    python -m benchmarks.runs.forecast.jobs --folder runs/forecast --page forecast.md

Each job runs after a smaller one that measures its rates. Jobs that are there already are
not run again, so the page can be written anew from an existing folder.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.provenance import provenance_line
from benchmarks.results.table import ResultTable, markdown_page
from benchmarks.runs.forecast.keeping import FORECAST, OUTCOME
from benchmarks.runs.forecast.rates import FigureRange
from benchmarks.runs.forecast.table import span_text, time_text
from benchmarks.runs.run_directory import read_manifest
from cluster.manifest import CHECKOUT, LOADS, TAKEOVERS, write_json
from cluster.run import MANIFEST
from generators.files import write_whole

_TINY = ("--data", "sample", "--weights", "tiny")
_SYSTEMS = tuple(
    word
    for name in ("anole", "qwen2-vl-72b+sdxl-turbo", "qwen2-vl-72b+openjourney", "gt")
    for word in ("--system", name)
)
_JUDGED = ("--scorer", "clipscore", "--scorer", "judge:mmie-score")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastJob:
    """A job, and the one that measured its rates before."""

    name: str
    folder: str
    words: tuple[str, ...]
    before: tuple[tuple[str, tuple[str, ...]], ...]
    """Folders and arguments of the runs that come first."""


JOBS: tuple[ForecastJob, ...] = (
    ForecastJob(
        name="four tiny systems over 24 sample queries, after one of 6",
        folder="tiny-24",
        words=(*_TINY, *_SYSTEMS, "--limit", "24"),
        before=(("tiny-6", (*_TINY, *_SYSTEMS, "--limit", "6")),),
    ),
    ForecastJob(
        name="40 miniature queries on mini weights, of which 24 are answered",
        folder="mini",
        words=("--limit", "40"),
        before=(("mini", ("--limit", "24")),),
    ),
    ForecastJob(
        name="a judge added to the 24 tiny sample queries, after one over 6",
        folder="tiny-24",
        words=(*_TINY, *_SYSTEMS, *_JUDGED, "--limit", "24"),
        before=(("tiny-6", (*_TINY, *_SYSTEMS, *_JUDGED, "--limit", "6")),),
    ),
)


def main(
    folder: Annotated[Path, typer.Option(help="Folder for the runs.")],
    page: Annotated[
        Path | None, typer.Option(help="Markdown file; else it is printed.")
    ] = None,
) -> None:
    """Run all jobs, and write forecast and actual side by side."""
    root = folder.resolve()
    for number, job in enumerate(JOBS):
        _run_once(root, number, job)
    text = page_of([read_manifest(root / f"job-{n}") for n in range(len(JOBS))])
    if page is None:
        print(text)
    else:
        write_whole(page, text)


def _run_once(root: Path, number: int, job: ForecastJob) -> None:
    """Run a job after those that come before it, and keep the manifest it leaves."""
    record = root / f"job-{number}"
    if (record / MANIFEST).exists():
        return
    for folder, words in (*job.before, (job.folder, job.words)):
        command = [sys.executable, str(CHECKOUT / "plait.py"), "run", *words]
        done = subprocess.run([*command, "--out", str(root / folder)], check=False)
        if done.returncode not in (0, 1):
            raise typer.Exit(done.returncode)
    record.mkdir()
    write_json(record / MANIFEST, read_manifest(root / job.folder))


def page_of(manifests: Sequence[Mapping[str, Any]]) -> str:
    """The page: all jobs in one table, then the stages of each."""
    about = manifests[0]
    remarks = (
        "Each job was forecast when it began, from the records and load times of the run "
        "before it; nothing was fitted afterwards.",
        "Other work on the machine during one run of a pair and not during the other "
        "lengthens its loads and batches: the stages' tables tell them apart.",
        provenance_line(about),
        f"Started {about['started']}.",
        "Command: python -m benchmarks.runs.forecast.jobs --folder FOLDER --page FILE",
        "Range: every stage at the fast, then at the slow end of its rates (a 90 % "
        "prediction interval from the spread between batches; load times from the least "
        "to the largest that was measured). It has no width where the run before made one "
        "batch of each stage and loaded each once.",
    )
    tables = [_jobs_table(manifests)]
    tables += [_stages_table(j, m) for j, m in zip(JOBS, manifests, strict=True)]
    return markdown_page("Forecast and actual", remarks, tables)


def _jobs_table(manifests: Sequence[Mapping[str, Any]]) -> ResultTable:
    rows = []
    for job, manifest in zip(JOBS, manifests, strict=True):
        planned, actual = manifest[FORECAST], manifest[OUTCOME]["seconds"]
        span = FigureRange(**planned["seconds"])
        least = "at least " if planned["lower_bound"] else ""
        within = "yes" if span.low <= actual <= span.high else "no"
        change = f"{actual / span.mean - 1:+.0%}" if span.mean else ""
        rows.append(
            [job.name, f"{least}{span_text(span)}", time_text(actual), change, within]
        )
    head = ("job", "forecast", "actual", "difference", "in the range")
    return ResultTable.of("Wall time", head, rows)


def _stages_table(job: ForecastJob, manifest: Mapping[str, Any]) -> ResultTable:
    outcome, timing = manifest[OUTCOME]["stages"], manifest["timing"]
    rows = []
    for folder, planned in manifest[FORECAST]["stages"].items():
        actual = outcome.get(folder, {"jobs": 0, "seconds_per_record": 0.0})
        each, load = planned["seconds_per_record"], planned["load_seconds"]
        # No new process may have loaded the stage, only some that were at hand.
        loads = timing[LOADS].get(folder) or timing.get(TAKEOVERS, {}).get(folder)
        rows.append(
            [
                folder.rpartition("-")[0],
                f"{planned['jobs']:,.0f}",
                f"{actual['jobs']:,}",
                f"{each['mean']:.3g}" if each else "?",
                f"{actual['seconds_per_record']:.3g}",
                f"{load['mean']:.3g}" if load else "?",
                f"{loads[-1]:.3g}" if loads else "?",
                planned["origin"],
            ]
        )
    head = (
        *(
            "stage",
            "records forecast",
            "records actual",
            "s each forecast",
            "s each actual",
        ),
        *("load s forecast", "last load s actual", "rate from"),
    )
    return ResultTable.of(job.name, head, rows)


if __name__ == "__main__":
    typer.run(main)
