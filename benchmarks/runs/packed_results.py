"""A copy of a run's results that needs nothing beside it and names nothing of a machine.

    notices = copy_results(results, portable, folder)

Images of answers, and what the records of stages say, are joined to the tables: the records
themselves stay behind, unless they are copied too.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import FOLDER, TABLES
from plait.benchmarks.results.files.spill import Spill
from plait.benchmarks.results.files.writing import (
    image_files,
    place_file,
    record_parts,
    write_about,
    write_errors,
)
from plait.benchmarks.runs.portable import Change, Portable
from plait.cluster.parts import parts_in, read_part, stage_folders, write_part
from plait.cluster.records import SCHEMAS
from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.document import Image
from plait.generators.errors import UsageError

_COMPARISONS = "compare"
"""Below it a folder for each protocol, with records of its own."""
_NOT_COPIED = ("images", "replies")
"""Tables of the copy that are made anew, of what it shows."""
_CONTENT = (
    *("turns", "wordings", "reference", "criteria", "metadata", "segments", "tries"),
    *("detail", "text", "context", "notes", "parts", "prompt"),
)
"""Columns with what was asked and answered, in which only the run's own paths are paths."""
_OF_RECORDS = ("outcome", "fault", "reason", "usage", "notes", "seconds", "at")
_OF_VALUES = ("segments", "digest", "value", "parts")
"""Columns of `replies` that a record has where its kind of stage has them."""


def copy_results(
    results: RunResults,
    portable: Portable,
    target: Path,
    *,
    shown: Collection[str] | None = None,
    records: bool = False,
) -> list[str]:
    """Write `results` into the folder `target`; return what could not be read, in words.

    With images and replies of the queries in `shown` alone, whose keys are those of the
    copy. With `records`, all records are copied instead of images and replies.
    """
    copy = _Copy(results, portable, target, shown, records)
    with write_errors(target):
        copy.write()
    return copy.notices


