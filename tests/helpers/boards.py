"""Results and boards of evaluations made by hand: written as a run's are, and read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trial import as_asked

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.files.about import RunAbout, facts_of_plan
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import FOLDER
from plait.benchmarks.results.files.writing import ResultsWriter
from plait.benchmarks.runs.experiment import Experiment
from plait.cluster.plan import Evaluation, Plan, evaluations
from plait.cluster.store import Store
from plait.generators.document import key_of
from plait.generators.system import System
from plait.scorers.base import Scorer


def stored_results(
    made: Iterable[Evaluation],
    *,
    systems: Sequence[System],
    scorers: Sequence[Scorer],
    categories: Mapping[str, int],
    fields: Sequence[str],
    weights: str,
    store: Store | None = None,
) -> RunResults:
    """The results of a run of these evaluations, whose records are in `store`."""
    known = list(made)
    place = tempfile.TemporaryDirectory(prefix="plait-test-")
    store = Store(Path(place.name)) if store is None else store
    plan = Plan(
        systems=systems,
        queries=[*{key_of(e.query): e.query for e in known}.values()],
        scorers=scorers,
        prompt=as_asked,
        repeats=max((e.repeat + 1 for e in known), default=1),
    )
    about = RunAbout(
        run_digest="by hand",
        name="by hand",
        categories=categories,
        fields=fields,
        data={},
        config={},
        repeats=plan.repeats,
        weights=weights,
        **facts_of_plan(plan, {}),
    )
    writer = ResultsWriter(plan, about, copies_images=False)
    for _ in writer(known, store):
        pass
    folder = Path(place.name) / FOLDER
    writer.finish(folder)
    return RunResults.at(store.root, folder, keeps=place)


def results_of(experiment: Experiment, store: Store) -> RunResults:
    """The results of a run, written into the folder of its records."""
    writer = experiment.results_writer()
    for _ in writer(evaluations(experiment.plan, store, notes=True), store):
        pass
    writer.finish(store.root / FOLDER)
    return RunResults.at(store.root)


def stored_board(
    made: Iterable[Evaluation],
    *,
    systems: Sequence[System],
    scorers: Sequence[Scorer],
    categories: Mapping[str, int],
    fields: Sequence[str],
    weights: str,
    store: Store | None = None,
    **options: Any,
) -> Board:
    """The board of such results, with the systems and scorers themselves and `options`.

    Without a store nothing is known of costs.
    """
    known = list(made)
    results = stored_results(
        known,
        systems=systems,
        scorers=scorers,
        categories=categories,
        fields=fields,
        weights=weights,
        store=store,
    )
    unknown = {"costs": None} if store is None else {}
    return replace(
        results.board,
        systems=systems,
        scorers=scorers,
        reading=lambda keys: (e for e in known if key_of(e.query) in keys),
        **unknown | options,
    )
