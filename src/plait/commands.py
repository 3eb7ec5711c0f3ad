"""What the commands do; `plait.cli` reads their arguments.

    planned = plan(config, console)         # `plait plan`: names resolved, nothing started
    ran = execute_plan(planned, console)    # `plait run`: answers, scores, tables and page
    report(root, console)                   # `plait report`: tables and page once more

What only one command needs is imported inside it: `plait --help` and short commands load
neither matplotlib nor the code of studies.
"""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.text import Text

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import FOLDER
from plait.benchmarks.results.headline import furthest_apart, terminal_table
from plait.benchmarks.results.leaderboard import name_changes
from plait.benchmarks.results.leaderboard_files import write_leaderboard
from plait.benchmarks.results.people import read_measured
from plait.benchmarks.results.table import ResultTable, json_text
from plait.benchmarks.results.timeline import show_times
from plait.benchmarks.runs.config import (
    OF_JUDGES,
    PageQueries,
    ReportConfig,
    RunConfig,
    is_run,
    load_config,
    merge,
    with_settings,
)
from plait.benchmarks.runs.display import Display
from plait.benchmarks.runs.experiment import Experiment
from plait.benchmarks.runs.forecast.forecast import conclude, keep_forecast
from plait.benchmarks.runs.joining import join
from plait.benchmarks.runs.opening import (
    open_results,
    refuse_newer_results,
    refuse_other_questions,
)
from plait.benchmarks.runs.planning import NO_OPTIONS, ForecastOptions, RunPlan
from plait.benchmarks.runs.queries import refuse_changed_data
from plait.benchmarks.runs.reference import (
    FidelityPlan,
    changed_systems,
    share_records,
    shared_stages,
)
from plait.benchmarks.runs.reopening import reopen, warn_of_faults
from plait.benchmarks.runs.run_directory import (
    folder_written,
    former_config,
    read_manifest,
    refuse_pack,
    refuse_unless_writable,
)
from plait.benchmarks.tasks import answers, own_data
from plait.benchmarks.tasks.changes import NO_CHOICES, DataChoices
from plait.benchmarks.terminal import command_text, progress
from plait.benchmarks.wording import quantity
from plait.cluster.counts import totals_of
from plait.cluster.lock import RunInUse, drivers_of
from plait.cluster.plan import evaluations
from plait.cluster.run import MANIFEST, RunResult, execute
from plait.cluster.shard import Shard
from plait.cluster.store import BlobReader, DamagedPart, Store, StoreError
from plait.cluster.tracing.summary import write_trace
from plait.generators.base import Fault
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.names import unknown, validate
from plait.scorers import takes
from plait.scorers.judging.resolve import refuse_mini_lvlm, takes_run_rubric
from plait.scorers.statistics.margins import Margin

if TYPE_CHECKING:
    from plait.benchmarks.studies.annotate import AnnotateOptions
    from plait.benchmarks.studies.fidelity import Gate
    from plait.benchmarks.studies.paper.writing import PaperOptions

FINISHED = 0
_MOST_CHANGES = 20
"""Means that `report` names because they have changed."""
_OF_QUERIES = ("data", "limit", "ids", "seed")
"""Keys of a config that decide which queries are asked."""
_STOPPED = "Stopped. Run the same command again to continue."
_WAITING = "{n:,} requests wait in batch {batch}; run the same command again."


@dataclass(frozen=True, slots=True)
class ExecutedRun:
    """What a command that executed a plan did."""

    root: AnyPath
    """The run directory."""
    result: RunResult
    board: Board | None
    """What tables and page were made of; None where other shards are still to do that."""

    @property
    def exit_status(self) -> int:
        """What the command ends with: 1 when records failed, or nothing came of it."""
        if self.result.exit_status or self.board is None:
            return self.result.exit_status
        return int(bool(self.board.nothing_scored or self.board.unanswered))


