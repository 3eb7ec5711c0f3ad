"""plait from Python: runs as values; systems, stages and scorers without Ray.

`plait` exports all of this and imports it when it is first used. What a command would
print as an error is raised: `plait.UsageError` for wrong use; `plait.PlaitError` is the
root of all errors that people can fix.

Example:
    import plait

    run = plait.open_run("runs/x")          # a run that is there, as values
    print(run.systems, run.scorers)
    run.leaderboard                         # a notebook shows the table
    for id, answer in run.documents("anole").items():
        if answer.document is None:         # failed, skipped or missing: with the reason
            print(id, answer.outcome, answer.reason)
        else:                               # in a notebook, `answer` shows its images
            print(id, len(answer.document.images), answer.scores["clipscore"].value)
    run.table                               # all of it, as one pyarrow.Table
    run.scores.to_pandas()                  # the judgements; pandas has to be installed
    run.failures.to_pylist()                # everything without a value, and why

    print(plait.check("sample"))            # or a file of your own: what is understood

    options = {"systems": ["gt"], "scorers": [], "weights": "tiny", "limit": 3}
    planned = plait.plan(**options)         # the options of the command, as in a config
    planned.forecast_table              # wall time, GPU-hours, tokens, costs and disk
    if planned.ready():
        summary = plait.run(**options)      # quiet; called again, it resumes
        print(summary.counts["done"], summary.results.root)

    illustrate = plait.system("qwen2-vl-7b+sdxl-turbo", weights="tiny")
    document = illustrate("A cat on a mat.")    # text, PIL pictures, or run.queries[id]
    picture = document.pictures[0]
    judge = plait.scorer("clipscore", weights="tiny")
    verdict = judge("A cat on a mat.", document)
    print(verdict.outcome, verdict.value, verdict.reason)
    paint = plait.stage("sdxl-turbo", weights="tiny")
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from plait import commands
from plait.benchmarks.checking import Check, check_answers, check_data
from plait.benchmarks.local import (
    LocalScorer,
    LocalSystem,
    NoDocument,
    local_stage,
    question,
)
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.planning import NO_OPTIONS, ForecastOptions, RunPlan
from plait.benchmarks.runs.run_data import RunData
from plait.benchmarks.tasks.changes import DataChoices
from plait.cluster.shard import Shard
from plait.generators.base import WeightsName
from plait.generators.buckets import any_path
from plait.generators.errors import PlaitError, UsageError
from plait.generators.own_code import giving

__all__ = [
    "Check",
    "ForecastOptions",
    "NoDocument",
    "PlaitError",
    "RunOptions",
    "RunSummary",
    "UsageError",
    "check",
    "open_run",
    "plan",
    "query",
    "run",
    "scorer",
    "stage",
    "system",
]

system = LocalSystem.named
scorer = LocalScorer.named
stage = local_stage
query = question


ChangedData = Literal["remake", "keep", "add"]


OwnSystem = Callable[[Any], Any]
"""Of your own: a class, an instance of one, or a function `answer(query)`."""
OwnScorer = Callable[[Any], Any]
"""Of your own: a class, an instance of one, or a function `score(candidate)`."""


class RunOptions(TypedDict, total=False):
    """What `run` and `plan` take, by the names that a config file has for them."""

    data: str | Mapping[str, Any]
    systems: Sequence[str | OwnSystem]
    answers: Mapping[str, str]
    scorers: Sequence[str | OwnScorer]
    weights: WeightsName
    out: str | PathLike[str]
    limit: int
    ids: str | PathLike[str]
    seed: int
    repeats: int
    mode: str
    rubric: str
    executor: Literal["ray", "local"]
    address: str
    models: Mapping[str, Mapping[str, Any]]
    servers: Mapping[str, Mapping[str, Any]]
    prompts: Mapping[str, Mapping[str, str]]
    composition: Mapping[str, Any]
    engine: Mapping[str, Any]
    report: Mapping[str, Any]
    cluster: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a call of `run` did."""

    results: RunData
    """The run directory, opened."""
    counts: Mapping[str, int]
    """Documents planned, done, failed, skipped, missing; judgements scored, unscored ..."""
    failed: int
    """Documents and judgements that failed."""
    made: int
    """Records that this call made."""
    seconds: float
    interrupted: bool = False
    """Stopped before its end; the same call goes on from there."""
    log: str = field(default="", repr=False)
    """What the command would have printed."""

    def _repr_html_(self) -> str:
        return self.results._repr_html_()


