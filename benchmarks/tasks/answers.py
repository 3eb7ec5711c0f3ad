"""Answers that were made elsewhere, in any format that can be told by its files.

    [NAME=][FORMAT:]PLACE

is a folder or file of answers to the queries of a task set, which are found by their ids.
They are one system, called NAME or as the place is; where a place holds several, each is
NAME/ITS-OWN. A format is one entry of `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from plait.benchmarks.tasks import own_answers
from plait.benchmarks.tasks.own_data import FoundRows
from plait.benchmarks.tasks.published import (
    Answer,
    RowPlace,
    TaskSet,
    broken_rows,
    failure_of_lost_answers,
)
from plait.benchmarks.tasks.reading.columns import AS_NAMED, AmbiguousColumns, DataReading
from plait.benchmarks.tasks.reading.files import SUFFIXES
from plait.benchmarks.tasks.reading.images import default_folder
from plait.benchmarks.tasks.reading.rules import TaskError, brief
from plait.benchmarks.tasks.reading.sources import load_any_rows
from plait.benchmarks.wording import quantity
from plait.generators.base import Failure, import_target
from plait.generators.buckets import AnyPath, any_path
from plait.generators.document import Document
from plait.generators.errors import MissingInput, UsageError
from plait.generators.given import GivenAnswers
from plait.generators.keys import digest

_MOST_NAMED = 3
_UEVAL_KEYS = (
    "text_answer",
    "image_answer",
    "gemini_text_ans",
    "gemini_image_ans",
    "emu_text",
    "emu_image",
)
"""Fields of an answer, as UEval's program and its generators write them."""


class AnswerFormat(NamedTuple):
    """How a format is told, and how it is read."""

    title: str
    files: str
    """Pattern of its files in a folder."""
    keys: tuple[tuple[str, ...], ...]
    """A row of it has all keys of one of these."""
    read: str
    """`module:function` of (rows by file, cache): by system, its answers by query id."""
    asks: tuple[str, ...] = ()
    """Keys of rows that hold their questions too, for a format that may do so."""
    data: str = ""
    """Prefix under which `--data` then reads these as queries."""

    def has(self, row: Any) -> bool:
        """Return whether `row` has the keys of the format."""
        return isinstance(row, dict) and any(row.keys() >= {*keys} for keys in self.keys)

    def __str__(self) -> str:
        keys = " or ".join("+".join(keys) for keys in self.keys)
        return f"{self.title}: {self.files} whose rows have {keys}"


FORMATS: Mapping[str, AnswerFormat] = {
    "mmie": AnswerFormat(
        "in the layout of MMIE's scorer",
        "data.json",
        (("id", "answer", "model"),),
        "plait.benchmarks.tasks.mmie.official:read_answers",
        asks=("question", "gt_answer"),
        data="official:",
    ),
    "isg": AnswerFormat(
        "in the layout of ISG-Bench's program",
        "*.jsonl",
        (("id", "output"),),
        "plait.benchmarks.tasks.isg:read_answers",
    ),
    "opening": AnswerFormat(
        "in the layout of OpenING's programs, a file for each query",
        "*.json*",
        (("meta_task_name", "subtask_name", "conversations"),),
        "plait.benchmarks.tasks.opening:read_answers",
    ),
    "run": AnswerFormat(
        "a run directory",
        "manifest.json",
        (("plait", "config"),),
        "plait.benchmarks.runs.run_data:read_answers",
    ),
    "ueval": AnswerFormat(
        "in the layout of UEval's program",
        "*.json",
        tuple(("id", name) for name in _UEVAL_KEYS),
        "plait.benchmarks.tasks.ueval:read_answers",
    ),
    own_answers.NAME: AnswerFormat(
        "in no benchmark's layout",
        ", ".join(f"*{suffix}" for suffix in SUFFIXES),
        (("id", "answer"), ("id", "text"), ("id", "messages")),
        "plait.benchmarks.tasks.own_answers:read_answers",
    ),
}
"""By the name that a place may begin with. The last is taken where no other fits."""
_OWN = tuple(name for name in FORMATS if name != own_answers.NAME)


class AnswerPlace(NamedTuple):
    """A folder or file of answers."""

    path: AnyPath
    format: str | None = None
    """None where it is still to be told."""

    @classmethod
    def of(cls, text: str) -> AnswerPlace:
        """Return `[FORMAT:]PLACE`, absolute. A path that exists is never a prefix."""
        format, colon, rest = text.partition(":")
        known = colon and format in FORMATS and not Path(text).expanduser().exists()
        path = any_path(rest if known else text).expanduser().resolve()
        return cls(path, format if known else None)

    def __str__(self) -> str:
        return f"{self.format}:{self.path}" if self.format else str(self.path)


