"""Writing `results/` of a run, from its evaluations and its records.

Tables are files under names with their digest. `run.json` lists them and is written last,
whole; only then files that it does not list are removed. Whenever writing ends early, the
former results are there as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plait.benchmarks.results.board import SCORED, OutcomeWords, outcome_of, score_value
from plait.benchmarks.results.costs import amounts_of
from plait.benchmarks.results.files.about import Facts, RunAbout, facts_of_figures
from plait.benchmarks.results.files.key_index import KeyIndex, numbers_in
from plait.benchmarks.results.files.rulings import (
    TABLE,
    Ruling,
    iter_comparisons,
    table_of,
)
from plait.benchmarks.results.files.schema import ABOUT, TABLES, VERSION
from plait.benchmarks.results.files.spill import Spill
from plait.benchmarks.tasks.changes import query_digest
from plait.cluster.manifest import version_of
from plait.cluster.parts import DamagedPart, StoreError, parts_in, stage_folders
from plait.cluster.plan import Evaluation, Plan
from plait.cluster.records import StoredCell
from plait.cluster.store import Store, read_blob
from plait.cluster.usage import UsageSum
from plait.generators.base import Job, OutcomeName, Result, SetMember, StageSpec, Unread
from plait.generators.buckets import AnyPath
from plait.generators.document import (
    Content,
    Document,
    Image,
    ImageRequest,
    Malformed,
    Query,
    Request,
    Text,
    TransformRequest,
    Turn,
    key_of,
)
from plait.generators.errors import PlaitError
from plait.generators.files import copy_whole, write_error, write_whole
from plait.generators.system import TRIES, Variant
from plait.scorers.base import Scorer
from plait.scorers.statistics.estimate import Estimate

VARIANTS: tuple[Variant, ...] = ("text", "interleaved", "plain")
_IMAGE_BYTES = 128 << 20
"""Of images in one file."""
_STRAY_S = 3600.0
"""Age of a file of which no `run.json` knows: what wrote it has ended."""
_FOOTER_END = 8
"""Bytes at the end of a Parquet file: the footer's length, and four that are always so."""
_NO_COSTS = "What documents cost is not shown."
_BY_SYSTEM = ("answers", "scores", "parts", "embeddings")
"""Tables whose row groups hold rows of one system each."""
_OF_READING = ("figures", "damaged", "unreadable")
"""Facts of a run that come from reading its records."""
USAGE = "usage"
LOST_IMAGES = "lost_images"
"""Entries of `run.json`: what the records of stages used, by the stages' names, and how
many images of the data could not be copied."""
_OF_RECORDS = ("outcome", "fault", "at", "usage", "seconds")
"""Columns of a record that the table `records` is made of, besides its key."""


