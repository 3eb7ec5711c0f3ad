"""Rows of users' own files: JSON, lines of it, tables, Parquet and Arrow, by the suffix.

Every row knows where it stands, so that people can be told. A row that cannot be read is a
`RowError` in its place, and the others are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from plait.benchmarks.tasks.reading.rules import RowError, Rule, TaskError
from plait.benchmarks.tasks.reading.sources import (
    Rows,
    TextLines,
    arrow_rows,
    column_names,
    load_lines,
    load_rows,
    parquet_files,
    parquet_rows,
    read_text,
    value_of_line,
)
from plait.benchmarks.tasks.reading.tables import TextTable, table_of

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
TABLE_SUFFIXES = (".csv", ".tsv")
COLUMN_SUFFIXES = (".parquet", ".arrow")
SUFFIXES = (*COLUMN_SUFFIXES, *JSON_SUFFIXES, *TABLE_SUFFIXES)
"""Of files of rows, in the order in which a folder that holds several kinds is read."""
_ABOUT = re.compile(
    r"(dataset_infos?|state|dataset_dict|config|package(-lock)?|manifest)\.json"
    r"|\..*|README.*|.*\.ya?ml",
    re.IGNORECASE,
)
"""Names of files and folders beside data that hold no rows."""
_SPLIT = re.compile(r"(train|validation|valid|val|dev|test)(?=[-_.\d]|$)", re.IGNORECASE)
_SPLITS = ("test", "validation", "valid", "val", "dev", "train")
"""In the order in which one is taken where files belong to several."""


class FileRow(NamedTuple):
    """A row of a file."""

    where: str
    """Such as `data.jsonl, line 4`."""
    id: str
    """Where the row has none: its number, of four digits."""
    value: Any
    """An object, a string, or the error in its place."""
    is_numbered: bool = True
    """Whether `id` is a number; else it is the row's name in an object of rows."""


@dataclass(frozen=True, slots=True)
class RowMarks:
    """What tells an object that is a row from one that holds rows."""

    names: tuple[str, ...]
    """A row has one of these columns, in letters of either case."""
    kinds: tuple[type, ...] = (str,)
    """Of what it holds there."""

    def has(self, value: Any, *kinds: type) -> bool:
        """Return whether `value` is an object with such a column, of `kinds` if given."""
        if not isinstance(value, dict):
            return False
        return any(isinstance(one, kinds or self.kinds) for one in self.values_in(value))

    def values_in(self, row: Mapping[str, Any]) -> list[Any]:
        """Return what an object holds in these columns, in the order of their names."""
        written = names_by_lower_case(row)
        return [row[written[name]] for name in self.names if name in written]


class FileRows(NamedTuple):
    """The columns of a file, and its rows."""

    names: tuple[str, ...]
    rows: Iterable[FileRow]
    """Read each time they are iterated over, where a file may be larger than memory."""
    is_text: bool = True
    """Whether the file is text: then images are named, or hold few bytes."""


def names_by_lower_case(names: Iterable[str]) -> dict[str, str]:
    """Return names as they are written, by what they are in lower case.

    Of several that differ in their case alone, the one in lower case, else the first.
    """
    written: dict[str, str] = {}
    for name in names:
        lower = name.strip().casefold()
        former = written.setdefault(lower, name)
        if _is_lower_case(name) and not _is_lower_case(former):
            written[lower] = name
    return written


def _is_lower_case(name: str) -> bool:
    return name == name.casefold()


def read_file(path: Path, marks: RowMarks) -> FileRows:
    """Return the rows of a file by its suffix; TaskError where it cannot be read."""
    suffix = path.suffix.lower()
    if suffix in COLUMN_SUFFIXES:
        read = parquet_rows if suffix == ".parquet" else arrow_rows
        rows = _NumberedRows(path, lambda: read([path]))
        return FileRows(column_names(path), rows, is_text=False)
    if suffix in TABLE_SUFFIXES:
        table = table_of(path, prose=True)
        return FileRows(tuple(table.names), TableRows(table, path))
    listed = json_rows(path, marks)
    names = dict[str, None]()
    for row in listed:
        if isinstance(row.value, dict):
            names.update(dict.fromkeys(row.value))
    return FileRows(tuple(names), listed)


