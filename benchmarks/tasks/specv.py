"""SpecV as a task set: six tracks of 200 queries, each with specifications of yes or no.

Read is a checkout of yuyouxixi/SpecV@2af3845 with its images, as the programs below `eval/`
read it: rows of `eval_data/TRACK/DIMENSION.jsonl`, specifications of
`eval_checklist/TRACK/DIMENSION/ID.json`. Two tracks use the same ids, so that a query is
named by both: `many2one-comp_001`. Answers of others are the folders
`model_outputs/TRACK/MODEL`, and systems by the name MODEL: an image `ID.png`, an object
`ID/response.json` with the images beside it, or a text in `ID.json`, by the track. For
research use (its README; the file of its licence is empty).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any, NamedTuple

from plait.benchmarks.tasks.published import (
    Answer,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading.images import ImageFolder, image_paths
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
    load_lines,
    locate,
    read_text,
)
from plait.generators.base import Failure, Fault
from plait.generators.document import Content, Document, Image, Query, Text, Turn
from plait.scorers.judging.specifications import (
    DIMENSIONS,
    ONE_IMAGE,
    SPECIFICATIONS,
    TEXT_ONLY,
    TRACK,
)

NAME = "specv"
DATA = "eval_data"
CHECKLISTS = "eval_checklist"
OUTPUTS = "model_outputs"
RESPONSE = "response.json"
_ANSWERS = ("Yes", "No")
_PLACE = re.compile(r"\[IMAGE(\d+)\]")
"""Where an image stands in a question."""
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
"""In the order in which an answer's image is looked for."""


class Entry(NamedTuple):
    """A row, and where it stands."""

    track: str
    dimension: str
    value: Any


def load(place: str, cache: Path) -> TaskSet:
    """Return the task set at `place`: a checkout, or its folder `eval_data/TRACK`.

    The category is the dimension, the field the track. `avg_fixed` weights the tracks
    alike, and in each its dimensions, as the published average does. Raises TaskError
    where there is no track, and for a file none of whose lines is JSON.
    """
    found = locate(place, (f"{DATA}/**", f"{CHECKLISTS}/**", f"{OUTPUTS}/**"))
    root, tracks = _tracks(found.path)
    files: list[Path] = []
    for track in tracks:
        files += sorted((root / DATA / track).glob("*.jsonl"))
    entries: list[Entry] = []
    for file in files:
        entries += [Entry(file.parent.name, file.stem, row) for row in load_lines(file)]
    if not entries:
        raise TaskError(f"{root / DATA} has no rows of {', '.join(tracks)}")
    images = {}
    for track in tracks:
        images[track] = ImageFolder(root / DATA / track, cache, found.also)
        rows = [entry.value for entry in entries if entry.track == track]
        images[track].check_all(image_paths(rows))
    answers: dict[str, dict[str, Answer]] = {}
    files_of_answers: list[Path] = []
    for folder in _folders(root, tracks):
        outputs = _Outputs.of(folder, entries, ImageFolder(folder, cache, found.also))
        answers.setdefault(folder.name, {}).update(outputs.answers())
        files_of_answers += outputs.files

    def make(entry: Entry) -> Query:
        return _query(entry, root, images[entry.track])

    used = dict.fromkeys(entry.track for entry in entries)
    checklists: list[Path] = []
    for track in tracks:
        checklists += sorted(root.glob(f"{CHECKLISTS}/{track}/*/*.json"))
    return task_set(
        NAME,
        TaskData(place, found, [*files, *checklists, *files_of_answers]),
        RowReader(entries, make, _group, answers),
        categories=weights_of([*used]),
        fields=[*used],
        licence="research use",
    )