class ResultsWriter:
    """Writes the results of a run from its evaluations, which it is given one by one."""

    def __init__(
        self,
        plan: Plan,
        about: RunAbout,
        rows: Iterable[tuple[str, str]] = (),
        *,
        copies_images: bool = True,
    ) -> None:
        """`rows` are the ids and digests of all rows of the task set.

        Without copies of them, images of queries are read from where the data are.
        """
        self._plan = plan
        self._about = about
        self._data = rows
        self._folders = plan.folders
        self._copies_images = copies_images
        self._began = False

    def __call__(
        self, evaluations: Iterable[Evaluation], store: Store
    ) -> Iterator[Evaluation]:
        """The same evaluations, read from `store`; begins anew when it is called again."""
        self._begin(store)
        for evaluation in evaluations:
            self._add(evaluation)
            yield evaluation

    def _begin(self, store: Store) -> None:
        """Forget what was added before: evaluations are read anew when a run goes on."""
        self._store = store
        self._began = True
        # Records that are committed from here on may be read or not.
        self._parts = record_parts(store.root)
        self._lost_images = 0
        self._temporary = tempfile.TemporaryDirectory(prefix="plait-results-")
        place = Path(self._temporary.name)
        self._tables: dict[str, Spill] = {}
        for name, schema in TABLES.items():
            self._tables[name] = Spill(schema, place / f"{name}.arrow")
        self._keys = defaultdict[str, bytearray](bytearray)
        """By folder of a stage, the records that answers and scores are made of: sixteen
        bytes of each, as there may be millions."""
        self._used = {spec.name: UsageSum() for spec in self._plan.stages}
        self._prompts: set[bytes] = set()
        self._images: dict[str, Image] = {}
        self._members: dict[str, dict[str, dict[str, list[SetMember]]]] = {}
        """By scorer of sets, system and query."""
        for scorer in self._plan.scorers:
            if scorer.of_sets:
                # A system without any member has a figure too.
                members = self._members.setdefault(scorer.name, {})
                for system in self._plan.systems:
                    members[system.name] = {}
        for query in self._plan.queries:
            self._add_query(query)

    # ------------------------------------------------------------------------- queries

    def _add_query(self, query: Query | Malformed) -> None:
        """Add a row of the task set; a malformed one as its released program takes it."""
        asked = query.released if isinstance(query, Malformed) else query
        row: dict[str, Any] = {
            "query": key_of(query),
            "id": query.id,
            "row": getattr(query, "row", None),
            "category": query.category,
            "field": query.field,
            "malformed": query.reason if isinstance(query, Malformed) else None,
            "digest": query_digest(query),
        }
        if asked is not None:
            row |= {
                "turns": self._turns(asked.turns),
                "wordings": json.dumps(self._wordings(asked), ensure_ascii=False),
                "criteria": asked.criteria,
                "wants_images": asked.wants_images,
                "metadata": json.dumps(dict(asked.metadata), ensure_ascii=False),
            }
            if asked.reference is not None:
                row["reference"] = self._content(asked.reference.segments)
                row["ends"] = list(asked.reference.ends)
        self._tables["queries"].add(row)

    def _wordings(self, query: Query) -> dict[str, Any]:
        """Return what is asked instead of the turns, by variant; those of one turn only."""
        worded: dict[str, Any] = {}
        # With several turns a wording holds the answers to earlier ones, which differ from
        # system to system.
        if len(query.openings) != 1:
            return worded
        for variant in VARIANTS:
            turns = self._plan.prompt(query, variant)
            if turns != query.turns:
                worded[variant] = self._turns(turns)
        return worded

    def _turns(self, turns: Sequence[Turn]) -> list[dict[str, Any]]:
        rows = []
        for turn in turns:
            rows.append({"role": turn.role, "content": self._content(turn.content)})
        return rows

    def _content(self, content: Content) -> list[dict[str, Any]]:
        return [*map(self._segment, content)]

    def _segment(self, segment: Text | Image) -> dict[str, Any]:
        if isinstance(segment, Text):
            return {"type": "text", "text": segment.text}
        # Images in records stay there; those of the data may be gone when the results are
        # read, so that a copy of each is written beside the tables.
        if self._place(segment) is None:
            self._images.setdefault(segment.digest, segment)
        return {"type": "image", "image": segment.digest}

    def _place(self, image: Image) -> dict[str, Any] | None:
        """Return where an image stands in the run's records; None for any other."""
        cell = StoredCell.of(image.place)
        root = str(self._store.root).rstrip("/") + "/"
        if cell is None or not cell.part.startswith(root):
            return None
        part = cell.part.removeprefix(root)
        return {"part": part, "row": cell.row, "item": cell.item}

    # ------------------------------------------------------------------------- answers

    def _add(self, evaluation: Evaluation) -> None:
        about = {
            "system": evaluation.system,
            "query": key_of(evaluation.query),
            # In the program repeats count from 0, in tables from 1, as people count.
            "repeat": evaluation.repeat + 1,
        }
        self._add_answer(about, evaluation)
        if not isinstance(evaluation.document, Result):
            self._add_no_document(about, evaluation)
            return
        for scorer in self._plan.scorers:
            if scorer.name in evaluation.scores:
                self._add_score(about | {"scorer": scorer.name}, scorer, evaluation)

    def _add_answer(self, about: dict[str, Any], evaluation: Evaluation) -> None:
        document = evaluation.document
        row = about | _words(outcome_of(document))
        # The jobs of the answer itself stand under no scorer.
        jobs = evaluation.jobs.get("", ())
        row["jobs"] = self._add_jobs(jobs)
        requests = [job.input for job in jobs if isinstance(job.input, Request)]
        row["seed"] = requests[0].seed if requests else None
        if isinstance(document, Result):
            row |= self._document(document.value)
            if tries := document.notes.get(TRIES, ()):
                row["tries"] = json.dumps(tries, ensure_ascii=False)
                row["discarded"] = sum(not tried["kept"] for tried in tries)
        self._tables["answers"].add(row, evaluation.system)

    def _add_no_document(self, about: dict[str, Any], evaluation: Evaluation) -> None:
        """Add a row for each scorer that says why there is nothing to judge."""
        name, reason, fault = outcome_of(evaluation.document)
        kind = f"{name} ({fault})" if fault else name
        row = about | {
            "outcome": OutcomeName.NO_DOCUMENT,
            "reason": f"{kind}: {reason}",
            "fault": fault,
            "jobs": [],
        }
        for scorer in self._plan.scorers:
            named = row | {"scorer": scorer.name}
            self._tables["scores"].add(named, evaluation.system)

    def _document(self, document: Document) -> dict[str, Any]:
        segments = []
        for segment in document.segments:
            place = self._place(segment) if isinstance(segment, Image) else None
            segments.append(self._segment(segment) | (place or {}))
        return {
            "segments": segments,
            "ends": list(document.ends),
            "thought": document.holds_thought,
            "images": len(document.images),
        }

    def _add_score(
        self, about: dict[str, Any], scorer: Scorer, evaluation: Evaluation
    ) -> None:
        system = evaluation.system
        outcome = evaluation.scores[scorer.name]
        row = about | _words(outcome_of(outcome)) | {"value": score_value(outcome)}
        detail: Mapping[str, Any] = {}
        if isinstance(outcome, Result):
            # A judgement that gave a value is `scored`, where an answer is `done`.
            row["outcome"] = SCORED
            detail = outcome.value.parts
            for part in scorer.parts_of(outcome.value):
                self._tables["parts"].add(about | part._asdict(), system)
        elif isinstance(outcome, Unread):
            detail = outcome.parts
        elif isinstance(outcome, SetMember):
            self._add_member(about, outcome)
        row["detail"] = json.dumps(dict(detail), ensure_ascii=False) if detail else None
        row["jobs"] = self._add_jobs(evaluation.jobs.get(scorer.name, ()))
        self._tables["scores"].add(row, system)

    def _add_member(self, about: Mapping[str, Any], member: SetMember) -> None:
        own = self._members[about["scorer"]][about["system"]]
        own.setdefault(about["query"], []).append(member)
        for of, embeddings in (("answer", member.answer), ("truth", member.truth)):
            for embedding in embeddings:
                vector = np.frombuffer(embedding.vector, "<f4")
                row = {**about, "of": of, "vector": vector}
                self._tables["embeddings"].add(row, about["system"])

    # ------------------------------------------------------------- prompts and records

    def _add_jobs(self, jobs: Iterable[Job]) -> list[dict[str, Any]]:
        """Add what jobs ask, and note their records; return what rows say of them."""
        return [*map(self._add_job, jobs)]

    def _add_job(self, job: Job) -> dict[str, Any]:
        row = job_row(job, self._store, self._folders[job.spec.digest])
        self._keys[row["stage"]] += bytes.fromhex(row["key"])
        if isinstance(job.input, Request | ImageRequest | TransformRequest):
            self._add_prompt(job.prompt, job.input)
        return row

    def _add_prompt(
        self, digest: str, asked: Request | ImageRequest | TransformRequest
    ) -> None:
        # Sixteen bytes each, as there may be millions.
        if (known := bytes.fromhex(digest)) in self._prompts:
            return
        self._prompts.add(known)
        row: dict[str, Any] = {"prompt": digest, "seed": getattr(asked, "seed", None)}
        if isinstance(asked, TransformRequest):
            row |= {"kind": "image", "context": self._content(asked.images)}
        elif isinstance(asked, Request):
            row |= {"kind": "request", "turns": self._turns(asked.turns)}
            row["max_tokens"] = asked.max_tokens
        else:
            payload = asked.payload and asked.payload.digest
            row |= {"kind": "image", "text": asked.prompt, "payload": payload}
            row["context"] = self._content(asked.context)
        self._tables["prompts"].add(row)

    def _add_records(self) -> list[str]:
        """Add the records that anything is made of; return the stages some of it lack.

        What all records of the stages used is summed at the same time.
        """
        unreadable = []
        for spec in self._plan.stages:
            try:
                self._add_records_of(spec)
            except DamagedPart as damage:
                self._store.go_on_without(damage, _NO_COSTS)
                unreadable.append(spec.folder)
            except FileNotFoundError as error:
                self._store.on_notice(f"{error}. {_NO_COSTS}")
                unreadable.append(spec.folder)
        return unreadable

    def _add_records_of(self, spec: StageSpec) -> None:
        """Add the records of a stage that anything is made of; sum what all of them used.

        DamagedPart, FileNotFoundError.
        """
        root = str(self._store.root).rstrip("/") + "/"
        keys = KeyIndex(numbers_in(self._keys[spec.folder]))
        columns = [*_OF_RECORDS]
        if spec.placement.endpoint:
            columns.append("notes")  # Only endpoints note how often they were asked.
        used = self._used[spec.name]
        for piece in self._store.pieces(spec, columns):
            used.add(piece.table)
            is_asked = keys.places(piece.table.column("key")) >= 0
            records = piece.table.filter(pa.array(is_asked))
            place = pa.scalar(piece.part.removeprefix(root))
            about = {name: records.column(name) for name in ("key", "outcome", "at")}
            about |= {
                "stage": pa.repeat(spec.folder, len(records)),
                "fault": pc.fill_null(records.column("fault"), ""),
                "attempts": _attempts_in(records),
                "part": pa.repeat(place, len(records)),
                "row": pa.array(piece.rows[is_asked]),
            }
            self._tables["records"].add_columns(about | amounts_of(spec, records))

    # --------------------------------------------------------------------------- files

    def finish(self, folder: AnyPath) -> None:
        """Write all tables and `run.json` into `folder`; StoreError where that fails.

        Where no evaluations were read, the tables that are there stay.
        """
        if not self._began:
            with write_errors(folder):
                _refresh_about(folder, self._about)
            return
        try:
            self._finish(folder)
        finally:
            self._temporary.cleanup()

    def _finish(self, folder: AnyPath) -> None:
        """Write the tables, then `run.json`: until it is there the former results stand."""
        unreadable = self._add_records()
        for id, digest in self._data:
            self._tables["data"].add({"id": id, "digest": digest})
        self._add_comparisons(folder)
        with write_errors(folder):
            tables = self._write_tables(folder)
            about = replace(
                self._about,
                damaged=len(self._store.damage),
                figures=facts_of_figures(self._figures()),
                unreadable=unreadable,
            )
            content = {
                "tables": tables,
                "records": self._parts,
                USAGE: {name: used.rounded for name, used in self._used.items()},
                LOST_IMAGES: self._lost_images,
            }
            write_about(folder, content | about.as_json)

    def _figures(self) -> dict[str, list[Estimate]]:
        """Return by scorer of sets the figure of each system."""
        figures = {}
        for scorer in self._plan.scorers:
            if scorer.of_sets:
                members = self._members[scorer.name].values()
                figures[scorer.name] = [*map(scorer.figure, members)]
        return figures

    def _write_tables(self, folder: AnyPath) -> dict[str, list[dict[str, Any]]]:
        """Put the tables that have rows in their place; their entries in `run.json`."""
        images = self._write_images(folder)
        groups = [system.name for system in self._plan.systems]
        tables: dict[str, list[dict[str, Any]]] = {}
        for name, spill in self._tables.items():
            if not spill.rows or name == "images":
                continue
            temporary = Path(self._temporary.name) / f"{name}.parquet"
            spill.write(temporary, groups if name in _BY_SYSTEM else ("",))
            tables[name] = [place_file(temporary, name, folder, spill.rows)]
        if images:
            tables["images"] = images
        return tables

    def _add_comparisons(self, folder: AnyPath) -> None:
        """Keep the comparisons of the former results, and add those that they lack."""
        there = former_comparisons(folder)
        known = {*there.column("series").to_pylist()}
        missing = iter_comparisons(self._store.root, known, self._store.on_notice)
        for table in (there, *missing):
            for row in table.to_pylist():
                self._tables[TABLE].add(row)

    @property
    def image_places(self) -> dict[str, str]:
        """By digest, where the images are that results without copies do not hold."""
        if self._copies_images:
            return {}
        return {digest: image.place or "" for digest, image in self._images.items()}

    def _write_images(self, folder: AnyPath) -> list[dict[str, Any]]:
        """Write the images that no former file holds; all files that hold them."""
        files = []
        wanted = dict(self._images)
        for former in former_tables(folder, "images").get("images", ()):
            # A file that cannot be read holds nothing: its images are written again.
            with suppress(OSError, pa.ArrowException):
                source = folder / former["file"]
                table = pq.read_table(io_of(source), columns=["digest"])
                there = wanted.keys() & {*table.column("digest").to_pylist()}
                if there:
                    files.append(former)
                for digest in there:
                    del wanted[digest]
        if not self._copies_images:
            return files
        temporary = Path(self._temporary.name)
        new = image_files(wanted.values(), folder, temporary, _own_name, self._note_lost)
        return [*files, *new]

    def _note_lost(self, image: Image, error: Exception) -> None:
        self._lost_images += 1
        self._store.on_notice(f"an image of the data is not kept: {error}")


