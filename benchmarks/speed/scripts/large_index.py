r"""What it costs to open a run of very many records: time, memory, bytes by record.

    python -m plait.benchmarks.speed.scripts.large_index --records 1000000,10000000
    python -m plait.benchmarks.speed.scripts.large_index --records 100000000 \
        --folder FOLDER --out large-index.json

Run it in the checkout. The records of one stage are made without computing anything: keys
are random, labels those of `QUERIES` queries in turn, values small, one in a thousand
failed. Their parts are written by the store itself, `--part-rows` records each, as large as
compaction leaves them. Then a process of its own opens the stage's index, asks for records
that are there and for some that are not, and says what it took. Memory is the high-water
mark of that process, beside what it held before the store was opened. Files come from the
page cache where the machine has room for it.

With `--folder`, runs are kept there, and those that are there already are opened again;
with `--make` too, they are only made.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from plait.benchmarks.bench_program import numbers_of
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.speed.scripts.common import Script
from plait.benchmarks.speed.scripts.process_watch import peak_bytes
from plait.cluster.manifest import environment
from plait.cluster.records import SCHEMAS
from plait.cluster.store import Store, write_part
from plait.generators.base import Fault, Kind, OutcomeName, StageSpec

MadeKind = Literal["score", "draft"]
QUERIES = 20_103
"""As many as MMIE has."""
CATEGORIES = ("SA", "PBL", "MSR")
FAILED_EVERY = 1000
LOOKUPS = 1000
"""Records that are asked for, in the first part and in the last."""
KEY_DIGITS = 32
_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)
"""The two digits of each byte."""
_BEGAN_US = 1_767_225_600_000_000
"""1 January 2026, in microseconds since the epoch."""
HEAD = [
    *("records", "kind", "made in s", "disk B/record", "opened in s", "CPU s"),
    *("peak MiB", "before MiB", "B/record", "index on disk B/record", "us/lookup"),
]


@dataclass(frozen=True, slots=True)
class Opened:
    """What opening an index took, by the process that did it."""

    records: int
    wall_s: float
    cpu_s: float
    before_mib: float
    peak_mib: float
    written_bytes: int
    """By how much opening it has made the run directory grow."""
    lookup_us: float


def open_index(root: Path, spec: StageSpec) -> tuple[int, Callable[[str], object | None]]:
    """Open a stage's index; return the number of its records, and what finds one by key.

    The only place here that knows how the store is asked.
    """
    rows = Store(root).rows(spec)
    return len(rows), rows.get


# ------------------------------------------------------------------ making records


def spec_of(kind: MadeKind) -> StageSpec:
    """Return the stage whose records are made; nothing can be computed by it."""
    return StageSpec(name=f"made-{kind}", kind=Kind(kind), target="made:Nothing")


def keys_of(part: int, rows: int) -> pa.Array:
    """Return the random keys of a part's records, always the same."""
    digits = np.random.default_rng(part).integers(0, 256, (rows, KEY_DIGITS // 2), np.uint8)
    data = np.ascontiguousarray(_HEX[digits])
    offsets = np.arange(0, KEY_DIGITS * rows + 1, KEY_DIGITS, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def table_of_part(kind: MadeKind, part: int, first: int, rows: int) -> pa.Table:
    """Return `rows` records, the first of which is number `first` of its stage."""
    numbers = np.arange(first, first + rows)
    draw = np.random.default_rng((part, 1))
    failed = (numbers % FAILED_EVERY == 0).astype(np.int8)
    same = np.zeros(rows, np.int8)
    done = str(OutcomeName.DONE)
    lost = str(OutcomeName.FAILED)
    labels = [f"{CATEGORIES[i % 3]}-{i:06}" for i in range(QUERIES)]
    columns: dict[str, pa.Array] = {
        "key": keys_of(part, rows),
        "label": _of(labels, numbers % QUERIES),
        "outcome": _of([done, lost], failed),
        "fault": _of([None, str(Fault.REFUSED)], failed),
        "reason": _of([None, "the server refused the request"], failed),
        "usage": _of(['{"output_tokens": 61}'], same),
        "notes": _of(["{}"], same),
        "seconds": pa.array(draw.integers(1, 4000, rows) / 1000),
        "at": pa.array(_BEGAN_US + 300 * numbers),
        **_values(kind, draw, rows, failed),
    }
    schema = SCHEMAS[Kind(kind)]
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _values(
    kind: MadeKind, draw: np.random.Generator, rows: int, failed: np.ndarray
) -> dict[str, pa.Array]:
    """Return the columns that records of one kind have; nulls where they failed."""
    if kind == "score":
        values = draw.integers(0, 1000, rows) / 100
        parts = _of(["{}", None], failed)
        return {"value": pa.array(values, mask=failed.astype(bool)), "parts": parts}
    words = ("a", "river", "under", "the", "moon", "with", "stones", "and", "a", "fox")
    texts = [" ".join(draw.permutation(words)) for _ in range(999)]
    segments = [json.dumps([{"type": "text", "text": text}]) for text in texts]
    which = np.where(failed, len(texts), draw.integers(0, len(texts), rows))
    schema = SCHEMAS[Kind.DRAFT]
    empty = {name: schema.field(name).type for name in ("payload", "images")}
    return {
        "text": _of([*texts, None], which),
        "segments": _of([*segments, None], which),
        **{name: pa.array([[]], form).take(_zeros(rows)) for name, form in empty.items()},
    }


def _of(values: Sequence[str | None], which: np.ndarray) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(which))


def _zeros(rows: int) -> pa.Array:
    return pa.array(np.zeros(rows, np.int64))


def make_records(root: Path, kind: MadeKind, records: int, part_rows: int) -> None:
    """Write the records of one stage as parts of a store."""
    folder = Store(root).folder(spec_of(kind))
    folder.mkdir(parents=True)
    for part, first in enumerate(range(0, records, part_rows)):
        rows = min(part_rows, records - first)
        write_part(folder, table_of_part(kind, part, first, rows))
    about = {"records": records, "part_rows": part_rows}
    (root / "made.json").write_text(json.dumps(about))  # last: all of them are there


# ------------------------------------------------------------------------ opening


def open_and_ask(root: Path, kind: MadeKind) -> Opened:
    """Open an index in this process and ask for records; what it took."""
    about = json.loads((root / "made.json").read_text())
    before = peak_bytes(os.getpid())
    size = _size(root)
    began = time.perf_counter()
    used = _cpu_s()
    records, find = open_index(root, spec_of(kind))
    wall_s = time.perf_counter() - began
    cpu_s = _cpu_s() - used
    asked = _keys_to_ask(about["records"], about["part_rows"])
    began = time.perf_counter()
    found = sum(find(key) is not None for key in asked)
    lookup_us = 1e6 * (time.perf_counter() - began) / len(asked)
    unknown = sum(find(f"{number:0{KEY_DIGITS}x}") is not None for number in range(LOOKUPS))
    if (records, found, unknown) != (about["records"], len(asked), 0):
        raise RuntimeError(
            f"{records:,} of {about['records']:,} records are in the index; {found:,} of "
            f"{len(asked):,} that are there were found, and {unknown} that are not"
        )
    mib = 2.0**20
    peak = peak_bytes(os.getpid())
    written = _size(root) - size
    return Opened(records, wall_s, cpu_s, before / mib, peak / mib, written, lookup_us)


def _keys_to_ask(records: int, part_rows: int) -> list[str]:
    last = (records - 1) // part_rows
    rows_of = {0: min(part_rows, records), last: records - last * part_rows}
    # One generator makes all keys of a part: it has to be asked for as many.
    keys: list[str] = []
    for part, rows in rows_of.items():
        keys += keys_of(part, rows)[:LOOKUPS].to_pylist()
    return keys


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _size(root: Path) -> int:
    return sum(place.stat().st_size for place in root.rglob("*") if place.is_file())


# ------------------------------------------------------------------------ command


def row_of(about: Mapping[str, Any], kind: str, taken: Opened) -> list[str]:
    """Return the row of one number of records."""
    grown = (taken.peak_mib - taken.before_mib) * 2**20
    made_s = about["made_s"]
    return [
        *(f"{taken.records:,}", kind),
        "-" if made_s is None else f"{made_s:.1f}",
        f"{about['bytes'] / taken.records:.1f}",
        *(f"{taken.wall_s:.1f}", f"{taken.cpu_s:.1f}"),
        *(f"{taken.peak_mib:,.0f}", f"{taken.before_mib:,.0f}"),
        f"{grown / taken.records:.1f}",
        f"{taken.written_bytes / taken.records:.1f}",
        f"{taken.lookup_us:.1f}",
    ]


def make_unless_there(
    root: Path, kind: MadeKind, records: int, part_rows: int
) -> float | None:
    """Make the records; return how many seconds that took, None where they are there."""
    if (root / "made.json").exists():
        return None
    began = time.perf_counter()
    make_records(root, kind, records, part_rows)
    return time.perf_counter() - began


def measure(root: Path, kind: MadeKind, records: int, part_rows: int) -> dict[str, Any]:
    """Make the records unless they are there, and open them in a process of its own."""
    made_s = make_unless_there(root, kind, records, part_rows)
    about = {"made_s": made_s, "bytes": _size(root)}
    module = "plait.benchmarks.speed.scripts.large_index"
    command = [sys.executable, "-m", module, "--kind", kind, "--open", str(root)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return about | {"opened": json.loads(said)}


def main(words: Sequence[str] | None = None) -> int:
    """Make, open, print the table and write files."""
    script = Script(__doc__, "large_index", words)
    script.parser.add_argument("--records", default="1000000")
    script.parser.add_argument("--kind", default="score", choices=["score", "draft"])
    script.parser.add_argument("--part-rows", type=int, default=1_000_000)
    script.parser.add_argument("--folder", type=Path)
    script.parser.add_argument("--make", action="store_true")
    script.parser.add_argument("--open", type=Path)
    options = script.options()
    if options.open:
        print(json.dumps(asdict(open_and_ask(options.open, options.kind))))
        return 0
    numbers = numbers_of(options.records, "--records", "1000000,10000000")
    taken = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        for records in numbers:
            root = folder / f"made-{options.kind}-{records}"
            if options.make:
                make_unless_there(root, options.kind, records, options.part_rows)
                continue
            taken.append(measure(root, options.kind, records, options.part_rows))
    if options.make:
        return 0
    cells = [row_of(about, options.kind, Opened(**about["opened"])) for about in taken]
    title = f"The index of one stage, {options.part_rows:,} records to a part"
    table = ResultTable.of(title, HEAD, cells)
    script.report("Opening large runs", table, environment(), measurements=taken)
    return 0


if __name__ == "__main__":
    sys.exit(main())
