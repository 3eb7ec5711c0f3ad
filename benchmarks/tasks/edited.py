"""Answers to requests for an edit: one image each, in a file named by the query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from plait.benchmarks.tasks.published import Answer
from plait.benchmarks.tasks.reading.images import ImageFolder
from plait.benchmarks.tasks.reading.rules import RowError
from plait.generators.base import Failure, Fault
from plait.generators.document import Document


def model_folders(folder: Path) -> list[Path]:
    """Return the folders of models, in the order of their names."""
    return sorted(path for path in folder.glob("*") if path.is_dir())


def read_edited(
    model: Path, files: Mapping[str, str], cache: Path, also: Iterable[Path] = ()
) -> dict[str, Answer]:
    """Return the answers in a model's folder, by query.

    `files` are their paths in it, by query. What is not there is no answer; what cannot be
    read is a failure.
    """
    there: dict[str, str] = {}
    for id, path in files.items():
        if (model / path).is_file():
            there[id] = path
    images = ImageFolder(model, cache, tuple(also))
    images.check_all(there.values())
    answers: dict[str, Answer] = {}
    for id, path in there.items():
        try:
            answers[id] = Document((images.image(path),))
        except RowError as error:
            answers[id] = Failure(f"{model.name}/{path}: {error}", Fault.BAD_INPUT)
    return answers


def names_file(id: str) -> bool:
    """Return whether an id is a plain name, which leads to no other folder."""
    return id == Path(id).name