@dataclass(frozen=True, slots=True)
class _NumberedRows:
    """Rows with their numbers, read anew each time."""

    path: Path
    read: Callable[[], Iterable[Any]]

    def __iter__(self) -> Iterator[FileRow]:
        for number, value in enumerate(self.read(), 1):
            yield FileRow(f"{self.path.name}, row {number}", f"{number:04d}", value)


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table by column; an error where a row has other cells."""

    table: TextTable
    path: Path

    def __iter__(self) -> Iterator[FileRow]:
        """Yield each row."""
        names = self.table.names
        name = self.path.name
        for number, row in enumerate(self.table.rows, 1):
            value: Any = dict(zip(names, row.cells, strict=False))
            if fault := self.table.fault(row):
                value = RowError(Rule.WRONG_TYPE, f"line {row.line} {fault}")
            yield FileRow(f"{name}, line {row.line}", f"{number:04d}", value)


@dataclass(frozen=True, slots=True)
class _JsonLines:
    """The rows of a file of JSON lines, decoded each time they are iterated over."""

    path: Path

    def __iter__(self) -> Iterator[FileRow]:
        name = self.path.name
        for number, line in enumerate(TextLines(self.path), 1):
            if line.strip():
                value = value_of_line(line.removesuffix("\n"), number)
                yield FileRow(f"{name}, line {number}", f"{number:04d}", value)

    @property
    def are_certain(self) -> bool:
        """Whether what follows the first row tells that the file is not one JSON text."""
        first = [row.value for row in islice(self, 2)]
        return len(first) == 2 and isinstance(first[0], dict | str)


def json_rows(path: Path, marks: RowMarks) -> Iterable[FileRow]:
    """Return the rows of a JSON file or of lines of JSON; TaskError where it is neither."""
    # Lines first: such a file may be larger than memory, as JSON of one text may not.
    rows = _JsonLines(path)
    if rows.are_certain:
        return rows
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        whole = error
    else:
        return rows_of_value(value, text, path, marks)
    # A list that breaks off has lines, too, that are objects; to read these as rows would
    # leave out the broken end in silence.
    listed = text.lstrip().startswith("[")
    if listed or not any(isinstance(row.value, dict | str) for row in rows):
        raise TaskError(f"{path} is neither JSON nor lines of it: {whole}")
    return rows


def rows_of_value(value: Any, text: str, path: Path, marks: RowMarks) -> list[FileRow]:
    """Return the rows of a list, of the one list in an object, or of objects by id.

    `text` is what `value` was read from.
    """
    if isinstance(value, list):
        return _list(value, path, Rows(path, text).lines())
    if isinstance(value, dict) and not marks.has(value):
        # A list under a name of the rows' own column goes before any other.
        lists = [one for one in marks.values_in(value) if isinstance(one, list)][:1]
        if not lists:
            lists = [one for one in value.values() if isinstance(one, list)]
        # In a file of JSON lines, a single object with a list is a row that breaks a rule.
        if len(lists) == 1 and (path.suffix.lower() == ".json" or marks.has(value, list)):
            return _list(lists[0], path)
        if value and all(map(marks.has, value.values())):
            rows = []
            for id, row in value.items():
                where = f"{path.name}, {id!r}"
                rows.append(FileRow(where, id, row, is_numbered=False))
            return rows
    return _list([value], path)


def _list(
    values: Sequence[Any], path: Path, lines: Iterable[int] | None = None
) -> list[FileRow]:
    """Return values as rows, with the lines on which they begin where these are known."""
    numbers = [*lines] if lines is not None else []
    # A file that is one line has no line to tell of.
    several = len({*numbers}) > 1
    rows = []
    for i, value in enumerate(values, 1):
        line = f", line {numbers[i - 1]}" if several else ""
        rows.append(FileRow(f"{path.name}, row {i}{line}", f"{i:04d}", value))
    return rows


# ------------------------------------------------------------------- a benchmark's files


def published_files(place: Path, split: str) -> list[Path]:
    """Return the files of a benchmark's rows at `place`: one, or those of a folder.

    Of a folder the JSON lists in it count, without these its lines of JSON, then what
    `datasets` saves, then the Parquet files of the split. TaskError where there are none.
    """
    if place.is_file():
        return [place]
    for pattern in ("*.json", "*.jsonl", "**/*.arrow"):
        found = sorted(place.glob(pattern))
        if files := [path for path in found if not _ABOUT.fullmatch(path.name)]:
            return files
    return parquet_files(place, split)


def published_rows(paths: Iterable[Path]) -> Iterator[Any]:
    """Yield the rows of such files; TaskError where one cannot be read."""
    readers: Mapping[str, Callable[[Path], Iterable[Any]]] = {
        ".json": lambda path: load_rows(path)[0],
        ".jsonl": load_lines,
        ".arrow": lambda path: arrow_rows([path]),
    }
    for path in paths:
        read = readers.get(path.suffix.lower())
        yield from parquet_rows([path]) if read is None else read(path)


# ----------------------------------------------------------------------------- folders


class ChosenFiles(NamedTuple):
    """Files of rows in a folder that are read."""

    files: list[Path]
    left: list[Path]
    """Those of other splits."""


def files_of(folder: Path, pattern: str = "") -> ChosenFiles:
    """Return the files of rows in a folder, or those that match a pattern.

    Without a pattern, those least deep, of one kind; where they belong to several splits,
    the test split, else the first of validation and training. TaskError where there are
    none, or where it cannot be told which belong together.
    """
    if pattern:
        return ChosenFiles(_matching_files(folder, pattern), [])
    every = []
    for path in sorted(folder.rglob("*")):
        if _may_hold_rows(path.relative_to(folder)):
            every.append(path)
    if not every:
        raise TaskError(f"{folder} holds no file of rows ({', '.join(SUFFIXES)})")
    found = _least_deep(_of_one_split(folder, every))
    by_kind: dict[str, list[Path]] = {}
    for path in found:
        by_kind.setdefault(path.suffix.lower(), []).append(path)
    # The same rows may be there in two formats: one of them is read.
    kind = next(suffix for suffix in SUFFIXES if suffix in by_kind)
    chosen = by_kind[kind]
    in_several_folders = len({path.parent for path in chosen}) > 1
    # Several files in two formats may be parts of the rows, or copies of them.
    if in_several_folders or (len(by_kind) > 1 and len(chosen) > 1):
        names = ", ".join(str(path.relative_to(folder)) for path in found[:4])
        raise TaskError(
            f"{folder} holds several files of rows ({names}, ...): say which with "
            f"--set data.files='{found[0].relative_to(folder)}', a name or a pattern"
        )
    others = sorted({*every} - {*chosen})
    left = [path for path in others if path.suffix.lower() == kind]
    return ChosenFiles(chosen, left)


def _of_one_split(folder: Path, files: Sequence[Path]) -> Sequence[Path]:
    """Return the files of the first split of `_SPLITS`; all where there is only one."""
    by_split: dict[str, list[Path]] = {}
    for path in files:
        by_split.setdefault(_split_of(path.relative_to(folder)), []).append(path)
    for split in _SPLITS:
        if split in by_split and len(by_split) > 1:
            return by_split[split]
    return files


def _least_deep(files: Sequence[Path]) -> list[Path]:
    depth = min(len(path.parts) for path in files)
    return [path for path in files if len(path.parts) == depth]


def _matching_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files of rows that match a pattern, all in one folder; TaskError."""
    found = [path for path in sorted(folder.glob(pattern)) if path.is_file()]
    wrong = [path for path in found if path.suffix.lower() not in SUFFIXES]
    if wrong:
        raise TaskError(f"data.files: {wrong[0]} is none of {', '.join(SUFFIXES)}")
    if len({path.parent for path in found}) > 1:
        raise TaskError(f"data.files: {pattern!r} matches files of several folders")
    if not found:
        raise TaskError(f"data.files: nothing in {folder} matches {pattern!r}")
    return found


def _may_hold_rows(path: PurePath) -> bool:
    return path.suffix.lower() in SUFFIXES and not any(map(_ABOUT.fullmatch, path.parts))


def _split_of(path: PurePath) -> str:
    """Return the split that a file's name or folder begins with; empty for none."""
    for part in reversed(path.parts):
        if match := _SPLIT.match(part):
            return match[1].lower()
    return ""