class FoundAnswers(NamedTuple):
    """A place whose format is known."""

    name: str
    format: AnswerFormat
    files: Mapping[AnyPath, list[Any]]
    """The rows of each of its files."""
    evidence: str
    rows: FoundRows | None = None
    """In place of files, of a place that is read by columns."""

    def read(self, cache: Path, reading: DataReading) -> Mapping[str, Mapping[str, Answer]]:
        """Return, by system, its answers by query id."""
        if self.rows is not None:
            return own_answers.read_answers(self.rows, cache, reading)
        read: Callable[..., Mapping[str, Mapping[str, Answer]]] = import_target(
            self.format.read
        )
        return read(self.files, cache)

    @property
    def asks(self) -> bool:
        """Whether it holds questions too."""
        keys = {*self.format.asks}
        if not keys:
            return False
        for rows in self.files.values():
            for row in rows:
                if isinstance(row, dict) and row.keys() >= keys:
                    return True
        return False


def find_format(place: AnswerPlace, reading: DataReading = AS_NAMED) -> FoundAnswers:
    """Return which format the place is in; UsageError where none or several match.

    A place that is in none is read by columns, as `reading` says. MissingInput where there
    is no such place.
    """
    if not (place.path.exists() or place.path.is_dir()):
        raise MissingInput(f"no answers at {place.path}: there is no such folder or file")
    if place.format == own_answers.NAME:
        return _by_columns(place, reading)
    asked = [place.format] if place.format else list(_OWN)
    if not isinstance(place.path, Path):
        asked = ["run"]  # the images of all others are read as files
    rows: dict[AnyPath, list[Any] | TaskError] = {}
    matches = list[FoundAnswers]()
    for name in asked:
        found = _match(place.path, name, rows)
        if found is not None:
            matches.append(found)
    if len(matches) == 1:
        return matches[0]
    if matches:
        lines = [f"{place.path} may be of several formats:"]
        for match in matches:
            lines.append(f"  {match.name}: {match.format.title} ({match.evidence})")
        valid = " or ".join(f"{match.name}:{place.path}" for match in matches)
        raise UsageError("\n".join([*lines, f"Name it: {valid}"]))
    by_columns = ""
    if not place.format and isinstance(place.path, Path):
        try:
            return _by_columns(place, reading)
        except AmbiguousColumns:
            raise
        except TaskError as error:
            by_columns = f"\nBy columns: {error}"
    read = "; ".join(_describe(file, own) for file, own in rows.items())
    valid = "".join(f"\n  {name}: {FORMATS[name]}" for name in asked)
    raise UsageError(
        f"{place.path} is not in {'this' if place.format else 'any known'} format "
        f"({read or 'it holds no such file'}).{by_columns}\nValid:{valid}"
    )


def _by_columns(place: AnswerPlace, reading: DataReading) -> FoundAnswers:
    """Return answers that are read by columns; TaskError where they cannot be."""
    rows = own_answers.find_answers(str(place.path), reading)
    form = FORMATS[own_answers.NAME]
    return FoundAnswers(own_answers.NAME, form, {}, str(rows), rows)


def _match(
    place: AnyPath, name: str, rows: dict[AnyPath, list[Any] | TaskError]
) -> FoundAnswers | None:
    """Return the files at `place` in the format `name`; None where there are none.

    Raises TaskError for a file beside them that cannot be read, since it may be one.
    """
    format = FORMATS[name]
    files: list[AnyPath] = [place]
    if not place.is_file():
        files = sorted(place.glob(format.files), key=str)
    own: dict[AnyPath, list[Any]] = {}
    left: list[str] = []
    wrong: list[TaskError] = []
    for file in files:
        if file not in rows:
            rows[file] = _rows_or_error(file)
        match rows[file]:
            case TaskError() as unreadable:
                wrong.append(unreadable)
            case list() as those if any(map(format.has, those)):
                own[file] = those
            case _:
                left.append(file.name)
    if not own:
        return None
    if wrong:
        raise wrong[0]
    evidence = _evidence(format, own)
    if left:
        evidence += f"; not read: {', '.join(left)}"
    return FoundAnswers(name, format, own, evidence)


def _rows_or_error(file: AnyPath) -> list[Any] | TaskError:
    try:
        return load_any_rows(file)
    except TaskError as error:
        return error


def _evidence(format: AnswerFormat, files: Mapping[AnyPath, list[Any]]) -> str:
    """Return what tells the format: of the first file, its rows and their keys."""
    first, rows = next(iter(files.items()))
    fit = [row for row in rows if format.has(row)]
    keys = []
    for some in format.keys:
        if any(row.keys() >= {*some} for row in fit):
            keys.append(", ".join(some))
    every = f"{len(fit):,} of {len(rows):,} rows of " if len(rows) > 1 else ""
    others = f" and {quantity(len(files) - 1, 'file')} more" if len(files) > 1 else ""
    return f"{every}{first.name}{others} with {' or '.join(keys)}"


def _describe(file: AnyPath, rows: list[Any] | TaskError) -> str:
    """Return what a file holds, for people; an error names the file itself."""
    if isinstance(rows, TaskError):
        return str(rows)
    if not rows:
        return f"{file.name}: no rows"
    first = rows[0]
    keys = f"has {', '.join(first)}" if isinstance(first, dict) else f"is {brief(first)}"
    return f"{file.name}: {quantity(len(rows), 'row')}, the first {keys}"


# ------------------------------------------------------------------------------- names


