"""An experiment again from the run directory that it was made in, as its manifest says.

    experiment = reopen(root)                               # to read what was made
    experiment = reopen(root, {"scorers": ["clipscore"]})   # to make more there

Settings and names are the manifest's; stages stand under the digests of their records,
whatever today's version of plait would call them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from plait.benchmarks.runs.config import is_run
from plait.benchmarks.runs.experiment import GIVEN, Experiment
from plait.benchmarks.runs.queries import (
    FormerRun,
    SettledData,
    data_as_made,
    read_task,
    settle_data,
)
from plait.benchmarks.runs.resolving import NameResolver, refuse_settings_of_nothing
from plait.benchmarks.runs.run_directory import (
    RecordedStages,
    Supersession,
    former_config,
    read_manifest,
)
from plait.benchmarks.tasks import answers
from plait.benchmarks.tasks.changes import NO_CHOICES, DataChoices
from plait.benchmarks.terminal import command_text
from plait.cluster.run import RUN_DIGEST
from plait.cluster.store import Store
from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.errors import PlaitWarning, UsageError
from plait.scorers.base import Scorer, with_stage


def reopen(
    root: AnyPath,
    changes: Mapping[str, Any] | None = None,
    *,
    current: Sequence[str] = (),
    choices: DataChoices = NO_CHOICES,
) -> Experiment:
    """Return the experiment a run directory holds, from its manifest.

    Checkpoints and stages keep the identities they had when the run was made, so that a
    report needs neither the weights nor the network nor the former version of plait. The
    scorers named in `current` are used in today's version. UsageError where answers that
    were made elsewhere have changed, and where its data have: with `changes` of its config,
    unless `choices` say what is to become of that.
    """
    manifest = read_manifest(root)
    identities = manifest.get("identities", {})
    ids = manifest.get("ids")
    config = former_config(root, manifest, changes)
    refuse_settings_of_nothing(config)
    task, given = read_task(config)
    other_answers = [*answers.find_changes(manifest.get("data"), task.about)]
    if other_answers:
        raise UsageError(
            f"{'; '.join(other_answers)} since the run in {root} was made: restore the "
            "former ones, or score the current ones into another directory with --out"
        )
    if changes:
        run = FormerRun(root, manifest, name=f"the run in {root}")
        data = settle_data(run, config, task, choices, ids)
    else:
        # Who only reads a run sees it as it was made, whatever has become of its data.
        data = data_as_made(root, manifest, config, task)
    resolver = NameResolver(data.task)
    names = resolver.resolve(config, given, identities)
    experiment = Experiment.of(names, config, data)
    former = experiment
    if changes:
        # Stages are recorded under the run's own config: one whose settings are changed now
        # is another one, and has no records yet.
        own_config = former_config(root, manifest)
        own_names = resolver.resolve(own_config, given, identities)
        former = Experiment.of(own_names, own_config, data)
        others = other_given_answers(manifest, data, experiment, choices)
        refusals = [*data.refusals, *others]
        if refusals:
            raise UsageError("\n".join(refusals))
    experiment = replace(experiment, joins=manifest.get(RUN_DIGEST, ""))
    return _as_recorded(experiment, former, RecordedStages(manifest), current)


def _as_recorded(
    experiment: Experiment,
    former: Experiment,
    stages: RecordedStages,
    current: Sequence[str],
) -> Experiment:
    """Return `experiment` with the stages of `former` as the run has recorded them.

    But for the scorers named in `current`.
    """
    recorded: dict[str, StageSpec] = {}
    for spec in former.plan.stages:
        recorded[spec.digest] = stages.as_recorded(spec)

    def as_recorded(spec: StageSpec) -> StageSpec:
        return recorded.get(spec.digest, spec)

    scorers = []
    for scorer in experiment.scorers:
        whole = stages.whole(scorer) if scorer in former.scorers else None
        if scorer.name in current:
            scorers.append(scorer)
        elif whole is None:
            scorers.append(with_stage(scorer, as_recorded))
        else:
            # CLIPScore and consistency were one record a document in earlier versions;
            # today they embed texts and images. That record is the score.
            scorers.append(replace(scorer, stage=whole))
    systems = [system.with_stages(as_recorded) for system in experiment.systems]
    return replace(experiment, systems=tuple(systems), scorers=tuple(scorers))


def other_given_answers(
    manifest: Mapping[str, Any],
    data: SettledData,
    experiment: Experiment,
    choices: DataChoices,
) -> Iterator[str]:
    """Name systems whose answers, which the data hold, have changed since the run."""
    if data.asked is None or choices.remake:
        return
    then = manifest.get(GIVEN, {})
    now = experiment.answer_digests(data.asked)
    for name in then.keys() & now.keys():
        if then[name] != now[name]:
            yield (
                f"the answers of {name} in data {experiment.config.data} have changed "
                "since the run was made: restore the former ones, or use the current "
                "ones with --changed-data remake"
            )


def find_superseded(experiment: Experiment, store: Store) -> list[Supersession]:
    """Return stages of the run directory whose records would be made again."""
    root = experiment.config.root
    if not is_run(root):
        return []
    plan = experiment.plan
    recorded = RecordedStages(read_manifest(root))
    return recorded.find_superseded(plan.stages, store, plan.scorers)


def warn_of_faults(root: AnyPath, scorers: Iterable[Scorer]) -> None:
    """Give a PlaitWarning for each scorer that was made by a version with a known fault."""
    for scorer in scorers:
        faults = scorer.superseded
        if faults:
            again = command_text(
                "plait", "score", root, "--scorer", scorer.name, "--remake"
            )
            told = f"{scorer.name} was made by {faults}; `{again}` scores again"
            warnings.warn(told, PlaitWarning, stacklevel=2)
