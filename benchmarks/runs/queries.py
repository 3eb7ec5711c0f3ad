"""The queries that a run asks: read from its data and selected from them.

Data may change between two commands on one run. A command that makes records for a run that
is there compares the data with what the run stored of them. Where queries have changed or
are gone, or rows are asked that the data did not have, it is refused until the user chooses
(`DataChoices`). Commands that only read do not look at data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.benchmarks.results.files.reading import NoResults, ResultsError, RunResults
from plait.benchmarks.runs.config import OFFICIAL, RunConfig
from plait.benchmarks.runs.run_directory import former_config
from plait.benchmarks.tasks import answers
from plait.benchmarks.tasks.changes import (
    KEPT,
    DataChoices,
    QueryChanges,
    StoredQueries,
    data_rows,
    ids_text,
    new_rows,
    queries_digest,
    with_stored,
)
from plait.benchmarks.tasks.mmie import official
from plait.benchmarks.tasks.row_tables import IdTable, RowDigests
from plait.benchmarks.tasks.task_set import (
    TaskError,
    TaskSet,
    limit_queries,
    load,
    select_queries,
)
from plait.generators.buckets import AnyPath
from plait.generators.document import Malformed, Query
from plait.generators.errors import UsageError
from plait.generators.system import System

QUERIES = "queries"
"""The manifest's entry with a digest of the run's queries (`queries_digest`)."""
Queries = Sequence[Query | Malformed]
Ids = Sequence[str] | None


@dataclass(frozen=True, slots=True)
class FormerRun:
    """A run that is there, as a command finds it that goes on with it."""

    root: AnyPath
    manifest: Mapping[str, Any]
    name: str = "the run"
    """For people."""


@dataclass(frozen=True, kw_only=True)
class SettledData:
    """A task set as a run goes on with it."""

    task: TaskSet
    queries: Queries
    """The queries that are asked."""
    ids: Ids
    """Those by which they were selected."""
    rows: Mapping[str, str] | None = None
    """See `Experiment.rows`."""
    asked: Sequence[str] | None = None
    """Ids of the run's queries; None where it stored none."""
    former: int = 0
    """How many of its queries the run goes on with."""
    refusals: Sequence[str] = ()
    """Why it does not go on, a line each."""
    remarks: Sequence[str] = ()
    """What becomes of the changes, for people."""


# ------------------------------------------------------------------ reading and selecting


def read_task(
    config: RunConfig, on_progress: Callable[[int, int], None] | None = None
) -> tuple[TaskSet, tuple[System, ...]]:
    """Return the queries, and the systems whose answers come with them."""
    given: tuple[System, ...] = ()
    if config.is_official_folder:
        task, given = official.systems_of_folder(Path(config.data.removeprefix(OFFICIAL)))
    else:
        task = load(
            config.data,
            prompts=config.prompts,
            reading=config.reading,
            on_progress=on_progress,
        )
    if not config.answers:
        return task, given
    return answers.systems_of_answers(task, config.answers, reading=config.reading)


def selection(config: RunConfig, task: TaskSet, ids: Ids) -> Queries:
    """Return the queries that a config selects, of those with `ids` where these are given.

    TaskError where there are none, and for ids that the task set does not have.
    """
    queries = task.samples
    if not queries:
        raise TaskError(f"{config.data} holds no queries")
    if ids is not None:
        queries = select_queries(queries, ids)
    if config.limit is not None:
        queries = limit_queries(queries, config.limit, config.seed)
    return queries


def read_ids(config: RunConfig) -> list[str] | None:
    """Return the ids in a config's file of them; None where it names none.

    UsageError for a file that cannot be read or holds none.
    """
    file = config.ids
    if file is None:
        return None
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--ids {file}: {reason}") from None
    lines = [line.strip() for line in text.split("\n")]
    ids = [line for line in lines if line]
    if not ids:
        raise UsageError(f"--ids {file} holds no query id; give one a line")
    return ids


# ---------------------------------------------------------------------- data that change


