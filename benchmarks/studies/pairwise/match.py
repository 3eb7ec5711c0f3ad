"""The options of `plait compare`, the names in them resolved, and the plan of its run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from benchmarks.runs.config import parsed_setting, with_settings
from benchmarks.runs.experiment import Experiment, reopen
from benchmarks.studies.pairwise.judgements import Series
from benchmarks.tasks.published import PREFIX, as_asked, is_published, published
from cluster.plan import Plan, lookup_in
from cluster.run import MANIFEST
from cluster.store import Store
from cluster.walks import Lookup, Pending, read
from generators.base import Outcome, Result, Skip, StageSpec, WeightsName
from generators.checkpoints import pinning
from generators.document import Document, Malformed, Sample
from generators.errors import UsageError
from generators.keys import digest
from generators.names import unknown
from generators.system import System
from pipelines.systems import Models, chat_spec, parts_of
from scorers.features import gpt_tokens
from scorers.judging.resolve import JUDGES, refuse_mini_writer, resolve_judge
from scorers.judging.resolve import PREFIX as JUDGE
from scorers.judging.sources import OWN_WORDING, Mode, RubricSource
from scorers.pairwise import pairs, resolve_protocol
from scorers.pairwise.games import Judgement
from scorers.pairwise.matchup import Matchup, PairComparison, PairwiseJudge
from scorers.pairwise.protocol import Pairwise

TRUTH = "gt"


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Systems to be compared, the protocol and the judge."""

    protocol: str
    judge: str
    """Name of a judge or chat model, with or without `judge:`."""
    baseline: str | None = None
    """A system of the run, `gt`, or `published:NAME`; all are paired without one."""
    systems: tuple[str, ...] = ()
    """Only these; by default all of the run."""
    mode: Mode = "corrected"
    rubric: RubricSource = OWN_WORDING
    """Source of the wording: ours, or a checkout of the benchmark, or its prompts."""
    weights: WeightsName | None = None
    """Of the judge; by default the run's."""
    judgings: int = 1
    """Times that the judge is asked about each pair, with different seeds."""
    address: str | None = None
    settings: tuple[str, ...] = ()
    """`models.NAME.key=value` for the judge."""


@dataclass(frozen=True, kw_only=True)
class ResolvedComparison:
    """A comparison with all names resolved."""

    options: CompareOptions
    experiment: Experiment
    systems: Mapping[str, System]
    judge: PairwiseJudge
    matchups: Sequence[Matchup]
    identities: Mapping[str, str]
    missing_weights: tuple[str, ...]

    @property
    def protocol(self) -> Pairwise:
        """The protocol, by which pairs are judged."""
        return self.judge.protocol

    @property
    def plan(self) -> Plan:
        """The comparisons as a plan for the engine."""
        return plan_of(self.matchups, self.judge, self.options.judgings)

    @property
    def series(self) -> Series:
        """The fields that all rulings share."""
        return Series(
            protocol=self.protocol.name,
            mode=self.protocol.mode,
            wording=wording_digest(self.protocol),
            judge=self.options.judge.removeprefix("judge:"),
            stage=self.judge.chat.digest[:12],
            writers={n: writer_of(s) for n, s in self.systems.items()},
        )

    def about(self) -> dict[str, Any]:
        """For the manifest and the tables' head."""
        chat, weights = self.judge.chat, self.judge.chat.weights
        return {
            "plait": 1,
            "protocol": self.protocol.name,
            "mode": self.protocol.mode,
            "wording": self.series.wording,
            "rubric": str(self.options.rubric),
            "baseline": self.options.baseline,
            "judge": self.series.judge,
            "judge_model": chat.identity or chat.target,
            "judge_weights": weights,
            "judge_stage": self.series.stage,
            "judge_settings": dict(chat.settings),
            "judgings": self.options.judgings,
            "seed": self.judge.seed,
            "systems": list(self.systems),
            "weights": self.experiment.config.weights,
            "data": dict(self.experiment.task.about),
            "identities": dict(self.identities),
        }

    @property
    def name(self) -> str:
        """A digest of all that a comparison depends on: no file replaces another's."""
        played = sorted({(m.first, m.second) for m in self.matchups})
        options = self.options
        rest = (self.judge.seed, options.judgings, options.baseline, played)
        return digest(asdict(self.series), *rest)[:12]


def resolve_comparison(
    root: Path, place: Path, options: CompareOptions
) -> ResolvedComparison:
    """`options` resolved for the run in `root`, whose judgements are in `place`.

    UsageError for names and settings that are not valid.
    """
    protocol = protocol_of(options)
    experiment = reopen(root)
    with pinning({**experiment.identities, **_former_identities(place)}) as pins:
        chat = judge_stage(options.judge, models_of(experiment, options))
    _refuse_judgings(options, chat)
    systems = systems_of(experiment, options)
    plan, config = experiment.plan, experiment.config
    played = pairs(list(systems), options.baseline)
    return ResolvedComparison(
        options=options,
        experiment=experiment,
        systems=systems,
        judge=PairwiseJudge(
            protocol=protocol, chat=chat, seed=config.seed, repeats=config.repeats
        ),
        matchups=list(matchups(plan, systems, played, Store(root, strict=True))),
        identities=pins.known,
        missing_weights=pins.missing,
    )


def protocol_of(options: CompareOptions) -> Pairwise:
    """The protocol; UsageError for unknown names and texts that are not published."""
    counted = options.protocol == "probench" and options.mode == "official"
    arguments = {"count": gpt_tokens()} if counted else {}
    return resolve_protocol(
        options.protocol, options.mode, options.rubric.path, **arguments
    )


