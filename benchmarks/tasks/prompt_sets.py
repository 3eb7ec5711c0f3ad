"""Prompts for text-to-image models: GenEval 2, DPG-Bench, T2I-CompBench, and your own.

A query is one prompt and asks for an image of it. What the scorers `geneval2:LVLM` and
`dpg:LVLM` ask about the image comes with the query.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tasks.published import (
    UNKNOWN,
    RowGroup,
    TaskRows,
    TaskSet,
    ValidRow,
    gathered,
    task_set,
)
from benchmarks.tasks.reading.rules import (
    RowError,
    Rule,
    TaskError,
    get,
    is_id,
    of_type,
    shown,
)
from benchmarks.tasks.reading.sources import Located, digest_of, located
from generators.document import Sample, Text, Turn
from scorers.vqa.dpg import FIRST_ROW, PROPOSITIONS
from scorers.vqa.geneval2 import ATOMS

GENEVAL2_FILE = "geneval2_data.jsonl"
DPG_FILE = "dpg_bench.csv"
_DPG_COLUMNS = {"item_id", "text", "proposition_id", "dependency", "category_broad"} | {
    "question_natural_language"
}
_COMPBENCH_FOLDER = Path("examples", "dataset")
_VALIDATION = "_val"
"""End of the names of T2I-CompBench's files that models are compared by."""


class Line(NamedTuple):
    """A line of a file that is not blank."""

    number: int
    """From 1."""
    text: str
    file: str
    """The file's name without its ending."""


class DpgItem(NamedTuple):
    """The rows of one prompt, a proposition each."""

    is_first: bool
    """Of the file."""
    id: str
    rows: list[dict[str, str]]


def load_geneval2(place: str, cache: Path) -> TaskSet:
    """GenEval 2 at `place`: geneval2_data.jsonl, a folder with it, or `hf:ORG/NAME@REV`.

    Categories are the number of atoms of a prompt, 3 to 10. The layout is that of
    facebookresearch/GenEval2@a6e82d2, whose data may not be used commercially.
    """
    found = located(place, (f"**/{GENEVAL2_FILE}",))
    path = _file(found, GENEVAL2_FILE)
    return _task_set(
        "geneval2", place, found, [path], gathered(_lines([path]), _atoms, _group)
    )


def load_dpg(place: str, cache: Path) -> TaskSet:
    """DPG-Bench at `place`: dpg_bench.csv, a folder with it, or `hf:ORG/NAME@REV`.

    The layout is that of TencentQQGYLab/ELLA@025f650. Raises TaskError where the file has
    other columns.
    """
    found = located(place, (f"**/{DPG_FILE}",))
    path = _file(found, DPG_FILE)
    by_item = groupby(_dpg_rows(path), lambda row: row["item_id"])
    items = [DpgItem(i == 0, id, list(rows)) for i, (id, rows) in enumerate(by_item)]
    rows = gathered(items, _propositions, lambda item: RowGroup(item.id or None))
    return _task_set("dpg", place, found, [path], rows)


def load_compbench(place: str, cache: Path) -> TaskSet:
    """T2I-CompBench at `place`: a checkout, its folder examples/dataset, or one file of it.

    Of a folder the files `CATEGORY_val.txt` are read, one prompt a line, as models are
    compared by (Karine-Huang/T2I-CompBench@1b70949). Raises TaskError without such files.
    """
    found = located(place, (f"**/*{_VALIDATION}.txt",))
    folder = found.path
    if folder.is_file():
        paths = [folder]
    else:
        inner = folder / _COMPBENCH_FOLDER
        paths = sorted((inner if inner.is_dir() else folder).glob(f"*{_VALIDATION}.txt"))
    if not paths:
        raise TaskError(f"{folder} holds no files CATEGORY{_VALIDATION}.txt")
    rows = gathered(_lines(paths), _categorised, _group)
    return _task_set("t2i-compbench", place, found, paths, rows)


def load_prompts(place: str, cache: Path) -> TaskSet:
    """Return the prompts in a file: one a line, or JSON lines with `prompt` (`.jsonl`).

    A JSON line may have an `id` and a `category`; else the line's number is the id.
    """
    found = located(place, ("*.jsonl", "*.txt"))
    if not found.path.is_file():
        raise TaskError(f"prompts:FILE is a file, unlike {found.path}")
    make = _own if found.path.suffix == ".jsonl" else _plain
    rows = gathered(_lines([found.path]), make, _group)
    return _task_set(found.path.stem, place, found, [found.path], rows)


