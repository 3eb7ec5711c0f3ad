"""Systems x samples x scorers as walks, and what of them is known, missing or shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.options import EngineOptions
from cluster.records import decode
from cluster.store import Store, notes_of
from cluster.walks import Lookup, Pending, read, together
from generators.base import (
    Failure,
    Fault,
    Job,
    NotApplicable,
    Outcome,
    Result,
    StageSpec,
    Walk,
)
from generators.document import Document, Malformed, Sample, Score
from generators.system import Asking, Prompter, System, answer
from scorers.base import Scorer


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One system's answer to one sample, and what every scorer said of it."""

    system: str
    sample: Sample | Malformed
    repeat: int
    document: Outcome[Document]
    scores: dict[str, Outcome[Score]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a run is asked for."""

    systems: Sequence[System]
    samples: Sequence[Sample | Malformed]
    scorers: Sequence[Scorer]
    prompt: Prompter
    seed: int = 0
    repeats: int = 1

    @property
    def stages(self) -> list[StageSpec]:
        """Every stage once, those that feed others first."""
        chains = [s.stages for s in self.systems]
        depth = max((len(c) for c in chains), default=0)
        ordered = [c[i] for i in range(depth) for c in chains if i < len(c)]
        ordered += [stage for scorer in self.scorers for stage in scorer.stages]
        return list({stage.digest: stage for stage in ordered}.values())

    def only(self, system: str, sample_id: str) -> "Plan":
        """The part of the plan about one system and one sample."""
        return replace(
            self,
            systems=[s for s in self.systems if s.name == system],
            samples=[s for s in self.samples if s.id == sample_id],
        )

    def __len__(self) -> int:
        return len(self.systems) * len(self.samples) * self.repeats

    def walks(self) -> Iterator[Walk[Evaluation]]:
        """One walk per (sample, repeat, system); systems that share a stage adjoin."""
        for repeat in range(self.repeats):
            for sample in self.samples:
                for system in self.systems:
                    yield self._evaluation(system, sample, repeat)

    def _evaluation(
        self, system: System, sample: Sample | Malformed, repeat: int
    ) -> Walk[Evaluation]:
        if isinstance(sample, Malformed):
            failed = Failure(sample.reason, Fault.BAD_INPUT)
            return Result(Evaluation(system.name, sample, repeat, failed, {}))
        asking = Asking(self.prompt, self.seed, repeat)
        document = yield from answer(system, sample, asking)
        scores: dict[str, Outcome[Score]] = {}
        if isinstance(document, Result):
            judging = [s.judge(sample, document.value) for s in self.scorers]
            outcomes = yield from together(judging)
            names = (s.name for s in self.scorers)
            scores = dict(zip(names, outcomes, strict=True))
        return Result(Evaluation(system.name, sample, repeat, document, scores))


def allowed(plan: Plan, options: EngineOptions) -> set[str]:
    """Digests of the stages that may run."""
    if not options.only_scorers:
        return {stage.digest for stage in plan.stages}
    return {stage.digest for scorer in plan.scorers for stage in scorer.stages}


def lookup_in(store: Store, *, notes: bool = False) -> Lookup:
    """Look jobs up as a reader does: whatever is recorded counts."""

    def lookup(job: Job) -> Outcome[Any] | None:
        row = store.rows(job.spec).get(job.key)
        if row is None:
            return None
        outcome = decode(job.spec.kind, row)
        if notes and isinstance(outcome, Result):
            return replace(outcome, notes=notes_of(row))
        return outcome

    return lookup


def evaluations(
    plan: Plan, store: Store, *, notes: bool = False
) -> Iterator[Evaluation | Pending]:
    """What the store knows of every (sample, repeat, system), in the plan's order.

    With `notes`, documents carry what their stages noted, by the stage's name.
    """
    lookup = lookup_in(store, notes=notes)
    for walk in plan.walks():
        found = read(walk, lookup)
        if isinstance(found, Pending):
            yield found
        elif isinstance(found, Result):
            yield found.value


@dataclass
class StageCount:
    """The jobs of one stage, as a plan shows them."""

    spec: StageSpec
    asked: int = 0
    """How often systems ask for a job; more than `distinct` where they share."""
    distinct: int = 0
    """Different jobs known so far."""
    done: int = 0
    """Of these, the ones with a record that stands."""
    later: int = 0
    """Upper bound of jobs that depend on records still missing."""
    keys: set[str] = field(default_factory=set, repr=False)

    @property
    def to_run(self) -> int:
        """Jobs a run would execute now, the later ones as an upper bound."""
        return self.distinct - self.done + self.later


def count(plan: Plan, store: Store) -> list[StageCount]:
    """Jobs per stage: known keys exactly, what follows from them as an upper bound."""
    counts = {s.digest: StageCount(s) for s in plan.stages}
    stands = _standing(store, counts)
    walks = plan.walks()
    for _ in range(plan.repeats):
        for sample in plan.samples:
            for system in plan.systems:
                found = read(next(walks), stands)
                if isinstance(found, Pending):
                    _count_later(plan, system, sample, found, counts)
    return list(counts.values())


def _standing(store: Store, counts: dict[str, StageCount]) -> Lookup:
    """A lookup that counts what it is asked; failures to be tried again are missing."""

    def lookup(job: Job) -> Outcome[Any] | None:
        row = store.rows(job.spec).get(job.key)
        stands = row is not None and row.final
        tally = counts[job.spec.digest]
        tally.asked += 1
        if job.key not in tally.keys:
            tally.keys.add(job.key)
            tally.distinct += 1
            tally.done += stands
        return decode(job.spec.kind, row) if row is not None and stands else None

    return lookup


def _count_later(
    plan: Plan,
    system: System,
    sample: Sample | Malformed,
    pending: Pending,
    counts: dict[str, StageCount],
) -> None:
    """Bound what comes after the stage at which a walk stands still."""
    here = {job.spec.digest for job in pending.missing}
    chain = [s.digest for s in system.stages]
    reached = max((chain.index(d) for d in here if d in chain), default=len(chain))
    for stage in system.stages[reached + 1 :]:
        counts[stage.digest].later += system.max_images
    if reached < len(chain):
        for scorer in plan.scorers:
            for stage in scorer.stages:
                counts[stage.digest].later += 1


def tally(outcomes: Sequence[Outcome[Any]]) -> Counter[str]:
    """How many of each outcome, under the names the manifest and tables use."""
    return Counter(outcome_name(o) for o in outcomes)


def outcome_name(outcome: Outcome[Any]) -> str:
    """`done`, `failed`, `skipped`, `unscored` or `not_applicable`."""
    if isinstance(outcome, Result):
        return "done"
    if isinstance(outcome, Failure):
        return "failed"
    if isinstance(outcome, NotApplicable):
        return "not_applicable"
    return "skipped" if type(outcome).__name__ == "Skip" else "unscored"
