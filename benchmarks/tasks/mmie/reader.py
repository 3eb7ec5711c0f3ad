"""MMIE's data: located (the bundled sample, a folder or file, the Hub), and its rows read.

The published layout, as lmms-eval (`tasks/mmie/utils.py`) and the authors' own runner
(`runable-gill`) read it:

    {"id": "PBL-...", "catagory": "...", "field": "...", "conversations": [
        {"from": "human", "content": [{"text": "..." or null, "image": path or null}]},
        {"from": "gpt",   "content": [...]}]}

`content` is ordered; within an item the text comes before the image. A row may have a
text `criteria` besides, and the `benchmark` that it is from if that is not MMIE.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.mmie.categories import (
    BENCHMARK,
    FIELDS,
    benchmark_of,
    category_of,
    field_of,
    weights_of,
)
from plait.benchmarks.tasks.mmie.prompts import Prompts
from plait.benchmarks.tasks.published import (
    UNKNOWN,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading import sources
from plait.benchmarks.tasks.reading.images import (
    ImageFolder,
    Progress,
    from_base64,
    image_paths,
    inline,
)
from plait.benchmarks.tasks.reading.rules import (
    Row,
    RowError,
    Rule,
    TaskError,
    brief,
    is_id,
    of_type,
)
from plait.generators.catalogue import Named, entries
from plait.generators.document import Content, Document, Image, Query, Role, Text, Turn
from plait.generators.unicode import trouble
from plait.scorers.judging.mmie import first_truth

FILES = ("data.json", "overview.json")
"""Names of the file of rows, in the order in which they are tried."""
ARCHIVE = "images.tar.gz"
_LOOKED_AT = 100
"""Rows in which the marks of the format are looked for."""
SAMPLE = Path(__file__).parent / "sample"

SPEAKERS: Mapping[str, Role] = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
}
CATEGORY_KEYS = ("category", "catagory")
"""The published rows misspell it."""
CRITERIA = "criteria"
"""What a judge should look for, as text; the published rows are not known to have it."""
_KNOWN = {"id", "field", "conversations", BENCHMARK, *CATEGORY_KEYS}
_FORMS = (
    "give a file of rows (.jsonl, .json, .csv, .tsv, .parquet) or a folder of some, a "
    "folder or file in MMIE's format, hf:ORG/NAME@REVISION, 'sample' for the bundled "
    "queries, or another form that `plait list data` shows"
)


def _hint(place: str) -> str:
    """Return what may be given in the place of one that is not there."""
    names = []
    for entry in entries(Named.DATA):
        # Others have a part that the user writes, in capitals.
        if entry.form.islower():
            names.append(entry.form)
    path = Path(place).absolute()
    # A config has made a path of what may have been meant as a name.
    near = []
    if path.parent == Path.cwd():
        near = get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}? Otherwise {_FORMS}" if near else f": {_FORMS}"


def has_marks(data: str) -> bool:
    """Return whether a folder, JSON file or `hf:ORG/NAME@REV` is in MMIE's format.

    Its marks are the names of its files in a folder, and rows with `conversations` whose
    turns have no `value`, as those of other chats do. TaskError where there are no data.
    """
    found = sources.locate(data, FILES, _hint(data))
    places = [found.path, *(found.path / name for name in FILES)]
    files = [place for place in places if place.is_file()]
    if not files or files[0].suffix.lower() != ".json":
        return False
    path = files[0]
    try:
        rows = [*islice(sources.load_rows(path)[0], _LOOKED_AT)]
    except TaskError:
        return path.name in FILES
    return not rows or any(map(_is_marked, rows))


def _is_marked(row: Any) -> bool:
    """Return whether a row is of MMIE's format, and not of another of chats."""
    talk = row.get("conversations") if isinstance(row, dict) else None
    for turn in talk if isinstance(talk, list) else ():
        if isinstance(turn, dict) and {"value", "role"} & turn.keys():
            return False
    return talk is not None


def load(
    data: str, prompt: Prompts, cache: Path, on_progress: Progress | None = None
) -> TaskSet:
    """Return the task set `sample`, or that of `hf:ORG/NAME@REV`, a folder or a JSON file.

    Images that come as `images.tar.gz` are unpacked once, under `cache`. Raises TaskError
    where there is no such data, and when the file is not JSON or holds no list; everything
    else that can be wrong concerns one row only.
    """
    bundled = data == "sample"
    place = str(SAMPLE) if bundled else data
    found = sources.locate(place, (*FILES, ARCHIVE, "images/**"), _hint(place))
    folder = found.folder
    path = found.file(*FILES)
    packed = not (folder / "images").is_dir() and (folder / ARCHIVE).is_file()
    root = sources.unpack(folder / ARCHIVE, cache) if packed else folder
    rows, digest = sources.load_rows(path)
    images = ImageFolder(root, cache, found.also)
    benchmarks = set[str]()
    images.check_all(image_paths(_noting(rows, benchmarks)), on_progress)
    return task_set(
        "mmie-sample" if bundled else "mmie",
        TaskData(data, found, [path]),
        RowReader(rows, lambda value: _query(Row.of(value), images), group_of),
        prompt=prompt,
        categories=weights_of(benchmarks),
        fields=FIELDS,
        digest=digest,
        prompts=prompt.digest,
    )


