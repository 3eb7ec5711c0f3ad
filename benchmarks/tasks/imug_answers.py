"""Answers to IMUG-Bench's sessions, in the folders that its own program scores.

Read are `MODEL/DOMAIN/SUBDOMAIN/question_ID/` with the texts of `result.json` and the
images `turn_N_output.png`, or those that it names, in `outputs/model_outputs/` of a
checkout of ccccEsion/IMUG-Bench@63de63a or of the data set. Systems have the names of the
folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from plait.benchmarks.tasks.edited import model_folders, names_file
from plait.benchmarks.tasks.published import Answer
from plait.benchmarks.tasks.reading.images import ImageFolder
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, TaskError, of_type
from plait.benchmarks.tasks.reading.sources import load_json
from plait.generators.base import Failure, Fault
from plait.generators.document import Content, Document, Text

OUTPUTS = "outputs/model_outputs"
_RESULT = "result.json"
_SUFFIXES = (".png", ".jpg", ".jpeg")
"""Of the images that a result may name."""


class Session(NamedTuple):
    """A query as the folders name it."""

    id: str
    """Of the query."""
    names: tuple[str, str, str]
    """Domain, subdomain and number."""
    turns: tuple[tuple[int, bool], ...]
    """The number of each turn, and whether an image answers it."""

    @property
    def folder(self) -> Path:
        """Where a model's answer lies, from the model's folder."""
        domain, subdomain, number = self.names
        return Path(domain, subdomain, f"question_{number}")


class ReadAnswers(NamedTuple):
    """What lies beside the data."""

    answers: Mapping[str, Mapping[str, Answer]]
    """By system and query."""
    files: Sequence[Path]
    """Those that were read, without images."""


@dataclass(frozen=True)
class _Given:
    """What a model's folder holds for a session."""

    session: Session
    texts: Mapping[int, Any]
    """By turn what `result.json` says."""
    images: Mapping[int, str]
    """By turn the path of the image, from the model's folder."""


def read_answers(
    place: Path, sessions: Iterable[Session], cache: Path, also: tuple[Path, ...] = ()
) -> ReadAnswers:
    """Return the answers of every model whose outputs are found at `place`.

    A turn that a result leaves out is an empty answer, as the program takes it. A session
    without a folder has no answer; one whose result or image cannot be read is a failure.
    """
    known = [session for session in sessions if all(map(names_file, session.names))]
    answers: dict[str, dict[str, Answer]] = {}
    files: list[Path] = []
    for model in model_folders(place / OUTPUTS):
        images = ImageFolder(model, cache, also)
        own: dict[str, Answer] = {}
        given: list[_Given] = []
        for session in known:
            if not (model / session.folder).is_dir():
                continue
            result = model / session.folder / _RESULT
            if result.is_file():
                files.append(result)
            try:
                given.append(_find_answer(model, session))
            except (RowError, TaskError) as error:
                own[session.id] = _failure(model, session, error)
        paths: list[str] = []
        for one in given:
            paths += one.images.values()
        images.check_all(paths)
        for one in given:
            try:
                own[one.session.id] = _answer(one, images)
            except RowError as error:
                own[one.session.id] = _failure(model, one.session, error)
        if own:
            answers[model.name] = own
    return ReadAnswers(answers, files)


def _failure(model: Path, session: Session, error: Exception) -> Failure:
    return Failure(f"{model.name}/{session.folder.as_posix()}: {error}", Fault.BAD_INPUT)


def _find_answer(model: Path, session: Session) -> _Given:
    """Return what a model's folder holds of each turn of a session; RowError, TaskError."""
    folder = model / session.folder
    texts: dict[int, Any] = {}
    if (folder / _RESULT).is_file():
        texts = dict(_responses(folder / _RESULT))
    images: dict[int, str] = {}
    for turn, wants_image in session.turns:
        named = texts.get(turn)
        names = [f"turn_{turn}_output.png"]
        if isinstance(named, str) and named.lower().endswith(_SUFFIXES):
            names.append(named)
        for name in names if wants_image else ():
            if (folder / name).is_file():
                images.setdefault(turn, (session.folder / name).as_posix())
    return _Given(session, texts, images)


def _responses(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield the turns of a result, with what is said in each; RowError and TaskError."""
    result = Row(load_json(file, dict, "an object with tasks")[0])
    for task in result.rows("tasks"):
        yield task.get("turn", int), task.values.get("model_response", "")


def _answer(given: _Given, images: ImageFolder) -> Document:
    contents: list[Content] = []
    for turn, wants_image in given.session.turns:
        if wants_image:
            path = given.images.get(turn)
            contents.append((images.image(path),) if path else ())
            continue
        said = of_type(given.texts.get(turn, ""), str, f"the answer to turn {turn}")
        contents.append((Text(said),) if said.strip() else ())
    if not any(contents):
        raise RowError(Rule.EMPTY, "no turn is answered")
    return Document.of(contents)
