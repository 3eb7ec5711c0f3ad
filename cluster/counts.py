"""How many jobs a plan has, stage by stage: known, shared, done, and later ones.

`count` follows every walk of a plan through the records that are there. Where a walk waits
for one that is missing, nobody knows yet what it will ask for next; the systems and scorers
say how much that is at most. `plait plan` shows the counts, and a run works from them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from plait.cluster.plan import (
    DocumentRequest,
    Evaluation,
    ItemOutcome,
    Plan,
    PlanItem,
    final_lookup,
)
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
from plait.generators.document import Document, Malformed, Query
from plait.generators.system import Progress, System
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
    counting = _Counting(plan, final_lookup(store), only_scorers=only_scorers)
    # Systems whose first question is the same wait for the same record.
    opening_alike = defaultdict[tuple[Any, ...], list[System]](list)
    for system in plan.systems:
        opening_alike[system.opening].append(system)
    for repeat, query in product(range(plan.repeats), plan.queries):
        judged = plan.query_judged(query)
        if judged is None:
            continue
        images = plan.most_images(judged)
        for alike in opening_alike.values():
            counting.count_answers(alike, query, judged, repeat, images)
    counting.bound_waiting()
    for comparison in plan.comparisons:
        counting.count_judgement(comparison.walk(), comparison)
    return counting.stages()


class _Waiting(NamedTuple):
    """Answers that wait alike."""

    systems: tuple[str, ...]
    progress: Progress
    jobs: tuple[int, ...]
    """In a round of each scorer, at most."""


class _Counting:
    """Counts the jobs of a plan by stage."""

    def __init__(self, plan: Plan, final: Lookup, *, only_scorers: bool) -> None:
        self._final = final
        self._only_scorers = only_scorers
        self._plan = plan
        self._counts = {stage.digest: StageCount(stage) for stage in plan.stages}
        # Sixteen bytes a key: sets of a million keys for each stage would take gigabytes.
        self._missing: dict[str, bytearray] = defaultdict(bytearray)
        """By stage, the keys of the jobs without a final record, as often as asked for."""
        self._existing: dict[tuple[str, str], bytearray] = defaultdict(bytearray)
        """By stage and outcome, the keys of the others."""
        self._waiting = Counter[_Waiting]()
        """How many queries have answers that wait alike."""

    def look_up(self, job: Job) -> Outcome[Any] | None:
        """Return the outcome of a job that is final, and count the job."""
        outcome = self._final(job)
        stage = job.spec.digest
        self._counts[stage].requests += 1
        if outcome is None:
            self._missing[stage].extend(bytes.fromhex(job.key))
        else:
            name = outcome_name(outcome)
            self._existing[stage, name].extend(bytes.fromhex(job.key))
        return outcome

    def count_answers(
        self,
        alike: Sequence[System],
        query: Query | Malformed,
        judged: Query,
        repeat: int,
        images: int,
    ) -> None:
        """Count the jobs of the answers of systems that begin alike, and of their scores.

        Where the first record is missing, all the others wait for it too. `images` are
        those of an answer that is still to be made, at most.
        """
        most_jobs = self.jobs_of_scorers(judged, images)
        lookup = self._final if self._only_scorers else self.look_up
        for i, system in enumerate(alike):
            request = system, query, repeat
            steps: list[list[Job]] = []
            answer = noting(self._plan.answer(*request), steps)
            outcome = read(answer, lookup)
            if isinstance(outcome, Result):
                document = outcome.value
                jobs = most_jobs
                if len(document.images) > images:  # given, or drawn by a server
                    jobs = self.jobs_of_scorers(judged, len(document.images))
                self._count_scores(request, document, jobs)
            elif isinstance(outcome, Pending) and not self._only_scorers:
                at_first = len(steps) == 1
                waiting = alike[i:] if at_first else [system]
                self.note_waiting(waiting, judged, outcome, steps, most_jobs)
                if at_first:
                    return

    def _count_scores(
        self, request: DocumentRequest, document: Document, jobs: tuple[int, ...]
    ) -> None:
        """Count the jobs that judge a document; `jobs` as of `_Waiting`."""
        for scorer, most in zip(self._plan.scorers, jobs, strict=True):
            walk = self._plan.judging(scorer, request, document)
            self.count_judgement(walk, scorer, most)

    def jobs_of_scorers(self, query: Query, images: int) -> tuple[int, ...]:
        """Return the most jobs in a round of each scorer, by the images of an answer."""
        return tuple(scorer.jobs(query, images) for scorer in self._plan.scorers)

    def note_waiting(
        self,
        systems: Sequence[System],
        query: Query,
        pending: Pending,
        steps: Sequence[list[Job]],
        jobs: tuple[int, ...],
    ) -> None:
        """Note that the answers of `systems` wait, of which the first has been walked."""
        # The record that is waited for is asked for by each of them.
        self._counts[pending.jobs[0].spec.digest].requests += len(systems) - 1
        names = tuple(system.name for system in systems)
        asked = tuple(step[0].spec.digest for step in steps)
        progress = Progress(len(query.openings), asked)
        self._waiting[_Waiting(names, progress, jobs)] += 1

    def count_judgement(
        self, walk: Walk[Any], judge: Scorer | PlanItem, jobs: int = 1
    ) -> None:
        """Count the jobs of one judgement, and bound those behind the first missing one.

        A round has so many `jobs` at most.
        """
        look_up = self.look_up
        if isinstance(judge, Scorer) and judge.opponent:
            look_up = partial(self._look_up_of, judge)
        steps: list[list[Job]] = []
        outcome = read(noting(walk, steps), look_up)
        if not isinstance(outcome, Pending):
            return
        own = [stage.digest for stage in judge.stages]
        waits_for = outcome.missing[0].spec.digest
        if waits_for not in own:
            # For an answer beside which it judges: nothing was asked of its own stages yet.
            self._counts[own[0]].add_later(jobs * judge.rounds, "", waits_for)
            return
        reached = own.index(waits_for)
        rounds_left = judge.rounds - _count_steps(judge.stages[0], steps)
        for i, stage in enumerate(judge.stages):
            feeder = judge.stages[max(i - 1, 0)].digest
            # The stages behind the one that is waited for are still to come in this round.
            rounds = rounds_left + 1 if i > reached else rounds_left
            self._counts[stage.digest].add_later(jobs * rounds, "", feeder)

    def _look_up_of(self, judge: Scorer, job: Job) -> Outcome[Any] | None:
        """Look a job up for a judge of pairs.

        The answer beside which it judges is counted with the system that makes it.
        """
        own = any(stage.digest == job.spec.digest for stage in judge.stages)
        return self.look_up(job) if own else self._final(job)

    def bound_waiting(self) -> None:
        """Bound the jobs behind those that answers wait for."""
        for system in self._plan.systems:
            for waiting, answers in self._waiting.items():
                if system.name in waiting.systems:
                    self._bound(system, waiting, answers)

    def _bound(self, system: System, waiting: _Waiting, answers: int) -> None:
        """Bound what follows from so many `answers` of a system that wait alike."""
        for stage, jobs, feeder in system.jobs_after(waiting.progress):
            self._counts[stage.digest].add_later(answers * jobs, system.name, feeder)
        for scorer, each in zip(self._plan.scorers, waiting.jobs, strict=True):
            later = answers * scorer.rounds * each
            for feeder_stage, stage in pairwise((system.stages[-1], *scorer.stages)):
                tally = self._counts[stage.digest]
                tally.add_later(later, system.name, feeder_stage.digest)

    def stages(self) -> list[StageCount]:
        """Return what was counted, each key once."""
        for (stage, name), keys in self._existing.items():
            self._counts[stage].existing[name] = _count_distinct(keys)
        for stage, tally in self._counts.items():
            tally.distinct = tally.done + _count_distinct(self._missing[stage])
        return list(self._counts.values())


def _count_distinct(keys: bytearray) -> int:
    """Return how many of the keys, of 16 bytes each, are different."""
    return int(np.unique(np.frombuffer(keys, "S16")).size)


def _count_steps(stage: StageSpec, steps: Sequence[list[Job]]) -> int:
    """In how many steps of a walk `stage` had a job."""
    count = 0
    for jobs in steps:
        if any(job.spec.digest == stage.digest for job in jobs):
            count += 1
    return count


def totals_of(outcomes: Iterable[Evaluation | ItemOutcome | Pending]) -> dict[str, int]:
    """Outcomes of documents or pairs and of judgements, over a whole plan."""
    documents = Counter[OutcomeName]()
    scores = Counter[OutcomeName]()
    for outcome in outcomes:
        subject = None if isinstance(outcome, Pending) else outcome.subject
        verdicts = () if isinstance(outcome, Pending) else outcome.verdicts
        if subject is None or None in verdicts:
            documents[OutcomeName.MISSING] += 1
            continue
        documents[outcome_name(subject)] += 1
        for verdict in verdicts:
            if verdict is not None:
                scores[outcome_name(verdict)] += 1
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
