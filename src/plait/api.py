"""plait from Python: runs as values; systems, stages and scorers without Ray.

`plait` exports all of this and imports it when it is first used. What a command would
print as an error is raised: `plait.UsageError` for wrong use; `plait.PlaitError` is the
root of all errors that people can fix.

Example:
    import plait

    run = plait.run(                            # quiet; called again, it resumes
        data="sample", systems=["anole", "gt"], scorers=["clipscore"],
        weights="tiny", limit=4, executor="local", out="runs/first",
    )
    print(run.outcome.counts, run.leaderboard)  # a notebook shows a run by itself
    for answer in run.answers(system="anole"):
        print(answer.query.id, answer.outcome, answer.reason)
    answer = run.answers(outcome="done")[0]
    answer.text, answer.images, answer.scores["clipscore"].value
    run.show(answer.query.id)                   # side by side, in a notebook
    run.compare("anole", "gt")                  # paired differences with intervals
    run.sheet(2).save("sheet.png")
    run.scores.to_pandas()                      # or to_polars(), to_pylist(), .arrow

    run = plait.open_run("runs/first")          # later
    run = plait.score(run, scorers=["bleu"])    # nothing is answered again

    illustrate = plait.system("qwen2-vl-7b+sdxl-turbo", weights="tiny")
    document = illustrate("A cat on a mat.")    # text, PIL images, or run.queries[id]
    judge = plait.scorer("clipscore", weights="tiny")
    verdict = judge("A cat on a mat.", document)
"""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from plait import commands
from plait.benchmarks.checking import Check, check_answers, check_data
from plait.benchmarks.local import (
    LocalScorer,
    LocalStage,
    LocalSystem,
    local_stage,
    question,
)
from plait.benchmarks.plain_console import PlainConsole, text_console
from plait.benchmarks.results.frame import Frame
from plait.benchmarks.results.paired import PairedMeans, SystemComparison
from plait.benchmarks.runs.answers import (
    NoDocument,
    QueryAnswer,
    QueryView,
    ScorerVerdict,
    TaskQuery,
)
from plait.benchmarks.runs.config import RunConfig, load_config
from plait.benchmarks.runs.planning import ForecastOptions, RunPlan
from plait.benchmarks.runs.run_data import Answers, RunData
from plait.benchmarks.studies.paper.columns import PaperChoice
from plait.benchmarks.studies.paper.sheet import SheetChoice
from plait.benchmarks.studies.paper.tables import IntervalForm
from plait.benchmarks.studies.paper.writing import (
    PaperOptions,
    WrittenPaper,
    write_paper,
)
from plait.benchmarks.tasks.changes import DataChoices
from plait.cluster.shard import Shard
from plait.cluster.store import BlobReader
from plait.generators.base import WeightsName
from plait.generators.buckets import AnyPath, BucketPath, any_path
from plait.generators.errors import PlaitError, UsageError
from plait.generators.own_code import giving
from plait.generators.packs import PackPath
from plait.scorers.statistics.multiple import Correction

__all__ = [
    "Answers",
    "Check",
    "Frame",
    "LocalScorer",
    "LocalStage",
    "LocalSystem",
    "NoDocument",
    "PairedMeans",
    "PlaitError",
    "QueryAnswer",
    "QueryView",
    "RunData",
    "RunPlan",
    "ScorerVerdict",
    "SystemComparison",
    "TaskQuery",
    "UsageError",
    "WrittenPaper",
    "check",
    "open_run",
    "paper",
    "plan",
    "query",
    "run",
    "score",
    "scorer",
    "stage",
    "system",
]

system = LocalSystem.named
scorer = LocalScorer.named
stage = local_stage
query = question

P = ParamSpec("P")
T = TypeVar("T")
Place = str | PathLike[str] | AnyPath
"""A path, or the URL of one in a bucket."""
SystemLike = str | Callable[..., Any]
"""The name of a system or scorer, or your own class, an instance of it, or a function."""
ChangedData = Literal["remake", "keep", "add"]
Table = Mapping[str, Any]
"""Settings by name, as a table of a config file has them."""


def open_run(root: Place) -> RunData:
    """Return the run in the directory `root`, or in a pack of it; UsageError for neither.

    Examples:
        >>> run = plait.open_run("runs/quickstart")
        >>> run.systems
        ('anole', 'qwen2-vl-7b+openjourney@outline', 'gt')
        >>> len(run.queries)
        12
    """
    return RunData.at(any_path(root))


