"""Prompts for text-to-image models: GenEval 2, DPG-Bench and T2I-CompBench.

A query is one prompt and asks for an image of it. What the scorers `geneval2:LVLM` and
`dpg:LVLM` ask about the image comes with the query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from plait.benchmarks.tasks.published import (
    UNKNOWN,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading.rules import (
    Row,
    RowError,
    Rule,
    TaskError,
    brief,
    of_type,
)
from plait.benchmarks.tasks.reading.sources import Located, load_table, locate, read_text
from plait.generators.document import Query, Text, Turn
from plait.generators.numerals import number_of
from plait.scorers.vqa.dpg import FIRST_ROW, PROPOSITIONS
from plait.scorers.vqa.geneval2 import ATOMS

GENEVAL2_FILE = "geneval2_data.jsonl"
DPG_FILE = "dpg_bench.csv"
_DPG_COLUMNS = {
    "item_id",
    "text",
    "proposition_id",
    "dependency",
    "category_broad",
    "question_natural_language",
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
    found = locate(place, (f"**/{GENEVAL2_FILE}",))
    return _of_lines("geneval2", place, found, [_file(found, GENEVAL2_FILE)], _atoms)


def load_dpg(place: str, cache: Path) -> TaskSet:
    """DPG-Bench at `place`: dpg_bench.csv, a folder with it, or `hf:ORG/NAME@REV`.

    The layout is that of TencentQQGYLab/ELLA@025f650. Raises TaskError where the file has
    other columns.
    """
    found = locate(place, (f"**/{DPG_FILE}",))
    path = _file(found, DPG_FILE)
    by_item = groupby(load_table(path, sorted(_DPG_COLUMNS)), lambda row: row["item_id"])
    items = [DpgItem(i == 0, id, list(rows)) for i, (id, rows) in enumerate(by_item)]

    def group(item: DpgItem) -> RowGroup:
        return RowGroup(item.id or None)

    return task_set(
        "dpg", TaskData(place, found, [path]), RowReader(items, _propositions, group)
    )


def load_compbench(place: str, cache: Path) -> TaskSet:
    """T2I-CompBench at `place`: a checkout, its folder examples/dataset, or one file of it.

    Of a folder the files `CATEGORY_val.txt` are read, one prompt a line, as models are
    compared by (Karine-Huang/T2I-CompBench@1b70949). Raises TaskError without such files.
    """
    found = locate(place, (f"**/*{_VALIDATION}.txt",))
    folder = found.path
    if folder.is_file():
        paths = [folder]
    else:
        inner = folder / _COMPBENCH_FOLDER
        paths = sorted((inner if inner.is_dir() else folder).glob(f"*{_VALIDATION}.txt"))
    if not paths:
        raise TaskError(f"{folder} holds no files CATEGORY{_VALIDATION}.txt")
    return _of_lines("t2i-compbench", place, found, paths, _query_of_category)


def _file(found: Located, name: str) -> Path:
    """Return the file of a data set, wherever it is in the folder found."""
    if found.path.is_file():
        return found.path
    files = sorted(found.path.rglob(name))
    if not files:
        raise TaskError(f"{found.path} holds no {name}")
    return files[0]


def _lines(paths: Iterable[Path]) -> Iterator[Line]:
    for path in paths:
        for number, line in enumerate(read_text(path).split("\n"), 1):
            if line.strip():
                yield Line(number, line.strip(), path.stem)


def _of_lines(
    name: str,
    place: str,
    found: Located,
    paths: Sequence[Path],
    make: Callable[[Line], Query],
) -> TaskSet:
    unknown = RowGroup(None)
    return task_set(
        name,
        TaskData(place, found, paths),
        RowReader(_lines(paths), make, lambda _: unknown),
    )


def prompt_query(id: str, prompt: str, category: str = UNKNOWN, **metadata: str) -> Query:
    """Return the query that asks for an image of a prompt; RowError where it is blank."""
    if not prompt.strip():
        raise RowError(Rule.EMPTY, "prompt is empty")
    turns = (Turn("user", (Text(prompt),)),)
    return Query(id=id, category=category, field="", turns=turns, metadata=metadata)


def _object(line: Line) -> Row:
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        raise RowError(
            Rule.WRONG_TYPE, f"line {line.number} is not JSON: {error}"
        ) from None
    return Row(of_type(value, dict, f"line {line.number}"))


def _atoms(line: Line) -> Query:
    row = _object(line)
    asked = row.list("vqa_list")
    skills = row.list("skills")
    if not asked or len(asked) != len(skills):
        detail = f"vqa_list has {len(asked)} entries and skills {len(skills)}"
        raise RowError(Rule.WRONG_TYPE, detail)
    atoms = []
    for i, (pair, skill) in enumerate(zip(asked, skills, strict=True)):
        if len(of_type(pair, list, f"vqa_list[{i}]")) != 2:
            raise RowError(Rule.WRONG_TYPE, f"vqa_list[{i}] is {brief(pair)}, not a pair")
        atoms.append([of_type(t, str, f"text of atom {i}") for t in (*pair, skill)])
    category = f"{row.get('atom_count', int)} atoms"
    metadata = {ATOMS: json.dumps(atoms)}
    return prompt_query(f"{line.number:04d}", row.text("prompt"), category, **metadata)


def _propositions(item: DpgItem) -> Query:
    is_first, _, rows = item
    propositions = []
    for row in rows:
        number, *_ = _numbers(row["proposition_id"], "proposition_id")
        # The file writes 0 where a proposition depends on no other.
        parents = [n for n in _numbers(row["dependency"], "dependency") if n]
        about = (row["category_broad"], row["question_natural_language"])
        propositions.append([number, parents, *about])
    metadata = {PROPOSITIONS: json.dumps(propositions)}
    if is_first:
        metadata[FIRST_ROW] = "1"
    return prompt_query(Row(rows[0]).id("item_id"), rows[0]["text"], **metadata)


def _numbers(text: str, column: str) -> list[int]:
    """Return the numbers of a cell such as `1, 3`."""
    numbers = [number_of(part) for part in text.split(",")]
    whole = [int(n) for n in numbers if n is not None and n.is_integer()]
    if len(whole) < len(numbers):
        detail = f"{column} is {brief(text)}, no numbers with commas between them"
        raise RowError(Rule.WRONG_TYPE, detail)
    return whole


def _query_of_category(line: Line) -> Query:
    category = line.file.removesuffix(_VALIDATION)
    return prompt_query(f"{category}-{line.number:03d}", line.text, category)