def _file(found: Located, name: str) -> Path:
    """Return the file of a data set, wherever it is in the folder found."""
    if found.path.is_file():
        return found.path
    if files := sorted(found.path.rglob(name)):
        return files[0]
    raise TaskError(f"{found.path} holds no {name}")


def _lines(paths: Iterable[Path]) -> Iterator[Line]:
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{path} cannot be read: {error}") from None
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield Line(number, line.strip(), path.stem)


def _task_set(
    name: str, place: str, found: Located, paths: Sequence[Path], rows: TaskRows
) -> TaskSet:
    digest = digest_of(paths)
    return task_set(name, place, rows, digest=digest, revision=found.revision)


def _group(line: Line) -> RowGroup:
    return RowGroup(None)


def _valid(id: str, prompt: str, category: str = UNKNOWN, **metadata: str) -> ValidRow:
    if not prompt.strip():
        raise RowError(Rule.EMPTY, "prompt is empty")
    turns = (Turn("user", (Text(prompt),)),)
    query = Sample(id=id, category=category, field="", turns=turns, metadata=metadata)
    return ValidRow(query)


def _object(line: Line) -> Mapping[str, Any]:
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        raise RowError(
            Rule.WRONG_TYPE, f"line {line.number} is not JSON: {error}"
        ) from None
    row: Mapping[str, Any] = of_type(value, dict, f"line {line.number}")
    return row


def _atoms(line: Line) -> ValidRow:
    row = _object(line)
    asked, skills = get(row, "vqa_list", list), get(row, "skills", list)
    if not asked or len(asked) != len(skills):
        detail = f"vqa_list has {len(asked)} entries and skills {len(skills)}"
        raise RowError(Rule.WRONG_TYPE, detail)
    atoms = []
    for i, (pair, skill) in enumerate(zip(asked, skills, strict=True)):
        if len(of_type(pair, list, f"vqa_list[{i}]")) != 2:
            raise RowError(Rule.WRONG_TYPE, f"vqa_list[{i}] is {shown(pair)}, not a pair")
        texts = (*pair, skill)
        atoms.append([of_type(text, str, f"text of atom {i}") for text in texts])
    count = get(row, "atom_count", int)
    metadata = {ATOMS: json.dumps(atoms)}
    return _valid(
        f"{line.number:04d}", get(row, "prompt", str), f"{count} atoms", **metadata
    )


def _dpg_rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = _DPG_COLUMNS - set(reader.fieldnames or ())
            rows = [] if missing else list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None
    if missing:
        raise TaskError(f"{path} lacks the columns {', '.join(sorted(missing))}")
    return rows


def _propositions(item: DpgItem) -> ValidRow:
    is_first, id, rows = item
    if not is_id(id):
        raise RowError(
            Rule.ID, f"an item_id is printable and not empty, unlike {shown(id)}"
        )
    propositions = [
        [
            _numbers(row["proposition_id"], "proposition_id")[0],
            [n for n in _numbers(row["dependency"], "dependency") if n],
            row["category_broad"],
            row["question_natural_language"],
        ]
        for row in rows
    ]
    metadata = {PROPOSITIONS: json.dumps(propositions)}
    return _valid(id, rows[0]["text"], **metadata, **({FIRST_ROW: "1"} if is_first else {}))


def _numbers(text: str, column: str) -> list[int]:
    """Return the numbers of a cell such as `1, 3`."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        detail = f"{column} is {shown(text)}, no numbers with commas between them"
        raise RowError(Rule.WRONG_TYPE, detail) from None


def _categorised(line: Line) -> ValidRow:
    category = line.file.removesuffix(_VALIDATION)
    return _valid(f"{category}-{line.number:03d}", line.text, category)


def _plain(line: Line) -> ValidRow:
    return _valid(f"{line.number:04d}", line.text)


def _own(line: Line) -> ValidRow:
    row = _object(line)
    id = row.get("id", f"{line.number:04d}")
    if not is_id(id):
        raise RowError(Rule.ID, f"an id is printable and not empty, unlike {shown(id)}")
    category = of_type(row.get("category", UNKNOWN), str, "category")
    return _valid(id, get(row, "prompt", str), category)
