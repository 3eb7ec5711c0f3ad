"""Reading `results/` of a run: its tables, and the values that they hold.

    results = RunResults.at(root)
    results.board                       # what leaderboards, pages and studies are made of
    results.table("scores")             # a pyarrow.Table
    results.evaluations({"SA-1"})       # answers and scores as values

Nothing else of the run is read but the records that images and notes of answers are in.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.files.boards import board_of
from plait.benchmarks.results.files.tables import (
    NewerResults,
    NoResults,
    ResultsError,
    ResultTables,
    Row,
)
from plait.cluster.plan import Evaluation
from plait.cluster.records import RecordRow, StoredCell
from plait.cluster.store import Store, read_blob
from plait.generators.base import (
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
from plait.generators.buckets import AnyPath
from plait.generators.document import (
    Content,
    Document,
    Image,
    Malformed,
    Query,
    Score,
    Text,
    Turn,
)
from plait.generators.system import TRIES, Variant

__all__ = ["NewerResults", "NoResults", "PackedStore", "ResultsError", "RunResults"]


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
class RunResults(ResultTables):
    """The results of a run as values."""

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
    def queries(self) -> dict[str, Query | Malformed]:
        """The queries by key, in the order of the task set."""
        return self._queries({})

    def _queries(
        self, among: Mapping[str, Collection[str]]
    ) -> dict[str, Query | Malformed]:
        rows = self.rows("queries", among=among)
        return {row["query"]: self._query(row) for row in rows}

    @cached_property
    def wordings(self) -> dict[str, dict[str, tuple[Turn, ...]]]:
        """How a query is asked where that is not in its own turns: by key and variant."""
        worded = {}
        for row in self.rows("queries", ["query", "wordings"]):
            by_variant = {}
            for variant, turns in json.loads(row["wordings"] or "{}").items():
                by_variant[variant] = self._turns(turns)
            worded[row["query"]] = by_variant
        return worded

    def prompt(self, query: Query, variant: Variant) -> tuple[Turn, ...]:
        """Return the conversation to be answered, as the task set words it."""
        return self.wordings.get(query.id, {}).get(variant, query.turns)

    def _query(self, row: Row) -> Query | Malformed:
        about = {name: row[name] for name in ("id", "category", "field")}
        asked = None
        if row["turns"] is not None:
            reference = None
            if row["reference"] is not None:
                segments = self._content(row["reference"])
                reference = Document(segments, tuple(row["ends"] or ()))
            asked = Query(
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
        conversation = []
        for turn in turns:
            conversation.append(Turn(turn["role"], self._content(turn["content"])))
        return tuple(conversation)

    def _content(self, content: Sequence[Row]) -> Content:
        return tuple(map(self._segment, content))

    def _segment(self, segment: Row) -> Text | Image:
        if segment["type"] == "text":
            return Text(segment["text"])
        return self.image_of(segment)

    def image_of(self, segment: Row) -> Image:
        """Return the image of a segment, which reads its bytes when they are asked for."""
        digest = segment["image"]
        part = segment.get("part")
        if part is None:
            place = self._image_places.get(digest)
        else:
            item = segment["item"]
            column = "image.bytes" if item is None else "images"
            place = StoredCell(f"{self.root / part}", segment["row"], column, item).place
        return Image(digest, place=place, reader=read_blob)

    @cached_property
    def _image_places(self) -> dict[str, str]:
        """By digest, where the images of queries are, and of answers made elsewhere."""
        places = dict(self.images)
        for entry in self.tables.get("images", ()):
            path = self.folder / entry["file"]
            with self.open_file(entry) as file:
                digests = file.read(columns=["digest"]).column(0).to_pylist()
            for row, digest in enumerate(digests):
                places[digest] = StoredCell(str(path), row, "image.bytes").place
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
        among: dict[str, Collection[Any]] = {}
        if keys is not None:
            among["query"] = keys
        if systems is not None:
            among["system"] = systems
        if repeat is not None:
            among["repeat"] = [repeat]
        scored = defaultdict[tuple[str, str, int], dict[str, Row]](dict)
        for row in self.rows("scores", among=among):
            scored[row["system"], row["query"], row["repeat"]][row["scorer"]] = row
        queries = self.queries if keys is None else self._queries({"query": keys})
        place = {key: i for i, key in enumerate(queries)}
        number = {system.name: i for i, system in enumerate(self.systems)}
        order = [scorer.name for scorer in self.scorers]

        def position(row: Row) -> tuple[int, int, int]:
            return row["repeat"], place[row["query"]], number[row["system"]]

        for row in sorted(self.rows("answers", among=among), key=position):
            own = scored[row["system"], row["query"], row["repeat"]]
            document = self._document(row, notes=notes)
            scores = {}
            if isinstance(document, Result):
                for name in order:
                    if name in own:
                        scores[name] = self._score(own[name], notes=notes)
            query = queries[row["query"]]
            yield Evaluation(row["system"], query, row["repeat"] - 1, document, scores)

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
        reason = row["reason"]
        detail = json.loads(row["detail"] or "{}")
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
            if self.stages[job["stage"]].kind in (Kind.SCORE, Kind.LOGPROBS):
                told |= self._note(job)
        return Result(Score(row["value"], detail), notes=told)

    def _notes(self, jobs: Sequence[Row]) -> dict[str, Any]:
        """Return what the records of an answer noted, by their stages' names."""
        notes: dict[str, Any] = {}
        for job in jobs:
            if noted := self._note(job):
                notes.setdefault(self.stages[job["stage"]].name, []).append(noted)
        return notes

    def _note(self, job: Row) -> dict[str, Any]:
        record = self.record(job)
        if record is None or record.outcome != OutcomeName.DONE:
            return {}
        return self.noted(record)

    def record(self, job: Row) -> RecordRow | None:
        """Return the record that a job asked for, where it is at hand."""
        return self.store.rows(self.stages[job["stage"]]).get(job["key"])

    def noted(self, record: RecordRow) -> dict[str, Any]:
        """Return what a stage noted about a record."""
        notes, _ = self.store.notes_and_usage(record)
        return notes

    # ------------------------------------------------------------------------- board

    @cached_property
    def board(self) -> Board:
        """Everything tables and pages are made of."""
        reading = partial(self.evaluations, notes=True)
        return replace(board_of(self), correction=self.correction, reading=reading)
