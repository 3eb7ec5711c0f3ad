"""The forecast in the manifest: made at the start, then compared with the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.results.board import Board
from benchmarks.runs.forecast.forecast import Forecast
from benchmarks.runs.forecast.outcome import outcome_lines, outcome_of
from benchmarks.runs.run_directory import is_run, read_manifest
from cluster.manifest import write_json
from cluster.run import MANIFEST, RunResult

FORECAST, OUTCOME, PICTURES = "forecast", "forecast_outcome", "pictures_per_document"
"""Entries of the manifest."""


def kept_forecast(forecast: Forecast, root: Path) -> dict[str, Any]:
    """The manifest's entries at the start of a command.

    Those of the last command that made something stay where there is nothing to make.
    """
    former = read_manifest(root) if is_run(root) else {}
    kept = {PICTURES: former[PICTURES]} if PICTURES in former else {}
    if forecast.stages:
        return kept | {FORECAST: forecast.as_json()}
    return kept | {name: former[name] for name in (FORECAST, OUTCOME) if name in former}


def concluded(
    root: Path, forecast: Forecast, result: RunResult, board: Board, since_us: int
) -> list[str]:
    """Add the outcome to the manifest; one or two lines for people if records were made.

    `since_us` is when the command began, in microseconds since the epoch.
    """
    manifest = read_manifest(root)
    manifest[PICTURES] = board.images_per_document
    lines: list[str] = []
    if result.made and forecast.stages and not result.interrupted:
        outcome = outcome_of(root, manifest, result.seconds, since_us)
        lines = outcome_lines(manifest[FORECAST], outcome)
        manifest[OUTCOME] = outcome | {"lines": lines}
    write_json(root / MANIFEST, manifest)
    return lines
