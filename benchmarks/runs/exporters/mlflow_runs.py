"""Systems of a run in a file store of MLflow, with tables of answers and of images.

Not in a database, which needs more packages than the client: `mlflow migrate-filestore`
takes the runs into one. MLflow's tables show a column of images only where every row has
one, so that images have a table of their own, a row each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plait.benchmarks.runs.exporters.tracked import (
    IMAGES,
    QUESTION_IMAGES,
    Row,
    TrackedSystem,
    TrackerClient,
    write_tracked,
)
from plait.benchmarks.runs.run_data import RunData
from plait.generators.extras import import_extra

STORE = "mlruns"
"""The folder of the store, which no other file may be in."""
_NOT_IN_NAMES = re.compile(r"[^\w.\-/ :]", re.ASCII)
_LONGEST = 500
"""Characters of a parameter's value that databases have room for."""


def export(run: RunData, systems: Sequence[str], out: Path) -> str:
    """Write one run of MLflow for each system; return what was written, in words."""
    written = write_tracked(run, systems, out, CLIENT)
    shown = f"MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {out / STORE}"
    return f"{written} written to {out}; `{shown}` shows them"


def write(tracked: TrackedSystem, out: Path) -> None:
    """Write one run into the store below `out`."""
    mlflow = import_extra("mlflow", "--format mlflow")
    store = (out / STORE).as_uri()
    client = mlflow.MlflowClient(tracking_uri=store, registry_uri=store)
    known = client.get_experiment_by_name(tracked.project)
    experiment = known.experiment_id if known else client.create_experiment(tracked.project)
    tags = {"plait.run": tracked.group}
    if tracked.weights:
        tags["weights"] = tracked.weights
    if tracked.warning:
        tags["mlflow.note.content"] = tracked.warning
    run = client.create_run(experiment, run_name=tracked.name, tags=tags).info.run_id
    client.log_dict(run, dict(tracked.config), "config.json")
    # Reasons why means lack stand in that file alone.
    for name, value in _flat({**tracked.config, "reasons": None}):
        client.log_param(run, _name(name), str(value)[:_LONGEST])
    for name, value in tracked.metrics.items():
        client.log_metric(run, _name(name), value)
    tables = {
        "answers.json": [_without_images(row) for row in tracked.rows],
        "images.json": [*_of_images(tracked.rows, mlflow.Image)],
    }
    for file, rows in tables.items():
        if rows:
            client.log_table(run, _columns(rows), file)
    client.set_terminated(run)


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return the values of rows by column, as MLflow takes a table."""
    columns: dict[str, list[Any]] = {name: [] for name in rows[0]}
    for row in rows:
        for name, values in columns.items():
            values.append(row[name])
    return columns


def _name(name: str) -> str:
    """Return a name of letters that MLflow takes."""
    return _NOT_IN_NAMES.sub("_", name)


def _flat(config: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables with their paths as names."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{name}.")
        elif value is not None:
            yield f"{place}{name}", value


def _without_images(row: Row) -> dict[str, Any]:
    """Return a row with the number of images in the place of their paths."""
    counts = {name: len(row[name]) for name in (QUESTION_IMAGES, IMAGES)}
    return {**row, **counts}


def _of_images(rows: Sequence[Row], image: Any) -> Iterator[dict[str, Any]]:
    """Yield a row for each image, with all else that is in the row it stands in."""
    for row in rows:
        for column, part in ((QUESTION_IMAGES, "question"), (IMAGES, "answer")):
            for number, path in enumerate(row[column], start=1):
                shown = {"image": image(path), "of": part, "number": number}
                yield shown | _without_images(row)


def _variables(out: Path) -> Mapping[str, str]:
    return {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}


CLIENT = TrackerClient(
    form="mlflow",
    modules=("pandas", "mlflow"),
    write=write,
    prefix="MLFLOW_",
    variables=_variables,
)
