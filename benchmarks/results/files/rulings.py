"""What judges said of pairs of answers: the table `comparisons`, and what it is made of.

`plait compare` keeps each comparison as lines of JSON beside the records of its judge. The
table is what is read; where it is not there it is made of the lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from plait.benchmarks.results.files.schema import TABLES
from plait.generators.buckets import AnyPath, matching
from plait.generators.errors import UsageError
from plait.generators.files import write_whole

COMPARE = "compare"
"""Folder inside a run directory: judgements by protocol, each a store of its own."""
RULINGS = "judgements-*.jsonl"
"""Files of rulings, by the names of comparisons."""
TABLE = "comparisons"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One system of a pair, and its answer's size."""

    system: str
    writer: str
    """The model that wrote the text, so named in the file."""
    words: int
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The verdict in one reply of a judge on one pair, in one order of showing."""

    protocol: str
    mode: str
    wording: str
    """Digest of the prompts."""
    judge: str
    stage: str
    """Digest of the judge's model and settings."""
    question: str
    repeat: int
    """Of the answers."""
    judging: int
    """Times that the judge had been asked about the same pair before."""
    first: Side
    second: Side
    swapped: bool
    """The second was shown first."""
    aspect: str
    outcome: str
    """`done`, `unscored`, `failed`, ..."""
    said: str = ""
    """The verdict in the protocol's wording, or why there is none."""
    fault: str = ""
    """Kind of failure; empty for any other outcome."""
    preference: int | None = None
    """From -2 to 2; positive is for the answer shown first."""
    marks: tuple[float, float] | None = None
    """Out of 10, of the answer shown first and of the other."""
    jobs: tuple[Mapping[str, Any], ...] = ()
    """What was asked, as in other tables; empty where an earlier version has compared."""


_SHARED = ("protocol", "mode", "wording", "judge", "stage", "judging", "aspect")
"""Columns with the names that a ruling has for them."""


def row_of(series: str, ruling: Ruling) -> dict[str, Any]:
    """Return the row of a ruling, which belongs to the comparison named `series`."""
    row = {name: getattr(ruling, name) for name in (*_SHARED, "outcome", "fault", "marks")}
    for letter, side in (("a", ruling.first), ("b", ruling.second)):
        for field in fields(Side):
            row[f"{field.name}_{letter}"] = getattr(side, field.name)
    return row | {
        "series": series,
        "query": ruling.question,
        "repeat": ruling.repeat + 1,
        "order": "ba" if ruling.swapped else "ab",
        "value": ruling.preference,
        "reason": ruling.said,
        "jobs": [dict(job) for job in ruling.jobs],
    }


def ruling_of(row: Mapping[str, Any]) -> Ruling:
    """Return the ruling in a row."""
    about: dict[str, Any] = {name: row[name] for name in (*_SHARED, "outcome", "fault")}
    return Ruling(
        first=_side_of(row, "a"),
        second=_side_of(row, "b"),
        question=row["query"],
        repeat=row["repeat"] - 1,
        swapped=row["order"] == "ba",
        said=row["reason"],
        preference=row["value"],
        marks=row["marks"] and (row["marks"][0], row["marks"][1]),
        jobs=tuple(row["jobs"]),
        **about,
    )


def _side_of(row: Mapping[str, Any], letter: str) -> Side:
    about = {field.name: row[f"{field.name}_{letter}"] for field in fields(Side)}
    return Side(**about)


def table_of(series: str, rulings: Iterable[Ruling]) -> pa.Table:
    """Return the rows of one comparison."""
    rows = [row_of(series, ruling) for ruling in rulings]
    return pa.Table.from_pylist(rows, schema=TABLES[TABLE])


def _files_of(root: AnyPath) -> Iterator[tuple[str, AnyPath]]:
    before, _, after = RULINGS.partition("*")
    for path in matching(root / COMPARE, f"*/{RULINGS}"):
        yield path.name.removeprefix(before).removesuffix(after), path


def series_of(root: AnyPath) -> set[str]:
    """Return the names of the comparisons that a run has lines of."""
    return {series for series, _ in _files_of(root)}


def iter_comparisons(
    root: AnyPath, known: Collection[str], on_unreadable: Callable[[str], object]
) -> Iterator[pa.Table]:
    """Yield the rows of the comparisons that a run has lines of, but for those `known`.

    `on_unreadable` is told of a file that holds anything else.
    """
    for series, path in _files_of(root):
        if series in known:
            continue
        try:
            yield table_of(series, read_rulings(path))
        except UsageError as error:
            on_unreadable(f"{error}. Its comparison is left out.")


def write_rulings(rulings: Iterable[Ruling], path: AnyPath) -> None:
    """Write one line of JSON per ruling."""
    lines = (json.dumps(asdict(ruling), ensure_ascii=False) for ruling in rulings)
    write_whole(path, "".join(f"{line}\n" for line in lines))


def read_rulings(path: AnyPath) -> Iterator[Ruling]:
    """Yield the rulings in a file; UsageError where it holds anything else."""
    # What judges say may hold other characters at which `str.splitlines` ends a line.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
            row["first"] = Side(**row["first"])
            row["second"] = Side(**row["second"])
            row["marks"] = row["marks"] and tuple(row["marks"])
            # Earlier versions did not note what was asked.
            row["jobs"] = tuple(row.get("jobs", ()))
            yield Ruling(**row)
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path}, line {number}, is not a ruling: {error}") from None
