"""The tables in `results/` of a run, read from their files when they are asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plait.benchmarks.results.files.about import (
    RecordedScorer,
    RunAbout,
    scorer_of,
    stage_of,
    system_of,
)
from plait.benchmarks.results.files.schema import ABOUT, FOLDER, TABLES, VERSION
from plait.benchmarks.results.files.writing import (
    content_digest,
    footer_digest,
    io_of,
    record_parts,
)
from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath, local_copy
from plait.generators.errors import PlaitError, UsageError
from plait.generators.system import DescribedSystem
from plait.scorers.statistics.multiple import CORRECTIONS, Correction

Row = Mapping[str, Any]
_ROWS_AT_ONCE = 1 << 17


class ResultsError(UsageError):
    """Results that cannot be read; names the file and what to do."""

    is_newer = False
    """Whether a later version of plait wrote them."""


class NewerResults(ResultsError):
    """Results with a later schema than this version of plait reads."""

    is_newer = True


class NoResults(ResultsError):
    """A run whose results were not written yet."""


@dataclass(frozen=True, eq=False, repr=False)
class ResultTables:
    """The tables of a run, and what they are about."""

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
    ) -> Self:
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
            raise _damage(path, error) from None
        version = content.get("schema") if isinstance(content, dict) else None
        if not isinstance(version, int):
            raise _damage(path, ValueError("it names no schema"))
        if version > VERSION:
            raise NewerResults(
                f"{path} has schema {version}, and this version of plait reads up to "
                f"{VERSION}: read it with a later version of plait"
            )
        if content.get("sha256") != content_digest(content):
            raise _damage(path, ValueError("its content is not what was written"))
        content.setdefault("judge_errors", {})  # those of earlier versions have none
        try:
            facts = {fact.name: content[fact.name] for fact in fields(RunAbout)}
            about = RunAbout(**facts)
            tables = content["tables"]
            records = content["records"]
        except (LookupError, TypeError) as error:
            raise _damage(path, error) from None
        return cls(root, folder, about, tables, records, images, keeps)

    @property
    def is_current(self) -> bool:
        """Whether the run has no records that its results were not made of."""
        for name, parts in record_parts(self.root).items():
            if not {*parts} <= {*self.records.get(name, ())}:
                return False
        return True

    @property
    def page_queries(self) -> Any:
        """How many queries the page shows by the run's config: a number, "all", or None."""
        return self.about.config.get("report", {}).get("queries")

    @property
    def correction(self) -> Correction:
        """How p-values of several pairs are corrected by the run's config."""
        named = self.about.config.get("report", {}).get("correction")
        return named if named in CORRECTIONS else "holm"

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
                if not sound:
                    found.append(str(path))
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
        # `empty_table` would import pandas, which takes longer than most tables.
        return pa.concat_tables(parts) if parts else pa.Table.from_batches([], wanted)

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
                    chosen = self._choose_rows(file, group, among)
                    if chosen is not None and not len(chosen):
                        continue
                    table = file.read_row_group(group, columns=columns)
                    if chosen is not None:
                        table = table.take(chosen)
                    yield from table.to_pylist()

    def _choose_rows(
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

    def batches(self, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a table, so many rows at a time that memory stays small."""
        for entry in self.tables.get(name, ()):
            with self.open_file(entry) as file:
                yield from file.iter_batches(_ROWS_AT_ONCE, columns=[*columns])

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
            if footer_digest(path) != entry["footer"]:
                raise ValueError("it is not what was written")
            with pq.ParquetFile(
                io_of(path), read_dictionary=[*names], page_checksum_verification=True
            ) as file:
                yield file
        except PlaitError:
            raise
        except FileNotFoundError as error:
            raise _damage(path, error) from None
        except (OSError, pa.ArrowException, LookupError, ValueError) as error:
            raise _damage(path, error) from error

    # ------------------------------------------------------------- systems and queries

    @cached_property
    def stages(self) -> dict[str, StageSpec]:
        """The stages by the folders of their records."""
        return {folder: stage_of(facts) for folder, facts in self.about.stages.items()}

    @cached_property
    def systems(self) -> tuple[DescribedSystem, ...]:
        """The systems as they were, in the run's order."""
        return tuple(system_of(facts, self.stages) for facts in self.about.systems)

    @cached_property
    def scorers(self) -> tuple[RecordedScorer, ...]:
        """The scorers as they were, in the run's order."""
        return tuple(scorer_of(facts, self.stages) for facts in self.about.scorers)

    @cached_property
    def heads(self) -> dict[str, tuple[str, str]]:
        """Category and field of the queries by key, in the order of the task set."""
        heads: dict[str, tuple[str, str]] = {}
        groups: dict[tuple[str, str], tuple[str, str]] = {}
        for batch in self.batches("queries", ["query", "category", "field"]):
            keys, categories, fields_ = map(pa.Array.to_pylist, batch.columns)
            for key, category, field_ in zip(keys, categories, fields_, strict=True):
                group = (category, field_)
                # Few are different: a pair of each is kept, and not one for each query.
                heads[key] = groups.setdefault(group, group)
        return heads


def _lacks(file: pq.ParquetFile, group: int, name: str, values: Collection[Any]) -> bool:
    """Return whether the file's own statistics say that a row group has no such value."""
    # Columns that are compared stand before all that are nested.
    place = file.schema_arrow.names.index(name)
    known = file.metadata.row_group(group).column(place).statistics
    if known is None or not known.has_min_max:
        return False
    return not any(known.min <= value <= known.max for value in values)


def _digest(path: AnyPath) -> str:
    with local_copy(path) as copy, copy.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damage(path: AnyPath, error: Exception) -> ResultsError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, LookupError):
        reason = f"it lacks {error}"
    return ResultsError(
        f"{path} cannot be read ({reason}); `plait report` rebuilds the results from "
        "the run's records if its data and modules are available"
    )
