"""MLLM-Bench's answer files: anchor.json and data/<model>.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tasks.mmie.reader import load_rows
from benchmarks.tasks.mmie.rows import get, of_type
from benchmarks.tasks.reading.rules import RowError, Rule, TaskError, shown
from generators.document import Document, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the answer files of a folder hold."""

    paths: tuple[Path, ...]
    by_writer: Mapping[str, Mapping[str, Document]]
    unread: Mapping[str, str]
    """Files that are no answer files, and why."""

    def of(self, id: str) -> dict[str, Document]:
        """All answers to one question, by writer."""
        return {w: by_id[id] for w, by_id in self.by_writer.items() if id in by_id}


def answer_files(folder: Path, besides: str) -> Answers:
    """The answers in the JSON files of `folder`, but for the file `besides`."""
    paths, answers, unread = [], dict[str, dict[str, Document]](), dict[str, str]()
    for path in sorted(folder.glob("*.json")):
        if path.name == besides:
            continue
        try:
            rows = [_answer(row) for row in load_rows(path)[0]]
        except (TaskError, RowError) as error:
            unread[path.name] = str(error)
            continue
        paths.append(path)
        for writer, id, document in rows:
            answers.setdefault(writer, {})[id] = document
    return Answers(paths=tuple(paths), by_writer=answers, unread=unread)


def _answer(value: Any) -> tuple[str, str, Document]:
    row = of_type(value, dict, "the answer")
    id = id_text(row.get("unique_idx"))
    if id is None:
        raise RowError(Rule.ID, f"unique_idx is {shown(row.get('unique_idx'))}")
    writer = get(row, "gen_model_id", str, "the answer")
    answer = get(row, "answer", str, "the answer")
    return writer, id, Document((Text(answer),) if answer else ())


def id_text(value: Any) -> str | None:
    """An id as text; None for what is none."""
    number = isinstance(value, int) and not isinstance(value, bool)
    word = isinstance(value, str) and value.strip() != "" and value.isprintable()
    return str(value) if number or word else None
