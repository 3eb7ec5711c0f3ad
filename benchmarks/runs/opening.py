"""The door of all commands that read a run: its results, made from its records if need be.

Results that are there are read as they are. They are written when a run ends; those of a
run that has not ended, or was made by a version of plait that wrote none, are made here of
its records, which needs the data and the modules that the run was made with.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from plait.benchmarks.results.files.reading import NoResults, ResultsError, RunResults
from plait.benchmarks.results.files.schema import ABOUT, FOLDER
from plait.benchmarks.runs.queries import data_digest
from plait.benchmarks.runs.records_only import RecordsOnly, is_gone
from plait.benchmarks.runs.reopening import reopen, warn_of_faults
from plait.benchmarks.runs.run_directory import digest_in_run, read_manifest
from plait.benchmarks.tasks.answers import AnswerPlace
from plait.benchmarks.tasks.task_set import TaskSet
from plait.cluster.lock import drivers_of
from plait.cluster.manifest import read_entries
from plait.cluster.parts import stage_folders
from plait.cluster.plan import evaluations
from plait.cluster.run import MANIFEST, RUN_DIGEST
from plait.cluster.store import Store, StoreError
from plait.generators.buckets import AnyPath
from plait.generators.document import Query
from plait.generators.errors import PlaitError, PlaitWarning, UsageError, WriteError
from plait.generators.packs import PackPath

_MOST_NAMED = 3
_NOT_MADE = (PlaitError, ImportError)
"""Errors that tell why results cannot be made of a run's records."""


def open_results(
    root: AnyPath, *, strict: bool = True, remakes: bool = False
) -> RunResults:
    """Return the results of the run in `root`, its latest records included.

    Where they have to be made of records they are kept in the run's folder, unless it
    cannot be written or a job is at work there. A `strict` reader raises DamagedPart where
    they would be made without records that are damaged, and makes those anew that were.
    With `remakes`, results that cannot be read are made anew.
    UsageError where `root` is no run. PlaitWarning for each scorer that was made by a
    version with a known fault. RecordsOnly where neither results nor what they are made of
    are there.
    """
    results = _current(root, strict=strict, remakes=remakes)
    warn_of_faults(root, results.scorers)
    return results


def _current(root: AnyPath, *, strict: bool, remakes: bool) -> RunResults:
    """Return the results as they are, or made anew where they lack something."""
    if isinstance(root, PackPath):
        return RunResults.at(root)
    noted = read_entries(root / MANIFEST)
    try:
        results = _read(root, noted, find_damage=remakes)
    except NoResults:
        return _make_first_results(root, strict=strict)
    except ResultsError as error:
        if not remakes or error.is_newer:
            raise
        return _make_in_place_of(error, root, strict=strict)
    lack = _lack_of(results, noted, strict=strict)
    if not lack:
        return results
    try:
        return make_results(root, strict=strict)
    except (StoreError, WriteError):
        raise
    except (*_NOT_MADE, AttributeError) as error:
        # Results that lack something are better than none. AttributeError, since a
        # user's module may be there without its class.
        told = f"the results of {root} lack {lack}, and cannot be rebuilt"
        warnings.warn(f"{told}: {error}", PlaitWarning, stacklevel=3)
        return results


def _make_first_results(root: AnyPath, *, strict: bool) -> RunResults:
    """Return the results of a run that has none; RecordsOnly where data or modules lack."""
    manifest = read_manifest(root)
    try:
        return make_results(root, strict=strict)
    except _NOT_MADE as error:
        if is_gone(error):
            raise RecordsOnly.of(root, manifest, error) from error
        raise


def _make_in_place_of(error: ResultsError, root: AnyPath, *, strict: bool) -> RunResults:
    """Return the results in place of ones that an `error` has told to be of no use."""
    try:
        return make_results(root, strict=strict)
    except _NOT_MADE as missing:
        if is_gone(missing):
            told = f"{error}. They are not available: {missing}"
            raise ResultsError(told) from missing
        raise


def _read(root: AnyPath, noted: Mapping[str, Any], *, find_damage: bool) -> RunResults:
    """Return the results in a run's folder; ResultsError where they are not of use."""
    results = RunResults.at(root)
    _refuse_other_run(results, noted)
    damaged = results.damage() if find_damage else []
    if damaged:
        raise ResultsError(
            f"{results.folder / damaged[0]} is damaged; the results are rebuilt "
            "from the run's records if its data and modules are available"
        )
    return results


