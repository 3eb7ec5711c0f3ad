"""Systems of a run in a local store of trackio, with a table of answers and their images.

`TRACKIO_DIR=OUT trackio show` shows them, and `trackio sync` sends them.
"""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plait.benchmarks.runs.exporters.tracked import (
    Row,
    TrackedSystem,
    TrackerClient,
    write_tracked,
)
from plait.benchmarks.runs.run_data import RunData
from plait.generators.errors import UsageError, WriteError
from plait.generators.extras import import_extra


def export(run: RunData, systems: Sequence[str], out: Path) -> str:
    """Write one run of trackio for each system; return what was written, in words."""
    written = write_tracked(run, systems, out, CLIENT)
    return f"{written} written to {out}; `TRACKIO_DIR={out} trackio show` shows them"


def write(tracked: TrackedSystem, out: Path) -> None:
    """Write one run into the store `out`, which the environment names.

    UsageError for a name that trackio reserves; WriteError where the run is not in the
    store afterwards, since the client only warns of what it could not write.
    """
    trackio = import_extra("trackio", "--format trackio")
    rows = [_cells(trackio, row) for row in tracked.rows]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            trackio.init(
                tracked.project,
                name=tracked.name,
                group=tracked.group,
                config=dict(tracked.config),
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        except ValueError as error:
            raise UsageError(f"--format trackio: {error}") from error
        trackio.log({**tracked.metrics, "answers": trackio.Table(data=rows)})
        trackio.finish()
    stored = {run.name for run in trackio.Api().runs(tracked.project)}
    if tracked.name not in stored:
        raise WriteError(errno.EIO, f"trackio could not write {tracked.name} to {out}")


def _cells(trackio: Any, row: Row) -> dict[str, Any]:
    return {column: _cell(trackio, value) for column, value in row.items()}


def _cell(trackio: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [trackio.Image(path) for path in value] or ""
    return value


def _variables(out: Path) -> Mapping[str, str]:
    # With a token of the Hub at hand, the client would ask there whose it is.
    return {"TRACKIO_DIR": str(out), "HF_HUB_OFFLINE": "1"}


CLIENT = TrackerClient(
    form="trackio",
    modules=("trackio",),
    write=write,
    prefix="TRACKIO_",
    variables=_variables,
)
