"""Means of a run as the model pages of Hugging Face show them: `.eval_results/*.yaml`.

A value there stands beside others' under the name of a benchmark, so that it is written
only where that name is true: one published model, all queries of a data set of the Hub,
and a task of that data set's `eval.yaml` that the user names with the scorer which is its
metric. The file is what `huggingface_hub.EvalResultEntry` describes
(https://huggingface.co/docs/hub/eval-results).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.leaderboard import (
    AVERAGES,
    LeaderboardRow,
    headline,
    leaderboard,
)
from plait.benchmarks.results.leaderboard_tables import HEADINGS
from plait.benchmarks.runs.run_data import RunData
from plait.benchmarks.tasks.mmie.official import claim
from plait.benchmarks.tasks.reading.sources import HUB
from plait.benchmarks.terminal import command_text
from plait.generators.base import StageSpec
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.names import unknown
from plait.generators.system import DescribedSystem

FOLDER = ".eval_results"


@dataclass(frozen=True, kw_only=True)
class HubTask:
    """A task of a data set of the Hub that is a benchmark."""

    dataset: str
    """ORG/NAME."""
    revision: str | None
    """The commit that the run read."""
    id: str
    """As the data set's `eval.yaml` calls it."""
    scorer: str
    """Whose mean is the task's value."""


def export(run: RunData, systems: Sequence[str], out: Path, task: str | None) -> str:
    """Write ORG/NAME/.eval_results/DATASET.yaml for each model; return which, in words.

    Args:
        run: The run.
        systems: The names of the systems whose models are written.
        out: A folder, new or empty; below it are the files of each model's repository.
        task: `ID=SCORER`: a task of the data set's `eval.yaml`, and what measures it.

    Raises:
        UsageError: Where the data are not a whole data set of the Hub, or no system is one
            published model with a mean of all its answers.
    """
    measured = hub_task(run.manifest, task, run.scorers)
    (scorer,) = [one for one in run.board.scorers if one.name == measured.scorer]
    kinds = _unpublished_kinds(scorer.stages)
    if kinds:
        raise UsageError(
            f"--format eval-results: {scorer.name} ran with weights that are not the "
            f"published ones ({kinds})"
        )
    named = [system for system in run.board.systems if system.name in systems]
    models, refused = _by_model(run.board, named, measured.scorer)
    if not models:
        raise UsageError(
            f"no system corresponds to a model on the Hub. {'; '.join(refused)}"
        )
    claim(out)
    for model, system in models.items():
        entry = _entry(run, system, measured)
        folder = out / model / FOLDER
        folder.mkdir(parents=True)
        name = measured.dataset.rpartition("/")[2]
        write_whole(folder / f"{name}.yaml", yaml.safe_dump([entry], sort_keys=False))
    left = f"; left out: {'; '.join(refused)}" if refused else ""
    first = next(iter(models))
    sent = command_text("hf", "upload", first, out / first, ".", "--create-pr")
    return f"results of {', '.join(models)} written to {out}; `{sent}` proposes one{left}"


def _by_model(
    board: Board, systems: Iterable[DescribedSystem], scorer: str
) -> tuple[dict[str, DescribedSystem], list[str]]:
    """Return systems by the model that they are, and why others are left out.

    UsageError where two of them are one model.
    """
    models: dict[str, DescribedSystem] = {}
    refused = []
    for system in systems:
        why = without_page(board, system, scorer)
        if why:
            refused.append(f"{system.name}: {why}")
            continue
        model = system.stages[0].identity.partition("@")[0]
        if model in models:
            raise UsageError(
                f"{models[model].name} and {system.name} are both {model}, which has one "
                "value for a task: name one of them with --system"
            )
        models[model] = system
    return models, refused


