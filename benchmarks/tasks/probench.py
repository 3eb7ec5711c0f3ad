"""ProBench as a task set: experts' requests on three tracks, in Parquet files.

Rows are read as gen_answer_vllm.py and show_result.py of Yan98/ProBench_eval@c17b7ae read
them. The first turn's text comes before the images. In a conversation of several turns a
system answers each turn after its own earlier answers; the published answers are those of
the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.published import (
    UNKNOWN,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    ValidRow,
    task_set,
    text_of,
)
from plait.benchmarks.tasks.reading.images import ImageCache, ImageFolder, images_of
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, brief
from plait.benchmarks.tasks.reading.sources import locate, parquet_files, parquet_rows
from plait.generators.document import Content, Document, Image, Query, Text, Turn
from plait.scorers.pairwise.probench import TRACK, TRACKS

NAME = "probench"
WRITER = "gpt-4o-2024-05-13"
"""Who wrote the `gpt` turns: the baseline of show_result.py."""
_MARK = "<|img|>"


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: a Parquet file, a folder of them, or `hf:ORG/NAME@REV`.

    Images are unpacked once, under `cache`. Raises TaskError where there are no
    readable Parquet files.
    """
    found = locate(place, ("*.parquet", "**/*.parquet"))
    paths = parquet_files(found.path, "train")
    images = ImageFolder(found.folder, cache, found.also)
    kept = ImageCache(cache / NAME)

    def make(value: Any) -> ValidRow:
        return _valid(Row.of(value), images, kept)

    return task_set(
        NAME, TaskData(place, found, paths), RowReader(parquet_rows(paths), make, _group)
    )


def _group(row: Any) -> RowGroup:
    own = RowGroup.of(row, "uuid", "chat_type")
    field = text_of(row.get("category"), "question_category")
    return RowGroup(own.id, own.category if own.category in TRACKS else UNKNOWN, field)


def _valid(row: Row, files: ImageFolder, kept: ImageCache) -> ValidRow:
    images = tuple(images_of(row.values.get("image"), files, kept))
    turns = _turns(row, images)
    # All turns up to the last of the user's are asked.
    asked = 0
    for number, turn in enumerate(turns, 1):
        if turn.role == "user":
            asked = number
    if not asked:
        raise RowError(Rule.NO_QUESTION, "the conversation has no human turn")
    track = row.text("chat_type")
    if track not in TRACKS:
        valid = ", ".join(TRACKS)
        raise RowError(Rule.CATEGORY, f"chat_type is {brief(track)}; valid are {valid}")
    about = {
        **_texts(row.values.get("category")),
        **_texts(row.values.get("challenge")),
        **_texts({TRACK: track, "language": row.values.get("language")}),
    }
    query = Query(
        id=row.id("uuid"),
        category=track,
        field=about.get("question_category", ""),
        turns=tuple(turns[:asked]),
        wants_images=False,
        metadata=about,
    )
    answer = _answers(turns)
    return ValidRow(query, {} if answer is None else {WRITER: answer})


def _answers(turns: Sequence[Turn]) -> Document | None:
    """Return what follows every human turn; None where one has no answer."""
    answers: list[Content] = []
    for before, after in pairwise(turns):
        if before.role == "user" and after.role == "assistant":
            answers.append(after.content)
    asked = sum(turn.role == "user" for turn in turns)
    return Document.of(answers) if len(answers) == asked else None


def _texts(values: Any) -> dict[str, str]:
    if not isinstance(values, Mapping):
        return {}
    texts: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, str) and value:
            texts[name] = value
    return texts


def _turns(row: Row, images: tuple[Image, ...]) -> list[Turn]:
    """Return the conversation; the images belong to its first human turn."""
    turns: list[Turn] = []
    for turn in row.rows("conversations"):
        speaker = turn.text("from")
        text = turn.text("value")
        if speaker == "human":
            turns.append(Turn("user", _question(text, () if turns else images, turn.where)))
        elif speaker == "gpt":
            turns.append(Turn("assistant", (Text(text),)))
        else:
            detail = f"{turn.path('from')} is {brief(speaker)}; valid are human, gpt"
            raise RowError(Rule.SPEAKER, detail)
    return turns


def _question(text: str, images: tuple[Image, ...], where: str) -> Content:
    text = text.replace(_MARK, "").strip()
    if not text and not images:
        raise RowError(Rule.EMPTY, f"{where} has neither text nor image")
    return (Text(text), *images) if text else images