def run(
    config: Place | None = None,
    *,
    data: str | PathLike[str] | Table | None = None,
    systems: Sequence[SystemLike] | None = None,
    answers: Mapping[str, Place] | None = None,
    scorers: Sequence[SystemLike] | None = None,
    weights: WeightsName | None = None,
    out: Place | None = None,
    limit: int | None = None,
    ids: Place | None = None,
    seed: int | None = None,
    repeats: int | None = None,
    mode: Literal["corrected", "official"] | None = None,
    rubric: str | PathLike[str] | None = None,
    baseline: str | None = None,
    pinned: str | None = None,
    fidelity: Mapping[str, Any] | None = None,
    executor: Literal["ray", "local"] | None = None,
    address: str | None = None,
    models: Mapping[str, Table] | None = None,
    variants: Mapping[str, Table] | None = None,
    servers: Mapping[str, Table] | None = None,
    prompts: Mapping[str, Mapping[str, str]] | None = None,
    composition: Table | None = None,
    engine: Table | None = None,
    report: Table | None = None,
    cluster: Table | None = None,
    remake: bool = False,
    same_code: bool = False,
    changed_data: Sequence[ChangedData] = (),
    on: str | None = None,
    budget_hours: float | None = None,
    trim: bool = False,
    shard: str | None = None,
    quiet: bool = True,
) -> RunData:
    """Answer queries with systems and score the answers, as `plait run` does.

    Called again with the same arguments, it makes what is missing and nothing else.

    Args:
        config: TOML file; the arguments override it.
        data: What `plait list data` shows: a name, a file or folder, `hf:ID@REVISION`; or
            a table of `place`, `columns` and others, as `[data]` of a config.
        systems: Names as `plait list systems` shows them, or your own classes, instances of
            them, and functions of a query.
        answers: Answers made elsewhere, `[FORMAT:]PLACE` by the name of their system.
        scorers: Names as `plait list scorers` shows them, or your own classes, instances of
            them, and functions of a candidate; an empty list for none.
        weights: `pretrained`, `mini`, `dummy` or `tiny`; by default `pretrained` where a
            system or a config is named.
        out: Run directory, new or to be resumed or extended, or the URL of one in a bucket;
            by default `runs/NAME-DIGEST`.
        limit: At most this many queries, stratified by category.
        ids: File with the id of one query a line: answer only these.
        seed: Seed of all sampling and noise; by default 0.
        repeats: Answers per query; by default 1.
        mode: How judges ask and read: `official` is the released program's way.
        rubric: The judges' rubric.
        baseline: The system beside whose answers scorers of pairs judge.
        pinned: A pinned protocol, `NAME/EDITION`, whose published settings apply where no
            others are given.
        fidelity: What the run has to be as good as, shown of a few queries before all are
            answered: `reference`, `queries` and `margins`.
        executor: `local`, as threads of this process without Ray, or `ray` (by default).
        address: Address of a Ray cluster; by default this machine's own.
        models: Settings by model, such as `{"sdxl-turbo": {"steps": 2}}`.
        variants: Systems with settings of their own, by name: a table of `system` and
            `models`, such as `{"slow": {"system": "flux@t2i", "models": {"flux": ...}}}`.
        servers: Servers that plait starts, by the name that models give them.
        prompts: Your own wording of the task's prompts, by category and variant.
        composition: How LVLM and text-to-image model work together, such as
            `{"max_images": 2}`.
        engine: How the engine runs, such as `{"gpu_memory_gib": 40}`; changes no result.
        report: What the page shows, such as `{"queries": "all"}`.
        cluster: What `plait submit` asks a cluster for.
        remake: Make records of an earlier version of a stage again, and answers that hold
            a thought.
        same_code: Keep records of your own classes whose source was edited, since its
            results are the same.
        changed_data: Where the data have changed since the run was made: `remake` answers
            and scores queries that have anew and leaves out those that are gone, `keep`
            goes on with them as they were, `add` takes in rows that are new.
        on: Machines that the forecast is for, such as `8xH100`; by default this one.
        budget_hours: Refuse where the forecast exceeds so many GPU-hours, or hours of wall
            time where no stage takes a GPU.
        trim: With `budget_hours`: answer as many queries as fit.
        shard: `K/N`, to answer only this part of the queries.
        quiet: Print nothing, and keep it as `log`; else print what the command prints.

    Returns:
        The run, opened. `outcome` says what this call did: counts, records made, failures,
        seconds, and whether it was interrupted.

    Raises:
        UsageError: Where the command would end with exit status 2.

    Examples:
        >>> run = plait.run(
        ...     data="sample", systems=["gt"], scorers=["bleu"], weights="tiny", limit=4,
        ...     executor="local", out="runs/truth",
        ... )
        >>> run.outcome.counts["done"], run.outcome.failed, run.outcome.interrupted
        (4, 0, False)
        >>> run.leaderboard.rows[0][0].text
        'gt'
    """
    # All arguments by name, before anything else is a local variable.
    with _own_by_name(locals()) as given:
        printed = io.StringIO()
        console = text_console(printed) if quiet else PlainConsole()
        finished = commands.run(console=console, **_options_of(given))
    return _open(finished, printed)