def _noting(rows: Iterable[Any], benchmarks: set[str]) -> Iterator[Any]:
    """Yield the rows, and add the benchmark that each names; every pass decodes them."""
    for row in rows:
        benchmarks.add(benchmark_of(row))
        yield row


def group_of(value: Any) -> RowGroup:
    """Return what can be read of the row `value`, which may break any rule."""
    row = value if isinstance(value, dict) else {}
    id = row.get("id")
    field = row.get("field")
    id = id if is_id(id) else None
    try:
        category = category_of(id or "", ())
    except RowError:
        category = UNKNOWN
    known = field_of(field) if isinstance(field, str) and field.isprintable() else ""
    return RowGroup(id, category, known or UNKNOWN)


def _query(row: Row, images: ImageFolder) -> Query:
    id = row.id()
    category = category_of(id, categories_of(row))
    field = field_of(row.text("field"))
    text = row.values.get(CRITERIA)
    criteria = row.text(CRITERIA) if isinstance(text, str) and text else None
    known = _KNOWN if criteria is None else {*_KNOWN, CRITERIA}
    metadata = {}
    for key, value in row.values.items():
        if key not in known:
            metadata[key] = _metadata(value)
    talk = list(row.rows("conversations"))
    turns = [_turn(turn, images) for turn in talk]
    asked = _count_asked(turns)
    if asked < len(talk):
        metadata |= first_truth(talk[asked].list("content"))
    answer: list[Text | Image] = []
    for turn in turns[asked:]:
        answer += turn.content
    return Query(
        id=id,
        category=category,
        field=field,
        turns=tuple(turns[:asked]),
        reference=document_of(tuple(answer)),
        wants_images=category != "MSR",
        metadata=metadata,
        criteria=criteria,
    )


def _metadata(value: Any) -> str:
    """Return a value as text: metadata are valid Unicode, which JSON makes of any text."""
    return value if isinstance(value, str) and not trouble(value) else json.dumps(value)


def categories_of(row: Row) -> list[str]:
    """Return the category that a row states, under either spelling of the key."""
    stated = []
    for key in CATEGORY_KEYS:
        category = row.values.get(key)
        if category is not None:
            stated.append(of_type(category, str, "the category"))
    return stated


def _turn(turn: Row, images: ImageFolder) -> Turn:
    speaker = turn.text("from")
    if speaker not in SPEAKERS:
        detail = f"{turn.path('from')} is {brief(speaker)}; valid are {', '.join(SPEAKERS)}"
        raise RowError(Rule.SPEAKER, detail)
    return Turn(SPEAKERS[speaker], content(turn, "content", images))


def _count_asked(turns: list[Turn]) -> int:
    """Return how many turns are to be answered: those up to the last human one."""
    if not turns or turns[0].role != "user":
        raise RowError(Rule.NO_QUESTION, "the conversation must begin with a human turn")
    asked = 0
    for i, turn in enumerate(turns):
        if turn.role != "user":
            continue
        if not any(isinstance(s, Image) or s.text.strip() for s in turn.content):
            raise RowError(Rule.EMPTY, f"conversations[{i}] has neither text nor image")
        asked = i + 1
    return asked


def content(row: Row, key: str, images: ImageFolder) -> Content:
    """Return the texts and images of a list of `{"text": ..., "image": ...}`, in order.

    An empty text stays: the official scorer writes a blank line for it.
    """
    parts: list[Text | Image] = []
    for item in row.rows(key):
        if "text" not in item.values and "image" not in item.values:
            detail = f"{item.where} has neither 'text' nor 'image'"
            raise RowError(Rule.MISSING_KEY, detail)
        if item.values.get("text") is not None:
            parts.append(Text(item.text("text")))
        if item.values.get("image") not in (None, ""):
            parts.append(_image(item, images))
    return tuple(parts)


def document_of(content: Content) -> Document | None:
    """Return the ground truth; None where it holds no image and only empty texts."""
    says_something = any(isinstance(s, Image) or s.text for s in content)
    return Document(content) if says_something else None


def _image(item: Row, images: ImageFolder) -> Image:
    """Read a path, or `{"path": ..., "bytes": ...}` as data set libraries hold an image."""
    if not isinstance(item.values["image"], dict):
        return images.image(item.text("image"))
    image = item.object("image")
    if image.values.get("bytes") is None:
        return images.image(image.text("path"))
    return inline(from_base64(image.text("bytes"), image.path("bytes")))
