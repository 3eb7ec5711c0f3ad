"""A config resolved: task set, systems, scorers, and the plan for them.

    experiment = open_experiment(config)   # of a config: reads the data, resolves names
    experiment = reopen(root)              # of a run directory, as its manifest says
    experiment.plan                        # everything that the run is to make

Names are resolved twice when a run is joined or scored again: to what they stand for today,
and to what they stood for when the run was made. Where both agree, records are used again.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from plait.benchmarks.protocols.differences import PinnedRunFacts
from plait.benchmarks.results.files.about import RunAbout, facts_of_plan, facts_of_stage
from plait.benchmarks.results.files.current import CurrentResults
from plait.benchmarks.results.files.rulings import COMPARE
from plait.benchmarks.results.files.schema import FOLDER
from plait.benchmarks.results.files.writing import ResultsWriter, former_content
from plait.benchmarks.results.people import read_measured
from plait.benchmarks.runs.config import OFFICIAL, RunConfig, is_run, merge
from plait.benchmarks.runs.pinning import PinnedRemarks, remarks_of_run
from plait.benchmarks.runs.queries import (
    QUERIES,
    SettledData,
    data_as_made,
    read_ids,
    read_stored_queries,
    selection,
    settle_data,
)
from plait.benchmarks.runs.run_directory import (
    FORMAT,
    RecordedStages,
    Supersession,
    former_config,
    read_manifest,
    stage_facts,
)
from plait.benchmarks.tasks import answers
from plait.benchmarks.tasks.changes import (
    KEPT,
    NO_CHOICES,
    DataChoices,
    data_rows,
    queries_digest,
)
from plait.benchmarks.tasks.controls import TRUTH, control, is_control
from plait.benchmarks.tasks.mmie import official
from plait.benchmarks.tasks.published import Answer, is_published, system_of_writer
from plait.benchmarks.tasks.task_set import TaskSet, load
from plait.benchmarks.terminal import command_text
from plait.cluster.executors.probe import is_local
from plait.cluster.manifest import environment, read_entries
from plait.cluster.plan import EngineOptions, Plan
from plait.cluster.run import MANIFEST, RUN_DIGEST, executor_of
from plait.cluster.store import Store
from plait.generators.base import Kind, StageSpec
from plait.generators.buckets import AnyPath, matching
from plait.generators.catalogue import Named, by_name, is_custom, planners
from plait.generators.checkpoints import pinning
from plait.generators.custom import custom_spec
from plait.generators.document import Malformed, Query
from plait.generators.errors import PlaitWarning, UsageError
from plait.generators.extras import Extra, extra_problem
from plait.generators.given import GivenAnswers, GroundTruth
from plait.generators.keys import digest
from plait.generators.mini.table import ABOUT
from plait.generators.names import unknown, with_overrides
from plait.generators.secrets import key_trouble
from plait.generators.system import System
from plait.pipelines.presets import facts_of
from plait.pipelines.systems import (
    Models,
    answers_spec,
    chat_spec,
    is_lvlm,
    parts_of,
    resolve,
)
from plait.scorers import resolve_scorer
from plait.scorers.base import Scorer, with_stage
from plait.scorers.judging.judge import ChatJudge
from plait.scorers.judging.resolve import (
    JudgeSettings,
    chat_model,
    is_judge,
    refuse_wrong_rubric,
    takes_run_rubric,
)
from plait.scorers.turns import name_of_turn_scorer, scorer_of_turn

P = TypeVar("P", System, Scorer)
_MOST_WITH_NOTES = 20_000
"""At most this many documents are read with their stages' notes (prompts, truncation)."""
FIDELITY = "fidelity/result.json"
"""In a run directory: what was shown of the run before it answered all queries."""
GIVEN = "given_answers"
"""The manifest's entry with digests of answers that the data hold, by system."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A run with all names resolved, ready to be planned, executed or read."""

    config: RunConfig
    task: TaskSet
    queries: Sequence[Query | Malformed]
    systems: tuple[System, ...]
    scorers: tuple[Scorer, ...]
    identities: Mapping[str, str]
    """Which weights exactly, by model and revision."""
    baselines: Mapping[str, System] = field(default_factory=dict)
    """What pairs are judged beside and that is no system of the run."""
    ids: tuple[str, ...] | None = None
    """Ids of queries by which the queries were selected, if they were."""
    joins: str = ""
    """The `run_digest` of the run that is in the run directory, if there is one."""
    missing_weights: tuple[str, ...] = ()
    """Weights that are neither on this machine nor available elsewhere, and why."""
    rows: Mapping[str, str] | None = None
    """What the run is to keep of rows of the data, by id; None for all as they are now.

    A row that came into the data, or changed, and is not asked yet is here as it was
    before: it is noticed when it is asked.
    """

    @cached_property
    def data_rows(self) -> Mapping[str, str]:
        """By id, the digest of each row of the data, as the run is to keep them."""
        return data_rows(self.task) if self.rows is None else self.rows

    @property
    def plan(self) -> Plan:
        """All walks of the run."""
        return Plan(
            systems=self.systems,
            queries=self.queries,
            scorers=self.scorers,
            prompt=self.task.prompt,
            seed=self.config.seed,
            repeats=self.config.repeats,
            baselines=self.baselines,
        )

    @property
    def selection(self) -> str:
        """`limit 50 of 20,103` where not all queries are answered."""
        if len(self.queries) == len(self.task.samples):
            return ""
        return f"{len(self.queries):,} of {len(self.task.samples):,} queries"

    def with_limit(self, queries: int) -> Experiment:
        """Return the same with at most `queries` queries, in the same run directory."""
        values = {"limit": queries, "out": self.config.root}
        config = self.config.model_copy(update=values)
        asked = selection(config, self.task, self.ids)
        return replace(self, config=config, queries=asked)

    def engine_options(self, **own: Any) -> EngineOptions:
        """Return the options of a run of it, with those of `own` in their place."""
        return engine_options(self.config, **({"joins": self.joins} | own))

    @property
    def recorded_queries(self) -> int:
        """How many queries the run in the run directory has; 0 where there is none."""
        root = self.config.root
        if not is_run(root):
            return 0
        if stored := read_stored_queries(root):
            return len(stored.ids)
        manifest = read_manifest(root)
        former = former_config(root, manifest)
        return len(selection(former, self.task, manifest.get("ids")))

    @property
    def run_digest(self) -> str:
        """Of everything that decides what is made; equal for all shards of a run."""
        stages = (stage.digest for stage in self.plan.stages)
        return digest_of_run(
            self.config, self.task.about, self.ids, stages, self.identities
        )

    def about(self) -> dict[str, Any]:
        """Return the manifest's entries about the run, without the environment."""
        ids = [query.id for query in self.queries]
        about = self._remarks
        about |= {
            "plait": FORMAT,
            RUN_DIGEST: self.run_digest,
            "config": self.config.plain_data(),
            "data": dict(self.task.about),
            QUERIES: queries_digest(ids, self.data_rows),
        }
        given = self.answer_digests(ids)
        if given:
            about[GIVEN] = given
        return about | {
            "selection": self.selection,
            "weights": self.config.weights,
            "rubrics": self._rubric_texts,
            "systems": [system.name for system in self.systems],
            "scorers": [scorer.name for scorer in self.scorers],
            "identities": dict(self.identities),
            "stages": {spec.folder: stage_facts(spec) for spec in self.plan.stages},
        }

    @property
    def _remarks(self) -> dict[str, Any]:
        """What the manifest says of some runs before all else.

        An entry that says nothing of a run is left out, not null: manifests of earlier
        versions do not have it either.
        """
        entries: dict[str, Any] = {}
        pinned = self.pinned
        if pinned is not None:
            entries["pinned"] = pinned.as_json
        if self.ids is not None:
            entries["ids"] = list(self.ids)
        if self.config.weights == "mini":
            entries["about_weights"] = ABOUT
        fidelity = self.fidelity
        if fidelity:
            entries["fidelity"] = fidelity
        return entries

    @property
    def _rubric_texts(self) -> dict[str, Any]:
        """By judge, the texts that it asks with, where these are no part of plait."""
        texts = {}
        for scorer in self.scorers:
            scorer = scorer_of_turn(scorer)
            if isinstance(scorer, ChatJudge) and scorer.texts:
                texts[scorer.name] = scorer.texts
        return texts

    def answer_digests(self, ids: Iterable[str]) -> dict[str, str]:
        """Return, by system, the digest of the answers that the data hold to `ids`."""
        held = self._held_answers
        # The ids are not even counted where no data hold answers, as most do not.
        asked = [*ids] if held else []
        digests = {}
        for system, given in held.items():
            digests[system] = answers.answers_digest(given, asked)
        return digests

    @property
    def _held_answers(self) -> dict[str, Mapping[str, Answer]]:
        """By system, the answers that data hold beside their rows."""
        # A folder of official results is made of answers; with `answers` beside it, those
        # of its systems cannot be told from those that were named.
        all_given = self.config.data.startswith(OFFICIAL) and not self.config.answers
        held = {}
        for system in self.systems:
            is_held = all_given or is_published(system.name)
            if isinstance(system, GivenAnswers) and is_held:
                held[system.name] = system.answers
        return held

    @property
    def pinned(self) -> PinnedRemarks | None:
        """In what the run differs from the pinned protocol that its config names."""
        if self.config.pinned is None:
            return None
        facts = PinnedRunFacts(
            protocol=self.config.pinned,
            task=self.task.name,
            digest=str(self.task.about.get("digest") or ""),
            queries=len(self.queries),
            repeats=self.config.repeats,
        )
        return remarks_of_run(facts, self.systems, self.scorers, self._scorer_settings)

    @property
    def _scorer_settings(self) -> dict[str, dict[str, Any]]:
        """By scorer, its settings as the config says them, but for its defaults."""
        models = models_of(self.config)
        settings = {}
        for scorer in self.scorers:
            settings[scorer.name] = scorer_settings(scorer.name, self.config, models)
        return settings

    @property
    def fidelity(self) -> dict[str, Any]:
        """What was shown of its fidelity to a reference, if anything was asked for."""
        asked = self.config.fidelity is not None
        return read_entries(self.config.root / FIDELITY) if asked else {}

    @property
    def notes(self) -> bool:
        """Whether documents are few enough to be read with their stages' notes."""
        return len(self.plan) <= _MOST_WITH_NOTES

    def results_writer(
        self, *, copies_images: bool = True, run_digest: str = ""
    ) -> ResultsWriter:
        """Return what writes the results of the run while its evaluations pass.

        Of a run that is only read, `run_digest` is what its manifest says.
        """
        rows = self.data_rows.items()
        about = self.results_about()
        about = replace(about, run_digest=run_digest or about.run_digest)
        return ResultsWriter(self.plan, about, rows, copies_images=copies_images)

    def current_results(self) -> CurrentResults | None:
        """Return the run's results, where reading all records would write the same.

        None where answers are given beside the rows: no record tells whether they changed.
        """
        if self.config.answers or self._held_answers:
            return None
        about = self.results_about()
        rows = self.data_rows
        return CurrentResults.of(self.config.root, self.plan, about, rows)

    @property
    def _licences(self) -> dict[str, str | None]:
        """By model of the systems, its weights' licence where that is known."""
        licences: dict[str, str | None] = {}
        for system in self.systems:
            variant = self.config.variants.get(system.name)
            named = variant.system if variant else system.name
            for model in parts_of(named).models:
                licences[model] = facts_of(model).licence
        return licences

    def results_about(self) -> RunAbout:
        """Return what the results say of the run besides their tables."""
        config = self.config
        task = self.task
        return RunAbout(
            run_digest=self.run_digest,
            name=task.name,
            categories=task.categories,
            fields=task.fields,
            data=dict(task.about),
            config=config.plain_data(),
            ids=self.ids,
            seed=config.seed,
            repeats=config.repeats,
            selection=self.selection,
            weights=str(config.weights),
            identities=dict(self.identities),
            licences=self._licences,
            versions=versions_of_records(config.root),
            rubrics=self._rubric_texts,
            agreement=[*map(asdict, read_measured(config.report.agreement))],
            judges=judges_of_comparisons(config.root),
            judge_errors=former_content(config.root / FOLDER).get("judge_errors", {}),
            **facts_of_plan(self.plan, self._scorer_settings),
        )


