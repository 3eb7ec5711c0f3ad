r"""What the engine costs beside a careful ActorPool, with stages that answer at once.

    python -m plait.benchmarks.speed.scripts.engine_cost --queries 20103 --batches 8,64 \
        --repeats 3 --out engine-cost.json --out engine-cost.md
    python -m plait.benchmarks.speed.scripts.engine_cost --variants plait --systems 20 \
        --scorers 3 --executor local --folder FOLDER --phases resume,plan --batches 512

Run it in the checkout, on a machine that does nothing else. Variants take turns, in every
round in the reverse order of the one before, each as whole processes on a Ray of its own:

* `plait`: `plait run` on `instant.py`; tables and page are made too.
* `pool`: `actor_pool.py`, in which one call answers a batch and scores the answers.
* `pool-2`: the same; a second call reads a batch's answers back and scores them.

Phases are `run`; `resume`, the same command with nothing missing; `plan`, what `plait plan`
takes beside a run that is complete. A run is divided at the end of `making records` in its
own trace, `spans.jsonl`: what comes before is the start and all commits, what comes after
is compaction, reading back, tables and page. A record is an answer or a score. How the
driver grows is seen in the second half of the time in which records are made, after
everything has been loaded. Ratios are taken round by round, to the pool of one call.

With `--folder` runs are kept there, and phases without `run` take those that they find.
`--command "plait run x.toml"` measures only that command, in the folder.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple, get_args

from PIL import Image

from plait.benchmarks.bench_program import numbers_of
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.speed.scripts import actor_pool, instant
from plait.benchmarks.speed.scripts.common import Script
from plait.benchmarks.speed.scripts.process_watch import (
    HOW,
    ROLES,
    Measured,
    ProcessWatch,
    Role,
    Used,
    run_watched,
    used_until,
)
from plait.cluster.manifest import environment
from plait.cluster.tracing.journal import MAKING
from plait.cluster.tracing.sessions import read_sessions
from plait.generators.errors import UsageError

Variant = Literal["plait", "pool", "pool-2"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
Phase = Literal["run", "resume", "plan"]
PHASES: tuple[Phase, ...] = get_args(Phase)
COMMITS = "until the last commit"
TABLES = "tables and page"
"""What a run is divided into."""
SCORERS = ("Brevity", "Words", "Vowels")
STAGES = "instant_stages"
"""The module of the stages, which is written beside the data."""
HEAD = [
    *("batch", "variant", "phase", "wall s", "CPU s driver", "workers", "Ray", "other"),
    *("driver ms/record", "driver MiB", "all MiB", "driver grows B/record"),
    *("files", "of a stage"),
    *("x wall", "x CPU", "x driver CPU", "else on machine CPU s"),
]


@dataclass(frozen=True, slots=True)
class Work:
    """How much there is to do, and where."""

    folder: Path
    queries: int
    systems: int
    scorers: int
    executor: str

    @property
    def records(self) -> int:
        """Answers and scores."""
        return self.queries * self.systems * (1 + self.scorers)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One phase of one variant in one round."""

    batch: int
    variant: str
    phase: str
    round: int
    measured: Measured
    grown: float | None = None
    """Bytes by which the driver grew with each record in the second half of making them."""


# ---------------------------------------------------------------------------- the work


def write_queries(folder: Path, count: int) -> None:
    """Write `count` queries in MMIE's format that share one small picture.

    Every question of about 140 characters ends in its number; half of them show the
    picture, and two of three references do.
    """
    (folder / "images").mkdir(parents=True)
    Image.new("RGB", (8, 8), (200, 30, 60)).save(folder / "images" / "a.png")
    words = "draw a cat beside the river under moon light with stones and a fox near it"
    rows = [_query(number, words) for number in range(count)]
    (folder / "data.json").write_text(json.dumps(rows))


def _query(number: int, words: str) -> dict[str, Any]:
    category = ("SA", "PBL", "MSR")[number % 3]
    field = ("Art", "Sport", "Math", "Physics", "History")[number % 5]
    picture = "./images/a.png"
    asked = f"{words}, {words[number % 40 :]} {number}?"
    question = {"text": asked, "image": picture if number % 2 else None}
    answer = {"text": words, "image": None if category == "MSR" else picture}
    sides = (("human", question), ("gpt", answer))
    return {
        "id": f"{category}-{number:07}",
        "catagory": "",  # as MMIE spells it
        "field": field,
        "conversations": [{"from": who, "content": [part]} for who, part in sides],
    }


