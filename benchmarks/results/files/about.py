"""`run.json`: what the tables of a run are about, and its systems and scorers as they were.

Systems, scorers and stages are written down as plain facts and read back as values of the
same types, without the classes that made them: a run is read where its models' code, the
user's modules and the data are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from plait.benchmarks.results.people import Agreement, MeasuredAgreement
from plait.cluster.plan import Plan
from plait.generators.base import Kind, Placement, StageSpec
from plait.generators.former import current_name
from plait.generators.system import ROLES, DescribedSystem, Role, System
from plait.scorers import former_faults
from plait.scorers.base import ReleasedSummary, Scorer
from plait.scorers.statistics.estimate import Estimate

Facts = Mapping[str, Any]
"""Plain JSON data."""
_OF_SYSTEM = {"variant": "interleaved", "max_images": 1, "rounds": 1, "input_images": 0}
"""What is written down of a system besides its stages; of one without stages, this."""
_OF_SCORER = ("name", "scale", "direction", "unit", "licence", "images_only")
_OF_STAGE = ("name", "stage", "version", "identity", "weights", "seeded")
_NAMING = ("model", "revision")
"""Options of a stage that name its model and change no result."""


@dataclass(frozen=True, kw_only=True)
class RecordedSystem:
    """A system of a run as it was: it describes its answers and makes none."""

    name: str
    roles: Mapping[Role, StageSpec] = field(hash=False)
    lvlm: str | None = None
    t2i: str | None = None

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages that answered, in chain order."""
        return tuple(self.roles.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedScorer(Scorer):
    """A scorer of a run as it was: it describes its judgements and makes none."""

    chain: tuple[StageSpec, ...]
    recorded_manner: str = ""
    has_figures: bool = False
    summary: ReleasedSummary = ""
    has_shares: bool = True
    settings: Facts = field(default_factory=dict, hash=False)
    """Of a judge, how it asks and reads."""

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages that judged, in chain order."""
        return self.chain

    @property
    def manner(self) -> str:
        """How it judged, where the user had a choice."""
        return self.recorded_manner

    @property
    def of_sets(self) -> bool:
        """Whether a system has a figure of all its documents, which have no values."""
        return self.has_figures

    @property
    def released_summary(self) -> ReleasedSummary:
        """Whose summary of all scores stands beside the means."""
        return self.summary

    @property
    def criteria_are_shares(self) -> bool:
        """Whether a number under `criteria` says how far it is met, from 0 to 1."""
        return self.has_shares


def _pick(value: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return some attributes of a value by name."""
    return {name: getattr(value, name) for name in names}


def facts_of_stage(spec: StageSpec) -> dict[str, Any]:
    """Return what is written down of a stage, under its folder."""
    placement = spec.placement
    options = {}
    for name in _NAMING:
        if name in spec.options:
            options[name] = spec.options[name]
    return {
        "digest": spec.digest,
        "kind": spec.kind.value,
        "class": spec.target,
        **_pick(spec, _OF_STAGE),
        "settings": dict(spec.settings),
        "options": options,
        "num_gpus": placement.num_gpus,
        "endpoint": placement.endpoint,
        "starts_server": placement.server is not None,
        "params_b": spec.params_b,
    }


def stage_of(facts: Facts) -> StageSpec:
    """Return the stage that was written down; it names its records as it did then."""
    # The server that plait started is gone, and its address with it.
    remote = facts["endpoint"] if not facts["starts_server"] else None
    about = {name: facts[name] for name in _OF_STAGE}
    target: str = facts["class"]
    return StageSpec(
        kind=Kind(facts["kind"]),
        target=current_name(target) if facts["stage"] else target,
        settings=facts["settings"],
        options=facts["options"],
        placement=Placement(num_gpus=facts["num_gpus"], endpoint=remote),
        recorded=facts["digest"],
        **about,
    )


def facts_of_plan(plan: Plan, settings: Mapping[str, Facts]) -> dict[str, Any]:
    """Return what is written down of the systems, scorers and stages of a run.

    `settings` are those of scorers, by name.
    """
    folders = plan.folders
    systems = [_facts_of_system(system, folders) for system in plan.systems]
    scorers = []
    for scorer in plan.scorers:
        own = settings.get(scorer.name, {})
        scorers.append(_facts_of_scorer(scorer, own, folders))
    stages = {spec.folder: facts_of_stage(spec) for spec in plan.stages}
    return {"systems": systems, "scorers": scorers, "stages": stages}


def _facts_of_system(system: System, folders: Mapping[str, str]) -> dict[str, Any]:
    # Every role has an entry, that of a role which the system lacks is null.
    roles: dict[str, str | None] = dict.fromkeys(ROLES)
    for role, stage in system.roles.items():
        roles[role] = folders[stage.digest]
    return {
        "name": system.name,
        **roles,
        **_OF_SYSTEM,
        **system.facts,
        "lvlm": system.lvlm,
        "t2i": system.t2i,
    }


def system_of(facts: Facts, stages: Mapping[str, StageSpec]) -> DescribedSystem:
    """Return the system that was written down, which answers nothing any more."""
    roles = {role: stages[facts[role]] for role in ROLES if facts[role]}
    return RecordedSystem(
        name=facts["name"], roles=roles, lvlm=facts["lvlm"], t2i=facts["t2i"]
    )


def _facts_of_scorer(
    scorer: Scorer, settings: Facts, folders: Mapping[str, str]
) -> dict[str, Any]:
    return {
        **_pick(scorer, _OF_SCORER),
        "stages": [folders[stage.digest] for stage in scorer.stages],
        "manner": scorer.manner,
        "of_sets": scorer.of_sets,
        "released_summary": scorer.released_summary,
        "criteria_are_shares": scorer.criteria_are_shares,
        "settings": dict(settings),
    }


def scorer_of(facts: Facts, stages: Mapping[str, StageSpec]) -> RecordedScorer:
    """Return the scorer that was written down, which judges nothing any more."""
    chain = tuple(stages[folder] for folder in facts["stages"])
    # Today's code may know of a fault of the version that the run was made by.
    faults = former_faults(facts["name"], chain[0].settings)
    chain = (replace(chain[0], superseded=faults), *chain[1:])
    about = {name: facts[name] for name in _OF_SCORER}
    return RecordedScorer(
        stage=chain[0],
        chain=chain,
        recorded_manner=facts["manner"],
        has_figures=facts["of_sets"],
        summary=facts["released_summary"],
        has_shares=facts["criteria_are_shares"],
        settings=facts["settings"],
        **about,
    )


def read_measured(facts: Sequence[Facts]) -> tuple[MeasuredAgreement, ...]:
    """Return the agreement of judges with people that was written down."""
    measured = []
    for of_judge in facts:
        figures = tuple(map(_agreement, of_judge["figures"]))
        measured.append(MeasuredAgreement(**{**of_judge, "figures": figures}))
    return tuple(measured)


def _agreement(facts: Facts) -> Agreement:
    return Agreement(**{**facts, "ci95": _ends(facts["ci95"])})


def facts_of_figures(figures: Mapping[str, Sequence[Estimate]]) -> dict[str, Any]:
    """Return the figures of sets as plain data, in full."""
    return {name: [*map(asdict, own)] for name, own in figures.items()}


def figures_of(facts: Facts) -> dict[str, list[Estimate]]:
    """Return the figures of sets that were written down."""
    return {name: [*map(_estimate, own)] for name, own in facts.items()}


def _estimate(facts: Facts) -> Estimate:
    return Estimate(**{**facts, "ci95": _ends(facts["ci95"])})


def _ends(plain: Sequence[float] | None) -> tuple[float, float] | None:
    return None if plain is None else (plain[0], plain[1])


@dataclass(frozen=True, kw_only=True)
class RunAbout:
    """Everything about a run that is no row of a table."""

    run_digest: str
    name: str
    """Of the task set."""
    categories: Mapping[str, int]
    """Published queries per category, the weights of `avg_fixed`; may be empty."""
    fields: Sequence[str]
    """The task set's, in the order of the tables."""
    data: Facts
    """Source, revision and digest of the data."""
    config: Facts
    """As it was resolved; never a secret."""
    ids: Sequence[str] | None = None
    """Ids of queries by which the queries were selected, if they were."""
    seed: int = 0
    repeats: int = 1
    selection: str = ""
    weights: str = ""
    identities: Mapping[str, str] = field(default_factory=dict)
    """Which weights exactly, by model and revision."""
    licences: Mapping[str, str | None] = field(default_factory=dict)
    """Of the weights of each model that a system names; None where it is not known."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of plait and of the packages that its records were made with."""
    rubrics: Mapping[str, Any] = field(default_factory=dict)
    """Texts of rubrics, by the judge."""
    agreement: Sequence[Facts] = ()
    """How often judges agree with people, where that was measured."""
    systems: Sequence[Facts] = ()
    scorers: Sequence[Facts] = ()
    stages: Mapping[str, Facts] = field(default_factory=dict)
    """By the folder of the stage's records."""
    judges: Mapping[str, Facts] = field(default_factory=dict)
    """The same of comparisons' judges whose classes are a user's own."""
    figures: Mapping[str, Sequence[Facts]] = field(default_factory=dict)
    """By a scorer of sets, the figure of each system."""
    judge_errors: Mapping[str, Facts] = field(default_factory=dict)
    """By scorer, what its judge's own error adds to means, where that was measured."""
    damaged: int = 0
    """Damaged parts when the results were written, whose records count as missing."""
    unreadable: Sequence[str] = ()
    """Folders of stages some of whose costs are unknown."""

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        # `asdict` would copy everything below, too.
        return _pick(self, [field.name for field in fields(self)])
