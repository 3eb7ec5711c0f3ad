"""GEdit-Bench as a task set: 1,212 requests to edit an image, in English and in Chinese.

Rows are those of the data set stepfun-ai/GEdit-Bench, as test_gedit_score.py of
stepfun-ai/Step1X-Edit@570eba6 reads them. Answers of others, in the layout which that
program takes, are the files `results/MODEL/fullset/TYPE/LANGUAGE/KEY.png` beside the data,
and systems by the name MODEL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.edited import model_folders, names_file, read_edited
from plait.benchmarks.tasks.published import (
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
    text_of,
)
from plait.benchmarks.tasks.reading.files import published_files, published_rows
from plait.benchmarks.tasks.reading.images import ImageCache, ImageFolder, images_of
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, brief, id_text, is_id
from plait.benchmarks.tasks.reading.sources import (
    locate,
)
from plait.generators.document import Query, Text, Turn
from plait.scorers.judging.summaries import (
    GEDIT_GROUPS,
    GEDIT_INTERSECTION,
    GEDIT_LANGUAGES,
)

NAME = "gedit"
RESULTS = "results"
_TYPE = "task_type"
_LANGUAGE = "instruction_language"
_INTERSECTION = "Intersection_exist"
_IMAGE = "input_image"


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: Parquet, JSON, a folder of either, `hf:ORG/NAME@REV`.

    The category is the type of edit. The field is the language, and whether the query is
    in the intersection, which all models of the paper answered. `avg_fixed` weights types
    alike, as the published average does. Raises TaskError where there are no readable rows.
    """
    return _load(NAME, place, cache, GEDIT_LANGUAGES)


def load_english(place: str, cache: Path) -> TaskSet:
    """The same, without the requests in Chinese."""
    return _load("gedit-en", place, cache, ("en",))


def load_chinese(place: str, cache: Path) -> TaskSet:
    """The same, without the requests in English."""
    return _load("gedit-cn", place, cache, ("cn",))


def _load(name: str, place: str, cache: Path, languages: tuple[str, ...]) -> TaskSet:
    patterns = ("**/*.parquet", "**/*.json", "**/*.jsonl", "**/*.arrow", f"{RESULTS}/**")
    found = locate(place, patterns)
    images = ImageFolder(found.folder, cache, found.also)
    kept = ImageCache(cache / NAME)
    paths = published_files(found.path, "train")
    others = {*GEDIT_LANGUAGES} - {*languages}

    def rows() -> Iterator[Any]:
        for row in published_rows(paths):
            if text_of(row, _LANGUAGE) not in others:
                yield row

    def make(row: Any) -> Query:
        return _query(Row.of(row), images, kept)

    files: dict[str, str] = {}
    # In a pass of its own, since rows hold their images and are not kept.
    for row in rows():
        about = _about(row)
        if _has_file(about):
            files[_key(about)] = _file(about)
    answers = {}
    for model in model_folders(found.folder / RESULTS):
        answers[model.name] = read_edited(model, files, cache, found.also)
    fields: list[str] = []
    for language in languages:
        fields += [f"{language}{GEDIT_INTERSECTION}", language]
    return task_set(
        name,
        TaskData(place, found, paths),
        RowReader(rows(), make, _group, answers),
        categories=dict.fromkeys(GEDIT_GROUPS, 1),
        fields=fields,
    )


def _about(row: Any) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        return {}
    return {name: row.get(name) for name in ("key", _TYPE, _LANGUAGE)}


def _key(row: Mapping[str, Any]) -> str:
    """Return the name of a query: both languages may have the same keys."""
    return f"{row[_LANGUAGE]}-{id_text(row['key'], numbers=True)}"


def _has_file(row: Mapping[str, Any]) -> bool:
    """Return whether a row says where its answers are."""
    key = id_text(row.get("key"), numbers=True)
    known = row.get(_LANGUAGE) in GEDIT_LANGUAGES and row.get(_TYPE) in GEDIT_GROUPS
    return known and is_id(key) and names_file(key)


def _file(row: Mapping[str, Any]) -> str:
    key = id_text(row["key"], numbers=True)
    return f"fullset/{row[_TYPE]}/{row[_LANGUAGE]}/{key}.png"


def _group(row: Any) -> RowGroup:
    if not isinstance(row, Mapping):
        return RowGroup(None)
    id = _key(row) if _has_file(row) else None
    return RowGroup(id, text_of(row, _TYPE), text_of(row, _LANGUAGE))


def _query(row: Row, files: ImageFolder, kept: ImageCache) -> Query:
    key = row.id("key", numbers=True)
    if not names_file(key):
        raise RowError(Rule.ID, f"a key names files here, unlike {brief(key)}")
    kind = _choice(row, _TYPE, GEDIT_GROUPS)
    language = _choice(row, _LANGUAGE, GEDIT_LANGUAGES)
    instruction = row.nonblank_text("instruction")
    shown = [*images_of(row.get(_IMAGE, object), files, kept, _IMAGE)]
    if len(shown) != 1:
        raise RowError(Rule.WRONG_TYPE, f"{_IMAGE} must be one image, not {len(shown)}")
    # One that is null counts in the released program, for pandas reads it as NaN.
    stated = row.values.get(_INTERSECTION)
    if stated is not None and not isinstance(stated, bool):
        detail = f"{_INTERSECTION} must be true or false, not {brief(stated)}"
        raise RowError(Rule.WRONG_TYPE, detail)
    return Query(
        id=f"{language}-{key}",
        category=kind,
        field=f"{language}{GEDIT_INTERSECTION}" if stated is not False else language,
        turns=(Turn("user", (*shown, Text(instruction))),),
    )


def _choice(row: Row, key: str, valid: Iterable[str]) -> str:
    value = row.text(key)
    if value not in valid:
        named = ", ".join(valid)
        raise RowError(Rule.CATEGORY, f"{key} is {brief(value)}; valid are {named}")
    return value
