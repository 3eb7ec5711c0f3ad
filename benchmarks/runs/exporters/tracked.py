"""What an experiment tracker keeps of a run: one tracker run for each of its systems.

Trackers set numbers of several runs side by side, so that each system becomes a run of its
own, and the plait run is the group. A mean that is not there is no metric: its reason is in
the config, and what failed, was skipped or is unscored is counted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.leaderboard import MICRO, leaderboard, parts_of
from plait.benchmarks.runs.answers import QueryAnswer
from plait.benchmarks.runs.run_data import RunData
from plait.benchmarks.tasks.mmie.official import ImageFiles, claim
from plait.cluster.store import read_blob
from plait.generators.base import DOCUMENT_OUTCOMES, SCORE_OUTCOMES, StageSpec
from plait.generators.content import text_with_marks
from plait.generators.document import Content, Image, Query
from plait.generators.extras import import_extra, require_extra
from plait.generators.system import DescribedSystem
from plait.scorers.base import Scorer

MOST_QUERIES = 200
"""Whose answers are in the tables, as many as the page of a run shows by default."""
QUESTION_IMAGES = "question images"
IMAGES = "images"
"""The columns of images in a table of answers."""
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrackedSystem:
    """One system of a run, as plain values that go to another process."""

    project: str
    """The name of the task set: what runs of one project answer is the same."""
    group: str
    """The name of the plait run."""
    name: str
    config: Mapping[str, Any]
    """What the numbers depend on, as JSON can hold it."""
    metrics: Mapping[str, float]
    """Means, ends of intervals and counts, all of them finite."""
    weights: str
    """`pretrained`, `mini`, ...; "" of a system without models."""
    warning: str
    """What readers must know before any number; as the tables say it."""
    rows: Sequence[Row]
    """The table of answers; images are paths of files, in lists."""


@dataclass(frozen=True, kw_only=True)
class TrackerClient:
    """How the program of a tracker is started: in a process with an environment of its own.

    Most of these programs read their settings from the environment when they are imported.
    The user's could name a server; an export is a folder.
    """

    form: Literal["mlflow", "trackio", "wandb"]
    """The format's name, which its extra of plait has too."""
    modules: Sequence[str]
    """What has to be installed (`plait.generators.extras`)."""
    write: Callable[[TrackedSystem, Path], None]
    prefix: str
    """Of the variables that the program reads, which are not passed on."""
    variables: Callable[[Path], Mapping[str, str]]
    """Set in their place, by the folder of the export."""


def write_tracked(
    run: RunData, systems: Sequence[str], out: Path, client: TrackerClient
) -> str:
    """Write systems of a run to the folder `out`, new or empty; return how many, in words.

    What was written is removed where one of them cannot be.
    """
    require_extra(client.form, f"--format {client.form}")
    out = out.absolute()
    variables = client.variables(out)
    with (
        # Spawned: a fork would keep what this process has imported and read already.
        _environment(client.prefix, variables),
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process,
    ):
        process.submit(require, client.form, client.modules).result()
        claim(out)
        try:
            for tracked in iter_systems(run, systems, out):
                process.submit(client.write, tracked, out).result()
        except BaseException:
            # Ctrl-C too leaves no half of an export.
            shutil.rmtree(out, ignore_errors=True)
            raise
    shutil.rmtree(out / "images", ignore_errors=True)
    shown = min(MOST_QUERIES, len(run.queries))
    left = f" (tables: {_of_queries(run)})" if shown < len(run.queries) else ""
    return f"{len(systems):,} {'system' if len(systems) == 1 else 'systems'}{left}"


def require(form: str, modules: Iterable[str]) -> None:
    """Import the modules that a format needs; UsageError where one is not installed."""
    for module in modules:
        import_extra(module, f"--format {form}")


@contextmanager
def _environment(prefix: str, variables: Mapping[str, str]) -> Iterator[None]:
    """Within it, processes start with `variables` and no other that has `prefix`."""
    former = dict(os.environ)
    for name in former:
        if name.startswith(prefix):
            del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)


def iter_systems(
    run: RunData, systems: Sequence[str], place: Path
) -> Iterator[TrackedSystem]:
    """Yield what trackers keep of some systems of a run, one after the other.

    Images are written to `place / "images"`, each once.
    """
    (place / "images").mkdir()
    images = ImageFiles(place, read_blob)
    board = run.board
    about = run.manifest
    rows = {row["system"]: row for row in leaderboard(board)}
    for system in board.systems:
        if system.name not in systems:
            continue
        row = rows[system.name]
        answers = _iter_answers(run, system.name)
        yield TrackedSystem(
            project=str(about["data"]["name"]),
            group=run.root.name,
            name=system.name,
            config=_config(run, board, system, row),
            metrics=metrics_of(row),
            weights=row["weights"] or "",
            warning=board.warning,
            rows=[_table_row(run, answer, images) for answer in answers],
        )


# ------------------------------------------------------------------------------ numbers


