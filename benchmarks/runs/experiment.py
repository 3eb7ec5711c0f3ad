"""A config resolved: task set, systems, scorers, and the plan for them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.results.files.about import (
    RunAbout,
    facts_of_scorer,
    facts_of_stage,
    facts_of_system,
)
from benchmarks.results.files.rulings import COMPARE
from benchmarks.results.files.schema import FOLDER
from benchmarks.results.files.writing import ResultsWriter, former_content
from benchmarks.results.people import read_measured
from benchmarks.runs.config import OFFICIAL, RunConfig, is_run
from benchmarks.runs.run_directory import (
    FORMAT,
    RecordedStages,
    Supersession,
    former_config,
    read_manifest,
    stage_facts,
)
from benchmarks.tasks import answers
from benchmarks.tasks.changes import data_rows
from benchmarks.tasks.controls import control, is_control
from benchmarks.tasks.mmie import official
from benchmarks.tasks.published import is_published, published
from benchmarks.tasks.task_set import TaskError, TaskSet, limited, load, selected
from benchmarks.terminal import command_text
from cluster.plan import EngineOptions, Plan
from cluster.run import MANIFEST, RUN_DIGEST
from cluster.store import Store
from generators.base import Kind, StageSpec
from generators.buckets import AnyPath, matching
from generators.checkpoints import pinning
from generators.custom import custom_spec
from generators.document import Malformed, Sample
from generators.errors import PlaitWarning, UsageError
from generators.keys import digest
from generators.mini.table import ABOUT
from generators.names import unknown, with_overrides
from generators.natives import NATIVE
from generators.registry import is_custom
from generators.secrets import key_trouble
from generators.system import System, with_stages
from pipelines.presets import KITS, LVLMS, T2IS
from pipelines.systems import Models, answers_spec, chat_spec, is_lvlm, parts_of, resolve
from scorers import SCORERS, resolve_scorer
from scorers.base import Scorer, with_stage
from scorers.judging.judge import RubricJudge
from scorers.judging.resolve import PREFIX as JUDGE
from scorers.judging.resolve import PREFIXES, JudgeSettings, chat_model, rubrics_of

OTHERS = tuple(prefix for prefix in PREFIXES if prefix != JUDGE)
"""Judges with rubrics of their own."""
_MOST_WITH_NOTES = 20_000
"""At most this many documents are read with their stages' notes (prompts, truncation)."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A run with all names resolved, ready to be planned, executed or read."""

    config: RunConfig
    task: TaskSet
    samples: tuple[Sample | Malformed, ...]
    systems: tuple[System, ...]
    scorers: tuple[Scorer, ...]
    identities: Mapping[str, str]
    """Which weights exactly, by model and revision."""
    ids: tuple[str, ...] | None = None
    """Sample ids by which the queries were selected, if they were."""
    joins: str = ""
    """The `run_digest` of the run that is in the run directory, if there is one."""
    missing_weights: tuple[str, ...] = ()
    """Weights that are neither on this machine nor available elsewhere, and why."""

    @property
    def plan(self) -> Plan:
        """All walks of the run."""
        return Plan(
            systems=self.systems,
            samples=self.samples,
            scorers=self.scorers,
            prompt=self.task.prompt,
            seed=self.config.seed,
            repeats=self.config.repeats,
        )

    @property
    def selection(self) -> str:
        """`limit 50 of 20,103` where not all queries are answered."""
        if len(self.samples) == len(self.task.samples):
            return ""
        return f"{len(self.samples):,} of {len(self.task.samples):,} queries"

    def limited_to(self, queries: int) -> Experiment:
        """Return the same with at most `queries` queries, in the same run directory."""
        values = {"limit": queries, "out": self.config.root}
        config = self.config.model_copy(update=values)
        samples = _selection(config, self.task, self.ids)
        return replace(self, config=config, samples=samples)

    def engine_options(self, **own: Any) -> EngineOptions:
        """Return the options of a run of it, with those of `own` in their place."""
        return engine_options(self.config, **({"joins": self.joins} | own))

    @property
    def recorded_queries(self) -> int:
        """How many queries the run in the run directory has; 0 where there is none."""
        root = self.config.root
        if not is_run(root):
            return 0
        manifest = read_manifest(root)
        former = former_config(root, manifest)
        return len(_selection(former, self.task, manifest.get("ids")))

    @property
    def run_digest(self) -> str:
        """Of everything that decides what is made; equal for all shards of a run."""
        stages = sorted(stage.digest for stage in self.plan.stages)
        data, ids = dict(self.task.about).get("digest"), self.ids and list(self.ids)
        return digest(self.config.digest, data, ids, stages, dict(self.identities))

    def about(self) -> dict[str, Any]:
        """Return the manifest's entries about the run, without the environment."""
        judges = [s for s in self.scorers if isinstance(s, RubricJudge)]
        return {
            **({} if self.ids is None else {"ids": list(self.ids)}),
            **({"about_weights": ABOUT} if self.config.weights == "mini" else {}),
            "plait": FORMAT,
            RUN_DIGEST: self.run_digest,
            "config": self.config.resolved(),
            "data": dict(self.task.about),
            "selection": self.selection,
            "weights": self.config.weights,
            "rubrics": {judge.name: judge.texts for judge in judges},
            "systems": [s.name for s in self.systems],
            "scorers": [s.name for s in self.scorers],
            "identities": dict(self.identities),
            "stages": {s.folder: stage_facts(s) for s in self.plan.stages},
        }

    @property
    def notes(self) -> bool:
        """Whether documents are few enough to be read with their stages' notes."""
        return len(self.plan) <= _MOST_WITH_NOTES

    def results_writer(self, *, copies_images: bool = True) -> ResultsWriter:
        """Return what writes the results of the run while its evaluations pass."""
        rows = data_rows(self.task)
        about = self.results_about()
        return ResultsWriter(self.plan, about, rows, copies_images=copies_images)

    def results_about(self) -> RunAbout:
        """Return what the results say of the run besides their tables."""
        config, task = self.config, self.task
        models = models_of(config)
        judges = [s for s in self.scorers if isinstance(s, RubricJudge)]
        return RunAbout(
            run_digest=self.run_digest,
            name=task.name,
            categories=task.categories,
            fields=task.fields,
            data=dict(task.about),
            config=config.resolved(),
            ids=self.ids,
            seed=config.seed,
            repeats=config.repeats,
            selection=self.selection,
            weights=str(config.weights),
            identities=dict(self.identities),
            rubrics={judge.name: judge.texts for judge in judges},
            agreement=[*map(asdict, read_measured(config.report.agreement))],
            systems=[facts_of_system(system) for system in self.systems],
            scorers=[
                facts_of_scorer(s, scorer_settings(s.name, config, models))
                for s in self.scorers
            ],
            stages={spec.folder: facts_of_stage(spec) for spec in self.plan.stages},
            judges=judges_of_comparisons(config.root),
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
        with suppress(OSError, LookupError, TypeError, ValueError, ImportError):
            about = json.loads(path.read_text())
            judge, stage = about["judge"], about["judge_stage"]
            if is_custom(judge) and not any(name.endswith(stage) for name in judges):
                asked = (judge, about["judge_weights"], about["judge_settings"])
                spec = custom_spec(*asked, [Kind.DRAFT])
                if spec.digest.startswith(stage):
                    judges[spec.folder] = facts_of_stage(spec)
    return judges


def _is_public(endpoint: str | None) -> bool:
    return (endpoint or "").startswith("https:")


def key_problems(stages: Iterable[StageSpec]) -> list[str]:
    """Return what is wrong with the API keys that stages need, a line for each.

    A key is required only for endpoints reached over https: your own servers mostly need
    none, and those that do refuse the stage's first call.
    """
    problems: list[str] = []
    for stage in stages:
        public = _is_public(stage.placement.endpoint)
        unset = [name for name in stage.secrets if public and not os.environ.get(name)]
        if unset:
            problems.append(
                f"{stage.name} needs the environment variable {', '.join(unset)}"
            )
        # Others of its secrets are for a server that plait starts, whatever they hold.
        trouble = key_trouble(str(stage.options.get("api_key_env", "")))
        if trouble:
            problems.append(f"{stage.name}: {trouble}")
    return problems


def refuse_missing(stages: Iterable[StageSpec], weights: Sequence[str]) -> None:
    """UsageError that names missing and unusable keys, and `weights` that are missing."""
    if lines := [*key_problems(stages), *weights]:
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
    _refuse_wrong_rubrics(config)
    if ids is None and config.ids is not None:
        ids = _ids(config.ids)
    models = models_of(config)
    with pinning(identities or {}) as pins:
        systems, scorers = map(dict.fromkeys, (config.systems, config.scorers))
        named = tuple(_system(name, task, models, config.seed) for name in systems)
        scored = tuple(scorer_of(name, config, models) for name in scorers)
    if both := {system.name for system in given} & systems.keys():
        raise UsageError(
            f"{', '.join(sorted(both))} is a system's name and that of given answers; "
            "give the answers another"
        )
    return Experiment(
        config=config,
        task=task,
        samples=_selection(config, task, ids),
        systems=(*given, *named),
        scorers=scored,
        ids=None if ids is None else tuple(ids),
        identities=pins.known,
        missing_weights=pins.missing,
    )


def _system(name: str, task: TaskSet, models: Models, seed: int) -> System:
    """The system `name`; controls are made from all samples, whichever are selected."""
    if is_published(name):
        return published(name, task)
    return control(name, task.samples, seed) if is_control(name) else resolve(name, models)


def refuse_settings_of_nothing(config: RunConfig) -> None:
    """UsageError for `[models.NAME]` of a name that neither the run nor plait knows."""
    named = (*config.systems, *config.scorers, *map(chat_model, config.scorers))
    parts = {part for name in named for part in (name, *parts_of(name).models)}
    valid = parts.union(NATIVE, KITS, LVLMS, T2IS, SCORERS)
    for name in config.models:
        # Settings of any other chat model may be for a later judge or comparison.
        if name not in valid and not is_lvlm(chat_model(name)):
            raise unknown("name in models", name, valid)


def _refuse_wrong_rubrics(config: RunConfig) -> None:
    """UsageError for rubrics and modes that are not valid, with or without a judge.

    They are kept with the run, and judges that are added later use them.
    """
    settings = [
        {"rubric": values["rubric"]}
        for name, values in config.models.items()
        if "rubric" in values and not name.startswith(OTHERS)
    ]
    judged = any(name.startswith(JUDGE) for name in config.scorers)
    # A judge may add the rubric that makes the mode valid.
    common = {"rubric": config.rubric, "mode": None if judged else config.mode}
    for values in (common, *settings):
        given = {k: v for k, v in values.items() if v is not None}
        rubrics_of(with_overrides(JudgeSettings(), given, ""))


def read_task(
    config: RunConfig, on_progress: Callable[[int, int], None] | None = None
) -> tuple[TaskSet, tuple[System, ...]]:
    """Return the queries, and the systems whose answers come with them."""
    given: tuple[System, ...] = ()
    if config.data.startswith(OFFICIAL):
        task, given = official.answered(Path(config.data.removeprefix(OFFICIAL)))
    else:
        task = load(config.data, prompts=config.prompts, on_progress=on_progress)
    return answers.answered(task, config.answers) if config.answers else (task, given)


def _selection(
    config: RunConfig, task: TaskSet, ids: Sequence[str] | None
) -> tuple[Sample | Malformed, ...]:
    samples = task.samples
    if not samples:
        raise TaskError(f"{config.data} holds no queries")
    if ids is not None:
        samples = selected(samples, ids)
    if config.limit is not None:
        samples = limited(samples, config.limit, config.seed)
    return samples


def _ids(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in file.read_text("utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--ids {file}: {reason}") from None
    if not any(lines):
        raise UsageError(f"--ids {file} holds no sample id; give one a line")
    return [line for line in lines if line]


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
    """Return the settings of the scorer that a config names, but for its defaults."""
    settings = dict(models.of(name))
    if name.startswith((JUDGE, *OTHERS)):
        settings = {"seed": config.seed} | settings
    if name.startswith(JUDGE):
        both = {"mode": config.mode, "rubric": config.rubric}
        settings = {k: v for k, v in both.items() if v is not None} | settings
    return settings


def scorer_named(name: str, settings: Mapping[str, Any], models: Models) -> Scorer:
    """Return the scorer `name` with `settings`; `models` are those of models it asks."""
    asked = [partial(spec, models=models) for spec in (chat_spec, answers_spec)]
    return resolve_scorer(name, models.weights, settings, models.gpu_gib, *asked)


def reopen(
    root: AnyPath, changes: Mapping[str, Any] | None = None, *, current: Sequence[str] = ()
) -> Experiment:
    """Return the experiment a run directory holds, from its manifest.

    Checkpoints and stages keep the identities they had when the run was made, so that a
    report needs neither the weights nor the network nor the former version of plait. The
    scorers named in `current` are used in today's version. UsageError where answers that
    were made elsewhere have changed.
    """
    manifest = read_manifest(root)
    known = manifest.get("identities", {})
    config = former_config(root, manifest, changes)
    experiment = open_experiment(config, identities=known, ids=manifest.get("ids"))
    if lines := [*answers.changed_answers(manifest.get("data"), experiment.task.about)]:
        raise UsageError(
            f"{'; '.join(lines)} since the run in {root} was made: put the former ones "
            "back, or score today's into another directory with --out"
        )
    # Stages are recorded under the run's own config: one whose settings are changed now is
    # another one, and has no records yet.
    former = experiment
    if changes:
        refuse_changed_data(root, manifest, experiment.task)
        own, ids = former_config(root, manifest), manifest.get("ids")
        former = experiment_of(own, experiment.task, (), identities=known, ids=ids)
    stages = RecordedStages(manifest)
    recorded = {spec.digest: stages.as_recorded(spec) for spec in former.plan.stages}

    def as_recorded(spec: StageSpec) -> StageSpec:
        return recorded.get(spec.digest, spec)

    def scorer_as_recorded(scorer: Scorer) -> Scorer:
        whole = stages.whole(scorer) if scorer in former.scorers else None
        return with_stage(scorer, as_recorded if whole is None else lambda _: whole)

    scorers = tuple(
        s if s.name in current else scorer_as_recorded(s) for s in experiment.scorers
    )
    return replace(
        experiment,
        joins=manifest.get(RUN_DIGEST, ""),
        systems=tuple(with_stages(s, as_recorded) for s in experiment.systems),
        scorers=scorers,
    )


def warn_of_faults(root: AnyPath, scorers: Iterable[Scorer]) -> None:
    """Give a PlaitWarning for each scorer that was made by a version with a known fault."""
    for scorer in scorers:
        if faults := scorer.superseded:
            again = command_text(
                "plait", "score", root, "--scorer", scorer.name, "--remake"
            )
            told = f"{scorer.name} was made by {faults}; `{again}` makes it again"
            warnings.warn(told, PlaitWarning, stacklevel=2)


def refuse_changed_data(root: AnyPath, manifest: Mapping[str, Any], task: TaskSet) -> None:
    """UsageError where the run in `root` was made with other data than `task` is of."""
    then, now = data_digest(manifest), task.about.get("digest")
    if then and now and then != now:
        raise UsageError(
            f"data {manifest['config']['data']} has changed since the run in {root} was "
            f"made (SHA-256 {then[:12]} then, {now[:12]} now): put the former data back "
            "or, where its questions are the same, name it with --data"
        )


def data_digest(manifest: Mapping[str, Any]) -> str | None:
    """Return the digest of the data that a run was made with, where it has one."""
    digest: str | None = (manifest.get("data") or {}).get("digest")
    return digest


def superseded(experiment: Experiment, store: Store) -> list[Supersession]:
    """Stages of the run directory whose records would be made again."""
    root = experiment.config.root
    if not is_run(root):
        return []
    plan, recorded = experiment.plan, RecordedStages(read_manifest(root))
    return recorded.superseded(plan.stages, store, plan.scorers)
