"""Unison as a task set: sessions in which understanding and generation meet, of four tasks.

Read is the data set FudanCVL/Unison, or a checkout of FudanCVL/Unison@407b7b5 with it in
the folder `data`, as common/io.py and infer.py read it: the tables UGG.csv and ME.csv,
which these programs read, or UGG.json and ME.json, which the data set's card names. From a
checkout the turns are in its words, known by their digests; else in ours.

A query is all that is asked about one row, each turn without the talk before it:

* Internal Consistency: questions about a given image, then a drawing from its caption;
* Understanding-Guided Generation: where an edit belongs, the edit in the given place, and
  the edit in the place that was answered;
* Generation-Guided Understanding: a question, a drawing of what it describes, and the
  question beside that drawing;
* Mutual Enhancement: an edit that is looked at and mended, then mismatches with a caption
  that are told and mended; each at most five times, until nothing more is found.

Its category is the task. `unison:NAME` judges the answers. Those of others are read from
the tables that infer.py writes (`unison_answers`).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image as Pillow

from plait.benchmarks.tasks.published import (
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading.images import ImageFolder
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, TaskError, brief
from plait.benchmarks.tasks.reading.sources import (
    load_json,
    load_rows,
    load_table,
    locate,
    read_text,
)
from plait.benchmarks.tasks.unison_answers import Session, read_answers
from plait.generators.document import Content, Image, Query, Text, Turn
from plait.generators.released import read_published
from plait.generators.system import Variant
from plait.scorers.boxes import WHOLE, Size, numbers_in
from plait.scorers.judging.mismatches import after_marks
from plait.scorers.judging.rubrics import RELEASED
from plait.scorers.judging.unison import (
    GGU,
    IC,
    ME,
    ROUNDS,
    UGG,
    UNISON,
    Item,
    image_in,
    text_in,
)

NAME = "unison"
_TEMPLATES = "Inference_Pipeline/prompt_templates.py"
_FOLDERS = {
    IC: "Internal_Consistency",
    UGG: "Und_Guided_Gen",
    GGU: "Gen_Guided_Und",
    ME: "Mutual_Enhancement",
}
_SHORT = {IC: "ic", UGG: "ugg", GGU: "ggu", ME: "me"}
"""How ids begin."""
_PARTS = {
    "2D_Spatial": "2d_spatial.json",
    "3D_Spatial": "spatial.json",
    "Complex_Relation": "complex_relation.json",
}
"""Of the third task, with their files."""
_COLUMNS = {
    UGG: ("image_path", "instruction", "operation", "bbox", "mask"),
    ME: ("image_path", "instruction", "operation", "final_caption"),
}
_SUFFIXES = ("png", "jpg", "jpeg")
_LITERAL_BOX = re.compile(r"\[[\d\s,.\-]+\]")
_LEFT_OUT = ("", "nan", "none")
"""What a cell of a table holds that says nothing."""

_OWN: Mapping[str, str] = {
    "question_end": " Reply with yes or no and nothing else.",
    "box": "An image is to be edited by this instruction: ",
    "box_end": (
        ". Where is the thing that is to be changed? Reply with its box and nothing else, "
        "as [left, top, right, bottom]"
    ),
    "edit": "Edit the image. The thing that is to be changed is in the box ",
    "edit_middle": ". The instruction: ",
    "edit_end": "",
    "guided": (
        "The last image was drawn to help with the question below. Answer it by what all "
        "images show.\n\n"
    ),
    "options_end": "\nReply with the letter of the right option and nothing else.",
    "look": (
        "The first image{original_image} was edited by an instruction, and the second "
        "{edited_image}is what came of it. The instruction: {}\nGo through all that it "
        "asks for. Where every part of it is done, and done well, reply 'Yes'. Else reply "
        "'No, [instruction]' with what is still to be done."
    ),
    "mismatches": (
        "{}This is the caption of the image: {}\nWhat in the image does not fit it? Where "
        "everything fits, reply 'Yes'. Else reply 'No, 1.[mismatch]:[instruction to edit "
        "the image], 2.[mismatch]:[instruction to edit the image],...'"
    ),
    "repair": "Edit the image by this instruction: {combined_instructions}",
}
"""Our wording of the turns, by the names of RELEASED."""
_INSTRUCTIONS = re.compile(r"\d+\.\[[^\]]+\]:\[([^\]]+)\]")


class Entry(NamedTuple):
    """A row, and where it stands."""

    task: str
    part: str
    """Of the third task which of its parts."""
    number: int
    value: Any


def load(place: str, cache: Path) -> TaskSet:
    """Return the task set at `place`: the data set, a checkout that holds it, or a task.

    `avg_fixed` weights the tasks alike, as the published one does. Raises TaskError where
    there is no row, and for files that cannot be read.
    """
    found = locate(place, ("**/*.json", "**/*.csv", "**/*.txt", "**/*.png", "**/*.jpg"))
    root = found.path / "data" if (found.path / "data").is_dir() else found.path
    folders = {task: root / folder for task, folder in _FOLDERS.items()}
    if root.name in _FOLDERS.values():
        own = next(task for task, folder in _FOLDERS.items() if folder == root.name)
        folders = {own: root}
    files: list[Path] = []
    entries: list[Entry] = []
    for task, folder in folders.items():
        for file, more in _READERS[task](folder):
            files.append(file)
            entries += more
    if not entries:
        named = ", ".join(_FOLDERS.values())
        raise TaskError(f"{root} holds the rows of none of {named}")
    images = {task: ImageFolder(folders[task], cache, found.also) for task in folders}
    for task in folders:
        images[task].check_all(_paths_of(entries, task))
    shared = _last_checks(entries)
    others = read_answers(found.path, _sessions(entries, images), cache)
    templates = found.path / _TEMPLATES
    session = UnisonSession(_OWN)
    if templates.is_file():
        session = UnisonSession(read_published(templates, RELEASED["unison-turns"]))
    makers = {IC: _ic, UGG: _ugg, GGU: _ggu, ME: _me}
    categories: dict[str, int] = {}
    fields: dict[str, None] = {}
    for entry in entries:
        # The published average weights all tasks alike.
        categories[entry.task] = 1
        fields[_group(entry).field] = None

    def make(entry: Entry) -> Query:
        row = Row.of(entry.value)
        made = makers[entry.task](row, images[entry.task], entry)
        if entry.task == GGU and (last := shared.get(_question_of(entry.value))):
            made.values["released_checks"] = last
        return session.query(_group(entry), made)

    return task_set(
        NAME,
        TaskData(place, found, [*files, *others.files]),
        RowReader(entries, make, _group, others.answers),
        prompt=session,
        categories=categories,
        fields=[*fields],
        wording="plait" if session.texts is _OWN else "released",
    )


def _group(entry: Entry) -> RowGroup:
    part = f"{entry.part}-" if entry.part else ""
    id = f"{_SHORT[entry.task]}-{part}{entry.number}".lower()
    return RowGroup(id, entry.task, entry.part or entry.task)


def _sessions(
    entries: Iterable[Entry], images: Mapping[str, ImageFolder]
) -> Iterator[Session]:
    """Yield every query by the number that the released program gives it."""
    counted = 0
    for entry in entries:
        values = entry.value if isinstance(entry.value, Mapping) else {}
        id = str(_group(entry).id)
        if entry.task == IC:
            questions = values.get("questions")
            numbers = tuple(questions) if isinstance(questions, Mapping) else ()
            yield Session(IC, entry.number - 1, id, numbers)
        elif entry.task != GGU:
            yield Session(entry.task, entry.number - 1, id)
        elif _has_its_image(entry.part, values, images[GGU]):
            # It counts rows of all parts, but none whose image is not there.
            yield Session(GGU, counted, id)
            counted += 1


def _has_its_image(part: str, row: Mapping[str, Any], images: ImageFolder) -> bool:
    path = row.get("image_path")
    if not isinstance(path, str) or not path:
        return True
    with contextlib.suppress(RowError, ValueError):
        return Path(images.place(f"{part}/{path}")).is_file()
    return False


# --------------------------------------------------------------------------------- files

Found = Iterator[tuple[Path, Iterable[Entry]]]


def _ic_rows(folder: Path) -> Found:
    prompts, questions = folder / "prompts.txt", folder / "questions.json"
    if not prompts.is_file():
        return
    lines = [line.strip() for line in read_text(prompts).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    asked = load_json(questions, dict, "an object with questions")[0].get("questions")
    if not isinstance(asked, dict):
        raise TaskError(f"{questions}: questions must be an object, not {brief(asked)}")
    yield questions, ()
    rows = []
    for i, line in enumerate(lines):
        row = {"prompt": line, "questions": asked.get(f"prompt_{i}")}
        rows.append(Entry(IC, "", i + 1, row))
    yield prompts, rows


def _table_rows(task: str, name: str, folder: Path) -> Found:
    """Yield the rows of NAME.json, or where it is not there of NAME.csv."""
    listed, table = folder / f"{name}.json", folder / f"{name}.csv"
    rows: Iterable[Any] = ()
    if listed.is_file():
        rows = load_rows(listed)[0]
    elif table.is_file():
        rows = load_table(table, _COLUMNS[task])
    else:
        return
    file = listed if listed.is_file() else table
    yield file, [Entry(task, "", i, row) for i, row in enumerate(rows, start=1)]


def _ugg_rows(folder: Path) -> Found:
    yield from _table_rows(UGG, "UGG", folder)


def _me_rows(folder: Path) -> Found:
    yield from _table_rows(ME, "ME", folder)


def _ggu_rows(folder: Path) -> Found:
    for part, name in _PARTS.items():
        file = folder / part / name
        if file.is_file():
            rows = enumerate(load_rows(file)[0], start=1)
            yield file, [Entry(GGU, part, i, row) for i, row in rows]


_READERS: Mapping[str, Callable[[Path], Found]] = {
    IC: _ic_rows,
    UGG: _ugg_rows,
    GGU: _ggu_rows,
    ME: _me_rows,
}


# ------------------------------------------------------------------------------- queries


class Made(NamedTuple):
    """What a row says, without its task."""

    values: dict[str, Any]
    image: Image | None


def _ic(row: Row, images: ImageFolder, entry: Entry) -> Made:
    prompt = row.nonblank_text("prompt")
    questions = row.object("questions").values
    if not questions:
        raise RowError(Rule.EMPTY, "there are no questions")
    for number in questions:
        Row(questions, "questions").nonblank_text(number)
    image = _image_of(images, [f"images/{entry.number}.{end}" for end in _SUFFIXES])
    return Made({"prompt": prompt, "questions": questions}, image)


def _ugg(row: Row, images: ImageFolder, _: Entry) -> Made:
    image = images.image(row.nonblank_text("image_path"))
    size = _size_of(image)
    raw = _cell(row, "bbox")
    if len(numbers_in(raw)) < 4:
        raise RowError(Rule.WRONG_TYPE, f"bbox is {brief(raw)}, not four numbers")
    values = {
        "instruction": row.nonblank_text("instruction"),
        "operation": _cell(row, "operation"),
        "given_box": raw,
        "bbox": _in_thousandths(raw, size),
        "mask": _cell(row, "mask"),
        "size": [*size],
    }
    return Made(values, image)


def _ggu(row: Row, images: ImageFolder, entry: Entry) -> Made:
    options = row.object("options").values
    letters = [chr(ord("A") + i) for i in range(len(options))]
    if [*options] != letters or not letters:
        raise RowError(Rule.WRONG_TYPE, f"options are {brief(options)}, not A, B, ...")
    for letter in letters:
        Row(options, "options").text(letter)
    answer = row.text("answer").strip().upper()
    if answer not in letters:
        valid = ", ".join(letters)
        raise RowError(Rule.CHOICE, f"answer is {brief(answer)}, not one of {valid}")
    path = row.optional("image_path", str)
    image = images.image(f"{entry.part}/{path}") if path else None
    question = row.nonblank_text("question")
    description = row.nonblank_text("description")
    checks: list[dict[str, str]] = []
    for check in _checks(row):
        expected = check["answer"].strip().lower()
        checks.append({"text": check["text"], "answer": expected})
    values = {
        "question": question,
        "options": options,
        "answer": answer,
        "description": description,
        "checks": checks,
    }
    return Made(values, image)


def _checks(row: Row) -> list[dict[str, str]]:
    """Return the questions about the drawing with their answers, as they stand."""
    checks: list[dict[str, str]] = []
    if "quality_questions" in row.values:
        for one in row.rows("quality_questions"):
            answer = one.text("answer") if "answer" in one.values else "yes"
            checks.append({"text": one.nonblank_text("text"), "answer": answer})
        return checks
    listed = row.optional("image_generation_validate", dict)
    for name in listed:
        text = Row(listed, "image_generation_validate").nonblank_text(name)
        checks.append({"text": text, "answer": "yes"})
    return checks


def _question_of(value: Any) -> str:
    question = value.get("question") if isinstance(value, Mapping) else None
    return question.strip() if isinstance(question, str) else ""


def _last_checks(entries: Iterable[Entry]) -> dict[str, list[dict[str, str]]]:
    """Return the checks that the released program finds by a question's text.

    They are those of the last row with the question.
    """
    found: dict[str, list[dict[str, str]]] = {}
    for entry in entries:
        if entry.task != GGU or not (question := _question_of(entry.value)):
            continue
        try:
            checks = _checks(Row.of(entry.value))
        except RowError:
            continue
        if checks:
            found[question] = checks
    return found


def _me(row: Row, images: ImageFolder, _: Entry) -> Made:
    path = row.nonblank_text("image_path")
    image = _image_of(images, [path, f"images/{path}"])
    size = _size_of(image)
    operation = _cell(row, "operation")
    if not operation:
        raise RowError(Rule.EMPTY, "operation is empty")
    values = {
        "instruction": row.nonblank_text("instruction"),
        "operation": _LITERAL_BOX.sub(lambda box: _in_thousandths(box[0], size), operation),
        "final_caption": row.nonblank_text("final_caption"),
    }
    return Made(values, image)


def _cell(row: Row, key: str) -> str:
    """Return a cell as text; empty where it says nothing."""
    value = row.values.get(key)
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    return "" if text.strip().lower() in _LEFT_OUT else text


def _image_of(images: ImageFolder, paths: Sequence[str]) -> Image:
    """Return the first image that is there of several paths; RowError without one."""
    for path in paths:
        try:
            return images.image(path)
        except RowError as error:
            if error.rule is not Rule.NOT_FOUND:
                raise
    raise RowError(Rule.NOT_FOUND, f"there is no {' or '.join(paths)}")


def _size_of(image: Image) -> Size:
    """Return the size as the file says it; boxes of the data are in its pixels."""
    assert image.place is not None
    with Pillow.open(image.place) as opened:
        return Size(*opened.size)


def _paths_of(entries: Iterable[Entry], task: str) -> Iterator[str]:
    """Yield the paths by which the images of a task may be found."""
    for entry in entries:
        if entry.task != task:
            continue
        if task == IC:
            yield from (f"images/{entry.number}.{end}" for end in _SUFFIXES)
            continue
        path = entry.value.get("image_path") if isinstance(entry.value, Mapping) else None
        if isinstance(path, str) and path:
            folder = {GGU: f"{entry.part}/", ME: "images/"}.get(task, "")
            yield f"{folder}{path}"


def _in_thousandths(text: str, size: Size) -> str:
    """Return a box of pixels in thousandths; what has no four numbers stays as it is."""
    numbers = numbers_in(text)
    if len(numbers) < 4:
        return text
    left, top, right, bottom = numbers[:4]
    across = [round(number / size.width * WHOLE) for number in (left, right)]
    down = [round(number / size.height * WHOLE) for number in (top, bottom)]
    return f"[{across[0]}, {down[0]}, {across[1]}, {down[1]}]"


# -------------------------------------------------------------------------------- session


class Asked(NamedTuple):
    """What one turn asks for."""

    content: Content
    wants_image: bool


@dataclass(frozen=True)
class UnisonSession:
    """Words the turns of a session: a `plait.generators.system.Session`."""

    texts: Mapping[str, str]
    """By the names of RELEASED."""

    def __call__(self, query: Query, variant: Variant) -> tuple[Turn, ...]:
        """Return the turns as they are."""
        return query.turns

    def next_query(self, query: Query) -> Query | None:
        """Return the query of the last turn alone; None where a talk has ended before."""
        item = Item.of(query)
        assert item is not None
        said = [turn.content for turn in query.turns if turn.role == "assistant"]
        asked = self._turn(item, image_in(query.turns[0].content), len(said), said)
        if asked is None:
            return None
        turns = (Turn("user", asked.content),)
        return replace(query, turns=turns, wants_images=asked.wants_image)

    def query(self, group: RowGroup, made: Made) -> Query:
        """Return the query of a row, its later turns with marks for earlier answers."""
        values = {"task": group.category} | made.values
        item = Item(values)
        turns = []
        for number in range(item.turns):
            asked = self._turn(item, made.image, number, None)
            assert asked is not None
            turns.append(Turn("user", asked.content))
        metadata = {UNISON: json.dumps(values, ensure_ascii=False)}
        return Query(
            id=str(group.id),
            category=group.category,
            field=group.field,
            turns=tuple(turns),
            metadata=metadata,
        )

    def _turn(
        self, item: Item, image: Image | None, number: int, said: Sequence[Content] | None
    ) -> Asked | None:
        """Return what a turn asks, counted from 0, after the answers before it.

        Without these, marks stand for what would be taken from them.
        """
        word = {IC: self._ic, UGG: self._ugg, GGU: self._ggu, ME: self._me}[item.task]
        return word(item, image, number, said)

    def _ic(
        self, item: Item, image: Image | None, number: int, _: Sequence[Content] | None
    ) -> Asked:
        questions = [*item.questions.values()]
        if number == len(questions):
            return _ask(item.text("prompt"), wants_image=True)
        return _ask(f"{questions[number]}{self.texts['question_end']}", image)

    def _ugg(
        self, item: Item, image: Image | None, number: int, said: Sequence[Content] | None
    ) -> Asked:
        instruction = item.text("instruction")
        if number == 0:
            return _ask(f"{self.texts['box']}{instruction}{self.texts['box_end']}", image)
        box = item.text("given_box")
        if number == 2:
            box = _mark(1) if said is None else text_in(said[0])
        middle = f"{box}{self.texts['edit_middle']}{instruction}"
        text = f"{self.texts['edit']}{middle}{self.texts['edit_end']}"
        return _ask(text, image, wants_image=True)

    def _ggu(
        self, item: Item, image: Image | None, number: int, said: Sequence[Content] | None
    ) -> Asked:
        if number == 1:
            return _ask(item.text("description"), wants_image=True)
        options = "\n".join(f"{key}: {text}" for key, text in item.options.items())
        question, end = item.text("question"), self.texts["options_end"]
        if number == 0:
            return _ask(f"{question}\n\nOptions:\n{options}{end}", image)
        drawn = None if said is None else image_in(said[1])
        text = f"{self.texts['guided']}{question}\nOptions:\n{options}{end}"
        return _ask(text if said is not None else f"{_mark(2)}\n{text}", image, drawn)

    def _me(
        self, item: Item, image: Image | None, number: int, said: Sequence[Content] | None
    ) -> Asked | None:
        if number < ROUNDS:
            return self._mend_edit(item, image, number, said)
        rest = None if said is None else said[ROUNDS:]
        return self._mend_mismatches(item, image, number - ROUNDS, rest)

    def _mend_edit(
        self, item: Item, image: Image | None, number: int, said: Sequence[Content] | None
    ) -> Asked | None:
        """Edit and look in turn; a look says what the next edit is to do."""
        instruction = item.text("instruction")
        following = instruction if said is not None or number == 0 else _mark(number)
        for look in (said or ())[1:number:2]:
            verdict = verdict_of(text_in(look))
            if verdict.ends:
                return None
            # A no without an instruction leaves the one before it.
            told = "" if verdict.is_no else text_in(look).strip()
            following = verdict.instruction or told or following
        if number % 2:
            head, _, end = self.texts["look"].rpartition("{}")
            text = head.replace("{original_image}", "").replace("{edited_image}", "")
            edited = None if said is None else image_in(said[number - 1])
            return _ask(f"{text}{instruction}{end}", image, edited)
        last = image_in(said[number - 2]) if said and number else None
        return _ask(following, last or image, wants_image=True)

    def _mend_mismatches(
        self, item: Item, image: Image | None, number: int, said: Sequence[Content] | None
    ) -> Asked | None:
        """Look and edit in turn; an edit mends what the look before it has found."""
        last = image_in(said[number - 1 - number % 2]) if said and number > 1 else None
        found = ""
        for look in (said or ())[0:number:2]:
            text = text_in(look).strip()
            verdict = verdict_of(text)
            found = text or found
            if verdict.ends or (verdict.is_no and not verdict.instruction) or not found:
                return None
        if number % 2 == 0:
            head, _, end = self.texts["mismatches"].replace("{}", "", 1).partition("{}")
            return _ask(f"{head}{item.text('final_caption')}{end}", last or image)
        mended = _mark(ROUNDS + number) if said is None else instructions_in(found)
        text = self.texts["repair"].replace("{combined_instructions}", mended)
        return _ask(text, last or image, wants_image=True)


def _ask(text: str, *images: Image | None, wants_image: bool = False) -> Asked:
    """Return a turn of the images that are there, and the text behind them."""
    shown = [image for image in images if image is not None]
    return Asked((*shown, Text(text.strip())), wants_image)


def _mark(turn: int) -> str:
    return f"[answer {turn}]"


class Verdict(NamedTuple):
    """What a look says."""

    ends: bool = False
    """Whether nothing is left to do."""
    is_no: bool = False
    instruction: str = ""
    """What is, where it says no."""


def verdict_of(text: str) -> Verdict:
    """Return what a look says, by which of yes and no comes first.

    As `parse_evaluation_output` of infer.py; neither is what has no such word.
    """
    text = text.strip()
    first = re.search(r"\b(?:yes|no)\b", text, re.IGNORECASE)
    if first is None:
        return Verdict()
    if first[0].lower() == "yes":
        return Verdict(ends=True)
    stated = instructions_in(text)
    if stated == text:
        stated = ""
    return Verdict(is_no=True, instruction=stated or after_marks(text[first.end() :]))


def instructions_in(text: str) -> str:
    """Return the instructions of `1.[mismatch]:[instruction], 2. ...`, joined by commas.

    Of any other text what follows a `No` at its beginning, or the text as it is
    (`extract_combined_instructions` of infer.py).
    """
    if listed := _INSTRUCTIONS.findall(text):
        return ", ".join(listed)
    if text.lower().startswith("no") and (rest := after_marks(text[2:])):
        return rest
    return text