def places_by_name(texts: Iterable[str]) -> dict[str, AnswerPlace]:
    """Return places by name, from `[NAME=][FORMAT:]PLACE`; UsageError for a name twice."""
    places: dict[str, AnswerPlace] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        # A name holds no mark of a path or format, and a path may hold a `=`.
        is_named = name and equals and not {*"/:"} & {*name} and not Path(text).exists()
        place = AnswerPlace.of(rest if is_named else text)
        if is_named:
            label = name
        else:
            label = place.path.stem if place.path.is_file() else place.path.name
        if label in places:
            raise UsageError(
                f"{places[label].path} and {place.path} would both be called {label!r}; "
                f"name one, as in NAME={place.path}"
            )
        places[label] = place
    return places


# ----------------------------------------------------------------------------- systems


def systems_of_answers(
    task: TaskSet,
    places: Mapping[str, str],
    cache: Path | None = None,
    reading: DataReading = AS_NAMED,
) -> tuple[TaskSet, tuple[GivenAnswers, ...]]:
    """Return the systems whose answers to `task` lie at `places`, by name.

    The task set's `about` tells of each what was found: its format and the evidence, a
    digest of the answers, and which answers and queries have no counterpart.
    """
    systems: list[GivenAnswers] = []
    told: dict[str, Any] = {}
    ids = dict.fromkeys(sample.id for sample in task.samples)
    for label, text in places.items():
        place = AnswerPlace.of(text)
        here = find_format(place, reading)
        answers = here.read(cache or default_folder(), reading)
        counts: dict[str, Any] = {}
        contents = {}
        for its_own, by_id in answers.items():
            name = label if len(answers) == 1 else f"{label}/{its_own}"
            contents[its_own] = _content(by_id)
            # A row whose query cannot be told may be the answer to any that has none.
            lost = failure_of_lost_answers(by_id, place.path.name)
            given = {**dict.fromkeys(ids, lost), **by_id} if lost else by_id
            systems.append(GivenAnswers(name=name, answers=given))
            counts[name] = _count(given, ids)
        told[label] = {
            "place": text,
            "format": here.name,
            "evidence": here.evidence,
            "digest": digest(contents),
            "systems": counts,
        }
    return replace(task, about={**task.about, "answers": told}), tuple(systems)


def _content(answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Return by id what answers say, for a digest: segments, or why there are none."""
    contents: dict[str, Any] = {}
    for id, answer in sorted(answers.items()):
        if isinstance(answer, Document):
            contents[id] = answer.segments
        else:
            contents[id] = answer.reason
    return contents


def answers_digest(answers: Mapping[str, Answer], ids: Iterable[str]) -> str:
    """Return the digest of the answers to the queries `ids`, in whatever order."""
    return digest(_content({id: answers[id] for id in ids if id in answers}))


def find_changes(then: Mapping[str, Any] | None, now: Mapping[str, Any]) -> Iterator[str]:
    """Name the places whose answers differ between two task sets' `about`."""
    former = (then or {}).get("answers", {})
    for label, about in now.get("answers", {}).items():
        before = former.get(label, {}).get("digest", about["digest"])
        if before != about["digest"]:
            yield (
                f"the answers of {label} at {about['place']} have changed, or contain "
                "two answers to one query (now a failure, unless both are the same)"
            )


def _count(answers: Mapping[str, Answer], ids: Collection[str]) -> dict[str, Any]:
    """Count the answers of a system to the queries `ids`, and name those to none.

    And tell what is wrong with rows that have no id.
    """
    done = 0
    failed = 0
    unknown = []
    for id, answer in answers.items():
        if id in ids:
            done += isinstance(answer, Document)
            failed += isinstance(answer, Failure)
        elif not isinstance(id, RowPlace):
            # A row without an id is told by its place, among the broken ones below.
            reason = f" ({answer.reason})" if isinstance(answer, Failure) else ""
            unknown.append(f"{id}{reason}")
    without = len(ids) - done - failed
    counts = {"answers": done, "failed": failed, "without": without, "unknown": unknown}
    return counts | {"broken": broken_rows(answers)}


def remarks(about: Mapping[str, Any]) -> Iterator[str]:
    """What `systems_of_answers` told of each place and system, for people."""
    for found in about.get("answers", {}).values():
        title = FORMATS[found["format"]].title
        evidence = found["evidence"]
        yield f"{found['place']} is {title}: {evidence}"
        for name, counts in found["systems"].items():
            done = counts["answers"]
            failed = counts["failed"]
            without = counts["without"]
            yield (
                f"  {name}: {quantity(done, 'answer')}, {failed:,} failed; "
                f"{without:,} of the data's "
                f"{done + failed + without:,} queries without one"
            )
            # Runs of earlier versions did not record broken rows.
            broken = counts.get("broken", [])
            yield from _first_ids("not to a query of the data", counts["unknown"])
            yield from _first_ids("in broken rows without an id", broken)


def _first_ids(what: str, told: Sequence[str]) -> Iterator[str]:
    """Yield a line with the first of these; none where there are none."""
    if told:
        more = ", ..." if len(told) > _MOST_NAMED else ""
        yield f"    {len(told):,} {what}: {', '.join(told[:_MOST_NAMED])}{more}"