def run(
    config: RunConfig,
    console: Console,
    *,
    remake: bool = False,
    same_code: bool = False,
    forecast: ForecastOptions = NO_OPTIONS,
    shard: Shard | None = None,
    changed_data: DataChoices = NO_CHOICES,
) -> ExecutedRun:
    """Answer, score, report.

    With `remake`, records of an earlier version of a stage are made again, and answers that
    hold a thought. With `same_code`, those of the user's classes stay though their source
    has changed. `changed_data` says what becomes of data that have changed since the run in
    the run directory was made. With `shard`, only that part of the queries is answered, and
    the shard that ends last reports.
    """
    planned = plan(
        config,
        console,
        remake=remake,
        same_code=same_code,
        forecast=forecast,
        shard=shard,
        changed_data=changed_data,
    )
    return execute_plan(planned, console)


def execute_plan(planned: RunPlan, console: Console) -> ExecutedRun:
    """Answer, score, report.

    UsageError where records would be made again unasked, or were made by code that was
    edited since.
    """
    if planned.made_again and not planned.remake:
        lines = "\n".join(f"  {change}" for change in planned.made_again)
        raise UsageError(
            f"{planned.root} holds records that would be made again:\n{lines}\n"
            "To make them again, add --remake (from Python, remake=True); to keep them, "
            "name another folder with --out. `plait report` and `plait export` still read "
            "them."
        )
    planned.refuse_edited()
    return _execute(planned, console, only_scorers=False)


def score(
    places: Sequence[str],
    scorers: Sequence[str],
    flags: Mapping[str, Any],
    console: Console,
) -> ExecutedRun:
    """Score existing documents: a run's, or answers at `places`, `[NAME=][FORMAT:]PLACE`.

    `flags` are `data`, `executor`, `address`, `weights`, `out`, `mode`, `rubric`,
    `baseline`, `models`, `servers`, `set`, `remake`, `same_code` and `changed_data`; a run
    keeps its data, weights, directory and former scorers.
    """
    named = answers.places_by_name(places)
    first, *others = named.values()
    if not others and is_run(first.path) and flags.get("data") is None:
        experiment = _to_score_again(first.path, scorers, flags)
    else:
        experiment = _to_score_answers(named, scorers, flags, console)
    same_code = bool(flags.get("same_code"))
    planned = RunPlan.of(experiment, only_scorers=True, same_code=same_code)
    _refuse_former_versions(planned)
    planned.refuse_edited()
    return _execute(planned, console, only_scorers=True)


def _to_score_answers(
    named: Mapping[str, answers.AnswerPlace],
    scorers: Sequence[str],
    flags: Mapping[str, Any],
    console: Console,
) -> Experiment:
    """Return the experiment in which answers made elsewhere are scored; UsageError."""
    values = dict(flags)
    # What is left are keys of a config.
    for flag in ("set", "remake", "same_code", "changed_data"):
        values.pop(flag, None)
    values["answers"] = {name: str(place) for name, place in named.items()}
    values["scorers"] = tuple(scorers)
    asked: AnyPath | None = None
    if flags.get("data") is None:
        found = _find_queries(named.values())
        values |= found.keys
        asked = found.run
    config = load_config(None, values, flags["set"])
    choices = flags.get("changed_data", NO_CHOICES)
    experiment = _open(config, console, remake=flags["remake"], choices=choices)
    if asked is not None:
        # The answers of a run are to the data as they were then.
        refuse_changed_data(asked, read_manifest(asked), experiment.task)
    return experiment


def _refuse_former_versions(planned: RunPlan) -> None:
    """UsageError where new records would be filed under a former version of a stage."""
    names = []
    for count in planned.counts:
        if count.spec.recorded and count.to_run:
            names.append(count.spec.name)
    if names:
        raise UsageError(
            f"{planned.root} was scored by another version of {', '.join(names)}; name the "
            "scorer and add --remake to score all documents with today's"
        )


class _FoundQueries(NamedTuple):
    """The queries that come with answers."""

    keys: Mapping[str, Any]
    """Keys of a config that name them."""
    run: AnyPath | None = None
    """The run that was asked them, if its answers are scored."""


def _find_queries(places: Iterable[answers.AnswerPlace]) -> _FoundQueries:
    """Return the queries in the first of `places` that has some; UsageError for none."""
    for place in places:
        here = answers.find_format(place)
        if here.asks:
            return _FoundQueries({"data": f"{here.format.data}{place.path}"})
        if here.name == "run":
            root = next(iter(here.files)).parent
            config = former_config(root, read_manifest(root))
            keys = {name: getattr(config, name) for name in _OF_QUERIES}
            return _FoundQueries(keys, root)
    raise UsageError(
        "the answers come without their questions: name the data that they answer "
        "with --data, such as --data ueval:PLACE"
    )


