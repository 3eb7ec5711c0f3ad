"""IMUG-Bench as a task set: sessions in which images are drawn, edited and asked about.

Read is the data set ccccEsion/IMUG-Bench, or a checkout of ccccEsion/IMUG-Bench@63de63a
with it in `data`, as scripts/run_evaluation.py and scripts/auxiliary read it:
`benchmark.jsonl`, the folder `images`, and `image_references.jsonl` and
`dynamic_references.jsonl`, which name the earlier turns that an image or an answer depends
on. A row is one session of 2 to 6 turns, answered after the system's own answers; the data
give no others. Answers in the folders that the program scores are `published:MODEL`
(`imug_answers`).

A turn looks back where its right letters or the images beside which it is judged are those
of the system's own earlier turns. The category is the class of the domain, the field the
domain. `imug:NAME` judges the answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.imug_answers import Session, read_answers
from plait.benchmarks.tasks.published import (
    UNKNOWN,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading.images import ImageFolder
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, TaskError, brief
from plait.benchmarks.tasks.reading.sources import load_lines, locate
from plait.benchmarks.tasks.sessions import ask_turn_by_turn
from plait.generators.document import Image, Query, Text, Turn
from plait.scorers.judging.imug import IMUG, Asked, Reference
from plait.scorers.turns import TURNS, AskedTurn, turns_text

NAME = "imug"
_ROWS = ("benchmark.jsonl", "data/benchmark.jsonl")
_IMAGE_REFERENCES = "image_references.jsonl"
_DYNAMIC_REFERENCES = "dynamic_references.jsonl"
CLASSES: Mapping[str, tuple[str, ...]] = {
    "Static Spatial": (
        *("Color_Reasoning", "Apparel", "Interior_Design", "Geometric_Coloring"),
        *("Mechanisms", "Object_Inference", "Counterintuitive_Reasoning"),
    ),
    "Temporal Causal": ("Botany", "Chemistry", "Physics", "Damage_Repair", "Weather"),
    "Hybrid": (
        *("Stack_Simulation", "DIY", "Cooking", "Mirror_Reasoning", "Storage"),
        *("Paper_Crafting", "Everyday_Tasks"),
    ),
}
"""Domains by class, as config/domain_classes.json of the checkout has them."""
UNASSIGNED = "Unassigned"
"""The class of any other domain, as summarize_results.py names it."""
_CLASS_OF: dict[str, str] = {}
for _name, _domains in CLASSES.items():
    _CLASS_OF |= dict.fromkeys(_domains, _name)
_KINDS = ("input", "output")

Key = tuple[str, str, str]
"""Domain, subdomain and number of a session."""


def load(place: str, cache: Path) -> TaskSet:
    """Return the task set at `place`: the data set, its file, or a checkout.

    Raises TaskError where there is no benchmark.jsonl, and for files that cannot be read.
    """
    found = locate(place, ("**/*.jsonl", "**/*.jpg", "**/*.png"))
    file = found.file(*_ROWS)
    folder = file.parent
    rows = load_lines(file)
    links = _links(folder / _IMAGE_REFERENCES, "reference_links")
    dynamic = _links(folder / _DYNAMIC_REFERENCES, "ref_turn_idxs")
    images = ImageFolder(folder / "images", cache, found.also)
    images.check_all(_image_names(rows))

    def make(value: Any) -> Query:
        return _query(Row.of(value), images, links, dynamic)

    others = read_answers(found.folder, _sessions(rows), cache, found.also)
    named = [folder / name for name in (_IMAGE_REFERENCES, _DYNAMIC_REFERENCES)]
    task = task_set(
        NAME,
        TaskData(
            place, found, [file, *(path for path in named if path.is_file()), *others.files]
        ),
        RowReader(rows, make, _group, others.answers),
        categories=dict.fromkeys(CLASSES, 1),
    )
    return ask_turn_by_turn(task)


def _sessions(rows: Iterable[Any]) -> Iterator[Session]:
    """Yield the sessions whose turns can be told, as folders of answers name them."""
    for value in rows:
        turns: list[tuple[int, bool]] = []
        try:
            row = Row.of(value)
            for task in row.rows("tasks"):
                wants_image = task.text("modality").lower() == "image"
                turns.append((_turn_number(task, "turn"), wants_image))
            yield Session(str(_group(value).id), _key(row), tuple(turns))
        except RowError:
            continue  # The row itself is refused for this.


def _turn_number(row: Row, key: str) -> int:
    """Return the number of a turn, which the released program reads from text, too."""
    value = row.values.get(key)
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return row.get(key, int)


def _links(file: Path, key: str) -> dict[Key, list[Row]]:
    """Return the rows of a file of references by session; TaskError for a broken one."""
    links: dict[Key, list[Row]] = {}
    if not file.is_file():
        return links
    for number, value in enumerate(load_lines(file), start=1):
        try:
            row = Row.of(value)
            row.list(key)
            links.setdefault(_key(row), []).append(row)
        except RowError as error:
            told = f"{file}, row {number}: {error.rule.value}: {error.detail}"
            raise TaskError(told) from None
    return links


def _key(row: Row) -> Key:
    number = row.id("sample_id", numbers=True)
    return row.nonblank_text("domain"), row.nonblank_text("subdomain"), number


def _group(value: Any) -> RowGroup:
    own = value if isinstance(value, Mapping) else {}
    try:
        domain, subdomain, number = _key(Row(own, ""))
    except RowError:
        return RowGroup(None, UNKNOWN, UNKNOWN)
    category = _CLASS_OF.get(domain, UNASSIGNED)
    return RowGroup(f"{domain}-{subdomain}-{number}", category, domain)


def _image_names(rows: list[Any]) -> list[str]:
    """Return the names of all images that rows show, as far as they can be read."""
    names: list[str] = []
    for row in rows:
        tasks = row.get("tasks") if isinstance(row, Mapping) else None
        for task in tasks if isinstance(tasks, list) else ():
            items = task.get("input") if isinstance(task, Mapping) else None
            for item in items if isinstance(items, list) else ():
                name = item.get("image") if isinstance(item, Mapping) else None
                if isinstance(name, str):
                    names.append(name)
    return names


def _query(
    row: Row,
    images: ImageFolder,
    links: Mapping[Key, list[Row]],
    dynamic: Mapping[Key, list[Row]],
) -> Query:
    key = _key(row)
    group = _group(row.values)
    turns: list[Turn] = []
    if system := row.optional("system_prompt", str):
        turns.append(Turn("system", (Text(system),)))
    references = _references(links.get(key, ()))
    depends_on = _dependences(dynamic.get(key, ()))
    asked: list[Asked] = []
    for task in row.rows("tasks"):
        turns.append(Turn("user", _content(task, images)))
        turn = _question_in(task)
        asked.append(
            replace(
                turn,
                references=references.get(turn.turn, ()),
                depends_on=depends_on.get(turn.turn),
            )
        )
    if not asked:
        raise RowError(Rule.EMPTY, "there are no tasks")
    if len({turn.turn for turn in asked}) != len(asked):
        raise RowError(Rule.DUPLICATE, "two tasks have the same turn")
    values = {
        "domain": key[0],
        "subdomain": key[1],
        "turns": [asdict(turn) for turn in asked],
    }
    return Query(
        id=str(group.id),
        category=group.category,
        field=group.field,
        turns=tuple(turns),
        wants_images=any(turn.modality == "image" for turn in asked),
        metadata={
            IMUG: json.dumps(values, ensure_ascii=False),
            TURNS: turns_text(map(_turn, asked)),
        },
    )


def _turn(asked: Asked) -> AskedTurn:
    own = any(reference.own for reference in asked.references)
    return AskedTurn(
        looks_back=asked.is_dynamic or own, wants_images=asked.modality == "image"
    )


def _content(task: Row, images: ImageFolder) -> tuple[Text | Image, ...]:
    segments: list[Text | Image] = []
    for item in task.rows("input"):
        for name in item.values:
            if name == "text":
                segments.append(Text(item.text(name)))
            elif name == "image":
                segments.append(images.image(item.nonblank_text(name)))
    if not segments:
        raise RowError(Rule.EMPTY, f"{task.path('input')} holds neither text nor image")
    return tuple(segments)


def _question_in(task: Row) -> Asked:
    """Return what a turn of the data asks for; RowError."""
    modality = task.text("modality").lower()
    if modality not in ("text", "image"):
        detail = f"{task.path('modality')} is {brief(modality)}; valid are text, image"
        raise RowError(Rule.CHOICE, detail)
    output = Row(task.optional("output", dict), task.path("output"))
    answer = output.values.get("answer") or ""
    if not isinstance(answer, str):
        detail = f"{output.path('answer')} must be a text, not {brief(answer)}"
        raise RowError(Rule.WRONG_TYPE, detail)
    points = output.optional("evaluation_points", list)
    for place, point in enumerate(points):
        if not isinstance(point, str) or not point.strip():
            where = f"{output.path('evaluation_points')}[{place}]"
            raise RowError(Rule.WRONG_TYPE, f"{where} must be a text, not {brief(point)}")
    return Asked(
        turn=_turn_number(task, "turn"),
        modality=modality,
        answer=answer if modality == "text" else "",
        points=tuple(points) if modality == "image" else (),
    )


def _references(rows: list[Row] | tuple[()]) -> dict[int, tuple[Reference, ...]]:
    """Return, by turn, the images beside which its image is judged."""
    found: dict[int, tuple[Reference, ...]] = {}
    for row in rows:
        for link in row.rows("reference_links"):
            named: list[Reference] = []
            for one in link.rows("refs"):
                kind = one.text("ref_type")
                if kind not in _KINDS:
                    detail = f"{one.path('ref_type')} is {brief(kind)}; valid are "
                    raise RowError(Rule.CHOICE, detail + ", ".join(_KINDS))
                own = kind == "output"
                named.append(Reference(turn=_turn_number(one, "ref_turn"), own=own))
            # The released program takes the first link of a turn.
            found.setdefault(link.get("turn_idx", int), tuple(named))
    return found


def _dependences(rows: list[Row] | tuple[()]) -> dict[int, tuple[int, ...]]:
    """Return, by turn, the turns on whose answers its right letters depend."""
    found: dict[int, tuple[int, ...]] = {}
    for row in rows:
        turns = row.list("ref_turn_idxs")
        if not all(isinstance(turn, int) for turn in turns):
            name = row.path("ref_turn_idxs")
            detail = f"{name} must be whole numbers, not {brief(turns)}"
            raise RowError(Rule.WRONG_TYPE, detail)
        found[row.get("turn_idx", int)] = tuple(turns)
    return found
