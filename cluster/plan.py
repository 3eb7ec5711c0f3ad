"""A plan: systems x samples x scorers, and comparisons, as walks; and reading it back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.records import decode
from cluster.store import Store, notes_of
from cluster.walks import Lookup, Pending, noted, read, together
from generators.base import (
    Failure,
    Fault,
    Job,
    NotApplicable,
    Outcome,
    Result,
    Skip,
    StageSpec,
    Walk,
)
from generators.document import Document, Malformed, Sample, Score
from generators.system import Prompter, Repetition, System, answer
from scorers.base import ItemOutcome, PlanItem, Scorer, admitted

DocumentRequest = tuple[System, Sample | Malformed, int]
"""A system, a query and the number of its repeat, from 0: one document to be made."""
Scores = dict[str, Outcome[Score]]
"""The outcome of every scorer for one document, by the scorer's name."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One system's answer to one sample, and the outcome of every scorer."""

    system: str
    sample: Sample | Malformed
    repeat: int
    document: Outcome[Document]
    scores: Scores

    @property
    def subject(self) -> Outcome[Document]:
        """What is judged: the document."""
        return self.document

    @property
    def verdicts(self) -> tuple[Outcome[Score], ...]:
        """The outcome of every scorer."""
        return tuple(self.scores.values())


@dataclass(slots=True)
class AnswerLog:
    """What one document asked for while its evaluation was read."""

    steps: list[list[Job]] = field(default_factory=list)
    outcome: Outcome[Document] | None = None
    """None where the document still waits for records."""

    def follow(self, walk: Walk[Document]) -> Walk[Document]:
        """The same walk, noted here."""
        self.outcome = yield from noted(walk, self.steps)
        return self.outcome


OnAnswer = Callable[[DocumentRequest, AnswerLog], None]
"""Is told of every document that is read."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a run is to make."""

    systems: Sequence[System]
    samples: Sequence[Sample | Malformed]
    scorers: Sequence[Scorer]
    prompt: Prompter
    seed: int = 0
    repeats: int = 1
    comparisons: Sequence[PlanItem] = ()
    """Pairs of existing answers to be judged."""

    @property
    def stages(self) -> list[StageSpec]:
        """Every stage once, those that feed others first."""
        chains = [s.stages for s in self.systems]
        depth = max((len(c) for c in chains), default=0)
        ordered = [c[i] for i in range(depth) for c in chains if i < len(c)]
        judges: Sequence[Scorer | PlanItem] = (*self.scorers, *self.comparisons)
        ordered += [stage for judge in judges for stage in judge.stages]
        stages: dict[str, StageSpec] = {}
        for stage in ordered:
            stages.setdefault(stage.digest, stage)
        return list(stages.values())

    @property
    def feeders(self) -> Mapping[str, set[str]]:
        """By a stage's digest, the digests of the stages whose results make it work."""
        feeders: dict[str, set[str]] = defaultdict(set)
        talks = any(len(s.openings) > 1 for s in self.samples if isinstance(s, Sample))
        for system in self.systems:
            chain = [stage.digest for stage in system.stages]
            again = talks or system.rounds > 1
            for i, stage_digest in enumerate(chain):
                feeders[stage_digest].update(chain if again else chain[:i])
        answering = set(feeders)
        for scorer in self.scorers:
            chain = [stage.digest for stage in scorer.stages]
            for i, stage_digest in enumerate(chain):
                feeders[stage_digest].update(answering, chain[:i])
        feeders |= {s.digest: set() for c in self.comparisons for s in c.stages}
        return {digest: before - {digest} for digest, before in feeders.items()}

    def __len__(self) -> int:
        documents = len(self.systems) * len(self.samples) * self.repeats
        return documents + len(self.comparisons)

    def requests(self) -> Iterator[DocumentRequest]:
        """Every (system, sample, repeat); systems that share a stage adjoin."""
        for repeat in range(self.repeats):
            for sample in self.samples:
                for system in self.systems:
                    yield system, sample, repeat

    def walks(self) -> Iterator[Walk[Any]]:
        """One walk per (system, sample, repeat), and one per comparison.

        The first end in an `Evaluation`, the others in an `ItemOutcome`.
        """
        yield from (self.evaluation(*request) for request in self.requests())
        yield from (comparison.walk() for comparison in self.comparisons)

    def evaluation(
        self,
        system: System,
        sample: Sample | Malformed,
        repeat: int,
        log: AnswerLog | None = None,
    ) -> Walk[Evaluation]:
        """The whole walk: an answer, noted in `log`, and where there is one, its scores."""
        walk = self.answer(system, sample, repeat)
        document = yield from (walk if log is None else log.follow(walk))
        scores: Scores = {}
        if isinstance(document, Result) and isinstance(sample, Sample):
            judging = [s.judge(sample, document.value) for s in self.scorers]
            outcomes = yield from together(judging)
            judged = zip(self.scorers, outcomes, strict=True)
            scores = {s.name: admitted(outcome, s.scale) for s, outcome in judged}
        return Result(Evaluation(system.name, sample, repeat, document, scores))

    def answer(
        self, system: System, sample: Sample | Malformed, repeat: int
    ) -> Walk[Document]:
        """The first part of an evaluation: the document of one system."""
        if isinstance(sample, Malformed):
            return Failure(sample.reason, Fault.BAD_INPUT)
        repetition = Repetition(self.prompt, self.seed, repeat)
        return (yield from answer(system, sample, repetition))


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How the engine runs; none of it changes a result."""

    address: str | None = None
    """Ray address; None for a local Ray that lives as long as the command."""
    placement_timeout_s: float = 600.0
    """How long a stage may wait for resources before it is given up."""
    grace_s: float = 10.0
    """How long an interrupted run waits for batches in flight."""
    max_cost: float | None = None
    """What all endpoints together may cost over the life of the run directory."""
    only_scorers: bool = False
    """Score existing documents and make no new ones."""


def lookup_in(store: Store, *, notes: bool = False) -> Lookup:
    """Look jobs up as a reader does: every record counts."""

    def lookup(job: Job) -> Outcome[Any] | None:
        row = store.rows(job.spec).get(job.key)
        if row is None:
            return None
        outcome = decode(job.spec.kind, row)
        if notes and isinstance(outcome, Result):
            return replace(outcome, notes=notes_of(row))
        return outcome

    return lookup


def final_lookup(store: Store) -> Lookup:
    """Look jobs up as a run does: failures that will be tried again are missing."""

    def lookup(job: Job) -> Outcome[Any] | None:
        row = store.rows(job.spec).get(job.key)
        return decode(job.spec.kind, row) if row is not None and row.final else None

    return lookup


def evaluations(
    plan: Plan, store: Store, *, notes: bool = False, on_answer: OnAnswer | None = None
) -> Iterator[Evaluation | Pending]:
    """The evaluation of every (sample, repeat, system), in the plan's order.

    With `notes`, documents carry what their stages noted, by the stage's name.
    """
    lookup = lookup_in(store, notes=notes)
    for request in plan.requests():
        log = None if on_answer is None else AnswerLog()
        outcome = read(plan.evaluation(*request, log), lookup)
        if on_answer is not None and log is not None:
            on_answer(request, log)
        if isinstance(outcome, Pending):
            yield outcome
        elif isinstance(outcome, Result):
            yield outcome.value


def compared(plan: Plan, store: Store) -> Iterator[ItemOutcome | Pending]:
    """The outcome of every comparison, in the plan's order."""
    lookup = lookup_in(store)
    for comparison in plan.comparisons:
        outcome = read(comparison.walk(), lookup)
        if isinstance(outcome, Pending):
            yield outcome
        elif isinstance(outcome, Result):
            yield outcome.value


def outcome_name(outcome: Outcome[Any]) -> str:
    """`done`, `failed`, `skipped`, `unscored` or `not_applicable`."""
    if isinstance(outcome, Result):
        return "done"
    if isinstance(outcome, Failure):
        return "failed"
    if isinstance(outcome, NotApplicable):
        return "not_applicable"
    return "skipped" if isinstance(outcome, Skip) else "unscored"