def _to_score_again(
    root: AnyPath, scorers: Sequence[str], flags: Mapping[str, Any]
) -> Experiment:
    """Return the experiment in which a run's own answers are scored; UsageError."""
    refuse_pack(root)
    former = former_config(root, read_manifest(root))
    _refuse_flags_of_answers(root, former, flags)
    for name in scorers:
        refuse_mini_lvlm(name, former.weights or "pretrained")
    changes: dict[str, Any] = {
        "scorers": [*dict.fromkeys((*former.scorers, *scorers))],
        "address": flags["address"],
        "executor": flags.get("executor"),
    }
    changes |= _judge_changes(former, scorers, flags)
    # Merged key by key, as a judge may have settings of its own from `_judge_changes`; and
    # `--set`, which names a single key, goes before a whole table.
    for table in ("models", "servers"):
        if flags.get(table):
            changes = merge(changes, {table: flags[table]})
    changes = with_settings(changes, flags["set"])
    choices = flags.get("changed_data", NO_CHOICES)
    current = scorers if flags["remake"] else ()
    experiment = reopen(root, changes, current=current, choices=choices)
    refuse_other_questions(experiment.task)
    warn_of_faults(root, experiment.scorers)
    return experiment


def _refuse_flags_of_answers(
    root: AnyPath, former: RunConfig, flags: Mapping[str, Any]
) -> None:
    """UsageError for flags by which only answers made elsewhere can be scored."""
    if flags["weights"] not in (None, former.weights):
        raise UsageError(
            f"{root} was made with {former.weights} weights and can only "
            "be scored with those"
        )
    if flags["out"] is not None:
        raise UsageError(
            "--out is for answers of another tool; a run is scored in its own directory"
        )


def _judge_changes(
    former: RunConfig, scorers: Sequence[str], flags: Mapping[str, Any]
) -> dict[str, Any]:
    """`--mode`, `--rubric` and `--baseline` as changes of a run's config.

    They apply to the scorers named with them and to no others; where none is named, to all
    of the run that take them.
    """
    names = scorers or former.scorers
    models: dict[str, dict[str, Any]] = {name: {} for name in names}
    is_given = False
    for key in OF_JUDGES:
        value = flags.get(key)
        if value is None:
            continue
        is_given = True
        takers = [name for name in names if takes(name, key)]
        if not takers:
            raise UsageError(
                f"none of the scorers takes --{key}; name one that does with --scorer"
            )
        for name in takers:
            models[name][key] = value
    return {"models": models} if is_given else {}


def _refuse_unready(plan: RunPlan) -> None:
    """UsageError where something is missing, of no use, or over the budget."""
    refusals = [*plan.missing, *plan.useless_scorers]
    if plan.over_budget:
        refusals.append(plan.over_budget)
    if refusals:
        raise UsageError("\n".join(refusals))


def _execute(plan: RunPlan, console: Console, *, only_scorers: bool) -> ExecutedRun:
    """Make what is missing, and write tables and page where nobody else is left to."""
    # Everything that can be refused is refused before the first record is made, and what
    # would only be found when the tables are written, hours later, is found here.
    _refuse_unready(plan)
    experiment = plan.experiment
    root = plan.root
    refuse_unless_writable(root)
    refuse_newer_results(root)
    read_measured(experiment.config.report.agreement)  # UsageError if unreadable
    for rubric in experiment.config.rubrics:
        rubric.keep(root)
    _show_plan(plan, console)
    if not only_scorers:
        stopped = _show_fidelity(plan, console)
        if stopped is not None:
            return ExecutedRun(root, stopped, None)
    if plan.shard is not None:
        return _execute_shard(plan, console)
    return _execute_whole(plan, console, only_scorers=only_scorers)


def _show_plan(plan: RunPlan, console: Console) -> None:
    """Print where a run is, and what its users should know before it takes hours."""
    console.print(f"run directory {plan.root}")
    for line in plan.pinned:
        console.print(Text("pinned", "yellow"), line)
    for text in plan.retired:
        console.print(Text("retired model", "yellow"), text)
    if plan.trimmed:
        console.print(Text("trimmed", "yellow"), plan.trimmed)
    for line in plan.partly_scored:
        console.print(line)
    if plan.forecast.stages:
        console.print(f"forecast: {plan.forecast.headline}")