def _words(words: OutcomeWords) -> dict[str, str]:
    """Return what is said of an outcome under the names of columns."""
    return {"outcome": words.name, "reason": words.reason, "fault": words.fault}


def _own_name(image: Image) -> str:
    return Path(image.place or image.digest[:16]).name


def image_files(
    images: Iterable[Image],
    folder: AnyPath,
    temporary: Path,
    name_of: Callable[[Image], str],
    on_lost: Callable[[Image, Exception], None],
) -> Iterator[dict[str, Any]]:
    """Write images into files of the table `images`; yield their entries in `run.json`.

    Each has a name by `name_of`; one that cannot be read is left out, and `on_lost` is
    told why.
    """
    rows = list[dict[str, Any]]()
    size = 0
    for image in images:
        try:
            data = read_blob(image)
        except (OSError, PlaitError) as error:
            on_lost(image, error)
            continue
        cell = {"bytes": data, "path": name_of(image)}
        rows.append({"digest": image.digest, "image": cell})
        size += len(data)
        if size >= _IMAGE_BYTES:
            yield _image_file(rows, folder, temporary)
            rows = []
            size = 0
    if rows:
        yield _image_file(rows, folder, temporary)


def _image_file(
    rows: list[dict[str, Any]], folder: AnyPath, temporary: Path
) -> dict[str, Any]:
    file = temporary / "images.parquet"
    table = pa.Table.from_pylist(rows, schema=TABLES["images"])
    pq.write_table(table, file, row_group_size=16, write_page_checksum=True)
    return place_file(file, "images", folder, len(rows))


