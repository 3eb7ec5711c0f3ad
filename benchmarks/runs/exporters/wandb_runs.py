"""Systems of a run as offline runs of Weights & Biases, with a table of images.

`wandb sync OUT/wandb/offline-run-*` sends them, as long as the folder has not been moved:
they name files in it.
"""

from __future__ import annotations

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
from plait.generators.files import safe_name


def export(run: RunData, systems: Sequence[str], out: Path) -> str:
    """Write one offline run of W&B for each system; return what was written, in words."""
    written = write_tracked(run, systems, out, CLIENT)
    return f"{written} written to {out}; `wandb sync {out}/wandb/offline-run-*` sends them"


def write(tracked: TrackedSystem, out: Path) -> None:
    """Write one run below `out`."""
    wandb = import_extra("wandb", "--format wandb")
    run = wandb.init(
        mode="offline",
        dir=out,
        project=safe_name(tracked.project),
        group=tracked.group,
        job_type="evaluation",
        name=tracked.name,
        config=dict(tracked.config),
        tags=[tracked.weights] if tracked.weights else None,
        notes=tracked.warning or None,
        # What it would note of this machine is not of the run.
        settings=wandb.Settings(
            disable_git=True,
            console="off",
            silent=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
            host="",
        ),
    )
    rows = list(_with_image_columns(tracked.rows))
    table = wandb.Table(columns=list(rows[0]) if rows else [])
    for row in rows:
        cells = [_cell(wandb, value) for value in row.values()]
        table.add_data(*cells)
    run.log({**tracked.metrics, "answers": table})
    run.finish()


def _with_image_columns(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield rows with a column for each image: W&B types columns, not lists in them.

    Where a row has fewer images than another, its further columns are None.
    """
    most_images = {QUESTION_IMAGES: 0, IMAGES: 0}
    for row in rows:
        for column in most_images:
            most_images[column] = max(most_images[column], len(row[column]))
    for row in rows:
        cells: dict[str, Any] = {}
        for column, value in row.items():
            if column not in most_images:
                cells[column] = value
                continue
            name = column.removesuffix("s")
            for number in range(most_images[column]):
                path = Path(value[number]) if number < len(value) else None
                cells[f"{name} {number + 1}"] = path
        yield cells


def _cell(wandb: Any, value: Any) -> Any:
    return wandb.Image(value) if isinstance(value, Path) else value


def _variables(out: Path) -> Mapping[str, str]:
    kinds = ("CACHE", "CONFIG", "DATA")
    places = {f"WANDB_{kind}_DIR": str(out / "wandb") for kind in kinds}
    return places | {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}


CLIENT = TrackerClient(
    form="wandb",
    modules=("wandb",),
    write=write,
    prefix="WANDB_",
    variables=_variables,
)