def _execute_whole(
    plan: RunPlan, console: Console, *, only_scorers: bool = False, makes: bool = True
) -> ExecutedRun:
    """Make what is missing, unless it `makes` nothing, and write tables and page."""
    root = plan.root
    result = _make_results(plan, console, only_scorers=only_scorers, makes=makes)
    board = RunResults.at(root).board
    took = conclude(root, plan.forecast, result, board)
    _conclude(board, plan.experiment.config, result, console)
    if took:
        console.print(took)
    return ExecutedRun(root, result, board)


def _make_results(
    plan: RunPlan, console: Console, *, only_scorers: bool = False, makes: bool = True
) -> RunResult:
    """Make what is missing, unless it `makes` nothing, and write the results."""
    experiment = plan.experiment
    root = plan.root
    options = experiment.engine_options(
        only_scorers=only_scorers, makes=makes, remake=plan.remake, sources=plan.sources
    )
    about = experiment.about() | keep_forecast(plan.forecast if makes else None, root)
    writer = experiment.results_writer()
    with closing(Display(console, meanwhile=_import_for_tables)) as display:
        result = execute(
            experiment.plan,
            root,
            options,
            about,
            display,
            writer,
            notes=experiment.notes,
            counted=plan.counted,
            current=plan.current_results,
        )
    writer.finish(root / FOLDER)
    return result


def _show_fidelity(whole: RunPlan, console: Console) -> RunResult | None:
    """Show on a few queries that a run is as good as its reference, where it has one.

    Nothing is made where that was shown before. Return what stopped it before it was done,
    None where the run may start. FidelityError where a margin is not shown; UsageError
    where it cannot be tested.
    """
    asked = FidelityPlan.of(whole.experiment)
    if asked is None or (asked.passed and not whole.remake):
        return None
    if whole.shard is not None:
        raise UsageError(
            f"fidelity is not shown yet, and shards do not show it: run the config once "
            f"without --shard and with --limit {asked.fast.limit} into {whole.root}, then "
            "all shards"
        )
    from plait.benchmarks.studies.fidelity import FidelityError, refuse_margins

    margins = asked.fidelity.parsed_margins
    scorers = whole.experiment.scorers
    refuse_margins(margins, scorers, scorers)
    console.print(f"fidelity: {asked}")
    fast = _plan_part(asked.fast, whole, console)
    if not isinstance(asked.reference, RunConfig):
        # The reference is a run that is there: all systems that make answers are compared.
        place = asked.reference
        systems = [system.name for system in fast.experiment.systems if system.stages]
        result = _make_results(fast, console)
    else:
        # The reference is the same run with other settings, and is made here. It is planned
        # before either is made, so that what is missing for it is told at once.
        reference = _plan_part(asked.reference, whole, console)
        place = reference.root
        systems = changed_systems(fast.experiment, reference.experiment)
        result = _make_results(fast, console)
        if not result.interrupted:
            shared = shared_stages(fast.experiment, reference.experiment)
            share_records(fast.root, reference.root, shared)
            result = _make_results(reference, console)
    if result.interrupted:
        return result
    gate = _gate_of_parts(place, fast, systems, margins, console)
    asked.keep(gate.as_json)
    if not gate.passed:
        error = FidelityError(
            "the run is not shown to be as good as its reference, and was not started "
            f"({gate.refusal}). What both have answered is in {fast.root.parent}"
        )
        error.tables = [gate.table]
        raise error
    console.print(gate.table.rich)
    # The whole run does not answer these queries again.
    share_records(fast.root, whole.root, fast.experiment.plan.stages)
    return None


def _plan_part(config: RunConfig, whole: RunPlan, console: Console) -> RunPlan:
    """Return the plan of a small run that is made before the whole; UsageError."""
    part = plan(config, console, remake=whole.remake, same_code=whole.same_code)
    _refuse_unready(part)
    part.refuse_edited()
    return part