def _attempts_in(records: pa.Table) -> pa.Array:
    """Return how often an endpoint was asked for each record, where that was noted."""
    if "notes" not in records.column_names:
        return pa.nulls(len(records), pa.int32())
    notes = records.column("notes").to_pylist()
    attempts = [json.loads(text or "{}").get("attempts") for text in notes]
    return pa.array(attempts, pa.int32())


def job_row(job: Job, store: Store, folder: str = "") -> dict[str, Any]:
    """Return what tables say of a job whose record is, or will be, in `store`.

    The `folder` of its stage is that of its name, unless it is written under another.
    """
    asked = isinstance(job.input, Request | ImageRequest | TransformRequest)
    return {
        "key": store.key_of(job),
        "stage": folder or job.spec.folder,
        "prompt": job.prompt if asked else None,
        "seed": getattr(job.input, "seed", None),
    }


def keep_comparison(
    folder: AnyPath, series: str, rulings: Iterable[Ruling], judges: Mapping[str, Facts]
) -> None:
    """Have the rulings of one comparison, and no former ones of it, in the results.

    `judges` are facts of its judge's stage, by folder. The table is written as a whole,
    and nothing where all of it is there. StoreError where it cannot be written.
    """
    content = former_content(folder)
    if not content:
        return  # Whoever makes the results finds the lines.
    former = former_comparisons(folder)
    own = table_of(series, rulings)
    is_own = pc.equal(former.column("series"), series)
    known = content.get("judges", {})
    if former.filter(is_own).equals(own) and {**known, **judges} == known:
        return
    with write_errors(folder), tempfile.TemporaryDirectory(prefix="plait-results-") as name:
        whole = pa.concat_tables([former.filter(pc.invert(is_own)), own])
        temporary = Path(name) / "comparisons.parquet"
        pq.write_table(whole, temporary, compression="zstd", write_page_checksum=True)
        entry = place_file(temporary, TABLE, folder, len(whole))
        content["tables"] = {**content["tables"], TABLE: [entry]}
        write_about(folder, content | {"judges": {**known, **judges}})


