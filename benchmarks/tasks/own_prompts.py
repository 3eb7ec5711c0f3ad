"""Prompts of one's own, `prompts:FILE`: lines, JSON, tables or Parquet, by the suffix.

| file | a prompt is | its id, where the row has none |
|---|---|---|
| `.txt` | a line that is not blank | line |
| `.jsonl` `.ndjson` | a line: an object with `prompt`, or a string | line |
| `.json` | the same in a list, in a list of an object, or by id | place in the list |
| `.csv` `.tsv` | a row below a header with `prompt` | row |
| `.parquet` | a row with `prompt` | row |

In place of `prompt` a row may have another of `PROMPTS`, in letters of either case; it may
have an `id` and a `category` besides. Suffixes, too, may be of either case. A `.txt` file
that holds JSON is read as such, and so are JSON lines in a `.json` file. A name without a
suffix, or with another one of plain text (`PLAIN`), is that of a `.txt` file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from plait.benchmarks.tasks.prompt_sets import prompt_query
from plait.benchmarks.tasks.published import (
    UNKNOWN,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading.files import (
    FileRow,
    RowMarks,
    TableRows,
    json_rows,
    names_by_lower_case,
    read_file,
    rows_of_value,
)
from plait.benchmarks.tasks.reading.rules import Row, RowError, TaskError, of_type
from plait.benchmarks.tasks.reading.sources import FilesAsFound, locate, read_text
from plait.benchmarks.tasks.reading.tables import table_of
from plait.generators.document import Query

PROMPTS = ("prompt", "prompts", "text_prompt", "text", "caption")
"""Names of the column of prompts; the first that a row has."""
PLAIN = ("", ".txt", ".text", ".list", ".lst", ".prompt", ".prompts")
"""Ends of names of plain text; one of digits, as in `prompts-v1.5`, is none."""
_MARKS = RowMarks(PROMPTS)
_OPEN = re.compile(r'[\[{]+|\{\s*"\w+"\s*:.*')
"""The first line of a text that can only be JSON."""
_HEADER = re.compile(r"\w+(?:[,;]\w+)+|[^\t]*(?:\t[^\t]*)+")
"""A line that may be the header of a table."""


def load(place: str, cache: Path) -> TaskSet:
    """Return the prompts in a file (see above).

    Raises TaskError for a file of another kind, and for a table without prompts.
    """
    found = locate(place, ("*.jsonl", "*.txt"))
    path = found.path
    if not path.is_file():
        raise TaskError(f"prompts:FILE is a file, unlike {path}")
    suffix = path.suffix.lower()
    read = _READERS.get("" if suffix[1:].isdecimal() else suffix)
    if read is None:
        valid = ", ".join((".txt", *(s for s in _READERS if s not in PLAIN)))
        raise TaskError(f"prompts:FILE reads {valid}; {path.name} is none of these")
    unknown = RowGroup(None)
    as_found = FilesAsFound([path])
    rows = read(path)
    task = task_set(
        path.stem,
        TaskData(place, found, [path]),
        RowReader(rows, _query, lambda _: unknown),
    )
    as_found.refuse_changes()
    return task


def _query(row: FileRow) -> Query:
    if isinstance(row.value, RowError):
        raise row.value
    if isinstance(row.value, str):
        return prompt_query(row.id, of_type(row.value, str, "the prompt"))
    own = Row.of(row.value)
    named = names_by_lower_case(own.values)
    key = next((named[name] for name in PROMPTS if name in named), PROMPTS[0])
    id = own.id(named["id"], numbers=True) if "id" in named else row.id
    stated = own.values[named["category"]] if "category" in named else None
    prompt = own.text(key)
    return prompt_query(id, prompt, of_type(stated or UNKNOWN, str, "category"))


# ------------------------------------------------------------------------------- lines


def _plain(path: Path) -> Iterable[FileRow]:
    text = read_text(path)
    lines: list[FileRow] = []
    for number, line in enumerate(text.split("\n"), 1):
        prompt = line.strip()
        if prompt:
            place = f"{path.name}, line {number}"
            lines.append(FileRow(place, f"{number:04d}", prompt))
    first = lines[0].value if lines else ""
    if first.startswith(("[", "{")):
        try:
            return rows_of_value(json.loads(text), text, path, _MARKS)
        except (ValueError, RecursionError):
            if _OPEN.fullmatch(first):
                return json_rows(path, _MARKS)
    if _HEADER.fullmatch(first) and {*PROMPTS} & {*re.split("[,;\t]", first.casefold())}:
        raise TaskError(f"{path} begins with the header of a table; name it .csv or .tsv")
    return lines


def _json(path: Path) -> Iterable[FileRow]:
    return json_rows(path, _MARKS)


# ------------------------------------------------------------------------------ tables


def _table(path: Path) -> Iterable[FileRow]:
    table = table_of(path, prose=True)
    _require_prompt(path, table.names)
    return TableRows(table, path)


def _parquet(path: Path) -> Iterable[FileRow]:
    columns = read_file(path, _MARKS)
    if next(iter(columns.rows), None) is not None:
        _require_prompt(path, columns.names)
    return columns.rows


def _require_prompt(path: Path, names: Iterable[str]) -> None:
    if not names_by_lower_case(names).keys() & {*PROMPTS}:
        has = ", ".join(names) or "none"
        raise TaskError(f"{path} needs a column {' or '.join(PROMPTS)}; it has {has}")


_READERS: Mapping[str, Callable[[Path], Iterable[FileRow]]] = {
    **dict.fromkeys(PLAIN, _plain),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _json),
    **dict.fromkeys((".csv", ".tsv"), _table),
    ".parquet": _parquet,
}
"""By suffix in lower case."""
