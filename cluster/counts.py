"""How many jobs a plan has, stage by stage: known, shared, done, and later ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from cluster.plan import Evaluation, ItemOutcome, Plan, PlanItem, final_lookup
from cluster.store import Store
from cluster.walks import Lookup, Pending, noted, read
from generators.base import (
    DOCUMENT_OUTCOMES,
    SCORE_OUTCOMES,
    Job,
    Outcome,
    OutcomeName,
    Result,
    StageSpec,
    Walk,
    outcome_name,
)
from generators.document import Malformed
from generators.system import System
from scorers.base import Scorer


@dataclass
class StageCount:
    """The jobs of one stage, as a plan shows them."""

    spec: StageSpec
    requests: int = 0
    """How often jobs are requested; more than `distinct` where systems share them."""
    distinct: int = 0
    """Different jobs known so far."""
    done: int = 0
    """Of these, the ones with a final record."""
    later: int = 0
    """Upper bound of jobs that depend on records still missing."""
    later_of: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)
    """`later` by system ("" for a judgement) and digest of the stage that is waited for."""
    keys: set[str] = field(default_factory=set, repr=False)

    def add_later(self, jobs: int, system: str, feeder: str) -> None:
        """Count at most `jobs` that follow records of the stage with digest `feeder`."""
        if jobs:
            self.later += jobs
            self.later_of[system, feeder] += jobs

    @property
    def to_run(self) -> int:
        """Jobs a run would execute now, the later ones as an upper bound."""
        return self.distinct - self.done + self.later


def count(plan: Plan, store: Store, *, only_scorers: bool = False) -> list[StageCount]:
    """Jobs per stage: known keys exactly, what follows from them as an upper bound.

    With `only_scorers`, only the jobs that judge documents which are there already.
    """
    counts = {s.digest: StageCount(s) for s in plan.stages}
    final = final_lookup(store)
    counted = _counting(final, counts)
    waiting = Counter[tuple[str, int, int, tuple[int, ...]]]()
    """Answers that wait, by system, drafts to come, the stage that is waited for, and the
    jobs in a round of each scorer."""
    for system, sample, repeat in plan.requests():
        steps: list[list[Job]] = []
        answer = noted(plan.answer(system, sample, repeat), steps)
        outcome = read(answer, final if only_scorers else counted)
        if isinstance(sample, Malformed):
            continue
        if isinstance(outcome, Result):
            for scorer in plan.scorers:
                walk = scorer.judge(sample, outcome.value)
                _count_walk(walk, scorer, counted, counts, scorer.jobs(sample))
        elif isinstance(outcome, Pending) and not only_scorers:
            asked = _times(system.stages[0], steps)
            drafts = system.rounds * len(sample.openings) - asked
            jobs = tuple(scorer.jobs(sample) for scorer in plan.scorers)
            waiting[system.name, drafts, _reached(system.stages, outcome), jobs] += 1
    systems = {system.name: system for system in plan.systems}
    for (name, drafts, reached, jobs), answers in waiting.items():
        _count_later(plan, systems[name], drafts, reached, answers, jobs, counts)
    for comparison in plan.comparisons:
        _count_walk(comparison.walk(), comparison, counted, counts)
    return list(counts.values())


def _counting(final: Lookup, counts: dict[str, StageCount]) -> Lookup:
    def lookup(job: Job) -> Outcome[Any] | None:
        outcome = final(job)
        tally = counts[job.spec.digest]
        tally.requests += 1
        if job.key not in tally.keys:
            tally.keys.add(job.key)
            tally.distinct += 1
            tally.done += outcome is not None
        return outcome

    return lookup


def _count_walk(
    walk: Walk[Any],
    judge: Scorer | PlanItem,
    lookup: Lookup,
    counts: dict[str, StageCount],
    jobs: int = 1,
) -> None:
    """Count the jobs of one judgement, and bound those behind the first missing one.

    A round has so many `jobs` at most.
    """
    steps: list[list[Job]] = []
    outcome = read(noted(walk, steps), lookup)
    if isinstance(outcome, Pending):
        reached = _reached(judge.stages, outcome)
        left = judge.rounds - _times(judge.stages[0], steps)
        for i, stage in enumerate(judge.stages):
            feeder = judge.stages[max(i - 1, 0)].digest
            counts[stage.digest].add_later(jobs * (left + (i > reached)), "", feeder)


def _count_later(
    plan: Plan,
    system: System,
    drafts: int,
    reached: int,
    answers: int,
    jobs: Sequence[int],
    counts: dict[str, StageCount],
) -> None:
    """Bound the jobs after the stage at `reached`, for which `answers` of a system wait.

    Each has so many `drafts` to come after the one it is at, and so many `jobs` in a round
    of each scorer.
    """
    for i, stage in enumerate(system.stages):
        left = drafts + (i > reached)
        each = 1 if stage is system.draft else system.max_images
        feeder = system.stages[i - 1].digest
        counts[stage.digest].add_later(answers * left * each, system.name, feeder)
    for scorer, each in zip(plan.scorers, jobs, strict=True):
        most = answers * scorer.rounds * each
        for feeder_stage, stage in pairwise((system.stages[-1], *scorer.stages)):
            counts[stage.digest].add_later(most, system.name, feeder_stage.digest)


def _reached(chain: Sequence[StageSpec], pending: Pending) -> int:
    """Position in a chain of the stage that a walk waits for."""
    return [stage.digest for stage in chain].index(pending.missing[0].spec.digest)


def _times(stage: StageSpec, steps: Sequence[list[Job]]) -> int:
    """In how many steps of a walk `stage` had a job."""
    return sum(any(j.spec.digest == stage.digest for j in jobs) for jobs in steps)


def totals_of(outcomes: Iterable[Evaluation | ItemOutcome | Pending]) -> dict[str, int]:
    """Outcomes of documents or pairs and of judgements, over a whole plan."""
    documents, scores = Counter[OutcomeName](), Counter[OutcomeName]()
    for outcome in outcomes:
        if (
            isinstance(outcome, Pending)
            or not (subject := outcome.subject)
            or (None in outcome.verdicts)
        ):
            documents[OutcomeName.MISSING] += 1
        else:
            documents[outcome_name(subject)] += 1
            scores.update(outcome_name(verdict) for verdict in outcome.verdicts if verdict)
    scores[OutcomeName.SCORED] = scores[OutcomeName.DONE]
    return {
        "planned": documents.total(),
        **{str(name): documents[name] for name in DOCUMENT_OUTCOMES},
        **{name.of_scores: scores[name] for name in SCORE_OUTCOMES},
    }
