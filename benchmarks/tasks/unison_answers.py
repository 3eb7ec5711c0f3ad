"""Answers to Unison's sessions, in the tables that its own program writes.

Read are the files `result/MODEL/TASK/TASK_MODEL_results.csv` of Inference_Pipeline/infer.py
in FudanCVL/Unison@407b7b5, in the folder `Inference_Pipeline` of a checkout or beside the
data. A row is the answer to one turn: a text, or the path of an image from the folder that
holds `result`. Systems have the names of the folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from plait.benchmarks.tasks.edited import model_folders
from plait.benchmarks.tasks.published import Answer
from plait.benchmarks.tasks.reading.images import ImageFolder
from plait.benchmarks.tasks.reading.rules import RowError, TaskError, brief
from plait.benchmarks.tasks.reading.sources import load_table
from plait.generators.base import Failure, Fault
from plait.generators.document import Content, Document, Text
from plait.scorers.judging.unison import GGU, IC, ME, ROUNDS, UGG

RESULT = "result"
_PLACES = ("Inference_Pipeline", "")
"""Where the folder of results is, from the checkout or the data set."""
_NAMES = {IC: "IC", UGG: "UGG", GGU: "GGU", ME: "ME"}
"""Of the tasks, in the names of files."""
_COLUMNS = (
    *("dialogue_index", "model_response", "status", "operation_type", "operation_index"),
    *("round_number", "question_id"),
)
_DONE = "success"
_SUFFIX = r"\.(?:png|jpg|jpeg|webp|bmp|gif)"
_PATH = re.compile(rf"[^\s\"']+{_SUFFIX}", re.IGNORECASE)
_PATH_END = re.compile(rf"{_SUFFIX}$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Session:
    """A query as the tables name it."""

    task: str
    index: int
    """Among the rows of its task, from 0."""
    id: str
    """Of the query."""
    questions: Sequence[str] = ()
    """Their numbers, in their order: of the first task."""

    @property
    def images(self) -> Sequence[bool]:
        """Of each turn, whether an image answers it."""
        if self.task == IC:
            return [*[False] * len(self.questions), True]
        if self.task == ME:
            return [*[True, False] * (ROUNDS // 2), *[False, True] * (ROUNDS // 2)]
        return {UGG: (False, True, True), GGU: (False, True, False)}[self.task]

    @property
    def needed(self) -> Sequence[int]:
        """Turns that are always asked; talks end where nothing is left to do."""
        return (0, ROUNDS) if self.task == ME else range(len(self.images))

    def turn_of(self, row: Mapping[str, str]) -> int:
        """Return which turn a row answers, from 0; ValueError for none."""
        if self.task == IC:
            if row["operation_type"] == "generation":
                return len(self.questions)
            return self.questions.index(row["question_id"].strip())
        operation = _whole(row["operation_index"])
        if self.task == ME:
            number = _whole(row["round_number"] or "1")
            if not 1 <= number <= ROUNDS:
                raise ValueError(number)
            return operation * ROUNDS + number - 1
        return operation


class ReadAnswers(NamedTuple):
    """What lies beside the data."""

    answers: Mapping[str, Mapping[str, Answer]]
    """By system and query."""
    files: Sequence[Path]


def read_answers(place: Path, sessions: Iterable[Session], cache: Path) -> ReadAnswers:
    """Return the answers of every model whose results are found at `place`.

    An answer that lacks a turn, or of which a turn failed, is a failure that says so.
    TaskError for a table that cannot be read.
    """
    bases = [place / own for own in _PLACES]
    base = next((base for base in bases if (base / RESULT).is_dir()), None)
    if base is None:
        return ReadAnswers({}, ())
    images = ImageFolder(base, cache)
    known = {(session.task, session.index): session for session in sessions}
    answers: dict[str, dict[str, Answer]] = {}
    files: list[Path] = []
    for model in model_folders(base / RESULT):
        for task, name in _NAMES.items():
            file = model / name / f"{name}_{model.name}_results.csv"
            if not file.is_file():
                continue
            files.append(file)
            own = answers.setdefault(model.name, {})
            own.update(_answers_in(file, task, known, images))
    return ReadAnswers(answers, files)


def _whole(text: str) -> int:
    """Return a number of a table, which pandas may have written as `1.0`."""
    return int(float(text))


def _answers_in(
    file: Path,
    task: str,
    known: Mapping[tuple[str, int], Session],
    images: ImageFolder,
) -> Iterator[tuple[str, Answer]]:
    rows: dict[Session, list[Mapping[str, str]]] = {}
    for row in load_table(file, _COLUMNS):
        try:
            index = _whole(row["dialogue_index"])
        except ValueError:
            told = brief(row["dialogue_index"])
            raise TaskError(f"{file}: dialogue_index is {told}, not a number") from None
        if session := known.get((task, index)):
            rows.setdefault(session, []).append(row)
    paths: list[str] = []
    for own in rows.values():
        for answered in own:
            path = path_in(answered["model_response"], images.root)
            if path:
                paths.append(path)
    images.check_all(paths)
    for session, own in rows.items():
        try:
            yield session.id, _answer(session, own, images)
        except RowError as error:
            reason = f"{file.name}: dialogue {session.index}: {error}"
            yield session.id, Failure(reason, Fault.BAD_INPUT)


def _answer(
    session: Session, rows: Sequence[Mapping[str, str]], images: ImageFolder
) -> Answer:
    """Return the answer in the rows of a session; RowError for an image that is none."""
    told: dict[int, str] = {}
    for row in rows:
        try:
            turn = session.turn_of(row)
            wants_image = session.images[turn]
        except (ValueError, IndexError):
            about = {name: row[name] for name in _COLUMNS[3:]}
            reason = f"dialogue {session.index}: no turn is {brief(about)}"
            return Failure(reason, Fault.BAD_INPUT)
        if row["status"] != _DONE:
            reason = f"dialogue {session.index}, turn {turn + 1}: {row['status']}"
            return Failure(reason, Fault.BAD_INPUT)
        response = row["model_response"]
        if told.setdefault(turn, response) != response:
            reason = f"dialogue {session.index} has two answers to turn {turn + 1}"
            return Failure(reason, Fault.BAD_INPUT)
    if lacking := [turn for turn in session.needed if turn not in told]:
        named = ", ".join(str(turn + 1) for turn in lacking)
        reason = f"dialogue {session.index} has no answer to turn {named}"
        return Failure(reason, Fault.BAD_INPUT)
    contents: list[Content] = []
    for turn, wants_image in enumerate(session.images):
        response = told.get(turn, "")
        path = path_in(response, images.root) if wants_image else ""
        if path:
            contents.append((images.image(path),))
        else:
            contents.append((Text(response),) if response.strip() else ())
    return Document.of(contents)


def path_in(response: str, root: Path) -> str:
    """Return the path of an image that a response is or holds, from `root`; else nothing.

    As `parse_image_path` of the program's common/normalize.py finds it.
    """
    text = response.strip()
    named = _PATH.search(text)
    path = text if _PATH_END.search(text) else named[0] if named else ""
    inside = Path(path)
    return str(inside.relative_to(root)) if inside.is_relative_to(root) else path