def _gate_of_parts(
    reference: AnyPath,
    fast: RunPlan,
    systems: Sequence[str],
    margins: Sequence[Margin],
    console: Console,
) -> Gate:
    """Return whether margins are shown of systems of a small run; UsageError.

    The reference is a run that has these systems and has answered the same queries.
    """
    from plait.benchmarks.studies.diff import pair_runs
    from plait.benchmarks.studies.fidelity import apply_gate

    paired = pair_runs(reference, fast.root)
    there = paired.runs[0].systems
    for name in systems:
        if name not in there:
            raise unknown(f"system of the reference {reference}", name, there)
    asked = len(fast.experiment.queries)
    if len(paired.keys) < asked:
        raise UsageError(
            f"the reference {reference} was asked {len(paired.keys):,} of the {asked:,} "
            "queries by which the run is compared with it: lower fidelity.queries, or add "
            "queries to the reference with --limit, by the same seed"
        )
    paired = replace(paired, systems=[(name, name) for name in systems])
    with progress(console, "comparing answers") as show:
        _, gate = apply_gate(paired, margins, on_progress=show)
    return gate


def _execute_shard(plan: RunPlan, console: Console) -> ExecutedRun:
    """Make what is missing of a shard; end the run where no other shard is left to do so.

    Of all that end, the last one to give back its lock sees no other, and everything that
    they have made.
    """
    experiment = plan.experiment
    root = plan.root
    options = experiment.engine_options(
        shard=plan.shard, remake=plan.remake, sources=plan.sources
    )
    about = experiment.about() | keep_forecast(None, root)
    with closing(Display(console)) as display:
        result = execute(plan.plan, root, options, about, display, counted=plan.counted)
    console.print(f"shard {plan.shard}: {_count_text(result)}")
    if result.interrupted:
        _say_why_unfinished(result, console)
    elif others := drivers_of(root):
        console.print(f"other shards still running: {', '.join(others)}")
    elif left := totals_of(evaluations(experiment.plan, Store(root)))["missing"]:
        console.print(
            f"{left:,} answers of other shards are still missing. The last shard to "
            "end writes the tables and the page; "
            f"`{command_text('plait', 'report', root)}` writes them at any time."
        )
    # A shard that made nothing writes nothing anew where the run has been concluded.
    elif result.made or read_manifest(root).get("status") != "finished":
        with suppress(RunInUse):  # by another shard that does this, or that has just begun
            whole = _execute_whole(plan, console, makes=False)
            return ExecutedRun(root, result, whole.board)
    return ExecutedRun(root, result, None)


def _import_for_tables() -> None:
    """What tables and page are made with, which is imported where it is used."""
    from matplotlib import figure  # noqa: F401
    from scipy import special  # noqa: F401

    from plait.benchmarks.results import report  # noqa: F401


def _conclude(board: Board, config: RunConfig, result: RunResult, console: Console) -> None:
    """Write tables and page, and say what came of the run and what is to be done next."""
    root = config.root
    write_tables(board, root, console)
    console.print(_count_text(result))
    if count := board.unanswered:
        console.print(f"no query was answered: {count:,} answers failed or were skipped")
    for name, judgements in board.nothing_scored.items():
        console.print(
            f"{name} scored nothing: none of its {judgements:,} judgements gave a score"
        )
    if final := sum(Fault(name).final for name in board.faults):
        console.print(
            f"{final:,} of {result.failed:,} failures are final (bad input or "
            "refused): running the command again does not retry them."
        )
    if result.interrupted:
        _say_why_unfinished(result, console)
    page = _update_page(board, config, console)
    if result.traced:
        show_times(root, console)
    _show_page(page, board, config.report.queries, console)


def _update_page(board: Board, config: RunConfig, console: Console) -> AnyPath:
    """Return the path of a run's page, written anew unless it would be the same."""
    from plait.benchmarks.results.report import freshness

    root = config.root
    asked = config.report.queries
    manifest = read_manifest(root)
    if freshness.is_current(root, manifest, asked):
        return root / "report.html"
    read = BlobReader()
    page = write_page(board, root, console, asked, read)
    if not read.damage:  # else the next command looks again, and says so again
        freshness.note(root, manifest, asked)
    return page


def _say_why_unfinished(result: RunResult, console: Console) -> None:
    for batch, requests in result.waiting.items():
        console.print(_WAITING.format(n=requests, batch=batch))
    if result.stopped_by is not None:
        console.print(_STOPPED)