def _lack_of(results: RunResults, noted: Mapping[str, Any], *, strict: bool) -> str:
    """Say what of the run its results do not have; empty where they have all."""
    if not results.is_current:
        return "records that are there"
    if strict and results.about.damaged:
        return "records of parts that were damaged"
    if not _is_same(results.about.run_digest, noted.get(RUN_DIGEST)):
        return "what was added to the run"
    return ""


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two digests are equal; of earlier versions one may be missing."""
    return not one or not other or one == other


def _refuse_other_run(results: RunResults, noted: Mapping[str, Any]) -> None:
    """ResultsError where results are not of the run that a manifest tells of.

    A run gets systems and scorers before it has results of them, and new stages beside
    the records of former ones. Its data, seed and weights stay.
    """
    about = results.about
    if _is_same(about.run_digest, noted.get(RUN_DIGEST)):
        return
    config = noted.get("config", {})
    data = noted.get("data", {})
    # Folders of stages end with so much of their digests.
    known = {digest_in_run(facts)[:12] for facts in noted.get("stages", {}).values()}
    known |= {folder.name.rpartition("-")[2] for folder in stage_folders(results.root)}
    systems = {facts["name"] for facts in about.systems}
    scorers = {facts["name"] for facts in about.scorers}
    stages = {facts["digest"][:12] for facts in about.stages.values()}
    stays = (
        _is_same(about.data.get("digest"), data.get("digest")),
        about.seed == config.get("seed", about.seed),
        about.weights == str(config.get("weights", about.weights)),
        systems <= {*noted.get("systems", ())},
        scorers <= {*noted.get("scorers", ())},
        stages <= known,
    )
    if not all(stays):
        raise ResultsError(
            f"{results.folder / ABOUT} belongs to another run than "
            f"{results.root / MANIFEST}; `plait report` rebuilds the results from the "
            "run's records if its data and modules are available"
        )


def refuse_newer_results(root: AnyPath) -> None:
    """ResultsError where a later version of plait wrote results, which are left alone."""
    try:
        RunResults.at(root)
    except ResultsError as error:
        if error.is_newer:
            raise


def make_results(root: AnyPath, *, strict: bool = True) -> RunResults:
    """Make the results of a run anew from its records; those of its folder if it can be.

    UsageError where data, modules or settings that it was made with are not there.
    """
    experiment = reopen(root)
    store = Store(root, strict=strict)
    keeps = _may_write(root)
    # `joins` is the digest in the manifest, which an earlier version may have computed.
    writer = experiment.results_writer(copies_images=keeps, run_digest=experiment.joins)
    read = evaluations(experiment.plan, store, notes=experiment.notes)
    for _ in writer(read, store):
        pass  # It writes what passes through it.
    if keeps:
        writer.finish(root / FOLDER)
        return RunResults.at(root)
    # The folder lasts as long as the results that keep it.
    place = tempfile.TemporaryDirectory(prefix="plait-results-")
    folder = Path(place.name)
    writer.finish(folder)
    return RunResults.at(root, folder, images=writer.image_places, keeps=place)


def _may_write(root: AnyPath) -> bool:
    """Return whether results may be kept in a run's folder."""
    with suppress(OSError):
        if drivers_of(root):
            return False
    return not isinstance(root, Path) or os.access(root, os.W_OK)


def refuse_other_questions(task: TaskSet) -> None:
    """UsageError where answers come from a run that was asked others by the same ids."""
    for about in task.about.get("answers", {}).values():
        if about["format"] != "run":
            continue
        place = AnswerPlace.of(about["place"]).path
        root = place.parent if place.is_file() else place
        digest = data_digest(read_manifest(root))
        if digest and digest == task.about.get("digest"):
            continue
        asked = {}
        for query in open_results(root).queries.values():
            if isinstance(query, Query):
                asked[query.id] = query.turns
        others = []
        for query in task.samples:
            if not isinstance(query, Query) or query.id not in asked:
                continue
            if query.turns != asked[query.id]:
                others.append(query.id)
        if others:
            more = ", ..." if len(others) > _MOST_NAMED else ""
            raise UsageError(
                f"the run in {root} answered other questions than {task.name} has under "
                f"{len(others):,} of its ids ({', '.join(others[:_MOST_NAMED])}{more}): "
                "its answers would be judged against questions that they do not answer"
            )
