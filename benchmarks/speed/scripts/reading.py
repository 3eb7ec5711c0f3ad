r"""What it takes to write the results of a large run and to read them: seconds and memory.

    python -m plait.benchmarks.speed.scripts.reading \
        --queries 20103 --systems 20 --scorers 3

Run it in the checkout. Records are made up: answers of about 700 characters by systems
that share nothing, and scores. Making them is not measured. Every step is a process of its
own, whose processor time and largest resident memory are shown; importing is part of them.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.speed.scripts.common import Script
from plait.cluster.manifest import environment
from plait.cluster.plan import Plan
from plait.cluster.records import Item, encode
from plait.cluster.store import Store, write_part
from plait.generators.base import Kind, Result, StageSpec
from plait.generators.document import Draft, Query, Request, Score, Text, Turn
from plait.generators.system import System
from plait.generators.writing import NativeSystem
from plait.scorers.base import CustomScorer

CATEGORIES = {"SA": 5005, "PBL": 11482, "MSR": 3616}
_AT_ONCE = 4_000
_WORDS = ("a", "cat", "mat", "river", "paints", "sits", "under", "bridge", "red", "then")
HEAD = ["step", "seconds", "CPU s", "memory, MiB", "on disk, MiB"]
STEPS = ("write", "open", "one answer", "tables", "page")


def samples_of(queries: int) -> list[Query]:
    """Make queries of about 400 characters, in the proportions of MMIE's categories."""
    names: list[str] = []
    for name, count in CATEGORIES.items():
        names += [name] * (count // 100)
    made = []
    for i in range(queries):
        category = names[i % len(names)]
        turns = (Turn("user", (Text(f"query {i} " + _text(i, 80)),)),)
        about: dict[str, Any] = {"category": category, "field": f"field {i % 12}"}
        made.append(Query(id=f"{category}-{i:05d}", turns=turns, **about))
    return made


def _text(seed: int, words: int) -> str:
    return " ".join(random.Random(seed).choices(_WORDS, k=words))


def _stage(name: str, kind: Kind) -> StageSpec:
    return StageSpec(name=name, kind=kind, target=f"made_up:{name}", weights="tiny")


def plan_of(queries: int, systems: int, scorers: int) -> Plan:
    """Return the plan of a run whose records `make_records` makes."""
    drafts = [_stage(f"writer{i}", Kind.DRAFT) for i in range(systems)]
    stages = [_stage(f"scorer{i}", Kind.SCORE) for i in range(scorers)]
    return Plan(
        systems=[NativeSystem(name=spec.name, draft=spec) for spec in drafts],
        queries=samples_of(queries),
        scorers=[CustomScorer(name=s.name, stage=s, scale="0-100") for s in stages],
        prompt=lambda sample, variant: sample.turns,
    )


def make_records(plan: Plan, root: Path) -> None:
    """Write a record for every answer and every score."""
    for number, system in enumerate(plan.systems):
        answers: list[tuple[Item, Result[Any]]] = []
        scores: dict[str, list[tuple[Item, Result[Any]]]] = {}
        for i, sample in enumerate(plan.queries):
            for spec, item, result in _records_of(plan, system, sample, number * 7 + i):
                if spec is system.roles["draft"]:
                    answers.append((item, result))
                else:
                    scores.setdefault(spec.name, []).append((item, result))
        _commit(root, system.roles["draft"], answers)
        for scorer in plan.scorers:
            _commit(root, scorer.stage, scores[scorer.stage.name])


def _records_of(
    plan: Plan, system: System, sample: Any, seed: int
) -> Iterator[tuple[StageSpec, Item, Result[Any]]]:
    """Follow one walk, and answer each of its jobs with something made up."""
    walk = plan.evaluation(system, sample, 0)
    jobs = next(walk)
    while True:
        outcomes: list[Any] = []
        for job in jobs:
            usage = {"input_tokens": 120, "output_tokens": 160}
            made: Any = Score(float(seed * 37 % 101), {"length": 160})
            if isinstance(job.input, Request):
                made = Draft((Text(_text(seed, 140)),))
            result = Result(made, usage, {"prompt": "as it was asked"})
            outcomes.append(result)
            yield job.spec, Item(job.key, sample.id, job.input), result
        try:
            jobs = walk.send(outcomes)
        except StopIteration:
            return


def _commit(root: Path, spec: StageSpec, made: list[tuple[Item, Result[Any]]]) -> None:
    for start in range(0, len(made), _AT_ONCE):
        items, results = zip(*made[start : start + _AT_ONCE], strict=True)
        table = encode(spec.kind, items, results, 0.5)
        write_part(root / "stages" / spec.folder, table)


def take_step(step: str, root: Path, plan: Plan | None) -> None:
    """Do what is measured; imports are part of it, as they are of a command."""
    from plait.benchmarks.results.files.reading import RunResults
    from plait.benchmarks.results.files.schema import FOLDER

    if step == "write":
        _write(root, plan)
        return
    results = RunResults.at(root)
    systems = results.systems
    if step == "one answer":
        name = systems[-1].name
        key = next(iter(results.heads))
        next(results.evaluations([key], systems=[name]))
    elif step in ("tables", "page"):
        from plait.benchmarks.results.leaderboard_files import write_leaderboard
        from plait.benchmarks.results.report import write_report
        from plait.cluster.store import read_blob

        write_leaderboard(results.board, root)
        if step == "page":
            write_report(results.board, root, {}, read_blob)
    assert (root / FOLDER).exists()


def _write(root: Path, plan: Plan | None) -> None:
    from plait.benchmarks.results.files.about import RunAbout, facts_of_plan
    from plait.benchmarks.results.files.schema import FOLDER
    from plait.benchmarks.results.files.writing import ResultsWriter
    from plait.cluster.plan import evaluations

    assert plan is not None
    about = RunAbout(
        run_digest="",
        name="made up",
        categories=CATEGORIES,
        fields=[f"field {i}" for i in range(12)],
        data={},
        config={},
        weights="tiny",
        **facts_of_plan(plan, {}),
    )
    writer = ResultsWriter(plan, about)
    store = Store(root)
    for _ in writer(evaluations(plan, store), store):
        pass
    writer.finish(root / FOLDER)


def main(words: list[str] | None = None) -> None:
    """Make a run, and measure each step in a process of its own."""
    script = Script(__doc__, "reading", words)
    script.parser.add_argument("--queries", type=int, default=2_000)
    script.parser.add_argument("--systems", type=int, default=4)
    script.parser.add_argument("--scorers", type=int, default=3)
    script.parser.add_argument("--root", type=Path, default=None)
    script.parser.add_argument("--step", choices=STEPS, default=None)
    options = script.options()
    sizes = options.queries, options.systems, options.scorers
    if options.step is not None:
        plan = plan_of(*sizes) if options.step == "write" else None
        take_step(options.step, options.root, plan)
        return
    with tempfile.TemporaryDirectory() as place:
        root = options.root or Path(place)
        if not (root / "stages").exists():
            make_records(plan_of(*sizes), root)
        rows = [_measure(step, root, sizes) for step in STEPS]
    title = f"{sizes[0]:,} queries, {sizes[1]} systems, {sizes[2]} scorers"
    script.report(title, ResultTable.of(title, HEAD, rows), environment())


def _measure(step: str, root: Path, sizes: tuple[int, int, int]) -> list[str]:
    queries, systems, scorers = sizes
    module = "plait.benchmarks.speed.scripts.reading"
    command = [sys.executable, "-m", module, "--step", step, "--root", str(root)]
    command += [f"--queries={queries}", f"--systems={systems}", f"--scorers={scorers}"]
    began = time.monotonic()
    process = subprocess.Popen(command)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    if status:
        raise SystemExit(f"step {step!r} failed")
    cpu = used.ru_utime + used.ru_stime
    # Linux gives kibibytes.
    memory = used.ru_maxrss / 1024
    files = (root / "results").glob("*")
    disk = sum(path.stat().st_size for path in files) / 2**20
    return [step, f"{seconds:.1f}", f"{cpu:.1f}", f"{memory:,.0f}", f"{disk:,.0f}"]


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
