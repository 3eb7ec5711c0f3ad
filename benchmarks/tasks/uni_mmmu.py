"""Uni-MMMU as a task set: puzzles, geometry, science and code, with text and images.

Read is the folder `data` of Vchitect/Uni-MMMU-Eval, unpacked, as eval_ummmu.py and the
sample code of Vchitect/Uni-MMMU@b5200b2 read it. `known-answer` scores the texts of
jigsaws, mazes and sliding puzzles. Nothing here gives the other scores of that program,
which compares images by DreamSim and by the colours of cells, and asks Qwen models about
the rest.

Queries are in our words, in one turn, and without the demonstrations of the sample code; a
maze that is one of these stays out, as there. A sliding puzzle shows its final state, which
there is told by the demonstration.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from plait.benchmarks.tasks.published import (
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading.images import ImageFolder
from plait.benchmarks.tasks.reading.rules import (
    Row,
    RowError,
    Rule,
    TaskError,
    brief,
    of_type,
)
from plait.benchmarks.tasks.reading.sources import (
    load_json,
    load_listed,
    load_rows,
    locate,
)
from plait.generators.document import Document, Image, Query, Text, Turn
from plait.scorers.answers import CHOICE, KNOWN, MOVES

NAME = "uni-mmmu"
_JIGSAW = "jigsaw_dataset_2x2ref"
_SLIDING = "sliding"
_DEMONSTRATION = "00015"
"""The maze that the sample code shows with its solution."""
_MAZE = re.compile(r"(maze_\d+x\d+)_(\d{5})_steps")
_LIST = (
    'End with one line, the moves as a JSON list between tags, such as <ANSWER_JSON>["up", '
    '"left"]</ANSWER_JSON>.'
)
_PROMPTS = {
    "jigsaw": (
        "The reference is an image of two by two cells whose lower right one is hidden. "
        "Draw it twice, completed by candidate 0 and by candidate 1, with nothing else "
        "changed. Then tell which candidate belongs there, and end with a line such as "
        '<FINAL_ANSWER_JSON>{"choice": 0}</FINAL_ANSWER_JSON>.'
    ),
    "maze": (
        "Lead the blue dot through the maze into the green frame. It moves up, down, left "
        "or right by one cell, over light cells and never over dark ones. Draw the maze "
        f"after every move, each as an image of its own. {_LIST}"
    ),
    "sliding": (
        "Lead this sliding puzzle of three by three cells from its initial to its final "
        "state. The red cell is empty; a move slides a tile beside it into it, and is "
        "named by the direction in which the tile goes. Draw the puzzle after every move, "
        f"each as an image of its own. {_LIST}"
    ),
    "geometry": (
        "Draw the auxiliary lines into the figure, and change nothing else in it. Then "
        "solve the problem with them, in at most 150 words; end with the value that is "
        "asked for, or with what is proved.\n\nProblem: {problem}\nChoices: {choices}\n"
        "Auxiliary lines: {lines}"
    ),
    "science": (
        "Tell, in at most 120 words, what becomes of the scene under the condition and "
        "why, and draw the one state in which it ends.\n\nCondition: {condition}"
    ),
    "code": (
        "Describe in at most 60 words what this SVG code shows, between <RENDER_SUMMARY> "
        "and </RENDER_SUMMARY>, and draw it.\n\n{code}"
    ),
}
AIDED = ("jigsaw", "maze", "sliding", "geometry")
"""Tasks in which drawing is to help understanding; in the others it is the reverse."""


class Entry(NamedTuple):
    """One query's data and where it stands."""

    task: str
    name: str
    data: Any


class _Data(NamedTuple):
    """Where the images of rows are."""

    root: Path
    images: ImageFolder

    def image(self, folder: str, path: Any) -> Image:
        """Return an image named from its task's folder, from `data`, or from its parent."""
        named = of_type(path, str, "the path of an image")
        name = named.replace("\\", "/").removeprefix("./")
        inside = f"{folder}/{name}"
        found = os.path.isfile(self.root / inside)  # False, too, for what no path can be
        return self.images.image(inside if found else name.removeprefix("data/"))


