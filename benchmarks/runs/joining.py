"""Adding to a run directory that already holds a run.

A run directory is one table: systems x scorers over one selection of one task set. More
systems, scorers, queries and repeats are added, and apply to all of it. Whatever would
change the meaning of results under the same names is refused: other seed, weights or
prompts, other settings of a model or judge in the run, fewer queries, and data that have
changed, unless the user says what is to become of them (`plait.benchmarks.runs.queries`).

Whether settings differ is found by resolving the names of both configs and comparing their
stages, not what users wrote: a default that is spelled out changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from plait.benchmarks.runs.config import RunConfig, is_run, merge
from plait.benchmarks.runs.experiment import Experiment, open_experiment
from plait.benchmarks.runs.opening import refuse_other_questions
from plait.benchmarks.runs.queries import FormerRun, read_ids, read_task, settle_data
from plait.benchmarks.runs.reopening import other_given_answers
from plait.benchmarks.runs.resolving import (
    NameResolver,
    P,
    ResolvedNames,
    refuse_settings_of_nothing,
)
from plait.benchmarks.runs.run_directory import former_config, read_manifest, refuse_pack
from plait.benchmarks.tasks.answers import find_changes
from plait.benchmarks.tasks.changes import NO_CHOICES, DataChoices
from plait.benchmarks.tasks.task_set import TaskSet
from plait.benchmarks.wording import quantity
from plait.cluster.run import RUN_DIGEST
from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.system import System
from plait.scorers.base import Scorer
from plait.scorers.judging.resolve import refuse_mini_lvlm, takes_run_rubric
from plait.scorers.judging.sources import PLAIT

Progress = Callable[[int, int], None]
_UNPINNED = "unpinned:"
"""How the identity begins of weights whose revision could not be looked up."""
_FLAGS = ("seed", "weights", "prompts", "composition")
"""Keys of a config that mean the same for all results of a run."""


@dataclass(frozen=True, kw_only=True)
class JoinedRun:
    """A config joined with the run in its directory."""

    experiment: Experiment
    added: Sequence[str] = ()
    """What the run does not have yet."""
    changes: Sequence[str] = ()
    """What becomes of data that have changed since it was made."""


def join(
    config: RunConfig,
    on_progress: Progress | None = None,
    *,
    remake: bool = False,
    choices: DataChoices = NO_CHOICES,
) -> JoinedRun:
    """Return the experiment of `config` joined with the run in its directory.

    UsageError names every difference that cannot be joined, with what `choices` there are
    for data that have changed. With `remake`, weights whose files have changed are accepted
    as they are now.
    """
    refuse_pack(config.root)
    for name in config.scorers:
        refuse_mini_lvlm(name, config.weights or "pretrained")
    if not is_run(config.root):
        alone = open_experiment(config, on_progress=on_progress)
        refuse_other_questions(alone.task)
        return JoinedRun(experiment=alone)
    manifest = read_manifest(config.root)
    before = former_config(config.root, manifest)
    both = _union(before, config)
    refuse_settings_of_nothing(both)
    task, given = read_task(both, on_progress)
    refuse_other_questions(task)
    ids = read_ids(config)
    data = settle_data(FormerRun(config.root, manifest), both, task, choices, ids)
    # Data and flags first: with other data, models cannot even be compared.
    values = _other_values(before, config, manifest, task)
    _refuse(config.root, [*data.refusals, *values])

    identities: dict[str, str] = manifest.get("identities", {})
    former_systems = manifest.get("systems", ())
    given_before = [system for system in given if system.name in former_systems]
    resolver = NameResolver(data.task)
    # What this command names, with weights as they are now.
    current = resolver.resolve(config, given, {})
    pins = _pins(current.identities, identities)
    # What the run was made of, with its own weights.
    former = resolver.resolve(before, given_before, identities)
    # What the run is to be made of, and what of it this command asks for in its own words.
    joint = resolver.resolve(both, given, {**identities, **pins})
    requested = resolver.resolve(_with_judges(config, before), given, pins)
    union = Experiment.of(joint, both, data)
    differences = [] if remake else [*_other_weights(identities, pins)]
    differences += other_given_answers(manifest, data, union, choices)
    differences += _other_models(former, joint, requested)
    _refuse(config.root, differences)

    joins = manifest.get(RUN_DIGEST, "")
    union = replace(union, missing_weights=current.missing_weights, joins=joins)
    added = _iter_added(former, union, data.former, before.repeats)
    return JoinedRun(experiment=union, added=tuple(added), changes=data.remarks)


def _refuse(root: AnyPath, differences: Iterable[str]) -> None:
    """UsageError that names the differences, where there are any, each once."""
    lines = dict.fromkeys(f"  {difference}\n" for difference in differences)
    if lines:
        raise UsageError(
            f"{root} holds a run that was made differently:\n{''.join(lines)}"
            "Name another directory with --out, or give the values of that run."
        )


def _other_values(
    before: RunConfig, config: RunConfig, manifest: Mapping[str, Any], task: TaskSet
) -> Iterator[str]:
    """Name what the config says otherwise that all results of a run have in common."""
    then = before.model_dump(include={*_FLAGS})
    now = config.model_dump(include={*_FLAGS})
    for name in _FLAGS:
        if then[name] != now[name]:
            yield f"{name} is {now[name]}, but {then[name]} in the run"
    for name in before.answers.keys() & config.answers.keys():
        there = before.answers[name]
        here = config.answers[name]
        if there != here:
            yield f"answers of {name} are at {here}, but at {there} in the run"
    yield from find_changes(manifest.get("data"), task.about)
    if config.repeats < before.repeats:
        yield f"repeats is {config.repeats}, but {before.repeats} in the run"


def _pins(current: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the models' current identities; the run's where none is available now."""
    pins = {}
    for name, now in current.items():
        pins[name] = now
        if now.startswith(_UNPINNED):
            # Without a network no revision can be looked up: the run's own stands.
            pins[name] = known.get(name, now)
    return pins


