"""The files of a run's results: their schema, and who can read them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow.parquet as pq
import pytest
from boards import stored_results
from golden_runs import HERE, RUNS
from pages import DOCS
from trial import Measuring, as_asked, filled, sample, system_of_stages, writer

from plait.benchmarks.results.files import boards
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import ABOUT, FOLDER, TABLES
from plait.benchmarks.runs.opening import make_results, open_results
from plait.cluster.plan import Plan, evaluations
from plait.cluster.store import StoreError, read_blob
from plait.generators.base import Result

pytestmark = pytest.mark.models


def recorded(name: str, place: Path) -> Path:
    """A copy of a recorded run, with its data."""
    shutil.copytree(RUNS / name, place, dirs_exist_ok=True)
    for manifest in place.rglob("manifest.json"):
        manifest.write_text(manifest.read_text().replace(HERE, str(place)))
    return place / "run"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunResults]:
    """Results of runs that together have every table."""
    names = ("mmie", "pairings")
    places = {name: recorded(name, tmp_path_factory.mktemp(name)) for name in names}
    return {name: open_results(place) for name, place in places.items()}


@pytest.mark.parametrize("table", sorted({*TABLES} - {"comparisons", "replies"}))
def test_pandas_reads_every_table(runs: dict[str, RunResults], table: str) -> None:
    run = next(run for run in runs.values() if table in run.tables)
    files = [run.folder / entry["file"] for entry in run.tables[table]]
    frame = pd.concat(map(pd.read_parquet, files))
    assert [*frame.columns] == TABLES[table].names
    assert len(frame) == sum(entry["rows"] for entry in run.tables[table]) > 0


def test_a_stage_that_systems_call_by_two_names_is_one(tmp_path: Path) -> None:
    drafts = [replace(writer(), name=name) for name in ("writer", "the same one")]
    systems = [system_of_stages(name=f"{n}", draft=draft) for n, draft in enumerate(drafts)]
    plan = Plan(
        systems=systems, queries=[sample(0)], scorers=[Measuring()], prompt=as_asked
    )
    store = filled(plan, tmp_path)
    results = stored_results(
        evaluations(plan, store),
        systems=systems,
        scorers=plan.scorers,
        categories={},
        fields=(),
        weights="tiny",
        store=store,
    )
    folders = {system.roles["draft"].folder for system in results.systems}
    assert folders == {drafts[0].folder}
    records = results.table("records").column("stage").to_pylist()
    assert records.count(drafts[0].folder) == 1
    assert results.board.values["measure"].shape == (1, 2)


def test_row_groups_hold_answers_of_one_system_each(runs: dict[str, RunResults]) -> None:
    run = runs["pairings"]
    (entry,) = run.tables["answers"]
    import pyarrow.parquet as pq

    with pq.ParquetFile(run.folder / entry["file"]) as file:
        groups = range(file.metadata.num_row_groups)
        columns = [file.read_row_group(i, columns=["system"]).column(0) for i in groups]
    assert all(len(set(column.to_pylist())) == 1 for column in columns)
    assert len(columns) == len(run.systems)


def test_columns_of_several_row_groups_are_read_as_one(runs: dict[str, RunResults]) -> None:
    """Where every row group kept all names, a board took time by their product."""
    run = runs["pairings"]
    (entry,) = run.tables["answers"]
    assert pq.ParquetFile(run.folder / entry["file"]).num_row_groups > 1
    table = boards._columns_of(run, "answers", boards._OF_ANSWERS)
    assert {column.num_chunks for column in table.columns} == {1}
    assert len(table) == entry["rows"]


def test_images_are_shown_by_datasets(runs: dict[str, RunResults], tmp_path: Path) -> None:
    run = runs["mmie"]
    files = [str(run.folder / entry["file"]) for entry in run.tables["images"]]
    rows = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path)
    )
    assert all(row["image"].size > (0, 0) for row in rows)
    assert {row["digest"] for row in rows} == {*run._image_places}


def test_equal_results_have_equal_files(tmp_path: Path) -> None:
    root = recorded("native", tmp_path)
    names = [sorted(p.name for p in make_results(root).folder.iterdir()) for _ in "ab"]
    first = (root / FOLDER / ABOUT).read_bytes()
    make_results(root)
    assert names[0] == names[1]
    assert (root / FOLDER / ABOUT).read_bytes() == first


def test_answers_are_read_where_the_records_are_not(tmp_path: Path) -> None:
    root = recorded("mmie", tmp_path)
    expected = [e.scores for e in open_results(root).evaluations()]
    shutil.rmtree(root / "stages")
    shutil.rmtree(tmp_path / "data")
    results = open_results(root)
    found = [*results.evaluations()]
    assert [e.scores for e in found] == expected
    (image, *_) = (
        image
        for e in found
        if isinstance(e.document, Result)
        for image in e.document.value.images
        if results.root / "stages" in Path(image.place or "").parents
    )
    with pytest.raises(StoreError):
        read_blob(image)


def test_models_are_described_by_size_licence_and_version(tmp_path: Path) -> None:
    about = open_results(recorded("native", tmp_path)).about
    assert about.licences["anole"]
    assert about.versions["plait"]
    drafts = [own for own in about.stages.values() if own["kind"] == "draft"]
    assert all(own["params_b"] is None or own["params_b"] > 0 for own in drafts)


def test_some_answers_are_read_without_the_others(runs: dict[str, RunResults]) -> None:
    run = runs["pairings"]
    every = [*run.evaluations()]
    keys, system = [*run.heads][1:3], run.systems[2].name
    wanted = [e for e in every if e.query.id in keys and e.system == system]
    found = [*run.evaluations(keys, systems=[system])]
    assert [(e.query, e.repeat, e.document) for e in found] == [
        (e.query, e.repeat, e.document) for e in wanted
    ]


def test_costs_are_those_of_records(runs: dict[str, RunResults]) -> None:
    """Each counts once in the total, and in full in all that is made of it."""
    run = runs["pairings"]
    records = {row["key"]: row for row in run.rows("records")}
    used: dict[str, Any] = {}
    for table in ("answers", "scores"):
        for row in run.rows(table):
            used |= {job["key"]: records[job["key"]]["seconds"] for job in row["jobs"]}
    assert run.board.spent[""]["seconds"] == pytest.approx(sum(used.values()))
    assert json.loads((run.folder / ABOUT).read_text())["schema"] == 1


def test_the_page_names_every_key_of_run_json(runs: dict[str, RunResults]) -> None:
    named = (DOCS / "results.md").read_text().partition("## Tables")[0]
    for run in runs.values():
        content = json.loads((run.folder / ABOUT).read_text())
        entries = [entry for files in content["tables"].values() for entry in files]
        keys = {*content}.union(*entries)
        assert {key for key in keys if f"`{key}`" not in named} == set()