def engine_options(config: RunConfig, **own: Any) -> EngineOptions:
    """Return the options that a config names, with those of `own` in their place."""
    engine = config.engine
    about = {
        "executor": config.executor,
        "address": config.address,
        "placement_timeout_s": engine.placement_timeout_s,
        "grace_s": engine.grace_s,
        "max_cost": engine.max_cost,
    }
    return EngineOptions(**(about | own))


def judges_of_comparisons(root: AnyPath) -> dict[str, Any]:
    """Return facts of the stages that judged pairs and whose classes are a user's own.

    By folder, from the run's results. Those that only the manifests of comparisons name
    are added where their modules are there: results are read where they are not.
    """
    judges = dict(former_content(root / FOLDER).get("judges", {}))
    for path in matching(root / COMPARE, f"*/{MANIFEST}"):
        # Manifests of earlier versions lack entries, and a user's class may be gone.
        with suppress(OSError, LookupError, TypeError, ValueError, ImportError):
            about = json.loads(path.read_text())
            judge = about["judge"]
            stage = about["judge_stage"]
            # A stage's folder ends with the beginning of its digest, which `stage` is.
            if is_custom(judge) and not any(name.endswith(stage) for name in judges):
                asked = (judge, about["judge_weights"], about["judge_settings"])
                spec = custom_spec(*asked, [Kind.DRAFT])
                # Another digest means that the class has changed since it judged.
                if spec.digest.startswith(stage):
                    judges[spec.folder] = facts_of_stage(spec)
    return judges


