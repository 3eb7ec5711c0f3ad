"""A comparison with all names resolved, and the plan that has its match-ups judged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from benchmarks.runs.experiment import Experiment, reopen
from benchmarks.studies.pairwise.judgements import Series
from benchmarks.studies.pairwise.options import (
    CompareOptions,
    judge_stage,
    models_of,
    pairs_of,
    protocol_of,
    systems_of,
)
from benchmarks.tasks.published import as_asked
from cluster.plan import Plan, lookup_in
from cluster.run import MANIFEST
from cluster.store import Store
from cluster.walks import Lookup, Pending, read
from generators.base import Outcome, Result, Skip, StageSpec
from generators.checkpoints import pinning
from generators.document import Document, Malformed, Sample
from generators.errors import UsageError
from generators.keys import digest
from generators.system import System
from pipelines.systems import parts_of
from scorers.pairwise.games import Judgement
from scorers.pairwise.matchup import Matchup, PairComparison, PairwiseJudge
from scorers.pairwise.protocol import Pairwise


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
        """How pairs are judged."""
        return self.judge.protocol

    @property
    def plan(self) -> Plan:
        """The comparisons as a plan for the engine."""
        return plan_of(self.matchups, self.judge, self.options.judgings)

    @property
    def series(self) -> Series:
        """What all rulings have in common."""
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
    return ResolvedComparison(
        options=options,
        experiment=experiment,
        systems=systems,
        judge=PairwiseJudge(
            protocol=protocol, chat=chat, seed=config.seed, repeats=config.repeats
        ),
        matchups=list(matchups(plan, systems, pairs_of(systems, options), Store(root))),
        identities=pins.known,
        missing_weights=tuple(pins.missing),
    )


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
