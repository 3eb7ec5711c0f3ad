"""A config resolved: task set, systems, scorers, and the plan for them.

    experiment = open_experiment(config)   # of a config: reads the data, resolves names
    experiment.plan                        # everything that the run is to make

An experiment is what a run is made of, before anything runs: `planning` counts it,
`joining` adds it to a run that is there, `reopening` makes it again of a run directory. It
also says what manifest and results hold about the run. Names are resolved in `resolving`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from plait.benchmarks.protocols.differences import PinnedRunFacts
from plait.benchmarks.results.files.about import RunAbout, facts_of_plan, facts_of_stage
from plait.benchmarks.results.files.current import CurrentResults
from plait.benchmarks.results.files.rulings import COMPARE
from plait.benchmarks.results.files.schema import FOLDER
from plait.benchmarks.results.files.writing import ResultsWriter, former_content
from plait.benchmarks.results.people import read_measured
from plait.benchmarks.runs.config import RunConfig, is_run
from plait.benchmarks.runs.pinning import PinnedRemarks, remarks_of_run
from plait.benchmarks.runs.queries import (
    QUERIES,
    SettledData,
    read_ids,
    read_stored_queries,
    read_task,
    selection,
)
from plait.benchmarks.runs.resolving import (
    NameResolver,
    ResolvedNames,
    models_of,
    refuse_settings_of_nothing,
    scorer_settings,
)
from plait.benchmarks.runs.run_directory import (
    FORMAT,
    former_config,
    read_manifest,
    stage_facts,
)
from plait.benchmarks.tasks import answers
from plait.benchmarks.tasks.changes import KEPT, data_rows, queries_digest
from plait.benchmarks.tasks.published import Answer, is_published
from plait.benchmarks.tasks.task_set import TaskSet
from plait.cluster.manifest import environment, read_entries
from plait.cluster.plan import EngineOptions, Plan
from plait.cluster.run import MANIFEST, RUN_DIGEST
from plait.generators.base import Kind, StageSpec
from plait.generators.buckets import AnyPath, matching
from plait.generators.catalogue import is_custom
from plait.generators.custom import custom_spec
from plait.generators.document import Malformed, Query
from plait.generators.given import GivenAnswers
from plait.generators.keys import digest
from plait.generators.mini.table import ABOUT
from plait.generators.system import System
from plait.pipelines.presets import facts_of
from plait.pipelines.systems import parts_of
from plait.scorers.base import Scorer
from plait.scorers.judging.judge import ChatJudge
from plait.scorers.turns import scorer_of_turn

MOST_WITH_NOTES = 20_000
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

    @classmethod
    def of(cls, names: ResolvedNames, config: RunConfig, data: SettledData) -> Experiment:
        """Return the experiment of resolved names over the queries asked of `data`."""
        return cls(
            config=config,
            task=data.task,
            queries=data.queries,
            systems=names.systems,
            scorers=names.scorers,
            baselines=names.baselines,
            ids=None if data.ids is None else tuple(data.ids),
            identities=names.identities,
            missing_weights=names.missing_weights,
            rows=data.rows,
        )

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
        """`50 of 20,103 queries` where not all queries are answered; else empty."""
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
        return engine_options(self.config, **{"joins": self.joins, **own})

    @property
    def recorded_queries(self) -> int:
        """How many queries the run in the run directory has; 0 where there is none."""
        root = self.config.root
        if not is_run(root):
            return 0
        stored = read_stored_queries(root)
        if stored is not None:
            return len(stored.ids)
        # A run that has not ended stored none, nor did earlier versions: its config says
        # which it asks.
        manifest = read_manifest(root)
        former = former_config(root, manifest)
        return len(selection(former, self.task, manifest.get("ids")))

    @property
    def run_digest(self) -> str:
        """Of everything that decides what is made; equal for all shards of a run."""
        return digest_of_run(
            self.config,
            self.task.about,
            self.ids,
            [stage.digest for stage in self.plan.stages],
            self.identities,
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
        all_given = self.config.is_official_folder and not self.config.answers
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
        if self.config.fidelity is None:
            return {}
        return read_entries(self.config.root / FIDELITY)

    @property
    def notes(self) -> bool:
        """Whether documents are few enough to be read with their stages' notes."""
        return len(self.plan) <= MOST_WITH_NOTES

    def results_writer(
        self, *, copies_images: bool = True, run_digest: str = ""
    ) -> ResultsWriter:
        """Return what writes the results of the run while its evaluations pass.

        Of a run that is only read, `run_digest` is what its manifest says.
        """
        about = self.results_about()
        if run_digest:
            about = replace(about, run_digest=run_digest)
        rows = self.data_rows.items()
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
        agreement = [asdict(one) for one in read_measured(config.report.agreement)]
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
            agreement=agreement,
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
            spec = _own_judge(about, known=judges)
            if spec is not None:
                judges[spec.folder] = facts_of_stage(spec)
    return judges


def _own_judge(about: Mapping[str, Any], known: Iterable[str]) -> StageSpec | None:
    """Return the stage of a user's class that judged, by a comparison's manifest `about`.

    None for other judges, and for one whose folder is among those that are `known`.
    """
    judge = about["judge"]
    stage = about["judge_stage"]
    if not is_custom(judge):
        return None
    # A stage's folder ends with the beginning of its digest, which `stage` is.
    if any(folder.endswith(stage) for folder in known):
        return None
    weights = about["judge_weights"]
    spec = custom_spec(judge, weights, about["judge_settings"], [Kind.DRAFT])
    # Another digest means that the class has changed since it judged.
    return spec if spec.digest.startswith(stage) else None


def open_experiment(
    config: RunConfig, on_progress: Callable[[int, int], None] | None = None
) -> Experiment:
    """Read the data and resolve every name; UsageError or TaskError when one is wrong."""
    refuse_settings_of_nothing(config)
    task, given = read_task(config, on_progress)
    names = NameResolver(task).resolve(config, given, identities={})
    ids = read_ids(config)
    queries = selection(config, task, ids)
    return Experiment.of(names, config, SettledData(task=task, queries=queries, ids=ids))


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