def _other_weights(known: Mapping[str, str], pins: Mapping[str, str]) -> Iterator[str]:
    """Name models whose weights have changed since the run was made."""
    for name, now in pins.items():
        then = known.get(name, now)
        # Nothing is known of weights that the run could not pin: they may be the same.
        if then != now and not then.startswith(_UNPINNED):
            yield f"weights of {name} are {now}, but {then} in the run"


def _union(before: RunConfig, config: RunConfig) -> RunConfig:
    """Return everything that either names; new judges get the mode and rubric given now."""
    judge_settings: dict[str, Any] = {}
    former_judges = _judges_of(before)
    # Mode and rubric of a run are one for all its judges. Where the run's judges have
    # others than those given now, they keep them, and new judges have theirs by name.
    source = config
    if former_judges and _mode_and_rubric(before) != _mode_and_rubric(config):
        source = before
        mode, rubric = _mode_and_rubric(config)
        for name in _judges_of(config):
            if name not in former_judges:
                judge_settings[name] = {"mode": mode, "rubric": rubric}
    return config.model_copy(
        update={
            "systems": _both(before.systems, config.systems),
            "answers": merge(before.answers, config.answers),
            "scorers": _both(before.scorers, config.scorers),
            "models": merge(judge_settings, merge(before.models, config.models)),
            "mode": source.mode,
            "rubric": source.rubric,
            "variants": {**before.variants, **config.variants},
            "pinned": config.pinned or before.pinned,
            "fidelity": config.fidelity or before.fidelity,
        }
    )


def _with_judges(config: RunConfig, before: RunConfig) -> RunConfig:
    """Return `config`, with the run's judges where it names a rubric or mode and none."""
    if _judges_of(config) or not (config.mode or config.rubric):
        return config
    scorers = _both(config.scorers, _judges_of(before))
    return config.model_copy(update={"scorers": scorers})


def _judges_of(config: RunConfig) -> list[str]:
    """Return the scorers of a config whose mode and rubric are the run's own."""
    return [name for name in config.scorers if takes_run_rubric(name)]


def _mode_and_rubric(config: RunConfig) -> tuple[str, str]:
    """Return how judges are asked, by the defaults where the config does not say."""
    return config.mode or "corrected", config.rubric or PLAIT