def weights_of(tracks: Sequence[str]) -> dict[str, int]:
    """Return the weight of each dimension: all tracks alike, and in each all dimensions."""
    whole = lcm(*(len(DIMENSIONS[track]) for track in tracks))
    weights: dict[str, int] = {}
    for track in tracks:
        names = DIMENSIONS[track]
        weights |= dict.fromkeys(names, whole // len(names))
    return weights


def _tracks(path: Path) -> tuple[Path, list[str]]:
    """Return the checkout and its tracks; of the folder of one track that one alone."""
    if path.name in DIMENSIONS and path.parent.name == DATA:
        return path.parents[1], [path.name]
    tracks = [track for track in DIMENSIONS if (path / DATA / track).is_dir()]
    if not tracks:
        raise TaskError(f"{path} holds no {DATA} with one of {', '.join(DIMENSIONS)}")
    return path, tracks


def _id_of(value: Any) -> str | None:
    return RowGroup.of(value, "id").id


def _names_files(id: str) -> bool:
    """Return whether an id is a plain name, which leads to no other folder."""
    return id == Path(id).name


def _key(track: str, id: str) -> str:
    return f"{track}-{id}"


def _group(entry: Entry) -> RowGroup:
    id = _id_of(entry.value)
    named = _key(entry.track, id) if id else None
    return RowGroup(named, entry.dimension, entry.track)


# ------------------------------------------------------------------------------ queries


def _query(entry: Entry, root: Path, images: ImageFolder) -> Query:
    row = Row.of(entry.value)
    track = entry.track
    id = row.id()
    if not _names_files(id):
        raise RowError(Rule.ID, f"an id names files here, unlike {brief(id)}")
    file = root / CHECKLISTS / track / entry.dimension / f"{id}.json"
    shown = [_image(path, images) for path in row.optional("question_img", list)]
    content = _question(track, row.nonblank_text("question"), shown)
    return Query(
        id=_key(track, id),
        category=entry.dimension,
        field=track,
        turns=(Turn("user", content),),
        reference=_reference(row, images),
        wants_images=track != TEXT_ONLY,
        metadata={SPECIFICATIONS: _checklist(file), TRACK: track},
    )


def _image(path: Any, images: ImageFolder) -> Image:
    return images.image(of_type(path, str, "question_img"))


def _question(track: str, text: str, images: Sequence[Image]) -> Content:
    """Return the text with each image in its place, or behind all that have none."""
    if track in ("edit", "many2one") and not images:
        raise RowError(Rule.EMPTY, "question_img is empty")
    places = [*_PLACE.finditer(text)] if images else []
    if not places:
        return (*images, Text(text))
    segments: list[Text | Image] = []
    start = 0
    for place in places:
        number = int(place[1])
        if not 1 <= number <= len(images):
            raise RowError(Rule.MARKS, f"{place[0]}, of {len(images)} images")
        segments += [Text(text[start : place.start()]), images[number - 1]]
        start = place.end()
    segments.append(Text(text[start:]))
    return tuple(s for s in segments if s != Text(""))


def _reference(row: Row, images: ImageFolder) -> Document | None:
    """Return the known answer; None where there is none, or an image of it is not there.

    Specifications are judged without it.
    """
    text = row.optional("answer", str)
    drawn: list[Image] = []
    for path in row.optional("answer_img", list):
        try:
            drawn.append(images.image(of_type(path, str, "answer_img")))
        except RowError as error:
            if error.rule is not Rule.NOT_FOUND:
                raise
            return None
    return Document((Text(text), *drawn)) if text else None


def _checklist(file: Path) -> str:
    """Return the text of a checklist whose specifications keep the rules."""
    if not file.is_file():
        raise RowError(Rule.MISSING_KEY, f"there is no {'/'.join(file.parts[-4:])}")
    try:
        text = read_text(file).strip()
        rows = json.loads(text)
    except (TaskError, ValueError, RecursionError) as error:
        raise RowError(Rule.WRONG_TYPE, f"{file.name} is not JSON: {error}") from None
    ids: list[int] = []
    for i, value in enumerate(of_type(rows, list, file.name)):
        row = Row.of(value, f"{file.name}[{i}]")
        ids.append(_number(row))
        row.nonblank_text("question")
        expected = row.text("expected_answer")
        if expected not in _ANSWERS:
            raise RowError(
                Rule.CHOICE,
                f"{row.path('expected_answer')} is {brief(expected)}; Yes or No",
            )
        row.optional("category", str)
        row.optional("subcategory", str)
    if not ids:
        raise RowError(Rule.EMPTY, f"{file.name} has no specifications")
    if len({*ids}) < len(ids):
        raise RowError(Rule.ID, f"{file.name} has a number twice")
    return text


def _number(row: Row) -> int:
    number = row.get("id", int)
    if isinstance(number, bool):
        raise RowError(Rule.WRONG_TYPE, f"{row.path('id')} must be a number, not {number}")
    return number


# ------------------------------------------------------------------------------ answers


def _folders(root: Path, tracks: Iterable[str]) -> Iterator[Path]:
    """Yield the folders of answers, of each track by the model's name."""
    for track in tracks:
        yield from sorted(filter(Path.is_dir, (root / OUTPUTS / track).glob("*")))


@dataclass(frozen=True)
class _Outputs:
    """The answers of one model on one track."""

    folder: Path
    images: ImageFolder
    given: Mapping[str, Any]
    """By id what is given, as the program of the track finds it: the name of an image, what
    a file holds, or a TaskError."""
    files: Sequence[Path]
    """Those that were read, without images."""

    @classmethod
    def of(cls, folder: Path, entries: Sequence[Entry], images: ImageFolder) -> _Outputs:
        """Read what a model's folder holds for the rows of its track."""
        track = folder.parent.name
        given: dict[str, Any] = {}
        files: list[Path] = []
        for entry in entries:
            id = _id_of(entry.value)
            if entry.track != track or id is None or not _names_files(id):
                continue
            if track in ONE_IMAGE:
                names = (f"{id}{suffix}" for suffix in _SUFFIXES)
                there = [name for name in names if (folder / name).is_file()]
                given |= {id: there[0]} if there else {}
                continue
            file = folder / (f"{id}.json" if track == TEXT_ONLY else f"{id}/{RESPONSE}")
            if file.is_file():
                files.append(file)
                given[id] = _content_of(file, id)
        return cls(folder, images, given, files)

    def answers(self) -> dict[str, Answer]:
        """Return the answers by query; one that breaks a rule is a failure."""
        track = self.folder.parent.name
        self.images.check_all(image_paths(self.given.values()))
        answers: dict[str, Answer] = {}
        for id, value in self.given.items():
            try:
                answers[_key(track, id)] = _answer(id, value, self.images)
            except RowError as error:
                reason = f"{OUTPUTS}/{track}/{self.folder.name}/{id}: {error}"
                answers[_key(track, id)] = Failure(reason, Fault.BAD_INPUT)
        return answers


def _content_of(file: Path, id: str) -> dict[str, Any] | TaskError:
    try:
        return _with_paths(id, load_json(file, dict, "an object")[0])
    except TaskError as error:
        return error


def _with_paths(id: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return what a file holds, the paths of images from the folder of the model."""
    items = content.get("content")
    if not isinstance(items, list):
        return content
    placed = []
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("image"), str):
            item = {**item, "image": f"{id}/{item['image']}"}
        placed.append(item)
    return {**content, "content": placed}


def _answer(id: str, value: Any, images: ImageFolder) -> Document:
    if isinstance(value, TaskError):
        raise RowError(Rule.WRONG_TYPE, str(value))
    if isinstance(value, str):
        return Document((images.image(value),))
    row = Row.of(value, id)
    if "content" not in value and "response" in value:
        return Document((Text(row.nonblank_text("response")),))
    segments: list[Text | Image] = []
    for item in row.rows("content"):
        kind = item.values.get("type")
        if kind == "image":
            segments.append(images.image(item.text("image")))
        elif kind == "text" or "text" in item.values:
            # As the released program: of another type, what has a text is one.
            segments.append(Text(item.optional("text", str)))
    if not segments:
        raise RowError(Rule.EMPTY, "content is empty")
    return Document(tuple(segments))
