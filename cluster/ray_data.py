"""Runs any stage under `ray.data.Dataset.map_batches`, as part of a Ray Data pipeline.

    rows = ray.data.from_items(as_rows(jobs))
    rows.map_batches(BatchStage, fn_constructor_args=[spec, root], batch_size=8, ...)

Nothing is resumed and no bad record is isolated this way; the engine does both.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from plait.cluster.records import Item
from plait.cluster.worker import Worker
from plait.generators.base import Job, StageSpec


def as_rows(jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """Return one row a job, as Ray Data carries them."""
    rows: list[dict[str, Any]] = []
    for job in jobs:
        item = Item(job.key, job.label, job.input)
        rows.append({"key": job.key, "item": pickle.dumps(item)})
    return rows


class BatchStage:
    """The callable class that `map_batches` takes: commits records, returns their keys."""

    def __init__(self, spec: StageSpec, root: str | Path) -> None:
        self._worker = Worker(spec, str(root))
        self._worker.owns_process = False
        error = self._worker.load(shared=True)
        if error is not None:
            raise RuntimeError(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Columns `key` and `outcome` of the committed records."""
        items = [pickle.loads(data) for data in batch["item"]]
        receipt = self._worker.run(items)
        if receipt.status != "done":
            raise RuntimeError(receipt.error)
        keys = [item.key for item in items]
        return {"key": keys, "outcome": [receipt.rows[key].outcome for key in keys]}