def _with_parameters_of(
    declared: Callable[P, Any],
) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function the parameters of another; it is called with all, by name."""
    signature = inspect.signature(declared)

    def change(function: Callable[..., T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            return function(**given.arguments)

        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            return_annotation=inspect.signature(function).return_annotation
        )
        return call

    return change


@_with_parameters_of(run)
def plan(**arguments: Any) -> RunPlan:
    """What `run` would do with the same arguments. Starts nothing and writes nothing.

    Args:
        **arguments: Those of `run`, with the same meaning. Not `quiet`: shows the plan.

    Returns:
        Jobs by stage, what is missing, and the forecast; a notebook shows it by itself.

    Raises:
        UsageError: Where the command would end with exit status 2, but for missing keys
            and weights, which `missing` names.

    Examples:
        >>> plan = plait.plan(data="sample", systems=["anole"], weights="tiny", limit=4)
        >>> plan.ready(), plan.extent
        (True, '4 answers: 4 queries (4 of 40 queries), 1 system, 1 repeat')
        >>> [tally.spec.name for tally in plan.counts]
        ['anole-draft', 'anole-render', 'clip']
    """
    console = text_console(io.StringIO()) if arguments["quiet"] else PlainConsole()
    with _own_by_name(arguments) as given:
        planned = commands.plan(console=console, **_options_of(given))
    if not arguments["quiet"]:
        planned.show(console)
    return planned


def score(
    answers: RunData | Place | Sequence[Place] | Mapping[str, Place],
    *,
    scorers: Sequence[SystemLike] = (),
    data: str | PathLike[str] | None = None,
    weights: WeightsName | None = None,
    out: Place | None = None,
    mode: Literal["corrected", "official"] | None = None,
    rubric: str | PathLike[str] | None = None,
    baseline: str | None = None,
    executor: Literal["ray", "local"] | None = None,
    address: str | None = None,
    models: Mapping[str, Table] | None = None,
    servers: Mapping[str, Table] | None = None,
    remake: bool = False,
    same_code: bool = False,
    changed_data: Sequence[ChangedData] = (),
    quiet: bool = True,
) -> RunData:
    """Score a run's documents, or anybody's answers to queries, as `plait score` does.

    No system is run: queries that a run has not answered stay missing.

    Args:
        answers: A run, or its directory, which the scores are added to; or files or folders
            of answers, `[FORMAT:]PLACE`, alone, as a list, or by the name of their system.
        scorers: Names as `plait list scorers` shows them, beside those of the run.
        data: The queries; by default those of the run, or that come with the answers.
        weights: Of the scorers; a run keeps its own.
        out: Run directory for answers made elsewhere; a run is scored in its own.
        mode: How judges ask and read: `official` is the released program's way.
        rubric: The judges' rubric.
        baseline: The system beside whose answers scorers of pairs judge.
        executor: `local`, as threads of this process without Ray, or `ray` (by default).
        address: Address of a Ray cluster; by default this machine's own.
        models: Settings by scorer or model, such as `{"clipscore": {"aggregate": "max"}}`.
        servers: Servers that plait starts, by the name that models give them.
        remake: Score again with today's version of the scorers that are named.
        same_code: Keep records of your own classes whose source was edited.
        changed_data: As in `run`.
        quiet: Print nothing, and keep it as `log`; else print what the command prints.

    Returns:
        The run, opened, with `outcome`: what this call did.

    Raises:
        UsageError: Where the command would end with exit status 2.

    Examples:
        >>> run = plait.run(
        ...     data="sample", systems=["gt"], scorers=[], weights="tiny", limit=4,
        ...     executor="local", out="runs/scored",
        ... )
        >>> run = plait.score(run, scorers=["bleu"], executor="local")
        >>> run.scorers
        ('bleu',)
        >>> [round(row["value"]) for row in run.scores.to_pylist()]
        [100, 100, 100, 100]
    """
    printed = io.StringIO()
    flags: dict[str, Any] = {
        "data": _plain(data),
        "weights": weights,
        "out": _plain(out),
        "mode": mode,
        "rubric": _plain(rubric),
        "baseline": baseline,
        "executor": executor,
        "address": address,
        "models": models,
        "servers": servers,
        "set": (),
        "remake": remake,
        "same_code": same_code,
        "changed_data": DataChoices.of(changed_data),
    }
    console = text_console(printed) if quiet else PlainConsole()
    with giving(*scorers) as named:
        finished = commands.score(_places(answers), named, flags, console)
    return _open(finished, printed)


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

    Examples:
        >>> check = plait.check("miniature:12")
        >>> check.ok, check.refused
        (True, [])
    """
    table: dict[str, Any] = {"place": str(place if data is None else data)}
    table |= {"columns": dict(columns or {}), "answer_columns": dict(answer_columns or {})}
    table |= {"files": files, "image_hosts": tuple(image_hosts)}
    config = load_config(None, {"data": table})
    return check_data(config) if data is None else check_answers(str(place), config)