def open_run(root: str | PathLike[str]) -> RunData:
    """Return the run directory `root` as values; UsageError where there is no run."""
    return RunData.at(any_path(root))


def run(
    config: str | PathLike[str] | None = None,
    *,
    remake: bool = False,
    same_code: bool = False,
    quiet: bool = True,
    forecast: ForecastOptions = NO_OPTIONS,
    shard: str | None = None,
    changed_data: Sequence[ChangedData] = (),
    **options: Unpack[RunOptions],
) -> RunSummary:
    """Answer queries with systems and score the answers, as `plait run` does.

    Args:
        config: TOML file; `options` override it.
        remake: Make records of an earlier version of a stage again, and answers that hold
            a thought.
        same_code: Keep records of your own classes whose source was edited, since its
            results are the same.
        quiet: Print nothing; otherwise what the command prints.
        forecast: Machines that it is for, and a budget.
        shard: `K/N`, to answer only this part of the queries.
        changed_data: Where the data have changed since the run was made: `remake` answers
            and scores queries that have anew and leaves out those that are gone, `keep`
            goes on with them as they were, `add` takes in rows that are new.
        **options: As in a config file; `systems` and `scorers` may hold classes, instances
            and functions of your own.

    Raises:
        UsageError: Where the command would end with exit status 2.
    """
    printed = io.StringIO()
    console = _silent(printed) if quiet else PlainConsole()
    with _own_by_name(options) as named:
        asked = load_config(None if config is None else Path(config), named)
        finished = commands.run(
            asked,
            console,
            remake=remake,
            same_code=same_code,
            forecast=forecast,
            shard=Shard.of(shard),
            changed_data=DataChoices.of(changed_data),
        )
    result = finished.result
    return RunSummary(
        results=RunData.at(asked.root),
        counts=dict(result.counts),
        failed=result.failed,
        made=result.made,
        seconds=result.seconds,
        interrupted=result.interrupted,
        log=printed.getvalue(),
    )


def plan(
    config: str | PathLike[str] | None = None,
    *,
    remake: bool = False,
    same_code: bool = False,
    forecast: ForecastOptions = NO_OPTIONS,
    shard: str | None = None,
    changed_data: Sequence[ChangedData] = (),
    **options: Unpack[RunOptions],
) -> RunPlan:
    """What `run` would do with the same arguments. Starts nothing and writes nothing."""
    with _own_by_name(options) as named:
        asked = load_config(None if config is None else Path(config), named)
        return commands.plan(
            asked,
            _silent(io.StringIO()),
            remake=remake,
            same_code=same_code,
            forecast=forecast,
            shard=Shard.of(shard),
            changed_data=DataChoices.of(changed_data),
        )


@contextlib.contextmanager
def _own_by_name(options: RunOptions) -> Iterator[dict[str, Any]]:
    """Yield options in which names stand, within, for what was given itself."""
    named: dict[str, Any] = {**options}
    with contextlib.ExitStack() as stack:
        for option in ("systems", "scorers"):
            if isinstance(given := named.get(option), list | tuple):
                named[option] = list(stack.enter_context(giving(*given)))
        yield named


def check(
    place: str | PathLike[str],
    *,
    data: str | PathLike[str] | None = None,
    columns: Mapping[str, str] | None = None,
    answer_columns: Mapping[str, str] | None = None,
    files: str = "",
    image_hosts: Sequence[str] = (),
) -> Check:
    """What is understood of your own queries, before anything runs.

    With `data`, `place` holds answers to its queries. Printed, the check shows what the
    command `plait check` does; `check.refused` has a line for each row that cannot be used.

    Args:
        place: As `--data` takes it; with `data`, as `plait score` takes answers.
        data: The queries that the answers are for.
        columns: Names of columns where they are others, such as `{"question": "ask"}`.
        answer_columns: The same of answers.
        files: Which files of a folder, a name or a pattern.
        image_hosts: Hosts from which images named by URL are fetched.

    Raises:
        UsageError: For a column that is not there.
        PlaitError: Where nothing can be read.
    """
    table: dict[str, Any] = {"place": str(place if data is None else data)}
    table |= {"columns": dict(columns or {}), "answer_columns": dict(answer_columns or {})}
    table |= {"files": files, "image_hosts": tuple(image_hosts)}
    config = load_config(None, {"data": table})
    return check_data(config) if data is None else check_answers(str(place), config)


def _silent(file: io.StringIO) -> PlainConsole:
    # In a notebook a console would print into the cell, whatever its file.
    return PlainConsole(file=file, width=160, force_terminal=False, force_jupyter=False)
