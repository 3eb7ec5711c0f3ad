r"""What the board of a very large run costs: CPU time and memory, by the number of queries.

    python -m plait.benchmarks.speed.scripts.large_board --queries 250000,1000000
    python -m plait.benchmarks.speed.scripts.large_board --queries 1000000 \
        --systems 2 --scorers 1 --folder FOLDER --out large-board.json

Run it in the checkout. The tables of a run's results are made without computing anything:
keys are random, every answer and every score has a record of its own. Their row groups are
as large as those of a run. Then a process of its own reads the results and makes the board,
from which tables and page are made. `spending` is the part of it that finds the records
behind answers and scores and adds up what they took. Memory is the high-water mark of that
process.

With `--folder`, results are kept there, and those that are there already are read again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plait.benchmarks.bench_program import numbers_of
from plait.benchmarks.results.files.about import RunAbout, facts_of_plan
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import FOLDER, TABLES
from plait.benchmarks.results.files.writing import place_file, write_about
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.speed.scripts.common import Script
from plait.benchmarks.speed.scripts.large_index import keys_of
from plait.benchmarks.speed.scripts.process_watch import peak_bytes
from plait.benchmarks.speed.scripts.reading import CATEGORIES, plan_of
from plait.cluster.manifest import environment
from plait.cluster.plan import Plan
from plait.generators.base import OutcomeName

FIELDS = tuple(f"field {i}" for i in range(12))
GROUP_ROWS = 4_096
"""Of a row group, as those of a run have."""
AT_ONCE = 16 * GROUP_ROWS
HEAD = ["queries", "records", "made in s", "board CPU s", "of it spending", "peak MiB"]


@dataclass(frozen=True, slots=True)
class Read:
    """What making a board took, by the process that did it."""

    records: int
    cpu_s: float
    spending_cpu_s: float
    peak_mib: float


# ------------------------------------------------------------------ making results


def make_results(root: Path, plan: Plan, queries: int) -> None:
    """Write the tables of the results of a complete run of `plan`."""
    folder = root / FOLDER
    folder.mkdir(parents=True)
    tables = {
        "queries": _write(folder, "queries", _queries(queries)),
        "answers": _write(folder, "answers", _answers(plan, queries)),
        "scores": _write(folder, "scores", _scores(plan, queries)),
        "records": _write(folder, "records", _records(plan, queries)),
    }
    about = RunAbout(
        run_digest="",
        name="made up",
        categories=CATEGORIES,
        fields=FIELDS,
        data={},
        config={},
        weights="tiny",
        **facts_of_plan(plan, {}),
    )
    write_about(folder, {"tables": tables, "records": {}} | about.as_json)


def _write(folder: Path, name: str, rows: Iterator[pa.Table]) -> list[dict[str, Any]]:
    unfinished = folder / f"{name}.unfinished"
    count = 0
    schema = TABLES[name]
    with pq.ParquetWriter(
        unfinished, schema, compression="zstd", write_page_checksum=True
    ) as file:
        for table in rows:
            columns = []
            for field in schema:
                there = field.name in table.column_names
                nothing = pa.nulls(len(table), field.type)
                columns.append(table.column(field.name) if there else nothing)
            file.write_table(pa.table(columns, schema=schema), row_group_size=GROUP_ROWS)
            count += len(table)
    entry = place_file(unfinished, name, folder, count)
    unfinished.unlink()
    return [entry]


def _ranges(count: int) -> Iterator[range]:
    for first in range(0, count, AT_ONCE):
        yield range(first, min(first + AT_ONCE, count))


def _query_names(numbers: range) -> pa.Array:
    return pa.array([f"query-{number:08}" for number in numbers])


def _of(values: Sequence[str], numbers: range) -> pa.Array:
    return pa.array(values).take(pa.array(np.asarray(numbers) % len(values)))


def _queries(count: int) -> Iterator[pa.Table]:
    for numbers in _ranges(count):
        names = _query_names(numbers)
        groups = {
            "category": _of([*CATEGORIES], numbers),
            "field": _of(FIELDS, numbers),
        }
        yield pa.table({"query": names, "id": names, **groups})


def _rows_of_all(
    plan: Plan, count: int, owners: int, outcome: str
) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield by system, owner and range of queries what answers and scores have in common.

    An owner is what a row's job was asked of, by its number among those of the system.
    """
    for place, system in enumerate(plan.systems):
        for numbers in _ranges(count):
            for owner in range(owners):
                rows = len(numbers)
                columns = {
                    "system": pa.repeat(system.name, rows),
                    "query": _query_names(numbers),
                    "repeat": pa.array(np.ones(rows, np.int32)),
                    "outcome": pa.repeat(outcome, rows),
                    "reason": pa.repeat("", rows),
                    "fault": pa.repeat("", rows),
                }
                yield place, owner, pa.table(columns)


def _with_columns(table: pa.Table, more: Mapping[str, pa.Array]) -> pa.Table:
    for name, column in more.items():
        table = table.append_column(name, column)
    return table


def _seed_of(place: int, owner: int, block: int) -> int:
    """Return the number by which the keys of a block of records are drawn."""
    return (place * 100 + owner) * 1_000_000 + block


