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
from typing import Any, NamedTuple

from plait.benchmarks.tasks.prompt_sets import prompt_query
from plait.benchmarks.tasks.published import UNKNOWN, RowGroup, TaskSet, task_set
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, TaskError, of_type
from plait.benchmarks.tasks.reading.sources import located, parquet_rows, read_text
from plait.benchmarks.tasks.reading.tables import table_of
from plait.generators.document import Query

PROMPTS = ("prompt", "prompts", "text_prompt", "text", "caption")
"""Names of the column of prompts; the first that a row has."""
PLAIN = ("", ".txt", ".text", ".list", ".lst", ".prompt", ".prompts")
"""Ends of names of plain text; one of digits, as in `prompts-v1.5`, is none."""
_OPEN = re.compile(r'[\[{]+|\{\s*"\w+"\s*:.*')
"""The first line of a text that can only be JSON."""
_HEADER = re.compile(r"\w+(?:[,;]\w+)+|[^\t]*(?:\t[^\t]*)+")
"""A line that may be the header of a table."""


class OwnPrompt(NamedTuple):
    """A row of a file of prompts."""

    id: str
    """Where the row has none."""
    value: Any
    """An object, a string, or the error in its place."""


def load(place: str, cache: Path) -> TaskSet:
    """Return the prompts in a file (see above).

    Raises TaskError for a file of another kind, and for a table without prompts.
    """
    found = located(place, ("*.jsonl", "*.txt"))
    path = found.path
    if not path.is_file():
        raise TaskError(f"prompts:FILE is a file, unlike {path}")
    suffix = path.suffix.lower()
    if (read := _READERS.get("" if suffix[1:].isdecimal() else suffix)) is None:
        valid = ", ".join((".txt", *(s for s in _READERS if s not in PLAIN)))
        raise TaskError(f"prompts:FILE reads {valid}; {path.name} is none of these")
    unknown = RowGroup(None)
    return task_set(path.stem, place, found, [path], read(path), _query, lambda _: unknown)


def _query(row: OwnPrompt) -> Query:
    if isinstance(row.value, RowError):
        raise row.value
    if isinstance(row.value, str):
        return prompt_query(row.id, of_type(row.value, str, "the prompt"))
    own = Row.of(row.value)
    named = _keys(own.values)
    key = next((named[name] for name in PROMPTS if name in named), PROMPTS[0])
    id = own.id(named["id"], numbers=True) if "id" in named else row.id
    stated = (own.values[named["category"]] if "category" in named else None) or UNKNOWN
    return prompt_query(id, own.text(key), of_type(stated, str, "category"))


def _keys(names: Iterable[str]) -> dict[str, str]:
    """Return names as they are written, by what they are in lower case.

    Of several that differ in their case alone, the one in lower case, else the first.
    """
    ordered = sorted(names, key=lambda name: name != name.casefold())
    return {name.strip().casefold(): name for name in reversed(ordered)}


def _has_prompt(value: Any, kind: type = str) -> bool:
    """Return whether an object has a prompt, or with `list`, a list of them."""
    if not isinstance(value, dict):
        return False
    named = _keys(value)
    return any(isinstance(value[named[n]], kind) for n in PROMPTS if n in named)


def _numbered(values: Iterable[Any]) -> list[OwnPrompt]:
    return [OwnPrompt(f"{i:04d}", value) for i, value in enumerate(values, 1)]


# ------------------------------------------------------------------------------- lines


def _plain(path: Path) -> list[OwnPrompt]:
    text = read_text(path)
    lines = [
        OwnPrompt(f"{number:04d}", line.strip())
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    first = lines[0].value if lines else ""
    if first.startswith(("[", "{")):
        try:
            return _of_value(json.loads(text), path)
        except (ValueError, RecursionError):
            if _OPEN.fullmatch(first):
                return _of_json(text, path)
    if _HEADER.fullmatch(first) and {*PROMPTS} & {*re.split("[,;\t]", first.casefold())}:
        raise TaskError(f"{path} begins with the header of a table; name it .csv or .tsv")
    return lines


def _json(path: Path) -> list[OwnPrompt]:
    return _of_json(read_text(path), path)


def _of_json(text: str, path: Path) -> list[OwnPrompt]:
    """Return the rows of a JSON text or of lines of it; TaskError where it is neither."""
    try:
        return _of_value(json.loads(text), path)
    except (ValueError, RecursionError) as error:
        whole = error
    rows = [
        OwnPrompt(f"{number:04d}", _parsed(line, number))
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    listed = text.lstrip().startswith("[")
    if listed or not any(isinstance(row.value, dict | str) for row in rows):
        raise TaskError(f"{path} is neither JSON nor lines of it: {whole}")
    return rows


def _parsed(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return RowError(Rule.WRONG_TYPE, f"line {number} is not JSON: {error}")


def _of_value(value: Any, path: Path) -> list[OwnPrompt]:
    """Return the rows of a list, of the one list in an object, or of objects by id."""
    if isinstance(value, dict) and not _has_prompt(value):
        named = _keys(value)
        lists = [v for n in PROMPTS if isinstance(v := value.get(named.get(n)), list)][:1]
        lists = lists or [own for own in value.values() if isinstance(own, list)]
        if len(lists) == 1 and (path.suffix.lower() == ".json" or _has_prompt(value, list)):
            return _numbered(lists[0])
        if value and all(map(_has_prompt, value.values())):
            return [OwnPrompt(id, row) for id, row in value.items()]
    return _numbered(value if isinstance(value, list) else [value])


# ------------------------------------------------------------------------------ tables


def _table(path: Path) -> list[OwnPrompt]:
    table = table_of(read_text(path), path, prose=True)
    _require_prompt(path, table.names)
    values: list[Any] = []
    for row in table.rows:
        if fault := table.fault(row):
            values.append(RowError(Rule.WRONG_TYPE, f"line {row.line} {fault}"))
        else:
            values.append(dict(zip(table.names, row.cells, strict=True)))
    return _numbered(values)


def _parquet(path: Path) -> list[OwnPrompt]:
    rows = list(parquet_rows([path]))
    if rows:
        _require_prompt(path, rows[0])
    return _numbered(rows)


def _require_prompt(path: Path, names: Iterable[str]) -> None:
    if not _keys(names).keys() & {*PROMPTS}:
        has = ", ".join(names) or "none"
        raise TaskError(f"{path} needs a column {' or '.join(PROMPTS)}; it has {has}")


_READERS: Mapping[str, Callable[[Path], list[OwnPrompt]]] = {
    **dict.fromkeys(PLAIN, _plain),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _json),
    **dict.fromkeys((".csv", ".tsv"), _table),
    ".parquet": _parquet,
}
"""By suffix in lower case."""
