"""How many jobs a plan has, stage by stage: known, shared, done, and later ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

import numpy as np

from plait.cluster.plan import Evaluation, ItemOutcome, Plan, PlanItem, final_lookup
from plait.cluster.store import Store
from plait.cluster.walks import Lookup, Pending, noting, read
from plait.generators.base import (
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
from plait.generators.system import System
from plait.scorers.base import Scorer


@dataclass
class StageCount:
    """The jobs of one stage, as a plan shows them."""

    spec: StageSpec
    requests: int = 0
    """How often jobs are requested; more than `distinct` where systems share them."""
    distinct: int = 0
    """Different jobs known so far."""
    existing: Counter[str] = field(default_factory=Counter)
    """Of these, the ones with a final record, by its outcome."""
    later: int = 0
    """Upper bound of jobs that depend on records still missing."""
    later_of: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)
    """`later` by system ("" for a judgement) and digest of the stage that is waited for."""

    def add_later(self, jobs: int, system: str, feeder: str) -> None:
        """Count at most `jobs` that follow records of the stage with digest `feeder`."""
        if jobs:
            self.later += jobs
            self.later_of[system, feeder] += jobs

    @property
    def done(self) -> int:
        """Jobs known so far that have a final record."""
        return self.existing.total()

    @property
    def to_run(self) -> int:
        """Jobs a run would execute now, the later ones as an upper bound."""
        return self.distinct - self.done + self.later


@dataclass(frozen=True)
class Counted:
    """The jobs of a plan as they were counted, and the store that this rests on."""

    stages: Sequence[StageCount]
    store: Store


def count(plan: Plan, store: Store, *, only_scorers: bool = False) -> list[StageCount]:
    """Jobs per stage: known keys exactly, what follows from them as an upper bound.

    With `only_scorers`, only the jobs that judge documents which are there already.
    """
    counts = {s.digest: StageCount(s) for s in plan.stages}
    # Sixteen bytes a key: sets of a million keys for each stage would take gigabytes.
    missing: dict[str, bytearray] = defaultdict(bytearray)
    existing: dict[tuple[str, str], bytearray] = defaultdict(bytearray)
    final = final_lookup(store)

    def counted(job: Job) -> Outcome[Any] | None:
        outcome = final(job)
        stage = job.spec.digest
        counts[stage].requests += 1
        if outcome is None:
            missing[stage].extend(bytes.fromhex(job.key))
        else:
            existing[stage, outcome_name(outcome)].extend(bytes.fromhex(job.key))
        return outcome

    waiting = Counter[tuple[tuple[str, ...], int, int, tuple[int, ...]]]()
    """Queries whose answers wait, by systems, drafts to come, the stage that is waited for,
    and the jobs in a round of each scorer."""
    opening_alike = defaultdict[tuple[Any, ...], list[System]](list)
    for system in plan.systems:
        opening_alike[system.opening, system.rounds].append(system)
    for repeat, sample in product(range(plan.repeats), plan.samples):
        if (query := plan.query(sample)) is None:
            continue
        turns = len(query.openings)
        images = max((s.max_images * s.rounds * turns for s in plan.systems), default=0)
        jobs = tuple(scorer.jobs(query, images) for scorer in plan.scorers)
        for alike in opening_alike.values():
            for i, system in enumerate(alike):
                steps: list[list[Job]] = []
                answer = noting(plan.answer(system, sample, repeat), steps)
                outcome = read(answer, final if only_scorers else counted)
                if isinstance(outcome, Result):
                    for scorer, most in zip(plan.scorers, jobs, strict=True):
                        walk = plan.judging(scorer, sample, outcome.value)
                        _count_walk(walk, scorer, counted, counts, most)
                elif isinstance(outcome, Pending) and not only_scorers:
                    at_first = len(steps) == 1
                    names = tuple(s.name for s in (alike[i:] if at_first else [system]))
                    counts[outcome.jobs[0].spec.digest].requests += len(names) - 1
                    drafts = system.rounds * len(query.openings) - 1
                    if system.review is None:  # whose critic may be the drafting stage
                        drafts -= _times(system.stages[0], steps) - 1
                    waiting[
                        names, drafts, _place_in_chain(system.stages, outcome), jobs
                    ] += 1
                    if at_first:  # the others wait for the same record
                        break
    for system in plan.systems:
        for (names, drafts, reached, jobs), answers in waiting.items():
            if system.name in names:
                _count_later(plan, system, drafts, reached, answers, jobs, counts)
    for comparison in plan.comparisons:
        _count_walk(comparison.walk(), comparison, counted, counts)
    for (stage, name), keys in existing.items():
        counts[stage].existing[name] = _count_distinct(keys)
    for stage, tally in counts.items():
        tally.distinct = tally.done + _count_distinct(missing[stage])
    return list(counts.values())


def _count_distinct(keys: bytearray) -> int:
    """Return how many of the keys, of 16 bytes each, are different."""
    return int(np.unique(np.frombuffer(keys, "S16")).size)


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
    outcome = read(noting(walk, steps), lookup)
    if isinstance(outcome, Pending):
        reached = _place_in_chain(judge.stages, outcome)
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
    tries = 1 if system.review is None else system.review.tries
    for i, stage in enumerate(system.stages):
        left = drafts + (i > reached or (system.asks_again and i > 0))
        each = system.max_images * tries if i > 0 or system.draft is None else 1
        feeder = system.stages[i - 1].digest
        counts[stage.digest].add_later(answers * left * each, system.name, feeder)
    for scorer, each in zip(plan.scorers, jobs, strict=True):
        most = answers * scorer.rounds * each
        for feeder_stage, stage in pairwise((system.stages[-1], *scorer.stages)):
            counts[stage.digest].add_later(most, system.name, feeder_stage.digest)


def _place_in_chain(chain: Sequence[StageSpec], pending: Pending) -> int:
    """Position in a chain of the stage that a walk waits for."""
    return [stage.digest for stage in chain].index(pending.missing[0].spec.digest)


def _times(stage: StageSpec, steps: Sequence[list[Job]]) -> int:
    """In how many steps of a walk `stage` had a job."""
    return sum(any(j.spec.digest == stage.digest for j in jobs) for jobs in steps)


def totals_of(outcomes: Iterable[Evaluation | ItemOutcome | Pending]) -> dict[str, int]:
    """Outcomes of documents or pairs and of judgements, over a whole plan."""
    documents = Counter[OutcomeName]()
    scores = Counter[OutcomeName]()
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
    return totals_in(documents, scores)


def totals_in(
    documents: Counter[OutcomeName], scores: Counter[OutcomeName]
) -> dict[str, int]:
    """Return the same of documents and of judgements that are counted already."""
    return {
        "planned": documents.total(),
        **{str(name): documents[name] for name in DOCUMENT_OUTCOMES},
        **{name.of_scores: scores[name] for name in SCORE_OUTCOMES},
    }
