"""Runs the ways as processes of their own, and takes their wall and CPU time."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.speed.orchestration import CpuClock
from benchmarks.speed.small_jobs import job
from benchmarks.speed.small_jobs.answers import (
    AnswerAgreement,
    JobAnswers,
    agreements,
    answers_of_run,
    answers_of_script,
)
from cluster.manifest import CHECKOUT

QUICKSTART = "quickstart"
"""Name of the run of `plait run --data sample`, which has no script beside it."""


def _script(name: str) -> Callable[[Path, Path], list[str]]:
    def command(data: Path, out: Path) -> list[str]:
        module = f"benchmarks.speed.small_jobs.{name}"
        return [sys.executable, "-m", module, str(data), str(out)]

    return command


def _plait(data: Path, out: Path) -> list[str]:
    systems = (word for name in job.systems() for word in ("--system", name))
    return _run("--data", str(data), *systems, "--scorer", "clipscore", "--out", str(out))


def _run(*words: str) -> list[str]:
    return [sys.executable, str(CHECKOUT / "plait.py"), "run", "--weights", "tiny", *words]


WAYS: Mapping[str, Callable[[Path, Path], list[str]]] = {
    "careful": _script("careful"),
    "naive": _script("naive"),
    "plait": _plait,
}
"""Way -> its command, of the folder with the queries and the one for the answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTime:
    """One run of one way, from the start of its process to its end."""

    way: str
    queries: int
    round: int
    wall_s: float
    cpu_s: float
    """User and system time of the process and all that it started."""


@dataclass
class SmallJobsMeasurement:
    """All times, and how far the answers of the ways agree."""

    times: list[ProcessTime] = field(default_factory=list)
    agreements: dict[int, dict[str, Sequence[AnswerAgreement]]] = field(
        default_factory=dict
    )
    """By number of queries and way: with the answers of the first way."""


def measured(
    sizes: Sequence[int],
    rounds: int,
    ways: Sequence[str],
    *,
    quickstart: bool,
    say: Callable[[str], None],
) -> SmallJobsMeasurement:
    """Time every way in every round; the answers of the first round are compared."""
    measurement = SmallJobsMeasurement()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        data = {n: job.write_queries(root / f"queries-{n}", n) for n in sizes}
        for place in data.values():
            job.task_of(place)  # pictures are checked once and remembered
        for number in range(rounds):
            if quickstart:
                command = _run("--data", "sample", "--out", str(root / f"quick-{number}"))
                measurement.times.append(_timed(command, QUICKSTART, 40, number, say))
            for size in sizes:
                answers = {}
                for way in ways:
                    out = root / f"{way}-{size}-{number}"
                    command = WAYS[way](data[size], out)
                    measurement.times.append(_timed(command, way, size, number, say))
                    answers[way] = out
                if number == 0:
                    measurement.agreements[size] = _compared(answers)
    return measurement


def _timed(
    command: Sequence[str],
    way: str,
    queries: int,
    round: int,
    say: Callable[[str], None],
) -> ProcessTime:
    """Run a command; RuntimeError with the end of its output where it fails."""
    with tempfile.TemporaryFile("w+") as output, CpuClock(every_s=0.1) as clock:
        began = time.monotonic()
        ended = subprocess.run(
            command, cwd=CHECKOUT, stdout=output, stderr=output, check=False
        )
        wall_s = time.monotonic() - began
        if ended.returncode:
            output.seek(0)
            raise RuntimeError(f"{way} failed:\n{output.read()[-2000:]}")
    cpu_s = clock.points[-1][1] - clock.points[0][1]
    say(f"round {round + 1}: {way}, {queries} queries: {wall_s:.1f} s, CPU {cpu_s:.1f} s")
    return ProcessTime(way=way, queries=queries, round=round, wall_s=wall_s, cpu_s=cpu_s)


def _compared(places: Mapping[str, Path]) -> dict[str, Sequence[AnswerAgreement]]:
    """How far the answers of each way agree with those of the first."""
    first, *others = places
    if not others:
        return {}
    reference = _answers(first, places[first])
    return {way: agreements(reference, _answers(way, places[way])) for way in others}


def _answers(way: str, place: Path) -> JobAnswers:
    return answers_of_run(place) if way == "plait" else answers_of_script(place)