def _both(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Return the names of both, each once, in their order."""
    return tuple(dict.fromkeys((*first, *second)))


def _other_models(
    former: ResolvedNames, union: ResolvedNames, requested: ResolvedNames
) -> Iterator[str]:
    """Name systems and scorers that would differ from the run's, or from those requested.

    What the run does not have, or this command does not name, is compared with itself.
    """
    of_systems = _then_and_now(union.systems, former.systems, requested.systems)
    for system_then, system_now in of_systems:
        name = system_now.name
        yield from _other_stages(name, system_then, system_now)
        yield from _other_doings(name, system_then.beside_stages, system_now.beside_stages)
    of_scorers = _then_and_now(union.scorers, former.scorers, requested.scorers)
    for scorer_then, scorer_now in of_scorers:
        name = scorer_now.name
        yield from _other_stages(name, scorer_then, scorer_now)
        yield from _other_reading(name, scorer_then, scorer_now)


def _then_and_now(
    union: Iterable[P], former: Iterable[P], requested: Iterable[P]
) -> Iterator[tuple[P, P]]:
    """Yield each part as the run has it, and as it is requested; else as it is in both."""
    parts_then = _by_name(former)
    parts_now = _by_name(requested)
    for part in union:
        yield parts_then.get(part.name, part), parts_now.get(part.name, part)


def _by_name(parts: Iterable[P]) -> dict[str, P]:
    return {part.name: part for part in parts}


def _other_stages(
    name: str, there: System | Scorer, here: System | Scorer
) -> Iterator[str]:
    """Name what differs in the stages of one system or scorer, then and now."""
    if len(there.stages) != len(here.stages):
        yield f"{name} has different stages than in the run"
        return
    for then, now in zip(there.stages, here.stages, strict=True):
        if then.digest != now.digest:
            yield from _other_settings(name, then, now)


def _other_doings(
    name: str, then: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[str]:
    """Name what a system does differently beside its stages; both by what it does."""
    for what in {**then, **now}:
        if then.get(what) != now.get(what):
            yield f"{name} would {what} differently than in the run"


def _other_settings(name: str, then: StageSpec, now: StageSpec) -> Iterator[str]:
    """Name what differs in two stages of which something does."""
    changed = False
    for key in {**then.settings, **now.settings}:
        there = then.settings.get(key)
        here = now.settings.get(key)
        if there != here:
            changed = True
            yield f"{name}: {key} of {now.name} is {here!r}, but {there!r} in the run"
    # Where the weights differ, `_other_weights` says so already.
    if not changed and then.identity == now.identity:
        yield f"{name}: stage {now.name} differs from that in the run"


def _other_reading(name: str, there: Scorer, here: Scorer) -> Iterator[str]:
    """Name what a scorer does differently around its stages.

    That is its rubric, mode, seed and follow-up questions.
    """
    if there.manner != here.manner:
        yield f"{name}: {here.manner}, but {there.manner} in the run"
    elif _reading(there) != _reading(here):
        yield f"{name} would ask or read replies differently than in the run"


def _reading(scorer: Scorer) -> dict[str, Any]:
    """Return all that a scorer is besides its stages; nothing of a user's own class."""
    if not is_dataclass(scorer):
        return {}
    values = {}
    for field in fields(scorer):
        value = getattr(scorer, field.name)
        if not isinstance(value, StageSpec):
            values[field.name] = value
    return values


def _iter_added(
    former: ResolvedNames, union: Experiment, queries: int, repeats: int
) -> Iterator[str]:
    """Name what a run of so many queries and repeats does not have yet."""
    former_systems = _by_name(former.systems)
    for system in union.systems:
        if system.name not in former_systems:
            yield f"system {system.name}"
    former_scorers = _by_name(former.scorers)
    for scorer in union.scorers:
        if scorer.name not in former_scorers:
            yield f"scorer {scorer.name}"
    if len(union.queries) > queries:
        yield quantity(len(union.queries) - queries, "query")
    if union.config.repeats > repeats:
        yield f"repeats up to {union.config.repeats}"