def _is_public(endpoint: str | None) -> bool:
    """Return whether an endpoint is somebody else's server, which wants a key."""
    return (endpoint or "").startswith("https:")


def key_problems(stages: Iterable[StageSpec]) -> list[str]:
    """Return what is wrong with the API keys that stages need, a line for each.

    A key is required only for endpoints reached over https: your own servers mostly need
    none, and those that do refuse the stage's first call.
    """
    problems: list[str] = []
    for stage in stages:
        unset = []
        if _is_public(stage.placement.endpoint):
            unset = [name for name in stage.secrets if not os.environ.get(name)]
        if unset:
            problems.append(
                f"{stage.name} needs the environment variable {', '.join(unset)}"
            )
        # Others of its secrets are for a server that plait starts, whatever they hold.
        trouble = key_trouble(str(stage.options.get("api_key_env", "")))
        if trouble:
            problems.append(f"{stage.name}: {trouble}")
    return problems


def package_problems(stages: Sequence[StageSpec], options: EngineOptions) -> list[str]:
    """Return which packages are not installed that stages need, a line for each extra.

    Those of models are looked for where this machine does the work: nodes of a cluster say
    so themselves.
    """
    if not stages:
        return []
    executor = executor_of(options)
    problems = []
    if executor == "ray":
        problems.append(extra_problem("ray", "--executor ray"))
    if executor != "ray" or is_local(options.address):
        needed = defaultdict[Extra, list[str]](list)
        for stage in stages:
            if stage.extra is not None:
                needed[stage.extra].append(stage.name)
        for extra, names in needed.items():
            problems.append(extra_problem(extra, *names))
    # An extra that is installed is no problem, which is told by an empty text.
    return [problem for problem in problems if problem]