def metrics_of(row: Row) -> dict[str, float]:
    """Return the numbers in a row of the leaderboard, named as in `leaderboard.json`.

    `SCORER/avg_micro/mean`, `SCORER/category/NAME/ci95_low`, `SCORER/unscored`,
    `answers/failed`, ...
    """
    metrics: dict[str, float] = {}
    for name in ("planned", *DOCUMENT_OUTCOMES):
        metrics[f"answers/{name}"] = row[name]
    for scorer, scores in row["scores"].items():
        for outcome in SCORE_OUTCOMES:
            metrics[f"{scorer}/{outcome.of_scores}"] = scores[MICRO][outcome.of_scores]
        for place, cell in _means(scorer, scores):
            metrics[f"{place}/n"] = cell["n"]
            if cell["mean"] is not None:
                metrics[f"{place}/mean"] = cell["mean"]
            if cell["ci95"] is not None:
                metrics[f"{place}/ci95_low"] = cell["ci95"][0]
                metrics[f"{place}/ci95_high"] = cell["ci95"][1]
    return metrics


def _means(scorer: str, scores: Row) -> Iterator[tuple[str, Row]]:
    """Yield the means of a scorer, but for those by field, with their names."""
    for part, group, cell in parts_of(scores):
        if part != "field":
            names = [name for name in (scorer, part, group) if name]
            yield "/".join(names), cell


# ------------------------------------------------------------------------------- config


def _config(
    run: RunData, board: Board, system: DescribedSystem, row: Row
) -> dict[str, Any]:
    """Return what the numbers of a system depend on; no path of this machine is in it."""
    about = run.manifest
    asked = about["config"]
    data = about["data"]
    scorers = {scorer.name: _facts_of_scorer(scorer) for scorer in board.scorers}
    return {
        "system": system.name,
        "models": facts_of(system.stages),
        "weights": row["weights"],
        "warning": board.warning,
        "data": {name: data.get(name) for name in ("name", "revision", "digest", "rows")},
        "selection": about["selection"],
        "queries": row["n"],
        **{name: asked[name] for name in ("seed", "repeats", "mode")},
        "scorers": scorers,
        "reasons": _reasons(row),
        "plait": about["packages"].get("plait", ""),
        "run": run.root.name,
        "run_digest": about["run_digest"],
        "table": _of_queries(run),
        **board.mark_of(system.name),
    }


def _reasons(row: Row) -> dict[str, str]:
    """Return why means are not there, named as the means are."""
    reasons = {}
    for scorer, scores in row["scores"].items():
        for place, cell in _means(scorer, scores):
            if cell.get("reason"):
                reasons[place] = cell["reason"]
    return reasons


def facts_of(stages: Iterable[StageSpec]) -> dict[str, dict[str, Any]]:
    """Return the models of stages with all settings that their results depend on."""
    return {stage.name: _facts_of_stage(stage) for stage in stages}


def _facts_of_stage(stage: StageSpec) -> dict[str, Any]:
    return {
        "model": stage.identity or stage.target,
        "weights": stage.weights and str(stage.weights),
        **stage.settings,
    }


def _facts_of_scorer(scorer: Scorer) -> dict[str, Any]:
    return {
        "scale": scorer.scale,
        "direction": scorer.direction,
        "manner": scorer.manner,
        "models": facts_of(scorer.stages),
    }


# ------------------------------------------------------------------------------ answers


def _of_queries(run: RunData) -> str:
    """Say of how many queries the tables are."""
    total = len(run.queries)
    if total <= MOST_QUERIES:
        return f"all {total:,} queries"
    return f"the first {MOST_QUERIES:,} of {total:,} queries"


def _iter_answers(run: RunData, system: str) -> Iterator[QueryAnswer]:
    """Yield the answers of a system that are in its table, repeats of a query together."""
    repeats = range(1, run.manifest["config"]["repeats"] + 1)
    queries = [*islice(run.queries, MOST_QUERIES)]
    answers = [run.answers(system=system, query=queries, repeat=n) for n in repeats]
    for of_query in zip(*answers, strict=True):
        yield from of_query


def _table_row(run: RunData, answer: QueryAnswer, images: ImageFiles) -> Row:
    """Return an answer as a row: its question, its content, and every score or why not."""
    query = answer.query.sample
    document = answer.document
    asked = query.question if isinstance(query, Query) else ()
    row: dict[str, Any] = {
        "query": answer.query.id,
        "category": query.category,
        "field": query.field,
        "repeat": answer.repeat,
        "question": text_with_marks(asked),
        QUESTION_IMAGES: _paths(images, asked),
        "answer": "" if document is None else text_with_marks(document.segments),
        IMAGES: [] if document is None else _paths(images, document.segments),
        "outcome": str(answer.outcome),
        "reason": answer.reason,
    }
    for name in run.scorers:
        verdict = answer.scores.get(name)
        row[name] = None if verdict is None else verdict.value
        without = verdict is not None and verdict.value is None
        row[f"{name}: why not"] = str(verdict) if without else ""
    return row


def _paths(files: ImageFiles, content: Content) -> list[str]:
    """Return the places of the images in content, which are written where they are not."""
    paths = []
    for segment in content:
        if isinstance(segment, Image):
            paths.append(str(files.out / files.path(segment)))
    return paths