def paper(
    runs: RunData | Place | Sequence[Place],
    out: str | PathLike[str],
    *,
    systems: Sequence[str] = (),
    scorers: Sequence[str] = (),
    correction: Correction = "holm",
    interval: IntervalForm = "brackets",
    pair: tuple[str, str] | None = None,
    sheet: Mapping[str, Any] | None = None,
) -> WrittenPaper:
    """Write tables, figures and an image sheet of runs, as `plait paper` does.

    Args:
        runs: A run, or its directory; or the directories of several.
        out: The folder.
        systems: Only these; by default all.
        scorers: Only these, in this order; by default all that gave a value.
        correction: Of p-values for all pairs of systems: `holm` or `none`.
        interval: How intervals stand beside means in LaTeX: `brackets`, `subscript`, `pm`
            or `none`.
        pair: Two systems whose differences are drawn; by default the two best.
        sheet: Of the image sheet: `rows`, `columns`, `ids`, `best`, `worst`, `random`,
            `seed`; one that is asked for and cannot be made is an error.

    Returns:
        What was written: `tables`, `files`, and `content` with all numbers.

    Raises:
        UsageError: For names that the runs do not have, and where nothing has a score.

    Examples:
        >>> written = plait.paper("runs/quickstart", "paper", interval="pm")
        >>> written.files[:2]
        ['systems.tex', 'categories-clipscore.tex']
        >>> written.content.columns[0].cells["anole"].ranks
        (1, 2)
    """
    places = [any_path(place) for place in _places(runs)]
    choice = PaperChoice(
        systems=tuple(systems), scorers=tuple(scorers), correction=correction
    )
    of_sheet: dict[str, Any] = {}
    for name, value in (sheet or {}).items():
        # A choice is frozen, so that its lists are tuples.
        of_sheet[name] = tuple(value) if isinstance(value, list) else value
    chosen = SheetChoice(
        systems=tuple(systems), scorer=scorers[0] if scorers else None, **of_sheet
    )
    options = PaperOptions(
        choice=choice,
        interval=interval,
        pair=pair or (),
        sheet=chosen,
        needs_sheet=sheet is not None,
    )
    return write_paper(places, any_path(str(out)), options, BlobReader())


def _places(
    answers: RunData | Place | Sequence[Place] | Mapping[str, Place],
) -> list[str]:
    """Return where answers are, as the command line takes it."""
    if isinstance(answers, RunData):
        return [str(answers.root)]
    if isinstance(answers, Mapping):
        return [f"{name}={place}" for name, place in answers.items()]
    if isinstance(answers, str | PathLike | BucketPath | PackPath):
        return [str(answers)]
    return [*map(str, answers)]


@contextlib.contextmanager
def _own_by_name(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments in which names stand, within, for what was given itself."""
    named = {**arguments}
    with contextlib.ExitStack() as stack:
        for name in ("systems", "scorers"):
            if isinstance(given := named.get(name), list | tuple):
                named[name] = list(stack.enter_context(giving(*given)))
        yield named


def _options_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `commands.plan` takes, of the arguments of `run`; UsageError."""
    flags = {}
    for name in RunConfig.model_fields:
        if name in given:
            flags[name] = _plain(given[name])
    file = given["config"]
    forecast = {name: given[name] for name in ("on", "budget_hours", "trim")}
    return {
        "config": load_config(None if file is None else Path(file), flags),
        "remake": given["remake"],
        "same_code": given["same_code"],
        "changed_data": DataChoices.of(given["changed_data"]),
        "forecast": ForecastOptions(**forecast),
        "shard": Shard.of(given["shard"]),
    }


def _plain(value: Any) -> Any:
    """Return an argument as a config has it: paths as texts, sequences as lists."""
    if isinstance(value, PathLike):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    # The command line has () for what is not named; here it is an empty list.
    return [*value] if isinstance(value, tuple) else value


def _open(finished: commands.ExecutedRun, printed: io.StringIO) -> RunData:
    opened = RunData.at(finished.root)
    return replace(opened, call=finished.result, log=printed.getvalue())
