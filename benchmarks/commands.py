"""What the commands do; `plait.py` parses their arguments."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from benchmarks.results.board import Board
from benchmarks.results.leaderboard import terminal_table, write_leaderboard
from benchmarks.results.timeline import show_times
from benchmarks.runs.config import OFFICIAL, RunConfig, load_config, with_settings
from benchmarks.runs.display import Display
from benchmarks.runs.experiment import Experiment, reopen, superseded
from benchmarks.runs.forecast.keeping import concluded, kept_forecast
from benchmarks.runs.forecast.options import ForecastOptions
from benchmarks.runs.forecast.planned_forecast import (
    NO_OPTIONS,
    PlannedForecast,
    planned_forecast,
)
from benchmarks.runs.forecast.table import headline
from benchmarks.runs.joining import joined
from benchmarks.runs.planning import RunPlan, show_plan
from cluster import local_ray
from cluster.counts import count
from cluster.plan import EngineOptions, Evaluation
from cluster.run import MANIFEST, RunResult, execute
from cluster.store import BlobReader, Store
from cluster.tracing.results import WritingTables, traced
from generators.base import Failure, Fault
from generators.errors import UsageError
from pipelines.presets import retirements
from scorers.judging.resolve import PREFIX as JUDGE

FINISHED, FAILED_RECORDS, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
_LONG = 500
"""More pictures than this are counted on the terminal."""


def run(
    config: RunConfig,
    console: Console,
    *,
    remake: bool = False,
    options: ForecastOptions = NO_OPTIONS,
) -> int:
    """Answer, score, report. Exit status 1 when records failed.

    With `remake`, records of an earlier version of a stage are made again.
    """
    finished = execute_config(config, console, remake=remake, options=options)
    return exit_status(finished.result)


@dataclass(frozen=True, slots=True)
class ExecutedRun:
    """What a command that executed a plan did."""

    result: RunResult
    board: Board
    """What tables and page were made of."""


def execute_config(
    config: RunConfig,
    console: Console,
    *,
    remake: bool = False,
    options: ForecastOptions = NO_OPTIONS,
) -> ExecutedRun:
    """Do what `run` does; the result as a value."""
    experiment = _opened(config, console, remake=remake)
    if not remake:
        _refuse_to_remake(experiment)
    return _execute(planned_forecast(experiment, options), console, only_scorers=False)


def exit_status(result: RunResult) -> int:
    """What a command that executed a plan ends with."""
    if result.interrupted:
        return INTERRUPTED
    return FAILED_RECORDS if result.failed else FINISHED


def _refuse_to_remake(experiment: Experiment) -> None:
    changes = superseded(experiment, Store(experiment.config.root))
    if changes:
        lines = "\n".join(f"  {change}" for change in changes)
        raise UsageError(
            f"{experiment.config.root} holds records that would be made again:\n{lines}\n"
            "To make them again, add --remake; to keep them, name another folder with "
            "--out. `plait report` and `plait export` still read them."
        )


def score(
    root: Path, scorers: Sequence[str], flags: Mapping[str, Any], console: Console
) -> int:
    """Score existing documents: a run's, or a folder in the official format.

    `flags` are `address`, `weights`, `out`, `mode`, `rubric`, `set` and `remake`; a run
    keeps its weights, directory and former scorers.
    """
    if (root / MANIFEST).exists():
        experiment = _to_score_again(root, scorers, flags)
    else:
        values = {k: flags[k] for k in ("address", "weights", "out", "mode", "rubric")}
        values |= {"data": f"{OFFICIAL}{root}", "scorers": tuple(scorers)}
        experiment = _opened(load_config(None, values, flags["set"]), console)
    _refuse_to_score_as_before(experiment)
    plan = planned_forecast(experiment, only_scorers=True)
    return exit_status(_execute(plan, console, only_scorers=True).result)


def _refuse_to_score_as_before(experiment: Experiment) -> None:
    """UsageError where new records would be filed under a former version of a stage."""
    counts = count(experiment.plan, Store(experiment.config.root), only_scorers=True)
    names = [c.spec.name for c in counts if c.spec.recorded and c.to_run]
    if names:
        raise UsageError(
            f"{experiment.config.root} was scored by another version of "
            f"{', '.join(names)}; name the scorer and add --remake to score all documents "
            "with today's"
        )


def _to_score_again(
    root: Path, scorers: Sequence[str], flags: Mapping[str, Any]
) -> Experiment:
    former = reopen(root).config
    if flags["weights"] not in (None, former.weights):
        raise UsageError(f"{root} was made with {former.weights} weights and keeps them")
    if flags["out"] is not None:
        raise UsageError(
            "--out is for answers of another tool; a run is scored in its own directory"
        )
    changes: dict[str, Any] = {"scorers": [*dict.fromkeys((*former.scorers, *scorers))]}
    current = scorers if flags["remake"] else ()
    changes["address"] = flags["address"]
    changes |= _judge_changes(former, scorers, flags)
    changes = with_settings(changes, flags["set"])
    return reopen(root, changes, current=current)


def _judge_changes(
    former: RunConfig, scorers: Sequence[str], flags: Mapping[str, Any]
) -> dict[str, Any]:
    """`--mode` and `--rubric` as changes of a run's config.

    They apply to the judges named with them and to no others; where none is named, to all
    judges of the run.
    """
    values = {k: flags[k] for k in ("mode", "rubric") if flags[k] is not None}
    if not values:
        return {}
    judges = [n for n in scorers or former.scorers if n.startswith(JUDGE)]
    if not judges:
        raise UsageError("--mode and --rubric are for judges; name one with --scorer")
    return {"models": dict.fromkeys(judges, values)}


def _execute(plan: PlannedForecast, console: Console, *, only_scorers: bool) -> ExecutedRun:
    experiment = plan.experiment
    experiment.refuse_what_is_missing(only_scorers=only_scorers)
    if plan.over_budget:
        raise UsageError(plan.over_budget)
    root = experiment.config.root
    _refuse_unless_writable(root)
    if any(c.to_run for c in plan.counts):
        local_ray.anticipate(experiment.config.address)
    for rubric in experiment.config.rubrics:
        rubric.keep(root)
    console.print(f"run directory {escape(str(root))}", soft_wrap=True)
    for text in retirements(experiment.plan.stages, date.today()):
        console.print(f"[yellow]retired model[/yellow] {escape(text)}", soft_wrap=True)
    if plan.remark:
        console.print(f"[yellow]trimmed[/yellow] {plan.remark}", soft_wrap=True)
    if plan.forecast.stages:
        console.print(f"forecast: {headline(plan.forecast)}", soft_wrap=True)
    engine = experiment.config.engine
    options = EngineOptions(
        address=experiment.config.address,
        placement_timeout_s=engine.placement_timeout_s,
        grace_s=engine.grace_s,
        max_cost=engine.max_cost,
        only_scorers=only_scorers,
    )
    display = Display(console, meanwhile=_import_for_tables)
    about = experiment.about() | kept_forecast(plan.forecast, root)
    costs = experiment.cost_notes()
    since_us = time.time_ns() // 1000
    try:
        result = execute(
            experiment.plan,
            root,
            options,
            about,
            display,
            notes=experiment.notes,
            on_answer=costs,
        )
    finally:
        display.close()
    lines = concluded(root, plan.forecast, result, since_us)
    board = experiment.board_of(result.evaluations, costs)
    _conclude(board, experiment.config, result, console)
    for line in lines:
        console.print(escape(line), soft_wrap=True)
    return ExecutedRun(result, board)


def _import_for_tables() -> None:
    """What tables and page are made with, which is imported where it is used."""
    from scipy import special  # noqa: F401

    from benchmarks.results import report  # noqa: F401


def _refuse_unless_writable(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise UsageError(
            f"run directory {root} cannot be written ({error.strerror}); "
            "name another with --out"
        ) from None


def _conclude(board: Board, config: RunConfig, result: RunResult, console: Console) -> None:
    root, writing = config.root, WritingTables(config.root)
    page = write_outputs(board, root, console, config.report.queries)
    counts = [f"{n:,} {name.replace('_', ' ')}" for name, n in result.counts.items() if n]
    console.print(
        f"{', '.join(counts)}; {result.made:,} records made in {result.seconds:.0f} s"
    )
    if final := sum(fault.final for fault in _faults(result)):
        console.print(
            f"{final:,} of {result.failed:,} failures are final: bad input or refused. "
            "Running the command again does not try them again."
        )
    if result.traced:
        writing.end(console.print)
        show_times(root, console)
    if result.interrupted:
        console.print("Stopped. Run the same command again to continue.")
    console.print(f"leaderboard {escape(str(root / 'leaderboard.md'))}", soft_wrap=True)
    console.print(f"report      {escape(str(page))}", soft_wrap=True)


def _faults(result: RunResult) -> Iterator[Fault]:
    """Why documents and judgements failed."""
    for evaluation in result.evaluations:
        if isinstance(evaluation, Evaluation):
            outcomes = (evaluation.document, *evaluation.scores.values())
            yield from (o.fault for o in outcomes if isinstance(o, Failure))


def write_outputs(
    board: Board, root: Path, console: Console, queries: int | None = None
) -> Path:
    """Write leaderboard and report, and name damaged parts; the page's path.

    The page shows at most `queries` queries, by default all.
    """
    from benchmarks.results.report import ReportSettings, write_report

    write_leaderboard(board, root)
    manifest = json.loads((root / MANIFEST).read_text())
    read = BlobReader()
    page = write_report(
        board,
        root,
        manifest,
        read,
        ReportSettings(queries=queries),
        on_progress=_progress(console, "preparing pictures of the report"),
    )
    for damage in read.damage.values():
        console.print(f"Warning: {escape(str(damage))}.", soft_wrap=True)
    console.print(terminal_table(board))
    return page


def _opened(config: RunConfig, console: Console, *, remake: bool = False) -> Experiment:
    progress = _progress(console, "checking pictures")
    experiment, added = joined(config, progress, remake=remake)
    if (config.mode or config.rubric) and not any(
        name.startswith(JUDGE) for name in experiment.config.scorers
    ):
        console.print(
            "Warning: mode and rubric are settings of judges, and no judge is named."
        )
    if added:
        console.print(
            f"added to the run, for all of its queries: {escape(', '.join(added))}",
            soft_wrap=True,
        )
    return experiment


def _progress(console: Console, what: str) -> Callable[[int, int], None]:
    """A line that counts (done, total) of a long task, on a terminal only."""

    def show(done: int, total: int) -> None:
        if console.is_terminal and total > _LONG and (done % 100 == 0 or done == total):
            end = "\n" if done == total else "\r"
            console.print(f"{what}: {done:,} of {total:,}", end=end)

    return show


# -------------------------------------------------------------------------- plan


def plan(
    config: RunConfig,
    console: Console,
    *,
    remake: bool = False,
    options: ForecastOptions = NO_OPTIONS,
) -> int:
    """Show what `run` would do. Starts nothing and writes nothing.

    Exit status 2 where `run` would refuse to start: keys or weights are missing, the
    budget is exceeded, or records would be made again and `remake` is not given.
    """
    planned = plan_config(config, console, remake=remake, options=options)
    show_plan(planned, console)
    return FINISHED if planned.ready(remake=remake) else WRONG_USE


def plan_config(
    config: RunConfig,
    console: Console,
    *,
    remake: bool = False,
    options: ForecastOptions = NO_OPTIONS,
) -> RunPlan:
    """What `run` would do, as a value."""
    return RunPlan.of(_opened(config, console, remake=remake), options)


# ------------------------------------------------------------- report and export


def report(root: Path, console: Console, queries: int | None = None) -> int:
    """Write leaderboard and page again from the records.

    The page shows at most `queries` queries, by default as many as the run's config says.
    """
    experiment = reopen(root)
    limit = queries or experiment.config.report.queries
    page = write_outputs(experiment.board(Store(root)), root, console, limit)
    traced(root, console.print)
    show_times(root, console)
    console.print(f"report {escape(str(page))}", soft_wrap=True)
    return FINISHED


def export(root: Path, system: str, form: str, out: Path, console: Console) -> int:
    """Write one system's documents in another tool's format."""
    from benchmarks.runs.exports import export_documents

    written = export_documents(reopen(root), Store(root), system, form, out)
    console.print(
        f"{written:,} documents of {escape(system)} written to {escape(str(out))}"
    )
    return FINISHED


def show(root: Path, sample: str, system: str | None, console: Console) -> int:
    """The exact prompts, replies, settings and seeds of one sample."""
    from benchmarks.runs.inspection import describe

    for line in describe(reopen(root), Store(root), sample, system):
        console.print(line, soft_wrap=True)
    return FINISHED