def keep_judge_errors(folder: AnyPath, scorer: str, facts: Facts) -> None:
    """Have what a judge's own error adds in the results, in the place of former facts.

    StoreError where it cannot be written; nothing where there are no results.
    """
    content = former_content(folder)
    if content:
        known = content.get("judge_errors", {})
        with write_errors(folder):
            write_about(folder, content | {"judge_errors": {**known, scorer: facts}})


def former_comparisons(folder: AnyPath) -> pa.Table:
    """Return the table in former results; an empty one where it cannot be read."""
    found = []
    with suppress(OSError, pa.ArrowException, LookupError):
        for entry in former_tables(folder, TABLE).get(TABLE, ()):
            found.append(pq.read_table(io_of(folder / entry["file"])))
        return pa.concat_tables([TABLES[TABLE].empty_table(), *found])
    return TABLES[TABLE].empty_table()


@contextmanager
def write_errors(folder: AnyPath) -> Iterator[None]:
    """Raise errors of the disk as a StoreError that says what is kept."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        told = write_error(folder, error) if isinstance(error, OSError) else error
        raise StoreError(
            f"{told}. The former results are as they were, and all records are kept: free "
            "some space or name a folder that can be written, then run the same command "
            "again."
        ) from error


def io_of(path: AnyPath) -> Any:
    """Return what Parquet reads a file from."""
    return path if isinstance(path, Path) else path.open()


def place_file(source: Path, table: str, folder: AnyPath, rows: int) -> dict[str, Any]:
    """Put a file of a table in its place; return its entry in `run.json`."""
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    name = f"{table}-{digest[:16]}.parquet"
    copy_whole(source, folder / name)
    footer = footer_digest(source)
    return {"file": name, "rows": rows, "sha256": digest, "footer": footer}


def footer_digest(path: AnyPath) -> str:
    """Return the SHA-256 of the end of a Parquet file, which has no checksum of its own.

    It tells where the pages are, which have, and what values they hold.
    """
    with path.open("rb") if isinstance(path, Path) else path.open() as file:
        file.seek(-_FOOTER_END, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-_FOOTER_END - length, os.SEEK_END)
        return hashlib.sha256(file.read()).hexdigest()


def content_digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a `run.json` says, but for that digest."""
    own = {name: value for name, value in content.items() if name != "sha256"}
    text = json.dumps(own, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def write_about(folder: AnyPath, content: Mapping[str, Any]) -> None:
    """Write `run.json`, then remove the tables that it lists no longer.

    Others are left for an hour: another command may be writing them.
    """
    former = files_of(former_tables(folder, *TABLES))
    versions = {"schema": VERSION, "plait": version_of("plait")}
    # The first for their place in the file; the last as `content` may be a former one.
    whole = {**versions, **content, **versions}
    plain = _as_json(whole)
    plain["sha256"] = content_digest(plain)
    text = json.dumps(plain, indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / ABOUT, text)
    keep = files_of(content["tables"])
    for path in folder.iterdir():
        # What cannot be removed does no harm.
        with suppress(OSError):
            is_old = time.time() - path.stat().st_mtime > _STRAY_S
            is_stray = is_old and path.name not in {ABOUT, *keep}
            if path.name in former - keep or is_stray:
                path.unlink(missing_ok=True)


def _refresh_about(folder: AnyPath, about: RunAbout) -> None:
    """Have `run.json` say what is known of a run by now, with its tables as they are."""
    content = former_content(folder)
    facts = plain_facts(about)
    new = {name: fact for name, fact in facts.items() if name not in _OF_READING}
    if {**content, **new} != content:
        write_about(folder, content | new)


def files_of(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> set[str]:
    """Return the names of the files of tables."""
    return {entry["file"] for entry in chain.from_iterable(tables.values())}


def _as_json(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return content as it is read back from a file."""
    plain: dict[str, Any] = json.loads(json.dumps(content, default=_plain))
    return plain


def plain_facts(about: RunAbout) -> dict[str, Any]:
    """Return what `run.json` says of a run, as it is read back."""
    return _as_json(about.as_json)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def former_tables(folder: AnyPath, *names: str) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of some tables in a `run.json`; nothing where there is none."""
    tables = former_content(folder).get("tables", {})
    return {name: tables[name] for name in names if name in tables}


def former_content(folder: AnyPath) -> dict[str, Any]:
    """Return what a `run.json` of this schema holds; nothing where there is none."""
    try:
        content = json.loads((folder / ABOUT).read_text())
        if content["schema"] != VERSION or not isinstance(content["tables"], dict):
            return {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return dict(content)


def record_parts(root: AnyPath) -> dict[str, list[str]]:
    """Return the names of the parts that each stage's folder holds."""
    names = {}
    for folder in stage_folders(root):
        names[folder.name] = sorted(part.name for part in parts_in(folder))
    return names