def write_stages(folder: Path, systems: int) -> None:
    """Write the module that names each system and the scorers."""
    lines = [f"from {instant.__name__} import {', '.join(('Instant', *SCORERS))}"]
    lines += [f"class S{i}(Instant):\n    which = {i}" for i in range(systems)]
    (folder / f"{STAGES}.py").write_text("\n\n\n".join(lines) + "\n")


def plait_words(work: Work, batch: int, out: Path) -> list[str]:
    """Return the options of `plait run` and `plait plan`."""
    systems = [f"{STAGES}:S{number}" for number in range(work.systems)]
    scorers = [f"{STAGES}:{name}" for name in SCORERS[: work.scorers]]
    return [
        "--data=data",
        *(f"--system={name}" for name in systems),
        *(f"--scorer={name}" for name in scorers),
        *(f'--set=models."{n}".batch_size={batch}' for n in (*systems, *scorers)),
        *("--weights=tiny", f"--executor={work.executor}", f"--out={out}"),
    ]


def command_of(work: Work, batch: int, variant: str, phase: str, out: Path) -> list[str]:
    """Return the command of a phase."""
    if variant == "plait":
        name = "plan" if phase == "plan" else "run"
        words = plait_words(work, batch, out)
        return [sys.executable, "-m", "plait", name, *words]
    calls = 1 if variant == "pool" else 2
    # By its path, so that nothing of plait is imported; -P, so that nothing beside it is.
    script = [sys.executable, "-P", str(actor_pool.__file__), "data", str(out)]
    about = {"batch": batch, "calls": calls}
    about |= {"systems": work.systems, "scorers": work.scorers}
    return [*script, *(f"--{name}={value}" for name, value in about.items())]


# ---------------------------------------------------------------------- measuring


def measure(
    work: Work, batch: int, variant: str, phase: str, number: int
) -> Iterator[Measurement]:
    """Run one phase; yield the whole, and of a run its two parts."""
    out = work.folder / f"{variant}-{batch}-{number}"
    command = command_of(work, batch, variant, phase, out)
    whole, watch, said = run_watched(command, cwd=work.folder, parts=out)
    yield Measurement(batch, variant, phase, number, whole)
    if phase != "run":
        return
    making = _making(variant, out, whole, said)
    first = (making.begin + making.end) / 2
    last = making.end
    grown_mib = watch.driver_mib(last) - watch.driver_mib(first)
    grown = grown_mib * 2**20 / (work.records / 2)
    for name, used in _divide(whole, watch, making.end).items():
        part = Measurement(batch, variant, name, number, replace(whole, total=used))
        yield replace(part, grown=grown) if name == COMMITS else part


class Making(NamedTuple):
    """When the records were made, in seconds since the epoch."""

    begin: float
    end: float


def _making(variant: str, out: Path, whole: Measured, said: str) -> Making:
    if variant != "plait":
        committed = json.loads(said.strip().splitlines()[-1])["committed"]
        return Making(whole.began, committed)
    session = read_sessions(out)[-1]
    phases = [phase for phase in session.phases if phase.name == MAKING]
    start_s = session.start_ns / 1e9
    return Making(start_s + phases[0].begin / 1e6, start_s + phases[-1].end / 1e6)


def _divide(whole: Measured, watch: ProcessWatch, moment: float) -> dict[str, Used]:
    first = used_until(watch, whole.began, moment, math.inf)
    rest = {role: used - first.cpu_s[role] for role, used in whole.total.cpu_s.items()}
    return {COMMITS: first, TABLES: Used(whole.total.wall_s - first.wall_s, rest)}


def measure_all(
    work: Work,
    batches: Sequence[int],
    variants: Sequence[str],
    phases: Sequence[str],
    repeats: int,
) -> list[Measurement]:
    """Measure all in turn, every second round in reverse."""
    taken: list[Measurement] = []
    for number, batch in product(range(repeats), batches):
        for variant in variants[:: -1 if number % 2 else 1]:
            for phase in phases:
                if phase == "plan" and variant != "plait":
                    continue
                for one in measure(work, batch, variant, phase, number):
                    taken.append(one)
                    print(line_of(one, work), file=sys.stderr, flush=True)
    return taken


def line_of(one: Measurement, work: Work) -> str:
    """Return one measurement as a line, while others are still to come."""
    used = one.measured.total
    cpu = ", ".join(f"{role} {seconds:.1f}" for role, seconds in used.cpu_s.items())
    return (
        f"round {one.round + 1}, batch {one.batch}, {one.variant}, {one.phase}: "
        f"{used.wall_s:.1f} s; CPU s {cpu}; "
        f"{1000 * used.cpu_s['driver'] / work.records:.3f} ms a record"
    )