def load(place: str, cache: Path) -> TaskSet:
    """Return the task set at `place`: the folder `data`, or the one that holds it.

    The category is the task, the field what is to help what. Raises TaskError where there
    is no task.
    """
    found = locate(place, ("data/**",))
    root = found.path / "data" if (found.path / "data").is_dir() else found.path
    rows = list(_rows(root))
    files = list(_files(root))
    if not rows:
        raise TaskError(f"{root} holds none of {', '.join(_PROMPTS)}")
    data = _Data(root, ImageFolder(root, cache, found.also))

    def make(entry: Entry) -> Query:
        return _query(entry, data)

    fields = ("understanding", "generation")
    return task_set(
        NAME, TaskData(place, found, files), RowReader(rows, make, _group), fields=fields
    )


def _files(root: Path) -> Iterator[Path]:
    """Yield the files that hold rows, as far as they are there."""
    names = (
        f"{_JIGSAW}/metadata.json",
        f"{_SLIDING}/summary_steps_le_8.json",
        "math_data/filtered.json",
        "science/dim_all.json",
        "svg/metadata.json",
    )
    yield from filter(Path.is_file, (root / name for name in names))
    yield from sorted((root / "maze").glob("*.json"))


def _rows(root: Path) -> Iterator[Entry]:
    listed = {path.parent.name: path for path in _files(root)}
    for task, folder, key in (
        ("jigsaw", _JIGSAW, "items"),
        ("sliding", _SLIDING, "items"),
        ("code", "svg", "samples"),
    ):
        if folder in listed:
            for i, row in enumerate(load_listed(listed[folder], key), 1):
                yield Entry(task, f"{i:03d}", row)
    for path in sorted((root / "maze").glob("*_steps")):
        name = _MAZE.fullmatch(path.name)
        if name and name[2] != _DEMONSTRATION:
            moves = f"{name[1]}_steps_{name[2]}"
            yield Entry("maze", name[2], {"folder": path.name, "moves": moves})
    if "math_data" in listed:
        yield from _geometry_rows(listed["math_data"])
    if "science" in listed:
        yield from _science_rows(listed["science"])


def _geometry_rows(path: Path) -> Iterator[Entry]:
    """Yield the problems of each group; a group that is no object is broken as one row."""
    for outer, group in load_json(path, dict, "an object of problems")[0].items():
        items = group.items() if isinstance(group, dict) else [("", group)]
        for name, row in items:
            yield Entry("geometry", f"{outer}__{name}", row)


def _science_rows(path: Path) -> Iterator[Entry]:
    """Yield the samples of all blocks, numbered through all of them."""
    cases = []
    for block in load_rows(path)[0]:
        if isinstance(block, dict):
            samples = block.get("samples", [])
            if not isinstance(samples, list):
                raise TaskError(f"{path}: samples must be a list, not {brief(samples)}")
            cases += samples
    for i, case in enumerate(cases, 1):
        yield Entry("science", f"{i:02d}", case)


def _group(entry: Entry) -> RowGroup:
    field = "understanding" if entry.task in AIDED else "generation"
    return RowGroup(f"{entry.task}-{entry.name}", entry.task, field)


def _query(entry: Entry, data: _Data) -> Query:
    made = _MAKERS[entry.task](Row.of(entry.data), data)
    prompt = _PROMPTS[entry.task]
    for name, text in made.fields.items():
        prompt = prompt.replace(f"{{{name}}}", text)
    content: list[Text | Image] = [Text(prompt)]
    for label, image in made.images:
        content += [Text(label), image]
    group = _group(entry)
    return Query(
        id=str(group.id),
        category=group.category,
        field=group.field,
        turns=(Turn("user", tuple(content)),),
        reference=made.reference,
        metadata={} if made.known is None else {KNOWN: json.dumps(made.known)},
    )


class Made(NamedTuple):
    """What a task's row says."""

    images: list[tuple[str, Image]]
    """Each with what stands before it."""
    reference: Document | None = None
    known: Mapping[str, Any] | None = None
    fields: Mapping[str, str] = {}
    """Of the prompt."""