def _count_text(result: RunResult) -> str:
    counts = []
    for name, count in result.counts.items():
        if count:
            counts.append(f"{count:,} {name.replace('_', ' ')}")
    made = quantity(result.made, "record")
    return f"{', '.join(counts)}; {made} made in {result.seconds:.0f} s"


def write_tables(board: Board, root: AnyPath, console: Console) -> None:
    """Show the leaderboard, and write it and all other tables."""
    console.print(terminal_table(board))
    write_leaderboard(board, root)
    console.print(f"leaderboard {root / 'leaderboard.md'}")


def write_page(
    board: Board,
    root: AnyPath,
    console: Console,
    queries: PageQueries = None,
    read: BlobReader | None = None,
    out: AnyPath | None = None,
) -> AnyPath:
    """Write the page with at most `queries` queries, and name damaged parts; its path.

    It is written into the run's folder, or into `out`.
    """
    from plait.benchmarks.results.report import write_report

    manifest = json.loads((root / MANIFEST).read_text())
    read = read or BlobReader()
    try:
        with progress(console, "preparing images of the report") as show:
            page = write_report(board, root, manifest, read, queries, show, out)
    except (KeyboardInterrupt, SystemExit):
        console.print(
            "The tables are written, the page is not; "
            f"`{command_text('plait', 'report', root)}` writes it."
        )
        raise
    for damage in read.damage.values():
        console.print(f"Warning: {damage}.")
    return page


def _show_page(page: AnyPath, board: Board, queries: PageQueries, console: Console) -> None:
    """Print where the page is, and what to look at first."""
    from plait.benchmarks.results.report.entries import keys_shown
    from plait.benchmarks.results.report.page import limit_of

    console.print(f"report      {page}")
    if apart := furthest_apart(board, keys_shown(board.keys, limit_of(queries))):
        ends = ", ".join(f"{name} ({score})" for name, score in apart.ends.items())
        console.print(
            f"look at     {apart.query}, with the largest difference in {apart.scorer}: "
            f"{ends}"
        )


def _open(
    config: RunConfig, console: Console, *, remake: bool, choices: DataChoices
) -> Experiment:
    """Return the experiment of a config, and print what is to be known of its data."""
    with progress(console, "checking images") as show:
        run = join(config, show, remake=remake, choices=choices)
    experiment = run.experiment
    about = experiment.task.about
    for line in (*own_data.remarks(about), *answers.remarks(about)):
        console.print(line)
    # The scorers of the run that is joined count too, which `config` need not name.
    has_judge = any(map(takes_run_rubric, experiment.config.scorers))
    if (config.mode or config.rubric) and not has_judge:
        console.print("Warning: mode and rubric have no effect, as no judge is named.")
    for line in run.changes:
        console.print(f"changed data: {line}")
    if run.added:
        console.print(f"added to the run, for all of its queries: {', '.join(run.added)}")
    return experiment


def plan(
    config: RunConfig,
    console: Console,
    *,
    remake: bool = False,
    same_code: bool = False,
    forecast: ForecastOptions = NO_OPTIONS,
    shard: Shard | None = None,
    changed_data: DataChoices = NO_CHOICES,
) -> RunPlan:
    """Return what `run` would do. Starts nothing and writes nothing."""
    experiment = _open(config, console, remake=remake, choices=changed_data)
    asked: dict[str, Any] = {"shard": shard, "remake": remake, "same_code": same_code}
    if not forecast.trim:
        return RunPlan.of(experiment, forecast, **asked)
    with progress(console, "finding how many queries fit the budget") as show:
        return RunPlan.of(experiment, forecast, on_progress=show, **asked)


# ------------------------------------------------------------- report and export


