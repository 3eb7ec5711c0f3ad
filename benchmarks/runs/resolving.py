"""From the names in a config to systems and scorers, with their settings.

    names = NameResolver(task).resolve(config, given, identities)
    names.systems, names.scorers

A name in a config is that of a system (`anole`, `gpt-4o+flux`), of a variant of one, or of
a scorer (`judge:gpt-4o`). What it stands for also depends on the settings in
`[models.NAME]` and on which weights a model's revision means: those of today, or those
that a run was made with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from plait.benchmarks.runs.config import RunConfig, merge
from plait.benchmarks.tasks.controls import TRUTH, control, is_control
from plait.benchmarks.tasks.published import is_published, system_of_writer
from plait.benchmarks.tasks.task_set import TaskSet
from plait.generators.catalogue import Named, by_name, planners
from plait.generators.checkpoints import Pins, pinning
from plait.generators.errors import UsageError
from plait.generators.given import GroundTruth
from plait.generators.names import unknown, with_overrides
from plait.generators.system import System
from plait.pipelines.systems import (
    Models,
    answers_spec,
    chat_spec,
    is_lvlm,
    parts_of,
    resolve,
)
from plait.scorers import resolve_scorer
from plait.scorers.base import Scorer
from plait.scorers.judging.resolve import (
    JudgeSettings,
    chat_model,
    is_judge,
    refuse_wrong_rubric,
    takes_run_rubric,
)
from plait.scorers.turn_names import name_of_turn_scorer

P = TypeVar("P", System, Scorer)
_WITH_SETTINGS = (Named.NATIVE, Named.SERVED, Named.LVLM, Named.T2I, Named.SCORER)
"""Kinds of names that `[models.NAME]` may be for, whether the run uses them or not."""


@dataclass(frozen=True, kw_only=True)
class ResolvedNames:
    """What the names in a config stand for."""

    systems: tuple[System, ...]
    """Those that come with the data first."""
    scorers: tuple[Scorer, ...]
    baselines: Mapping[str, System]
    """What pairs are judged beside and that is no system of the run, by name."""
    identities: Mapping[str, str]
    """Which weights exactly, by model and revision."""
    missing_weights: tuple[str, ...]
    """Weights that are neither on this machine nor available elsewhere, and why."""


class _Resolution(NamedTuple):
    """What a name stood for, and what that depended on."""

    part: System | Scorer
    settings: tuple[Any, ...]
    weights: Mapping[str, str]


class NameResolver:
    """Resolves the names of configs over one task set.

    A name is resolved again only where settings or weights are others than before: joining
    a run resolves the same names four times, and finding the digest of a checkpoint may
    read gigabytes.
    """

    def __init__(self, task: TaskSet) -> None:
        self._task = task
        self._resolutions: dict[tuple[str, str], list[_Resolution]] = defaultdict(list)

    def resolve(
        self, config: RunConfig, given: Sequence[System], identities: Mapping[str, str]
    ) -> ResolvedNames:
        """Return what the names in `config` stand for, with the weights `identities`.

        `given` are the systems whose answers come with the data. UsageError for a name or
        setting that is not valid.
        """
        _refuse_wrong_rubrics(config)
        models = models_of(config)
        settings = (models, config.variants, config.seed, config.mode, config.rubric)
        systems = [*given]
        scorers: list[Scorer] = []
        # A name that is given twice counts once.
        system_names = dict.fromkeys(config.systems)
        scorer_names = dict.fromkeys(config.scorers)
        with pinning(identities) as pins:
            for name in system_names:
                make_system = partial(_system_of, name, config, self._task, models)
                place = ("system", name)
                systems.append(self._resolve_once(place, settings, pins, make_system))
            for name in scorer_names:
                make_scorer = partial(scorer_of, name, config, models)
                place = ("scorer", name)
                scorers.append(self._resolve_once(place, settings, pins, make_scorer))
        _refuse_shared_names(system_names, given)
        return ResolvedNames(
            systems=tuple(systems),
            scorers=tuple(scorers),
            baselines=_baselines(scorers, systems, self._task, config.seed),
            identities=pins.known,
            missing_weights=pins.missing,
        )

    def _resolve_once(
        self,
        place: tuple[str, str],
        settings: tuple[Any, ...],
        pins: Pins,
        make: Callable[[], P],
    ) -> P:
        """Return what was made before of the same settings and weights, else what is now.

        `place` is the kind of the name (`system` or `scorer`) and the name.
        """
        for before in self._resolutions[place]:
            same_weights = before.weights.items() <= pins.known.items()
            if before.settings == settings and same_weights:
                # What stands at a place is of the place's kind.
                return cast(P, before.part)
        # What is noted in `used` from here on is what this part depends on.
        pins.used.clear()
        part = make()
        self._resolutions[place].append(_Resolution(part, settings, dict(pins.used)))
        return part


def _refuse_shared_names(names: Iterable[str], given: Iterable[System]) -> None:
    """UsageError where a name is that of a system and of answers that the data hold."""
    both = {*names} & {system.name for system in given}
    if both:
        raise UsageError(
            f"{', '.join(sorted(both))} names both a system and given answers; "
            "give the answers another name"
        )


# ------------------------------------------------------------------------------- systems


def _system_of(name: str, config: RunConfig, task: TaskSet, models: Models) -> System:
    """Return the system or variant `name`."""
    named, own = with_variant(name, config, models)
    system = _system_by_name(named, task, own, config.seed)
    if name not in config.variants:
        return system
    # No cell of a matrix of pairings, where its system stands.
    return system.with_history(config.variants[name].history).as_variant(name)


def with_variant(name: str, config: RunConfig, models: Models) -> tuple[str, Models]:
    """Return which system `name` is, and the settings of its models.

    Of a variant they have its own over those of the config. UsageError for a variant of a
    variant.
    """
    variant = config.variants.get(name)
    if variant is None:
        return name, models
    if variant.system in config.variants:
        raise UsageError(
            f"variants.{name}: {variant.system!r} is a variant itself; name its system"
        )
    overrides = merge(models.overrides, variant.models)
    return variant.system, replace(models, overrides=overrides)


def _system_by_name(name: str, task: TaskSet, models: Models, seed: int) -> System:
    """Return a system that is no variant."""
    if is_published(name):
        return system_of_writer(name, task)
    if is_control(name):
        # Of all queries, so that it answers the same whichever of them the run selects.
        return control(name, task.samples, seed)
    return resolve(name, models)


def _baselines(
    scorers: Iterable[Scorer], systems: Iterable[System], task: TaskSet, seed: int
) -> dict[str, System]:
    """Return what pairs are judged beside and that is no system of the run.

    UsageError where its answers do not come with the data: nobody would make them.
    """
    of_run = [system.name for system in systems]
    baselines: dict[str, System] = {}
    for scorer in scorers:
        name = scorer.opponent
        if not name or name in of_run:
            continue
        if is_published(name):
            baselines[name] = system_of_writer(name, task)
        elif name == TRUTH:
            baselines[name] = GroundTruth(name=TRUTH)
        elif is_control(name):
            baselines[name] = control(name, task.samples, seed)
        else:
            raise unknown(f"baseline of {scorer.name}", name, [*of_run, TRUTH])
    return baselines


# ------------------------------------------------------------------------------- scorers


def scorer_of(name: str, config: RunConfig, models: Models) -> Scorer:
    """Return the scorer that a config names."""
    return scorer_named(name, scorer_settings(name, config, models), models)


def scorer_settings(name: str, config: RunConfig, models: Models) -> dict[str, Any]:
    """Return the settings of the scorer that a config names, but for its defaults.

    `turns:SCORER` and its kin have those of the scorer that they ask.
    """
    name = name_of_turn_scorer(name)
    settings = dict(models.of(name))
    if is_judge(name):
        settings = {"seed": config.seed} | settings
    if takes_run_rubric(name):
        # What a judge has under its own name goes before what the run says for all.
        of_run = {"mode": config.mode, "rubric": config.rubric}
        settings = _without_none(of_run) | settings
    return settings


def scorer_named(name: str, settings: Mapping[str, Any], models: Models) -> Scorer:
    """Return the scorer `name` with `settings`; `models` are those of models it asks."""
    chat = partial(chat_spec, models=models)
    answers = partial(answers_spec, models=models)
    return resolve_scorer(name, models.weights, settings, models.gpu_gib, chat, answers)


# ------------------------------------------------------------------------------ settings


def models_of(config: RunConfig) -> Models:
    """Return the settings of a config that concern all its models."""
    return Models(
        weights=config.weights or "pretrained",
        overrides=config.models,
        servers=config.servers,
        gpu_gib=config.engine.gpu_memory_gib,
        max_images=config.composition.max_images,
        critic=config.composition.critic,
    )


def models_named(names: Iterable[str]) -> set[str]:
    """Return what settings may be for, given names of systems and scorers."""
    models = set[str]()
    for name in names:
        for part in (name, name_of_turn_scorer(name), chat_model(name)):
            models |= {part, *parts_of(part).models}
    return models


def refuse_settings_of_nothing(config: RunConfig) -> None:
    """UsageError for `[models.NAME]` of a name that neither the run nor plait knows."""
    named = [*config.systems, *config.scorers]
    with_settings = [*config.models]
    for variant in config.variants.values():
        named.append(variant.system)
        with_settings += variant.models
    valid = models_named(named)
    valid |= planners().keys()
    for kind in _WITH_SETTINGS:
        valid |= by_name(kind).keys()
    for name in with_settings:
        # Settings of any other chat model may be for a later judge or comparison.
        if name not in valid and not is_lvlm(chat_model(name)):
            raise unknown("name in models", name, valid)


def _refuse_wrong_rubrics(config: RunConfig) -> None:
    """UsageError for rubrics and modes that are not valid, with or without a judge.

    They are kept with the run, and judges that are added later use them.
    """
    judged = any(takes_run_rubric(name) for name in config.scorers)
    # A judge may add the rubric that makes the mode valid.
    tables = [{"rubric": config.rubric, "mode": None if judged else config.mode}]
    for name, values in config.models.items():
        if "rubric" in values and (takes_run_rubric(name) or not is_judge(name)):
            tables.append({"rubric": values["rubric"]})
    for table in tables:
        settings = with_overrides(JudgeSettings(), _without_none(table), "")
        refuse_wrong_rubric(settings)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are given: None stands for a key that the user left out."""
    return {key: value for key, value in values.items() if value is not None}