def _jigsaw(row: Row, data: _Data) -> Made:
    label = row.get("label", int)
    paths = row.list("candidate_paths")
    if label not in (0, 1) or len(paths) != 2:
        raise RowError(Rule.CATEGORY, f"label is {brief(label)} of {len(paths)} candidates")
    panel = row.object("ref_panel").text("ref_image_path")
    right = data.image(_JIGSAW, row.text("gt_completed_2x2_path"))
    wrong = data.image(_JIGSAW, row.text("gt_wrong_2x2_path"))
    # Drawn is what comes of candidate 0, then of candidate 1.
    drawn = (right, wrong) if label == 0 else (wrong, right)
    said = f'<FINAL_ANSWER_JSON>{{"choice": {label}}}</FINAL_ANSWER_JSON>'
    images = []
    labels = ("Reference:", "Candidate 0:", "Candidate 1:")
    for cell, path in zip(labels, (panel, *paths), strict=True):
        images.append((cell, data.image(_JIGSAW, path)))
    return Made(
        images,
        Document((*drawn, Text(said))),
        {"form": CHOICE, "truth": int(label)},
    )


def _maze(row: Row, data: _Data) -> Made:
    first, *steps = _frames(data, "maze", row.text("folder"), "maze_step_*.png")
    moves = _moves(data, f"maze/{row.text('moves')}.json", "steps_long", steps)
    return Made([("Maze:", first)], *moves)


def _sliding(row: Row, data: _Data) -> Made:
    folder = Path(row.text("steps_dir")).name
    moves = Path(row.text("steps_words_json")).name
    first, *steps = _frames(data, _SLIDING, folder, "demo_step_*.png")
    images = [("Initial state:", first), ("Final state:", (steps or [first])[-1])]
    return Made(images, *_moves(data, f"{_SLIDING}/{moves}", "steps_words", steps))


def _frames(data: _Data, task: str, folder: str, pattern: str) -> list[Image]:
    """Return the images of a folder in the order of their names; RowError for none."""
    paths = sorted((data.root / task / folder).glob(pattern))
    if not paths:
        raise RowError(Rule.NOT_FOUND, f"{task}/{folder} holds no {pattern}")
    return [data.image(task, f"{folder}/{path.name}") for path in paths]


def _moves(
    data: _Data, file: str, key: str, steps: list[Image]
) -> tuple[Document, dict[str, Any]]:
    """Return the ground truth, and what `known-answer` reads of it; RowError."""
    try:
        content = load_json(data.root / file, dict, "an object with moves")[0]
    except TaskError as error:
        raise RowError(Rule.NOT_FOUND, str(error)) from None
    truth = [of_type(move, str, key).lower() for move in Row(content, file).list(key)]
    if not truth:
        raise RowError(Rule.EMPTY, f"{file}: {key} is empty")
    said = Text(f"<ANSWER_JSON>{json.dumps(truth)}</ANSWER_JSON>")
    return Document((*steps, said)), {"form": MOVES, "truth": truth}


def _geometry(row: Row, data: _Data) -> Made:
    def text(*keys: str) -> str:
        """Return the first text under these keys; rows may lack the English ones."""
        for key in keys:
            value = row.values.get(key)
            if isinstance(value, str) and value.strip():
                return value
        return ""

    problem = text("problem_text_en", "problem_text")
    if not problem:
        raise RowError(Rule.EMPTY, "there is no problem")
    choices = row.values.get("choices_en")
    fields = {
        "problem": problem,
        "choices": "; ".join(map(str, choices)) if isinstance(choices, list) else "none",
        "lines": text("auxiliary_text_en"),
    }
    drawn = data.image("math_data", row.text("auxiliary_image"))
    reference = Document((drawn, Text(text("solution_en", "solution"))))
    figure = data.image("math_data", row.text("original_image"))
    return Made([("Figure:", figure)], reference, fields=fields)


def _science(row: Row, data: _Data) -> Made:
    paths = row.list("input_image_file_path_list")
    if not paths:
        raise RowError(Rule.EMPTY, "input_image_file_path_list is empty")
    fields = {"condition": row.text("input_prompt").strip()}
    reference = Document((Text(row.text("output_prompt")),))
    return Made([("Scene:", data.image("science", paths[0]))], reference, fields=fields)


def _code(row: Row, data: _Data) -> Made:
    path = data.images.place(f"svg/{row.text('svg')}")
    try:
        code = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise RowError(Rule.NOT_FOUND, f"{path}: {error}") from None
    png = row.values.get("png")
    reference = Document((data.image("svg", png),)) if png else None
    return Made([], reference, fields={"code": code})


_MAKERS: Mapping[str, Callable[[Row, _Data], Made]] = {
    "jigsaw": _jigsaw,
    "maze": _maze,
    "sliding": _sliding,
    "geometry": _geometry,
    "science": _science,
    "code": _code,
}