def _jobs(folder: str, seed: int, rows: int) -> pa.Array:
    """Return one job for each row."""
    kind = TABLES["answers"].field("jobs").type
    jobs = pa.StructArray.from_arrays(
        [
            keys_of(seed, rows),
            pa.repeat(folder, rows),
            keys_of(seed + 500_000, rows),
            pa.array(np.arange(rows, dtype=np.int64)),
        ],
        fields=[*kind.value_type],
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), jobs)


def _answers(plan: Plan, count: int) -> Iterator[pa.Table]:
    blocks = len([*_ranges(count)])
    made = _rows_of_all(plan, count, 1, OutcomeName.DONE)
    for number, (place, _, table) in enumerate(made):
        folder = plan.systems[place].roles["draft"].folder
        rows = len(table)
        more = {
            "images": pa.array(np.zeros(rows, np.int32)),
            "thought": pa.array(np.zeros(rows, np.bool_)),
            "jobs": _jobs(folder, _seed_of(place, 0, number % blocks), rows),
        }
        yield _with_columns(table, more)


def _scores(plan: Plan, count: int) -> Iterator[pa.Table]:
    blocks = len([*_ranges(count)])
    scorers = len(plan.scorers)
    made = _rows_of_all(plan, count, scorers, OutcomeName.SCORED)
    for number, (place, owner, table) in enumerate(made):
        scorer = plan.scorers[owner]
        rows = len(table)
        seed = _seed_of(place, 1 + owner, number // scorers % blocks)
        draw = np.random.default_rng(seed)
        more = {
            "scorer": pa.repeat(scorer.name, rows),
            "value": pa.array(draw.integers(0, 1000, rows) / 10),
            "jobs": _jobs(scorer.stages[0].folder, seed, rows),
        }
        yield _with_columns(table, more)


def _records(plan: Plan, count: int) -> Iterator[pa.Table]:
    """Yield the records behind all rows, in another order than that of the rows."""
    for owner in range(1 + len(plan.scorers)):
        for place, system in enumerate(plan.systems):
            stage = plan.scorers[owner - 1].stages[0] if owner else system.roles["draft"]
            blocks = [*enumerate(_ranges(count))]
            for block, numbers in reversed(blocks):
                seed = _seed_of(place, owner, block)
                draw = np.random.default_rng((seed, 1))
                rows = len(numbers)
                yield pa.table(
                    {
                        "key": keys_of(seed, rows),
                        "stage": pa.repeat(stage.folder, rows),
                        "outcome": pa.repeat(OutcomeName.DONE, rows),
                        "fault": pa.repeat("", rows),
                        "seconds": pa.array(draw.integers(1, 4000, rows) / 1000),
                        "gpu_seconds": pa.array(np.zeros(rows)),
                        "output_tokens": pa.array(draw.integers(1, 400, rows) * 1.0),
                        "at": pa.array(np.asarray(numbers)),
                    }
                )


# ------------------------------------------------------------------------- reading


def read_board(root: Path) -> Read:
    """Make the board of the results in this process; what that took."""
    from plait.benchmarks.results.files import boards

    spent = 0.0
    whole = boards.Spending.of

    def timed(*arguments: Any) -> boards.Spending:
        nonlocal spent
        began = time.process_time()
        spending = whole(*arguments)
        spent += time.process_time() - began
        return spending

    began = time.process_time()
    results = RunResults.at(root)
    with mock.patch.object(boards.Spending, "of", timed):
        board = results.board
    cpu_s = time.process_time() - began
    records = sum(entry["rows"] for entry in results.tables["records"])
    # Each record is one row's and has a number of seconds: none may be lost on the way.
    told = len(board.table.column("seconds").drop_null())
    if told != records:
        raise RuntimeError(f"{told:,} rows say what their records took, of {records:,}")
    return Read(records, cpu_s, spent, peak_bytes(os.getpid()) / 2**20)


def measure(folder: Path, queries: int, systems: int, scorers: int) -> list[str]:
    """Make the results unless they are there, and read them in a process of its own."""
    root = folder / f"board-{queries}-{systems}-{scorers}"
    made = "-"
    if not (root / FOLDER / "run.json").exists():
        began = time.perf_counter()
        make_results(root, plan_of(0, systems, scorers), queries)
        made = f"{time.perf_counter() - began:.1f}"
    module = "plait.benchmarks.speed.scripts.large_board"
    command = [sys.executable, "-m", module, "--read", str(root)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    taken = Read(**json.loads(said))
    return [
        *(f"{queries:,}", f"{taken.records:,}", made),
        *(f"{taken.cpu_s:.1f}", f"{taken.spending_cpu_s:.1f}", f"{taken.peak_mib:,.0f}"),
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Make, read, print the table and write files."""
    script = Script(__doc__, "large_board", words)
    script.parser.add_argument("--queries", default="250000,1000000")
    script.parser.add_argument("--systems", type=int, default=2)
    script.parser.add_argument("--scorers", type=int, default=1)
    script.parser.add_argument("--folder", type=Path)
    script.parser.add_argument("--read", type=Path)
    options = script.options()
    if options.read:
        print(json.dumps(asdict(read_board(options.read))))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        for queries in numbers_of(options.queries, "--queries", "250000,1000000"):
            rows.append(measure(folder, queries, options.systems, options.scorers))
    title = f"The board of a run of {options.systems} systems and {options.scorers} scorers"
    script.report("Boards of large runs", ResultTable.of(title, HEAD, rows), environment())
    return 0


if __name__ == "__main__":
    sys.exit(main())