def read_stored_queries(root: AnyPath) -> StoredQueries | None:
    """Return what the run in `root` stored of its data.

    None for a run that has not ended yet, or was made by an earlier version. ResultsError
    where its results cannot be read.
    """
    try:
        results = RunResults.at(root)
    except NoResults:
        return None
    data = results.table("data", ["id", "digest"])
    row_ids = data.column("id").to_pylist()
    digests = data.column("digest").to_pylist()
    rows = RowDigests(zip(row_ids, digests, strict=True))
    ids = results.table("queries", ["id"]).column("id").to_pylist()
    return StoredQueries(rows, ids, lambda: results.queries.values())


def settle_data(
    run: FormerRun, config: RunConfig, task: TaskSet, choices: DataChoices, ids: Ids
) -> SettledData:
    """Return `task` as `run` goes on with it under `config`, with the queries `ids`.

    Three things are compared with what the run stored: the queries that it asked, the rows
    that are asked now and were not in the data then, and whether a query is asked no more.
    """
    before = former_config(run.root, run.manifest)
    stored = read_stored_queries(run.root)
    if stored is None:
        return _settle_as_a_whole(run, before, config, task, choices, ids)
    now = data_rows(task)
    since = f"data {config.data} has changed since {run.name} was made"

    # First: queries of the run that have changed or are gone.
    changes = QueryChanges.of(stored, now)
    gone = {*changes.gone}
    refusals, remarks = _word_changes(changes, choices, since)
    if changes and choices.keep:
        kept = [*changes.changed, *gone]
        task = with_stored(task, stored, kept)
        gone = set()
        now.update((id, stored.rows[id]) for id in kept)

    # Second: rows that are asked, and that the data did not have then.
    # Of the ids of a file, those that are gone would be refused as unknown.
    left = None if ids is None else [id for id in ids if id not in gone]
    queries = selection(config, task, left)
    selected = [query.id for query in queries]
    new = new_rows(selected, stored, now)
    if new:
        late = "not in the data then"
        told = ids_text(new, f"row asked was {late}", f"rows asked were {late}")
        if choices.add:
            remarks.append(f"{told}: added")
        else:
            refusals.append(f"{since}: {told}. --changed-data add includes them")
    if refusals and before.data != config.data:
        refusals.insert(0, _other_name(before, config))

    # Third: queries of the run that are not asked any more.
    former = [id for id in stored.ids if id not in gone]
    lost = {*former}.difference(selected)
    refusals += _refuse_lost(len(lost), len(former), len(queries))

    # What the run keeps of the data from now on: rows that are not asked stay as they were
    # stored, so that a change is noticed when they are (`Experiment.rows`).
    rows = _stored_rows(stored, gone)
    asked_anew = {*changes.changed, *new}
    rows.update((id, now[id]) for id in selected if id in asked_anew)
    return SettledData(
        task=task,
        queries=queries,
        ids=left,
        rows=rows,
        asked=stored.ids,
        former=len(former),
        refusals=refusals,
        remarks=remarks,
    )


def _stored_rows(stored: StoredQueries, gone: Collection[str]) -> RowDigests:
    """Return a copy of the rows that a run stored, without those that are gone."""
    if not gone:
        # A copy of its bytes, where rows would be added one by one.
        return stored.rows.copy()
    return RowDigests((id, digest) for id, digest in stored.rows.items() if id not in gone)


def _word_changes(
    changes: QueryChanges, choices: DataChoices, since: str
) -> tuple[list[str], list[str]]:
    """Return why the changes are refused, or else what becomes of them."""
    if not changes:
        return [], []
    if choices.keep:
        return [], [f"{changes}: kept as they were"]
    if choices.remake:
        return [], [f"{changes}: remade, or left out if gone"]
    refusal = (
        f"{since}: {changes}. --changed-data remake answers and scores the "
        "changed queries again and leaves out those that are gone; "
        "--changed-data keep goes on with all of them as they were"
    )
    return [refusal], []


def data_as_made(
    root: AnyPath, manifest: Mapping[str, Any], config: RunConfig, task: TaskSet
) -> SettledData:
    """Return `task` as the run in `root` was made with it, to read its records again.

    UsageError where the data are others by now. Results that are damaged are to be made
    anew: then the manifest alone says what the data were.
    """
    kept = manifest.get("data", {}).get(KEPT)
    try:
        stored = read_stored_queries(root)
    except ResultsError as error:
        # They are made anew of the data, which hold all but what the run kept.
        if kept or error.is_newer:
            raise
        stored = None
    if kept and stored:
        task = with_stored(task, stored, kept)
    now = data_rows(task)
    ids = manifest.get("ids")
    if difference := other_data(config, config, manifest, task, now):
        raise UsageError(
            f"data {config.data} has changed since the run in {root} was made "
            f"({difference}): restore the former data"
        )
    queries = selection(config, task, ids)
    if stored:
        rows = stored.rows.copy()
        rows.update((query.id, now[query.id]) for query in queries)
        now = rows
    return SettledData(task=task, queries=queries, ids=ids, rows=now)