def hub_task(about: Mapping[str, Any], task: str | None, scorers: Sequence[str]) -> HubTask:
    """Return the task that a run with the manifest `about` answers. UsageError."""
    data = about["data"]
    _, of_hub, place = str(data.get("source") or "").partition(HUB)
    dataset = place.partition("@")[0]
    if not of_hub:
        raise UsageError(
            f"--format eval-results: the data of the run ({data['name']}) are not a "
            "data set on the Hub (hf:ORG/NAME), so no leaderboard there covers them"
        )
    if about["selection"] or about["config"]["limit"] or about["config"]["ids"]:
        raise UsageError(
            "--format eval-results: the run answers only part of the queries, and a "
            "benchmark's result is over all of them"
        )
    id, _, scorer = (task or "").partition("=")
    if not (id and scorer):
        raise UsageError(
            "--format eval-results needs --task ID=SCORER: a task in the eval.yaml of "
            f"{dataset}, and the scorer that is its metric: {', '.join(scorers)}"
        )
    if scorer not in scorers:
        raise unknown("scorer", scorer, scorers)
    return HubTask(dataset=dataset, revision=data.get("revision"), id=id, scorer=scorer)


def without_page(board: Board, system: DescribedSystem, scorer: str) -> str:
    """Return why no model's page can hold the mean of a system; "" where one can."""
    if not system.stages:
        return "it has no model"
    kinds = _unpublished_kinds(system.stages)
    if kinds:
        return f"its weights are not the published ones ({kinds})"
    models = {stage.identity.partition("@")[0] for stage in system.stages if stage.identity}
    if len(models) != 1 or not all(_is_of_hub(model) for model in models):
        return f"it is not one model of the Hub ({', '.join(sorted(models)) or 'none'})"
    rows = leaderboard(board)
    row = _row_of(rows, system)
    if row["missing"] or board.damaged:
        return f"{row['missing']:,} answers are not made yet or lost"
    cell = row["scores"][scorer][headline(rows, scorer)]
    return f"it has no mean: {cell['reason']}" if cell["mean"] is None else ""


def _row_of(rows: Iterable[LeaderboardRow], system: DescribedSystem) -> LeaderboardRow:
    """Return the row of the leaderboard for a system."""
    (row,) = [row for row in rows if row["system"] == system.name]
    return row


def _is_of_hub(model: str) -> bool:
    """Return whether an identity is ORG/NAME; those of providers have a prefix."""
    return "/" in model and ":" not in model


def _unpublished_kinds(stages: Iterable[StageSpec]) -> str:
    """Return the kinds of weights of stages that are not `pretrained`, with commas."""
    kinds = {str(stage.weights) for stage in stages if stage.weights is not None}
    return ", ".join(sorted(kinds - {"pretrained"}))


def _entry(run: RunData, system: DescribedSystem, task: HubTask) -> dict[str, Any]:
    """Return one entry of the list in a file."""
    rows = leaderboard(run.board)
    row = _row_of(rows, system)
    average = headline(rows, task.scorer)
    scores = row["scores"][task.scorer]
    cell = scores[average]
    dataset: dict[str, Any] = {"id": task.dataset, "task_id": task.id}
    if task.revision:
        dataset["revision"] = task.revision
    entry: dict[str, Any] = {"dataset": dataset, "value": cell["mean"]}
    finished = run.manifest.get("finished")
    if finished:
        entry["date"] = str(finished)
    counts = []
    for name, words in HEADINGS.items():
        if cell[name]:
            counts.append(f"{cell[name]:,} {words}")
    interval = "none"
    if cell["ci95"] is not None:
        low, high = cell["ci95"]
        interval = f"{low} to {high}"
    metric = f"{scores['scale']}, {scores['direction']} is better"
    if scores.get("manner"):
        metric = f"{metric}; {scores['manner']}"
    weights = sorted({stage.identity for stage in system.stages})
    notes = (
        f"plait {run.manifest['packages']['plait']}",
        f"{task.scorer} ({metric})",
        f"mean by {AVERAGES[average]}, n={cell['n']:,}, 95% interval {interval}",
        f"of {', '.join(counts)}",
        f"weights {', '.join(weights)}",
    )
    entry["notes"] = "; ".join(notes)
    return entry
