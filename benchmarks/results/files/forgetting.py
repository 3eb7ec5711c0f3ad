"""Results without some of their systems and scorers, made of the tables alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plait.benchmarks.results.files.about import Facts, RunAbout
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import TABLES
from plait.benchmarks.results.files.writing import place_file, write_about, write_errors
from plait.generators.system import ROLES
from plait.pipelines.systems import parts_of

T = TypeVar("T")
Rows = Callable[[pa.Table], Any]
"""Returns which rows of a table stay, as a column of booleans."""
Entries = list[dict[str, Any]]
Forgotten = Mapping[str, Collection[str]]
"""By column of a table, the names whose rows go."""


def forget_rows(
    results: RunResults, systems: Collection[str], scorers: Collection[str], about: RunAbout
) -> None:
    """Write the tables without the rows of some systems and scorers, `run.json` last.

    `about` is what `run.json` is to say besides, as `about_without` returns it. With them
    go the records, prompts and images of answers that nothing else refers to. Raises
    StoreError where the files cannot be written, ResultsError where one is damaged.
    """
    with (
        tempfile.TemporaryDirectory(prefix="plait-results-") as place,
        write_errors(results.folder),
    ):
        rest = _Rest(results, Path(place))
        # These come first: they name the records, prompts and images that must stay.
        rest.forget({"system": systems}, "answers")
        rest.forget({"system": systems, "scorer": scorers}, "scores", "parts", "embeddings")
        rest.forget({"system_a": systems, "system_b": systems}, "comparisons")
        rest.keep("records", "key", rest.keys)
        rest.keep("prompts", "prompt", rest.prompts)
        if lost := rest.find_lost_images():
            rest.forget({"digest": lost}, "images")
        tables = {**results.tables, **rest.tables}
        content = {
            "tables": {name: files for name, files in tables.items() if files},
            "records": results.records,
        }
        write_about(results.folder, content | about.as_json)


def about_without(
    about: RunAbout, systems: Collection[str], scorers: Collection[str]
) -> RunAbout:
    """Return what is said of a run without some systems and scorers, and their stages."""
    left = [facts for facts in about.systems if facts["name"] not in systems]
    judging = [facts for facts in about.scorers if facts["name"] not in scorers]
    used = set[str | None]()
    models = set[str]()
    for facts in left:
        used.update(facts[name] for name in ROLES)
        models.update(parts_of(facts["name"]).models)
    for facts in judging:
        used.update(facts["stages"])
    figures: dict[str, list[Facts]] = {}
    for name, of_systems in about.figures.items():
        if name in scorers:
            continue
        figures[name] = []
        # They are in the order of the systems.
        for facts, figure in zip(about.systems, of_systems, strict=True):
            if facts["name"] not in systems:
                figures[name].append(figure)
    rubrics = {**about.rubrics}
    for name in scorers:
        rubrics.pop(name, None)
    return replace(
        about,
        systems=left,
        scorers=judging,
        stages=_only(about.stages, used),
        figures=figures,
        licences=_only(about.licences, models),
        rubrics=rubrics,
        unreadable=[folder for folder in about.unreadable if folder in used],
    )


def _only(table: Mapping[str, T], names: Container[Any]) -> dict[str, T]:
    """Return the entries of a table under some names, in its order."""
    return {name: value for name, value in table.items() if name in names}


class _Rest:
    """Writes what is left of tables, and knows what it refers to."""

    def __init__(self, results: RunResults, place: Path) -> None:
        self._results = results
        self._place = place
        self.tables: dict[str, Entries] = {}
        self.keys = pa.array([], pa.string())
        """Of the records that are referred to."""
        self.prompts = pa.array([], pa.string())
        self._lost: set[str] = set()
        """Images in answers that are gone."""

    def forget(self, forgotten: Forgotten, *tables: str) -> None:
        """Write tables without the rows that have one of the names."""

        def stays(table: pa.Table) -> Any:
            mask = pa.array([True] * len(table))
            for column, names in forgotten.items():
                gone = pc.is_in(table.column(column), pa.array([*names], pa.string()))
                mask = pc.and_(mask, pc.invert(gone))
            return mask

        for name in tables:
            self._copy(name, stays)

    def keep(self, table: str, column: str, among: pa.Array) -> None:
        """Write a table with the rows alone whose column is among some values."""
        self._copy(table, lambda rows: pc.is_in(rows.column(column), among))

    def find_lost_images(self) -> set[str]:
        """Return the digests of images that only answers which are gone referred to."""
        lost = set(self._lost)
        if not lost:
            return lost  # The tables need not be read.
        for name in ("queries", "answers", "prompts"):
            entries = self.tables.get(name, self._results.tables.get(name, ()))
            for table in self._groups(entries):
                lost -= _images_in(table)
        return lost

    def _copy(self, name: str, stays: Rows) -> None:
        """Write a table with the rows that stay; files that lose none are left alone."""
        entries = []
        for entry in self._results.tables.get(name, ()):
            target = self._place / f"{name}.parquet"
            rows = 0
            with pq.ParquetWriter(
                target, TABLES[name], compression="zstd", write_page_checksum=True
            ) as file:
                for table in self._groups([entry]):
                    mask = stays(table)
                    left = table.filter(mask)
                    self._note(name, left, table.filter(pc.invert(mask)))
                    if len(left):
                        file.write_table(left, row_group_size=len(left))
                        rows += len(left)
            if rows == entry["rows"]:
                entries.append(dict(entry))
            elif rows:
                entries.append(place_file(target, name, self._results.folder, rows))
        self.tables[name] = entries

    def _note(self, name: str, left: pa.Table, gone: pa.Table) -> None:
        """Note what rows that stay refer to, and the images of answers that do not."""
        if "jobs" in left.column_names:
            jobs = left.column("jobs").combine_chunks().flatten()
            self.keys = _union(self.keys, pc.struct_field(jobs, "key"))
            self.prompts = _union(self.prompts, pc.struct_field(jobs, "prompt"))
        if name == "answers":
            self._lost |= _images_in(gone)

    def _groups(self, entries: Iterable[Mapping[str, Any]]) -> Iterator[pa.Table]:
        for entry in entries:
            with self._results.open_file(entry) as file:
                for group in range(file.metadata.num_row_groups):
                    yield file.read_row_group(group)


def _union(known: pa.Array, more: pa.Array) -> pa.Array:
    return pc.unique(pa.concat_arrays([known, pc.drop_null(more)]))


def _images_in(rows: pa.Table) -> set[str]:
    """Return the digests of images that a table refers to and that no record holds."""
    found = set[str]()
    left = [column.combine_chunks() for column in rows.columns]
    while left:
        column = left.pop()
        if pa.types.is_list(column.type):
            left.append(column.flatten())
        elif pa.types.is_struct(column.type):
            parts = {part.name: pc.struct_field(column, part.name) for part in column.type}
            if (images := parts.pop("image", None)) is not None:
                if "part" in parts:
                    images = images.filter(pc.is_null(parts["part"]))
                found.update(pc.unique(pc.drop_null(images)).to_pylist())
            left += parts.values()
    return found