def refuse_missing(
    stages: Sequence[StageSpec], weights: Sequence[str], options: EngineOptions
) -> None:
    """UsageError that names missing packages and `weights`, and keys of no use."""
    lines = [*package_problems(stages, options), *key_problems(stages), *weights]
    if lines:
        raise UsageError("\n".join(lines))


def open_experiment(
    config: RunConfig,
    *,
    identities: Mapping[str, str] | None = None,
    ids: Sequence[str] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Experiment:
    """Read the data and resolve every name; UsageError or TaskError when one is wrong.

    `ids` are those of an existing run, whatever its file of ids holds today.
    """
    refuse_settings_of_nothing(config)
    task, given = read_task(config, on_progress)
    return experiment_of(config, task, given, identities=identities, ids=ids)


def experiment_of(
    config: RunConfig,
    task: TaskSet,
    given: Sequence[System],
    *,
    identities: Mapping[str, str] | None = None,
    ids: Sequence[str] | None = None,
) -> Experiment:
    """The experiment over a task set that is read, and the systems that come with it."""
    named = NameResolver(task).resolve(config, given, identities or {})
    if ids is None:
        ids = read_ids(config)
    queries = selection(config, task, ids)
    return named.on(config, SettledData(task=task, queries=queries, ids=ids))


@dataclass(frozen=True, kw_only=True)
class ResolvedNames:
    """What the names in a config stand for."""

    systems: tuple[System, ...]
    """Those that come with the data first."""
    scorers: tuple[Scorer, ...]
    baselines: Mapping[str, System]
    identities: Mapping[str, str]
    missing_weights: tuple[str, ...]

    def on(self, config: RunConfig, data: SettledData) -> Experiment:
        """Return the experiment over the queries that are asked of `data`."""
        return Experiment(
            config=config,
            task=data.task,
            queries=data.queries,
            systems=self.systems,
            scorers=self.scorers,
            baselines=self.baselines,
            ids=None if data.ids is None else tuple(data.ids),
            identities=self.identities,
            missing_weights=self.missing_weights,
            rows=data.rows,
        )


class _Resolution(NamedTuple):
    """What a name stood for, and what that depended on."""

    part: Any
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

        UsageError for a name or setting that is not valid.
        """
        _refuse_wrong_rubrics(config)
        models = models_of(config)
        settings = (models, config.variants, config.seed, config.mode, config.rubric)
        # A name that is given twice counts once.
        system_names = dict.fromkeys(config.systems)
        scorer_names = dict.fromkeys(config.scorers)
        systems = [*given]
        scorers = []
        with pinning(identities) as pins:

            def once(kind: str, name: str, make: Callable[[], P]) -> P:
                for before in self._resolutions[kind, name]:
                    same_weights = before.weights.items() <= pins.known.items()
                    if before.settings == settings and same_weights:
                        return cast(P, before.part)
                # What is noted from here on is what this part depends on.
                pins.used.clear()
                part = make()
                used = dict(pins.used)
                self._resolutions[kind, name].append(_Resolution(part, settings, used))
                return part

            for name in system_names:
                make_system = partial(_system_of, name, config, self._task, models)
                systems.append(once("system", name, make_system))
            for name in scorer_names:
                make_scorer = partial(scorer_of, name, config, models)
                scorers.append(once("scorer", name, make_scorer))
        both = system_names.keys() & {system.name for system in given}
        if both:
            raise UsageError(
                f"{', '.join(sorted(both))} names both a system and given answers; "
                "give the answers another name"
            )
        return ResolvedNames(
            systems=tuple(systems),
            scorers=tuple(scorers),
            baselines=_baselines(scorers, systems, self._task, config.seed),
            identities=pins.known,
            missing_weights=pins.missing,
        )


def _baselines(
    scorers: Iterable[Scorer], systems: Iterable[System], task: TaskSet, seed: int
) -> dict[str, System]:
    """Return what pairs are judged beside and that is no system of the run.

    UsageError where its answers do not come with the data: nobody would make them.
    """
    there = [system.name for system in systems]
    found: dict[str, System] = {}
    for scorer in scorers:
        name = scorer.opponent
        if not name or name in there:
            continue
        if is_published(name):
            found[name] = system_of_writer(name, task)
        elif name == TRUTH:
            found[name] = GroundTruth(name=TRUTH)
        elif is_control(name):
            found[name] = control(name, task.samples, seed)
        else:
            raise unknown(f"baseline of {scorer.name}", name, [*there, TRUTH])
    return found


def _system_of(name: str, config: RunConfig, task: TaskSet, models: Models) -> System:
    """Return the system or variant `name`."""
    named, own = with_variant(name, config, models)
    system = _system(named, task, own, config.seed)
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


def _system(name: str, task: TaskSet, models: Models, seed: int) -> System:
    """The system `name`; controls are made from all queries, whichever are selected."""
    if is_published(name):
        return system_of_writer(name, task)
    return control(name, task.samples, seed) if is_control(name) else resolve(name, models)


def refuse_settings_of_nothing(config: RunConfig) -> None:
    """UsageError for `[models.NAME]` of a name that neither the run nor plait knows."""
    named = [*config.systems, *config.scorers]
    with_settings = [*config.models]
    for variant in config.variants.values():
        named.append(variant.system)
        with_settings += variant.models
    kinds = (Named.NATIVE, Named.SERVED, Named.LVLM, Named.T2I, Named.SCORER)
    valid = models_named(named).union(planners(), *map(by_name, kinds))
    for name in with_settings:
        # Settings of any other chat model may be for a later judge or comparison.
        if name not in valid and not is_lvlm(chat_model(name)):
            raise unknown("name in models", name, valid)


def models_named(names: Iterable[str]) -> set[str]:
    """Return what settings may be for, given names of systems and scorers."""
    models = set[str]()
    for name in names:
        for part in (name, name_of_turn_scorer(name), chat_model(name)):
            models |= {part, *parts_of(part).models}
    return models


def versions_of_records(root: AnyPath) -> dict[str, str]:
    """Return the versions of packages in the manifest of a run, of this process before."""
    made: dict[str, str] = read_entries(root / MANIFEST).get("packages", {})
    return made or environment()["packages"]


def digest_of_run(
    config: RunConfig,
    data: Mapping[str, Any],
    ids: Sequence[str] | None,
    stages: Iterable[str],
    identities: Mapping[str, str],
) -> str:
    """Return the digest of everything that decides what is made; of stages, theirs."""
    named = ids and list(ids)
    about = [config.digest, data.get("digest"), named, sorted(stages), dict(identities)]
    if KEPT in data:
        # Not None otherwise: runs that kept nothing have the digest of earlier versions.
        about.append(data[KEPT])
    return digest(*about)


def _refuse_wrong_rubrics(config: RunConfig) -> None:
    """UsageError for rubrics and modes that are not valid, with or without a judge.

    They are kept with the run, and judges that are added later use them.
    """
    settings = []
    for name, values in config.models.items():
        if "rubric" in values and (takes_run_rubric(name) or not is_judge(name)):
            settings.append({"rubric": values["rubric"]})
    judged = any(takes_run_rubric(name) for name in config.scorers)
    # A judge may add the rubric that makes the mode valid.
    common = {"rubric": config.rubric, "mode": None if judged else config.mode}
    for values in (common, *settings):
        refuse_wrong_rubric(with_overrides(JudgeSettings(), _without_none(values), ""))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are given: None stands for a key that the user left out."""
    return {key: value for key, value in values.items() if value is not None}


def read_task(
    config: RunConfig, on_progress: Callable[[int, int], None] | None = None
) -> tuple[TaskSet, tuple[System, ...]]:
    """Return the queries, and the systems whose answers come with them."""
    given: tuple[System, ...] = ()
    if config.data.startswith(OFFICIAL):
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
    asked = [partial(spec, models=models) for spec in (chat_spec, answers_spec)]
    return resolve_scorer(name, models.weights, settings, models.gpu_gib, *asked)


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
        run = f"the run in {root}"
        data = settle_data(root, manifest, config, task, choices, ids, run)
    else:
        # Who only reads a run sees it as it was made, whatever has become of its data.
        data = data_as_made(root, manifest, config, task)
    names = NameResolver(data.task)
    experiment = names.resolve(config, given, identities).on(config, data)
    former = experiment
    if changes:
        # Stages are recorded under the run's own config: one whose settings are changed now
        # is another one, and has no records yet.
        own = former_config(root, manifest)
        former = names.resolve(own, given, identities).on(own, data)
        others = other_given_answers(manifest, data, experiment, choices)
        refusals = [*data.refusals, *others]
        if refusals:
            raise UsageError("\n".join(refusals))
    union = replace(experiment, joins=manifest.get(RUN_DIGEST, ""))
    return _as_recorded(union, former, RecordedStages(manifest), current)


def _as_recorded(
    experiment: Experiment,
    former: Experiment,
    stages: RecordedStages,
    current: Sequence[str],
) -> Experiment:
    """Return `experiment` with the stages of `former` as the run has recorded them.

    But for the scorers named in `current`.
    """
    recorded = {spec.digest: stages.as_recorded(spec) for spec in former.plan.stages}

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


def warn_of_faults(root: AnyPath, scorers: Iterable[Scorer]) -> None:
    """Give a PlaitWarning for each scorer that was made by a version with a known fault."""
    for scorer in scorers:
        if faults := scorer.superseded:
            again = command_text(
                "plait", "score", root, "--scorer", scorer.name, "--remake"
            )
            told = f"{scorer.name} was made by {faults}; `{again}` scores again"
            warnings.warn(told, PlaitWarning, stacklevel=2)


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
    """Stages of the run directory whose records would be made again."""
    root = experiment.config.root
    if not is_run(root):
        return []
    plan = experiment.plan
    recorded = RecordedStages(read_manifest(root))
    return recorded.find_superseded(plan.stages, store, plan.scorers)