@dataclass
class _Copy:
    """Writes the copy; tables first, which tell what images and replies they show."""

    results: RunResults
    portable: Portable
    target: Path
    shown: Collection[str] | None
    """Queries whose images and replies are in the copy; None for all."""
    records: bool
    """Whether all records are in it instead."""
    notices: list[str] = field(default_factory=list)
    """What could not be read."""
    _images: dict[str, Image] = field(default_factory=dict)
    """By digest, those that are shown."""
    _keys: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By folder of a stage, the records that are shown."""
    _parts: dict[str, str] = field(default_factory=dict)
    """By the path of a part below the run, that of its copy."""

    def write(self) -> None:
        """Write all tables into the folder of results, and what `run.json` says of them."""
        about = self.portable.about(self.results.about.as_json)
        _refuse_equal_names([system["name"] for system in about["systems"]])
        _refuse_equal_names([scorer["name"] for scorer in about["scorers"]])
        tables: dict[str, list[dict[str, Any]]] = {}
        if self.records:
            self._parts = self._copy_records()
        with tempfile.TemporaryDirectory(dir=self.target) as place:
            temporary = Path(place)
            for name in self.results.tables:
                if name not in _NOT_COPIED:
                    tables[name] = [self._copy_table(name, temporary)]
            images = image_files(
                self._images.values(),
                self._folder,
                temporary,
                lambda image: image.digest[:16],
                self._note_lost,
            )
            if written := [*images]:
                tables["images"] = written
            if not self.records:
                tables["replies"] = [*self._reply_files(temporary)]
        content = {"tables": tables, "records": record_parts(self.target)}
        write_about(self._folder, content | about)

    @property
    def _folder(self) -> Path:
        return self.target / FOLDER

    # -------------------------------------------------------------------------- tables

    def _copy_table(self, name: str, temporary: Path) -> dict[str, Any]:
        """Write the copy of a table; return what is said of the file."""
        file = temporary / f"{name}.parquet"
        rows = 0
        with pq.ParquetWriter(
            file, TABLES[name], compression="zstd", write_page_checksum=True
        ) as writer:
            for group in self.results.groups(name):
                # One group of rows for one of the original; pyarrow refuses the size 0.
                writer.write_table(self._portable_table(name, group), len(group) or 1)
                rows += len(group)
        return place_file(file, name, self._folder, rows)

    def _portable_table(self, name: str, table: pa.Table) -> pa.Table:
        """Return rows of the table `name` as the copy has them."""
        columns = {}
        for column in table.column_names:
            array = table.column(column).combine_chunks()
            columns[column] = with_texts(array, self._change_of(column))
        self._note_what_is_shown(name, columns, table)
        if name == "answers":
            columns["segments"] = self._move_images(columns["segments"])
        elif name == "records":
            columns["part"] = self._part(table.column("part").combine_chunks())
            if not self.records:
                columns["row"] = pa.nulls(len(table), pa.int64())
        return pa.table(columns, schema=TABLES[name])

    def _change_of(self, column: str) -> Change:
        return self.portable.content if column in _CONTENT else self.portable.text

    def _note_what_is_shown(
        self, name: str, columns: Mapping[str, pa.Array], table: pa.Table
    ) -> None:
        """Remember which images and records the answers and scores that are shown have."""
        if name not in ("answers", "scores", "queries"):
            return
        if self.shown is not None:
            shown = pa.array([*self.shown], pa.string())
            table = table.filter(pc.is_in(columns["query"], shown))
        if "jobs" in table.column_names:
            jobs = table.column("jobs").combine_chunks().flatten()
            stages = pc.struct_field(jobs, "stage").to_pylist()
            keys = pc.struct_field(jobs, "key").to_pylist()
            for stage, key in zip(stages, keys, strict=True):
                self._keys[stage].add(key)
        if name == "answers":
            self._note_images(table.column("segments").to_pylist())
        elif name == "queries":
            for column in ("turns", "reference"):
                self._note_images(table.column(column).to_pylist())

    def _note_images(self, value: Any) -> None:
        """Remember the images of turns and of segments that no copied record holds."""
        if isinstance(value, list):
            for item in value:
                self._note_images(item)
        elif isinstance(value, dict):
            if value.get("type") == "image" and not (self.records and value.get("part")):
                image = self.results.image_of(value)
                self._images.setdefault(image.digest, image)
            self._note_images(value.get("content"))

    def _move_images(self, segments: pa.Array) -> pa.Array:
        """Return the segments of answers, whose images stand where those of the copy do."""
        inner = segments.flatten()
        columns = dict(zip(inner.type.names, inner.flatten(), strict=True))
        columns["part"] = self._part(columns["part"])
        if not self.records:
            columns["row"] = pa.nulls(len(inner), inner.type.field("row").type)
            columns["item"] = pa.nulls(len(inner), inner.type.field("item").type)
        changed = pa.StructArray.from_arrays([*columns.values()], fields=[*inner.type])
        return _list_of(changed, segments)

    def _part(self, parts: pa.Array) -> pa.Array:
        if not self.records:
            return pa.nulls(len(parts), pa.string())
        return with_texts(parts, lambda part: self._parts.get(part, part))

    # ------------------------------------------------------------- images and records

    def _note_lost(self, image: Image, error: Exception) -> None:
        self.notices.append(f"image {image.digest[:12]} cannot be read: {error}")

    def _reply_files(self, temporary: Path) -> Iterator[dict[str, Any]]:
        """Write what the records that are shown say, a file for each stage."""
        for folder, spec in self.results.stages.items():
            keys = self._keys.get(folder, set())
            spill = Spill(TABLES["replies"], temporary / "replies.arrow")
            if keys:
                for row in self._replies_of(spec):
                    if row["key"] in keys:
                        spill.add(row)
            file = temporary / "replies.parquet"
            spill.write(file)
            if spill.rows:
                about = place_file(file, "replies", self._folder, spill.rows)
                yield about | {"stage": folder}

    def _replies_of(self, spec: StageSpec) -> Iterator[dict[str, Any]]:
        """Yield what the records of a stage say, as the copy may say it."""
        own = [name for name in _OF_VALUES if name in SCHEMAS[spec.kind].names]
        for row in self.results.store.columns(spec, [*_OF_RECORDS, *own]):
            for name, value in row.items():
                if isinstance(value, str):
                    change = self._change_of(name)
                    row[name] = change(value)
            yield row

    def _copy_records(self) -> dict[str, str]:
        """Copy the records of all stages; return where the copy of each part is."""
        root = self.results.root
        copied = dict[str, str]()
        comparisons: list[AnyPath] = [*(root / _COMPARISONS).glob("*")]
        for store in [root, *sorted(comparisons)]:
            if not store.is_dir():
                continue
            below = "" if store == root else f"{_COMPARISONS}/{store.name}/"
            for folder in stage_folders(store):
                own = f"{below}stages/{folder.name}"
                for part in parts_in(folder):
                    table = read_part(part)
                    changed = self._portable_record(table)
                    written = write_part(self.target / own, changed)
                    copied[f"{own}/{part.name}"] = f"{own}/{written.name}"
        return copied

    def _portable_record(self, table: pa.Table) -> pa.Table:
        columns = []
        for name in table.column_names:
            array = table.column(name).combine_chunks()
            columns.append(with_texts(array, self._change_of(name)))
        return pa.table(columns, schema=table.schema)


def with_texts(array: pa.Array, change: Change) -> pa.Array:
    """Return an array with each of its texts changed, also in lists and structs.

    A text that occurs several times is changed once.
    """
    kind = array.type
    if pa.types.is_string(kind):
        encoded = array.dictionary_encode()
        texts = [change(text) for text in encoded.dictionary.to_pylist()]
        return pa.array(texts, kind).take(encoded.indices)
    if pa.types.is_list(kind):
        return _list_of(with_texts(array.flatten(), change), array)
    if pa.types.is_struct(kind) and _holds_text(kind):
        children = [with_texts(child, change) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, fields=[*kind], mask=array.is_null())
    return array


def _holds_text(kind: pa.DataType) -> bool:
    """Return whether values of a type hold a text, at whatever depth."""
    if pa.types.is_list(kind):
        return _holds_text(kind.value_type)
    if pa.types.is_struct(kind):
        return any(_holds_text(inner.type) for inner in kind)
    return bool(pa.types.is_string(kind))


def _list_of(values: pa.Array, like: pa.Array) -> pa.Array:
    """Return lists of `values`, which are as long, and null, as those of `like`."""
    lengths = pc.fill_null(pc.list_value_length(like), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=like.type, mask=like.is_null())


def _refuse_equal_names(names: Collection[str]) -> None:
    """UsageError where names that differed by a folder differ no more."""
    for name, times in Counter(names).items():
        if times > 1:
            raise UsageError(
                f"two systems or scorers would be named {name} without the folders in "
                "their names: rename the files that they are named by"
            )