# ------------------------------------------------------------------------ the table


def table_of(taken: Sequence[Measurement], work: Work) -> ResultTable:
    """Return medians over the rounds, one row for each phase of each variant."""
    groups: dict[tuple[int, str, str], list[Measurement]] = {}
    for one in taken:
        groups.setdefault((one.batch, one.variant, one.phase), []).append(one)
    cells = [_row(group, groups, work) for group in groups.values()]
    rounds = 1 + max((one.round for one in taken), default=0)
    title = (
        f"{work.queries:,} queries x {work.systems} x {work.scorers}: {work.records:,} "
        f"records, executor {work.executor}; median of {rounds}"
    )
    notes = [
        "x: to the pool of one call at the same batch and phase, round by round",
        "else on machine: where it is not small, only ratios mean something",
    ]
    return ResultTable.of(title, HEAD, cells, notes)


def _row(
    group: Sequence[Measurement],
    groups: Mapping[tuple[int, str, str], Sequence[Measurement]],
    work: Work,
) -> list[str]:
    first = group[0]
    all_of = [one.measured for one in group]
    totals = [measured.total for measured in all_of]
    driver = median(used.cpu_s["driver"] for used in totals)
    peers = [m.measured.total for m in groups.get((first.batch, "pool", first.phase), ())]
    pairs = [*zip(totals, peers, strict=False)]
    return [
        *(str(first.batch), first.variant, first.phase),
        f"{median(used.wall_s for used in totals):.1f}",
        f"{driver:.1f}",
        *(_seconds(totals, role) for role in ROLES[1:]),
        f"{1000 * driver / work.records:.3f}",
        f"{median(measured.driver_mib for measured in all_of):,.0f}",
        f"{median(measured.all_mib for measured in all_of):,.0f}",
        _median([one.grown for one in group if one.grown is not None], ".0f"),
        f"{max(measured.files for measured in all_of):,}",
        f"{max(measured.files_of_stage for measured in all_of):,}",
        _ratio((own.wall_s, peer.wall_s) for own, peer in pairs),
        _ratio((own.all_cpu_s, peer.all_cpu_s) for own, peer in pairs),
        _ratio((own.cpu_s["driver"], peer.cpu_s["driver"]) for own, peer in pairs),
        f"{median(measured.others_cpu_s for measured in all_of):.1f}",
    ]


def _median(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}}" if values else "-"


def _seconds(totals: Sequence[Used], role: Role) -> str:
    return f"{median(used.cpu_s[role] for used in totals):.1f}"


def _ratio(pairs: Iterator[tuple[float, float]]) -> str:
    return _median([own / peer for own, peer in pairs if peer], ".2f")


# ---------------------------------------------------------------------- the command


def _choose(text: str, valid: Sequence[str], option: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in valid]:
        raise UsageError(f"{option} {unknown[0]!r} must be of {', '.join(valid)}")
    return [name for name in valid if name in names]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the table and write files."""
    script = Script(__doc__, "engine_cost", words)
    script.parser.add_argument("--queries", type=int, default=20_103)
    script.parser.add_argument("--systems", type=int, default=1)
    script.parser.add_argument("--scorers", type=int, default=1, choices=range(1, 4))
    script.parser.add_argument("--batches", default="8,64")
    script.parser.add_argument("--repeats", type=int, default=3)
    script.parser.add_argument("--executor", default="ray", choices=["ray", "local"])
    script.parser.add_argument("--variants", default=",".join(VARIANTS))
    script.parser.add_argument("--phases", default=",".join(PHASES))
    script.parser.add_argument("--folder", type=Path)
    script.parser.add_argument("--command")
    options = script.options()
    batches = numbers_of(options.batches, "--batches", "8,64")
    variants = _choose(options.variants, VARIANTS, "--variants")
    phases = _choose(options.phases, PHASES, "--phases")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        if options.command:
            measured, _, _ = run_watched(
                shlex.split(options.command), cwd=folder, parts=folder
            )
            print(json.dumps(asdict(measured), indent=1))
            return 0
        work = Work(
            folder, options.queries, options.systems, options.scorers, options.executor
        )
        if not (folder / "data").exists():
            write_queries(folder / "data", work.queries)
        write_stages(folder, work.systems)
        taken = measure_all(work, batches, variants, phases, options.repeats)
    script.report(
        "What the engine costs",
        table_of(taken, work),
        environment(),
        taken=HOW,
        measurements=[asdict(one) for one in taken],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