def systems_of(experiment: Experiment, options: CompareOptions) -> dict[str, System]:
    """The systems to compare, by name, with the baseline.

    UsageError for unknown names, and when there are fewer than two.
    """
    names = list(options.systems) or [s.name for s in experiment.systems]
    if options.baseline is not None and options.baseline not in names:
        names.insert(0, options.baseline)
    systems = {name: _system(experiment, name) for name in names}
    if len(systems) < 2:
        raise UsageError(
            f"a comparison needs two systems, but there is {', '.join(systems) or 'none'}"
        )
    return systems


def _system(experiment: Experiment, name: str) -> System:
    known = {s.name: s for s in experiment.systems}
    if name in known:
        return known[name]
    if is_published(name):
        return published(name, experiment.task)
    if name == TRUTH:
        return System(name=TRUTH, draft=None)
    published_answers = [f"{PREFIX}{writer}" for writer in experiment.task.answers]
    raise unknown("system", name, [*known, TRUTH, *published_answers])


def models_of(experiment: Experiment, options: CompareOptions) -> Models:
    """Settings of the judge's model, from the run and the command.

    UsageError for `--set` of anything else, which would have no effect.
    """
    config = experiment.config
    _refuse_settings_of_others(options)
    values = with_settings({"models": config.models}, options.settings)
    return Models(
        weights=options.weights or config.weights or "pretrained",
        overrides=values["models"],
        gpu_gib=config.engine.gpu_memory_gib,
    )


def _refuse_settings_of_others(options: CompareOptions) -> None:
    bare = options.judge.removeprefix(JUDGE)
    # A chat model has its own name; `judge:NAME` are settings of a rubric judge.
    name = f"{JUDGE}{bare}" if bare in JUDGES else bare
    for setting in options.settings:
        parsed = parsed_setting(setting)
        models = parsed.pop("models", None)
        if parsed or not isinstance(models, Mapping):
            raise UsageError(
                f"--set {setting!r} does not concern the judge; give models.NAME.key=value"
            )
        for named, values in models.items():
            if named != name:
                raise unknown("judge in --set models", named, [name])
            if not isinstance(values, Mapping):
                raise UsageError(f"--set {setting!r} names no key of {name!r}")


def judge_stage(name: str, models: Models) -> StageSpec:
    """The stage of the judge `NAME` or `judge:NAME`, without any rubric.

    Raises UsageError for names that are neither a judge nor a chat model.
    """
    full = name if name.startswith(JUDGE) else f"{JUDGE}{name}"
    refuse_mini_writer(full, models.weights)
    judge = resolve_judge(
        full,
        models.weights,
        models.of(full),
        models.gpu_gib,
        chat=lambda model: chat_spec(model, models),
    )
    return judge.stage


def wording_digest(protocol: Pairwise) -> str:
    """Names a protocol's prompts, whatever the class that holds them is called."""
    wording = getattr(protocol, "wording", None)
    if is_dataclass(wording) and not isinstance(wording, type):
        wording = {"Wording": asdict(wording)}
    return digest(wording)[:12]


def _former_identities(place: Path) -> Mapping[str, str]:
    """The weights that earlier comparisons pinned, so that they are not looked up again."""
    try:
        known = json.loads((place / MANIFEST).read_text())["identities"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return known if isinstance(known, dict) else {}


def _refuse_judgings(options: CompareOptions, chat: StageSpec) -> None:
    if options.judgings < 1:
        raise UsageError(f"a judge is asked at least once, not {options.judgings} times")
    if options.judgings > 1 and not chat.seeded:
        raise UsageError(
            f"judge {options.judge!r} draws nothing at random, so asking it "
            f"{options.judgings} times gives one record; give it a temperature"
        )


def writer_of(system: System) -> str:
    """The model that writes a system's text."""
    return parts_of(system.writer or system.name).writer


def matchups(
    plan: Plan,
    systems: Mapping[str, System],
    pairs: Sequence[tuple[str, str]],
    store: Store,
) -> Iterator[Matchup]:
    """Every pair on every query and repeat of `plan`, with their answers in `store`."""
    lookup = lookup_in(store)
    for repeat in range(plan.repeats):
        for sample in plan.samples:
            answers = {
                n: _answer(plan, s, sample, repeat, lookup) for n, s in systems.items()
            }
            for first, second in pairs:
                yield Matchup(
                    sample=sample,
                    repeat=repeat,
                    first=first,
                    second=second,
                    answers=(answers[first], answers[second]),
                )


def _answer(
    plan: Plan, system: System, sample: Sample | Malformed, repeat: int, lookup: Lookup
) -> Outcome[Document]:
    outcome = read(plan.answer(system, sample, repeat), lookup)
    return Skip("has not answered yet") if isinstance(outcome, Pending) else outcome


def judgement_of(
    matchup: Matchup, judge: PairwiseJudge, judging: int, lookup: Lookup
) -> Outcome[Judgement]:
    """A judgement as far as it is recorded."""
    comparison = PairComparison(matchup=matchup, judge=judge, judging=judging)
    outcome = read(comparison.walk(), lookup)
    if isinstance(outcome, Pending):
        return Skip("not judged yet")
    return outcome.value.judgement if isinstance(outcome, Result) else outcome


def plan_of(matchups: Sequence[Matchup], judge: PairwiseJudge, judgings: int) -> Plan:
    """The plan that has every match-up of valid queries judged `judgings` times."""
    valid = [m for m in matchups if isinstance(m.sample, Sample)]
    samples = {m.sample.id: m.sample for m in valid}
    return Plan(
        systems=(),
        samples=list(samples.values()),
        scorers=(),
        prompt=as_asked,
        comparisons=[
            PairComparison(matchup=matchup, judge=judge, judging=judging)
            for judging in range(judgings)
            for matchup in valid
        ],
    )