def report(
    root: AnyPath,
    console: Console,
    queries: str | None = None,
    *,
    damaged: bool = False,
    corrected: bool = True,
    out: Path | None = None,
    show: bool = False,
) -> int:
    """Write leaderboard and page again from the results.

    The page shows at most `queries` queries, by default as many as the run's config says.
    Exit status 1 where images of answers are lost. Where results have to be made of records
    and a part of these is damaged nothing is written, unless it is to be `damaged`.
    All files but the records are copied to the folder `out`, where it is given. `show`
    opens the page in a browser.
    """
    if show and not isinstance(out or root, Path):
        raise UsageError(f"--open needs a page on this machine: copy {root} with --out")
    asked = validate(ReportConfig, {"queries": queries}, "report").queries
    read = BlobReader()
    try:
        results = open_results(root, strict=not damaged, remakes=True)
    except DamagedPart as damage:
        raise StoreError(
            f"{damage}. The tables and the page are unchanged; --damaged writes them "
            "without the lost records and says so in each"
        ) from damage
    board = results.board
    if not corrected:
        board = replace(board, correction="none")
    _show_changes(root, board, console)
    limit = asked or results.page_queries
    with folder_written(root, out) as target:
        write_tables(board, target, console)
        page = write_page(board, root, console, limit, read, target)
    write_trace(root, console.print)
    show_times(root, console)
    if out is not None:
        _copy_others(root, out)
    _show_page(page, board, limit, console)
    if show and not webbrowser.open(Path(str(page)).resolve().as_uri()):
        console.print("No browser could be opened.")
    return int(bool(read.damage) and not damaged)


def paper(
    runs: Sequence[AnyPath], out: AnyPath | None, options: PaperOptions, console: Console
) -> None:
    """Write tables, figures and a sheet of finished runs, and show the main table."""
    from plait.benchmarks.studies.paper.writing import write_paper

    place = out or Path("paper")
    if out is None and len(runs) == 1 and isinstance(runs[0], Path) and runs[0].is_dir():
        place = runs[0] / "paper"
    written = write_paper(runs, place, options, BlobReader())
    for table in written.tables:
        console.print(table.result_table.rich)
    for text in written.without:
        console.print(f"without {text}", soft_wrap=True)
    console.print(f"{place}: {', '.join(written.files)}", soft_wrap=True)


def _copy_others(root: AnyPath, out: AnyPath) -> None:
    """Copy the files beside the records that are not in `out` yet."""
    # Folders of records have no dot in their names, and are no files.
    for file in root.glob("*.*"):
        copy = out / file.name
        if file.is_file() and not copy.exists():
            write_whole(copy, file.read_bytes())


def _show_changes(root: AnyPath, board: Board, console: Console) -> None:
    """Name the means that differ from those of the tables which are to be replaced."""
    try:
        former = json.loads((root / "leaderboard.json").read_text())
        changes = name_changes(former, board)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return  # There are none, or others.
    for change in changes[:_MOST_CHANGES]:
        console.print(f"changed     {change}")
    if len(changes) > _MOST_CHANGES:
        console.print(f"changed     {len(changes) - _MOST_CHANGES:,} more")


def forget(
    root: AnyPath,
    systems: Sequence[str],
    scorers: Sequence[str],
    console: Console,
    *,
    prune: bool = False,
) -> int:
    """Take systems and scorers out of a run, and write its tables and page anew.

    With `prune`, records that nothing is left to use are removed for good; alone, those of
    systems and scorers that were forgotten before.
    """
    from plait.benchmarks.runs import forgetting

    if not (systems or scorers or prune):
        raise UsageError("name what to forget with --system or --scorer")
    pruned = forgetting.forget(root, systems, scorers, prune=prune)
    for name in (*systems, *scorers):
        console.print(Text.assemble("forgotten   ", name))
    if prune:
        stages = ", ".join(pruned.stages) or "no stage"
        size = f"{quantity(pruned.records, 'record')}, {quantity(pruned.bytes, 'byte')}"
        console.print(Text.assemble(f"pruned      {size}: ", stages))
    else:
        pruning = command_text("plait", "forget", root, "--prune")
        console.print(f"All records are kept; `{pruning}` removes those no longer used.")
    return report(root, console) if systems or scorers else FINISHED