def _settle_as_a_whole(
    run: FormerRun,
    before: RunConfig,
    config: RunConfig,
    task: TaskSet,
    choices: DataChoices,
    ids: Ids,
) -> SettledData:
    """Settle the data of a run without stored queries, whose config was `before`.

    Which of them have changed is not known: they are compared by one digest of all.
    """
    now = data_rows(task)
    difference = other_data(before, config, run.manifest, task, now)
    if difference and not (choices.remake and choices.add):
        refusal = (
            f"data {config.data} has changed since {run.name} was made ({difference}), and "
            "it is not known in which queries: --changed-data remake with "
            "--changed-data add takes all of them as they are now"
        )
        if before.data != config.data:
            refusal = _other_name(before, config)
        return SettledData(task=task, queries=(), ids=ids, refusals=[refusal])
    queries = selection(config, task, ids)
    # Where the data are others, all queries are asked anew, and none can be lost.
    former = () if difference else selection(before, task, run.manifest.get("ids"))
    asked = IdTable(_place(query) for query in queries)
    lost = IdTable()
    for query in former:
        place = _place(query)
        if place not in asked:
            lost.add(place)
    return SettledData(
        task=task,
        queries=queries,
        ids=ids,
        rows=now,
        former=len(former),
        refusals=[*_refuse_lost(len(lost), len(former), len(queries))],
    )


def other_data(
    before: RunConfig,
    config: RunConfig,
    manifest: Mapping[str, Any],
    task: TaskSet,
    now: Mapping[str, str],
) -> str:
    """Say how `task`, whose rows are `now`, differs from a run's data; empty if not at all.

    The run's queries are compared as a whole. Manifests of earlier versions have no digest
    of them: there files are compared, and names of data where files have no digest either.
    """
    then = data_digest(manifest)
    here = task.about.get("digest")
    if QUERIES in manifest:
        try:
            asked = selection(before, task, manifest.get("ids"))
        except TaskError as error:
            return str(error)
        digest = queries_digest((query.id for query in asked), now)
        same = digest == manifest[QUERIES]
    elif then and here:
        same = then == here
    else:
        same = before.data == config.data
    if same:
        return ""
    if then and here and then != here:
        return f"SHA-256 {then[:12]} then, {here[:12]} now"
    return "queries or their images differ"


def _other_name(before: RunConfig, config: RunConfig) -> str:
    return f"data is {config.data}, but {before.data} in the run"


def _refuse_lost(lost: int, former: int, asked: int) -> Iterator[str]:
    if lost:
        yield (
            f"{lost:,} of the run's {former:,} queries are not among the {asked:,} asked "
            "for; queries can be added with --limit or --ids, but not removed"
        )


def _place(query: Query | Malformed) -> str:
    """Return what distinguishes a malformed row from the valid one with its id."""
    return f"{query.id}\n{getattr(query, 'row', None)}"


def refuse_changed_data(root: AnyPath, manifest: Mapping[str, Any], task: TaskSet) -> None:
    """UsageError where the run in `root` was asked other queries than `task` has."""
    stored = read_stored_queries(root)
    now = data_rows(task)
    if stored is None:
        before = former_config(root, manifest)
        difference = other_data(before, before, manifest, task, now)
    else:
        changes = QueryChanges.of(stored, now)
        difference = str(changes) if changes else ""
    if difference:
        raise UsageError(
            f"data {manifest['config']['data']} has changed since the run in {root} "
            f"was made ({difference}): restore the former data or, if its questions "
            "are the same, name it with --data"
        )


def data_digest(manifest: Mapping[str, Any]) -> str | None:
    """Return the digest of the data that a run was made with, where it has one."""
    digest: str | None = (manifest.get("data") or {}).get("digest")
    return digest
