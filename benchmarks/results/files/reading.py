"""Reading `results/` of a run: its tables, and the values that they hold.

    results = RunResults.at(root)
    results.board                       # what leaderboards, pages and studies are made of
    results.table("scores")             # a pyarrow.Table
    results.evaluations({"SA-1"})       # answers and scores as values

Nothing else of the run is read but the records that images and notes of answers are in.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.results.board import Board
from benchmarks.results.files.about import (
    RecordedScorer,
    RunAbout,
    scorer_of,
    stage_of,
    system_of,
)
from benchmarks.results.files.schema import ABOUT, FOLDER, TABLES, VERSION
from benchmarks.results.files.writing import io_of, parts_of
from cluster.plan import Evaluation
from cluster.records import RecordRow
from cluster.store import Store
from generators.base import (
    Failure,
    Fault,
    Kind,
    NotApplicable,
    Outcome,
    OutcomeName,
    Result,
    Skip,
    StageSpec,
    Unread,
    Unscored,
)
from generators.buckets import AnyPath
from generators.document import (
    Content,
    Document,
    Image,
    Malformed,
    Sample,
    Score,
    Text,
    Turn,
)
from generators.errors import UsageError
from generators.system import TRIES, System, Variant

Row = Mapping[str, Any]


class ResultsError(UsageError):
    """Results that cannot be read; names the file and what to do."""

    is_newer = False
    """Whether a later version of plait wrote them."""


class NewerResults(ResultsError):
    """Results with a later schema than this version of plait reads."""

    is_newer = True


class NoResults(ResultsError):
    """A run whose results were not written yet."""


class PackedStore(Store):
    """What a pack holds of the records of stages: all but images and tensors."""

    def __init__(self, root: AnyPath, files: Mapping[str, list[AnyPath]]) -> None:
        """`files` are those of the table `replies`, by the folder of a stage."""
        super().__init__(root)
        self._files = files

    def parts(self, spec: StageSpec) -> list[AnyPath]:
        """Return the files with the records of `spec`."""
        return self._files.get(spec.folder, [])


@dataclass(frozen=True, eq=False, repr=False)
class RunResults:
    """The results of a run, read from its files when they are asked for."""

    root: AnyPath
    """The run's folder."""
    folder: AnyPath
    """The folder of the tables."""
    about: RunAbout
    tables: Mapping[str, Sequence[Row]]
    """By table its files, each with its `file` and number of `rows`."""
    records: Mapping[str, Sequence[str]]
    """By stage, the parts of the run when its results were written."""
    images: Mapping[str, str] = field(default_factory=dict)
    """By digest, where images are that the results hold no copy of."""
    keeps: object = None
    """What must be there for as long as the results are read: a temporary folder."""

    @classmethod
    def at(
        cls,
        root: AnyPath,
        folder: AnyPath | None = None,
        *,
        images: Mapping[str, str] = MappingProxyType({}),
        keeps: object = None,
    ) -> RunResults:
        """Return the results of the run in `root`; ResultsError where they are not right.

        They are in its folder `results`, unless another is given.
        """
        folder = root / FOLDER if folder is None else folder
        path = folder / ABOUT
        try:
            content = json.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            raise NoResults(
                f"{root} holds no results: it has no {FOLDER}/{ABOUT}"
            ) from None
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from None
        version = content.get("schema") if isinstance(content, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise NewerResults(
                f"{path} has schema {version}, and this version of plait reads up to "
                f"{VERSION}: read it with a later version of plait"
            )
        try:
            known = {f.name: content[f.name] for f in fields(RunAbout)}
            about = RunAbout(**known)
            tables, records = content["tables"], content["records"]
        except (LookupError, TypeError) as error:
            raise _damaged(path, error) from None
        return cls(root, folder, about, tables, records, images, keeps)

    @property
    def is_current(self) -> bool:
        """Whether the run has no records that its results were not made of."""
        now = parts_of(self.root)
        return all({*own} <= {*self.records.get(name, ())} for name, own in now.items())

    @property
    def page_queries(self) -> Any:
        """How many queries the page shows by the run's config: a number, "all", or None."""
        return self.about.config.get("report", {}).get("queries")

    def damage(self, *, images: bool = False) -> list[str]:
        """Return the files that are gone or damaged; those of `images` may be large."""
        found = []
        for name, entries in self.tables.items():
            for entry in entries:
                path = self.folder / entry["file"]
                try:
                    sound = path.exists()
                    if sound and (images or name != "images"):
                        sound = _digest(path) == entry["sha256"]
                except OSError:
                    sound = False
                found += [] if sound else [str(path)]
        return found

    # -------------------------------------------------------------------------- tables

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table, or some columns of it; ResultsError where a file is damaged."""
        schema = TABLES[name]
        wanted = (
            schema if columns is None else pa.schema([schema.field(c) for c in columns])
        )
        parts = []
        for entry in self.tables.get(name, ()):
            with self.open_file(entry) as file:
                parts.append(file.read(columns=wanted.names).cast(wanted))
        return pa.concat_tables(parts) if parts else wanted.empty_table()

    def rows(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        among: Mapping[str, Collection[Any]] = MappingProxyType({}),
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table; those whose columns have one of the values in `among`.

        A row group is in memory at a time, and of those without such a row only the
        columns that are compared.
        """
        for entry in self.tables.get(name, ()):
            with self.open_file(entry) as file:
                for group in range(file.metadata.num_row_groups):
                    chosen = self._chosen(file, group, among)
                    if chosen is None or len(chosen):
                        table = file.read_row_group(group, columns=columns)
                        table = table if chosen is None else table.take(chosen)
                        yield from table.to_pylist()

    def _chosen(
        self, file: pq.ParquetFile, group: int, among: Mapping[str, Collection[Any]]
    ) -> pa.Array | None:
        """Return which rows of a row group have the values; None for all of them."""
        if not among:
            return None
        if any(_lacks(file, group, *column) for column in among.items()):
            return pa.array([], pa.int64())
        heads = file.read_row_group(group, columns=[*among])
        mask = np.ones(heads.num_rows, dtype=bool)
        for name, values in among.items():
            column = heads.column(name)
            mask &= pc.is_in(column, pa.array([*values], column.type)).to_numpy()
        return pa.array(np.flatnonzero(mask))

    def groups(self, name: str) -> Iterator[pa.Table]:
        """Yield the row groups of a table, one in memory at a time."""
        for entry in self.tables.get(name, ()):
            with self.open_file(entry) as file:
                for group in range(file.metadata.num_row_groups):
                    yield file.read_row_group(group).cast(TABLES[name])

    @contextmanager
    def open_file(self, entry: Row, names: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
        """Open a file of a table; ResultsError where it is damaged or gone.

        The columns `names` are read as dictionaries.
        """
        path = self.folder / entry["file"]
        try:
            with pq.ParquetFile(
                io_of(path), read_dictionary=[*names], page_checksum_verification=True
            ) as file:
                yield file
        except FileNotFoundError as error:
            raise _damaged(path, error) from None
        except (OSError, pa.ArrowException, LookupError) as error:
            raise _damaged(path, error) from error

    # ------------------------------------------------------------- systems and queries

    @cached_property
    def stages(self) -> dict[str, StageSpec]:
        """The stages by the folders of their records."""
        return {folder: stage_of(facts) for folder, facts in self.about.stages.items()}

    @cached_property
    def systems(self) -> tuple[System, ...]:
        """The systems as they were, in the run's order."""
        return tuple(system_of(facts, self.stages) for facts in self.about.systems)

    @cached_property
    def scorers(self) -> tuple[RecordedScorer, ...]:
        """The scorers as they were, in the run's order."""
        return tuple(scorer_of(facts, self.stages) for facts in self.about.scorers)

    @cached_property
    def store(self) -> Store:
        """The records of the stages, by key; of a pack, what it holds of them."""
        if "replies" not in self.tables:
            return Store(self.root)
        files: dict[str, list[AnyPath]] = defaultdict(list)
        for entry in self.tables["replies"]:
            files[entry["stage"]].append(self.folder / entry["file"])
        return PackedStore(self.root, files)

    @cached_property
    def queries(self) -> dict[str, Sample | Malformed]:
        """The queries by key, in the order of the task set."""
        return {row["query"]: self._query(row) for row in self.rows("queries")}

    @cached_property
    def heads(self) -> dict[str, tuple[str, str]]:
        """Category and field of the queries by key, in the order of the task set."""
        rows = self.rows("queries", ["query", "category", "field"])
        return {row["query"]: (row["category"], row["field"]) for row in rows}

    @cached_property
    def wordings(self) -> dict[str, dict[str, tuple[Turn, ...]]]:
        """How a query is asked where that is not in its own turns: by key and variant."""
        worded = {}
        for row in self.rows("queries", ["query", "wordings"]):
            own = json.loads(row["wordings"] or "{}")
            worded[row["query"]] = {name: self._turns(turns) for name, turns in own.items()}
        return worded

    def prompt(self, sample: Sample, variant: Variant) -> tuple[Turn, ...]:
        """Return the conversation to be answered, as the task set words it."""
        return self.wordings.get(sample.id, {}).get(variant, sample.turns)

    def _query(self, row: Row) -> Sample | Malformed:
        about = {name: row[name] for name in ("id", "category", "field")}
        asked = None
        if row["turns"] is not None:
            reference = None
            if row["reference"] is not None:
                segments = self._content(row["reference"])
                reference = Document(segments, tuple(row["ends"] or ()))
            asked = Sample(
                turns=self._turns(row["turns"]),
                reference=reference,
                criteria=row["criteria"],
                wants_images=row["wants_images"],
                metadata=json.loads(row["metadata"]),
                **about,
            )
        if row["malformed"] is None and asked is not None:
            return asked
        reason = row["malformed"] or ""
        return Malformed(row=row["row"], reason=reason, released=asked, **about)

    def _turns(self, turns: Sequence[Row]) -> tuple[Turn, ...]:
        return tuple(Turn(t["role"], self._content(t["content"])) for t in turns)

    def _content(self, content: Sequence[Row]) -> Content:
        return tuple(self._segment(segment) for segment in content)

    def _segment(self, segment: Row) -> Text | Image:
        if segment["type"] == "text":
            return Text(segment["text"])
        return self.image_of(segment)

    def image_of(self, segment: Row) -> Image:
        """Return the image of a segment, with the place where its bytes are."""
        digest, part = segment["image"], segment.get("part")
        if part is None:
            return Image(digest, place=self._image_places.get(digest))
        item = segment["item"]
        cell = "image.bytes" if item is None else f"images#{item}"
        return Image(digest, place=f"{self.root / part}#{segment['row']}#{cell}")

    @cached_property
    def _image_places(self) -> dict[str, str]:
        """By digest, where the images of queries are, and of answers made elsewhere."""
        places = dict(self.images)
        for entry in self.tables.get("images", ()):
            path = self.folder / entry["file"]
            with self.open_file(entry) as file:
                digests = file.read(columns=["digest"]).column(0).to_pylist()
            places |= {d: f"{path}#{row}#image.bytes" for row, d in enumerate(digests)}
        return places

    # ------------------------------------------------------------------------ evaluations

    @property
    def answers(self) -> int:
        """How many answers there are, whatever their outcome."""
        return sum(entry["rows"] for entry in self.tables.get("answers", ()))

    def evaluations(
        self,
        keys: Collection[str] | None = None,
        *,
        systems: Collection[str] | None = None,
        repeat: int | None = None,
        notes: bool = False,
    ) -> Iterator[Evaluation]:
        """Yield answers with their scores in the order repeat, query, system.

        Of the queries with these keys, of these systems, in a repeat counted from 1; else
        of all. With `notes`, documents and scores carry what their stages noted.
        """
        repeats = None if repeat is None else [repeat]
        asked: dict[str, Collection[Any] | None]
        asked = {"query": keys, "system": systems, "repeat": repeats}
        among = {name: values for name, values in asked.items() if values is not None}
        scored = defaultdict[tuple[str, str, int], dict[str, Row]](dict)
        for row in self.rows("scores", among=among):
            scored[row["system"], row["query"], row["repeat"]][row["scorer"]] = row
        place = {key: i for i, key in enumerate(self.queries)}
        number = {system.name: i for i, system in enumerate(self.systems)}
        order = [scorer.name for scorer in self.scorers]

        def position(row: Row) -> tuple[int, int, int]:
            return row["repeat"], place[row["query"]], number[row["system"]]

        for row in sorted(self.rows("answers", among=among), key=position):
            own = scored[row["system"], row["query"], row["repeat"]]
            document = self._document(row, notes=notes)
            scores = {}
            if isinstance(document, Result):
                for name in (name for name in order if name in own):
                    scores[name] = self._score(own[name], notes=notes)
            sample = self.queries[row["query"]]
            yield Evaluation(row["system"], sample, row["repeat"] - 1, document, scores)

    def _document(self, row: Row, *, notes: bool) -> Outcome[Document] | None:
        reason = row["reason"]
        match row["outcome"]:
            case OutcomeName.MISSING:
                return None
            case OutcomeName.FAILED:
                return Failure(reason, Fault(row["fault"]))
            case OutcomeName.SKIPPED:
                return Skip(reason)
        segments = self._content(row["segments"])
        told = self._notes(row["jobs"]) if notes else {}
        if row["tries"]:
            told[TRIES] = json.loads(row["tries"])
        return Result(Document(segments, tuple(row["ends"])), notes=told)

    def _score(self, row: Row, *, notes: bool) -> Outcome[Score] | None:
        reason, detail = row["reason"], json.loads(row["detail"] or "{}")
        match row["outcome"]:
            case OutcomeName.MISSING:
                return None
            case OutcomeName.FAILED:
                return Failure(reason, Fault(row["fault"]))
            case OutcomeName.SKIPPED:
                return Skip(reason)
            case OutcomeName.NOT_APPLICABLE:
                return NotApplicable(reason)
            case OutcomeName.UNSCORED:
                return Unread(reason, detail) if detail else Unscored(reason)
        told: dict[str, Any] = {}
        for job in row["jobs"] if notes else ():
            if self.stages[job["stage"]].kind is Kind.SCORE:
                told |= self._noted(job)
        return Result(Score(row["value"], detail), notes=told)

    def _notes(self, jobs: Sequence[Row]) -> dict[str, Any]:
        """Return what the records of an answer noted, by their stages' names."""
        notes: dict[str, Any] = {}
        for job in jobs:
            if noted := self._noted(job):
                notes.setdefault(self.stages[job["stage"]].name, []).append(noted)
        return notes

    def _noted(self, job: Row) -> dict[str, Any]:
        record = self.record(job)
        if record is None or record.outcome != OutcomeName.DONE:
            return {}
        return self.noted(record)

    def record(self, job: Row) -> RecordRow | None:
        """Return the record that a job asked for, where it is at hand."""
        return self.store.rows(self.stages[job["stage"]]).get(job["key"])

    def noted(self, record: RecordRow) -> dict[str, Any]:
        """Return what a stage noted about a record."""
        return self.store.told(record)[0]

    # ------------------------------------------------------------------------- board

    @cached_property
    def board(self) -> Board:
        """Everything tables and pages are made of."""
        from benchmarks.results.files.boards import board_of

        return board_of(self)


def _lacks(file: pq.ParquetFile, group: int, name: str, values: Collection[Any]) -> bool:
    """Return whether the file's own statistics say that a row group has no such value."""
    # Columns that are compared stand before all that are nested.
    place = file.schema_arrow.names.index(name)
    known = file.metadata.row_group(group).column(place).statistics
    if known is None or not known.has_min_max:
        return False
    return not any(known.min <= value <= known.max for value in values)


def _digest(path: AnyPath) -> str:
    with path.open("rb") if isinstance(path, Path) else path.open() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: AnyPath, error: Exception) -> ResultsError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, LookupError):
        reason = f"it lacks {error}"
    return ResultsError(
        f"{path} cannot be read ({reason}); `plait report` makes the results anew from the "
        "run's records, where its data and modules are there"
    )