def export(
    root: AnyPath,
    system: str | None,
    form: str,
    out: Path,
    repeat: int | None,
    console: Console,
    task: str | None = None,
) -> int:
    """Write one system's documents, or results of the run, in another tool's format."""
    from plait.benchmarks.runs import exports
    from plait.benchmarks.runs.run_data import RunData

    of_run = form in exports.RUN_FORMATS
    if of_run and repeat is not None:
        raise UsageError(
            f"--repeat selects documents, but --format {form} holds means over all repeats"
        )
    if task is not None and form not in exports.WITH_TASK:
        raise UsageError(f"--task is for --format {', '.join(exports.WITH_TASK)}")
    run = RunData(root, open_results(root))
    if of_run:
        console.print(exports.export_results(run, system, form, out, task))
        return FINISHED
    if system is None:
        names = ", ".join(run.systems)
        raise UsageError(f"--format {form} needs --system, one of {names}")
    repeats = exports.repeats_of(run, form, repeat)
    most = run.about.repeats
    written = exports.export_documents(run, system, form, out, repeats)
    which = f", repeat {' and '.join(map(str, repeats))} of {most}," if most > 1 else ""
    left = len(repeats) * len(run.queries) - written
    rest = f"; {left:,} missing" if left else ""
    answers = quantity(written, "answer")
    console.print(f"{answers} of {system}{which} written to {out}{rest}")
    return FINISHED


# ----------------------------------------------------------------------------- studies


def annotate(
    root: AnyPath,
    out: Path | None,
    options: AnnotateOptions,
    port: int | None,
    console: Console,
) -> int:
    """Write a page for raters, and serve it on `port` where that is given."""
    from plait.benchmarks.studies import annotate as study

    with folder_written(root, out):
        study.annotate(root, _annotation_folder(root, out), options, console)
    folder = _annotation_folder(root, out)
    place = ("--out", folder.absolute()) if out is not None else ()
    collecting = command_text("plait", "annotate", root, *place, "--collect")
    if port is None:
        page = folder / study.PAGE / "index.html"
        console.print(f"page        {page}")
        console.print(
            f"Give raters the folder {page.parent} and nothing else from {folder}. "
            f"Put the files that they return into {folder / study.ANSWERS}, then run:"
        )
        console.print(collecting)
        return FINISHED
    console.print("To collect the raters' answers, run:")
    console.print(collecting)
    from plait.benchmarks.studies import annotation_server

    server = annotation_server.server_of(folder, port)
    console.print(f"http://{annotation_server.HOST}:{server.server_port}/ until Ctrl-C")
    annotation_server.serve(server)
    return FINISHED


def collect(
    root: AnyPath, out: Path | None, files: Sequence[Path], console: Console
) -> int:
    """Write raters' answers as the file that `agreement` reads, and show the raters.

    With how the answers were drawn beside it, which `correct` reads.
    """
    from plait.benchmarks.studies.annotate import read_key
    from plait.benchmarks.studies.collected import CSV, annotations_csv, collect_ratings
    from plait.benchmarks.studies.drawing import DRAWN, draw_text

    folder = _annotation_folder(root, out)
    rows, table = collect_ratings(folder, files)
    text = annotations_csv(rows)
    write_whole(folder / CSV, text)
    if drawn := draw_text(read_key(folder), CSV, text):
        write_whole(folder / DRAWN, drawn)
    console.print(table.rich)
    console.print(f"{len(rows):,} annotations written to {folder / CSV}")
    return FINISHED


def _annotation_folder(root: AnyPath, out: Path | None) -> Path:
    if out is not None:
        return out
    if not isinstance(root, Path):
        raise UsageError(
            f"{root} is not a folder on this machine; name one for the page with --out"
        )
    return root / "annotate"


def cite(root: AnyPath, out: Path | None, console: Console) -> None:
    """Print what to cite of a run as BibTeX, or write it to `out`."""
    from plait.benchmarks.runs.citations import bibtex, citations_of

    results = open_results(root, strict=False)
    text = bibtex(results)
    if out is None:
        console.print(text.rstrip())
        return
    write_whole(out, text)
    console.print(f"BibTeX written to {out}")
    for citation in citations_of(results):
        if not citation.keys:
            console.print(f"no entry of {citation}")


def show_study(
    content: Mapping[str, Any],
    tables: Iterable[ResultTable],
    remarks: Iterable[str],
    out: Path | None,
    console: Console,
) -> None:
    """Show the tables of a study and what is to be said of them; write it to `out`."""
    for table in tables:
        console.print(table.rich)
    for line in remarks:
        console.print(line)
    if out is not None:
        write_whole(out, json_text(content))
        console.print(f"written to {out}")
