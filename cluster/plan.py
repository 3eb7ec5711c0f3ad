"""A plan: systems x queries x scorers, and comparisons, as walks; and reading it back.

`Plan.evaluation` is the walk of one answer and its scores. A run follows it and makes what
is missing (`schedule.py`), `counts.py` follows it as far as records are there, and
`evaluations` reads it back when all are. `EngineOptions` say how a run works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any, Protocol, TypeVar

from plait.cluster.executors.base import Executor, ExecutorName
from plait.cluster.records import decode
from plait.cluster.shard import Shard
from plait.cluster.sources import StageSource
from plait.cluster.store import Store
from plait.cluster.walks import Lookup, Pending, noting, read, together
from plait.generators.base import (
    Failure,
    Fault,
    Job,
    NotApplicable,
    Outcome,
    Result,
    StageSpec,
    Unscored,
    Walk,
)
from plait.generators.document import Document, Malformed, Query, Score
from plait.generators.spool import select
from plait.generators.system import Progress, Prompter, Repetition, System
from plait.scorers.base import Scorer, admit, with_stage

DocumentRequest = tuple[System, Query | Malformed, int]
"""A system, a query and the number of its repeat, from 0: one document to be made."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One system's answer to one query, and the outcome of every scorer."""

    system: str
    query: Query | Malformed
    repeat: int
    document: Outcome[Document] | None
    """None where it is not made yet."""
    scores: Mapping[str, Outcome[Score] | None]
    """By the scorer's name, None where it is not made yet; empty without a document."""
    jobs: Mapping[str, Sequence[Job]] = field(default_factory=dict, repr=False)
    """What was asked for by each scorer, and under "" by the system."""

    @property
    def complete(self) -> bool:
        """Whether nothing of it is still to be made."""
        return self.document is not None and None not in self.scores.values()

    @property
    def subject(self) -> Outcome[Document] | None:
        """What is judged: the document."""
        return self.document

    @property
    def verdicts(self) -> tuple[Outcome[Score] | None, ...]:
        """The outcome of every scorer."""
        return tuple(self.scores.values())


class ItemOutcome(Protocol):
    """The outcome of a plan item."""

    @property
    def subject(self) -> Outcome[Any]:
        """What is judged, or why there is nothing to judge."""

    @property
    def verdicts(self) -> tuple[Outcome[Any], ...]:
        """The judge's verdicts; empty where there was nothing to judge."""


class PlanItem(Protocol):
    """A comparison of several answers to one query."""

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages its walk may use, in chain order."""

    @property
    def rounds(self) -> int:
        """How often its walk may go through the stages."""

    def walk(self) -> Walk[Any]:
        """Walk to an `ItemOutcome`, also where something is missing."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a run is to make."""

    systems: Sequence[System]
    queries: Sequence[Query | Malformed]
    scorers: Sequence[Scorer]
    prompt: Prompter
    seed: int = 0
    repeats: int = 1
    comparisons: Sequence[PlanItem] = ()
    """Pairs of existing answers to be judged."""
    baselines: Mapping[str, System] = field(default_factory=dict)
    """By name, what scorers of pairs judge answers beside and that is none of `systems`."""

    @property
    def stages(self) -> list[StageSpec]:
        """Every stage once, those that feed others first."""
        # The first stages of all systems, then their second ones, and so on.
        ordered: list[StageSpec] = []
        chains = [system.stages for system in self.systems]
        for level in zip_longest(*chains):
            ordered += filter(None, level)
        judges: Sequence[Scorer | PlanItem] = (*self.scorers, *self.comparisons)
        for judge in judges:
            ordered += judge.stages
        stages: dict[str, StageSpec] = {}
        for stage in ordered:
            stages.setdefault(stage.digest, stage)
        return list(stages.values())

    @property
    def folders(self) -> dict[str, str]:
        """By a stage's digest, the folder of its records: by the name it is first given."""
        return {spec.digest: spec.folder for spec in self.stages}

    @cached_property
    def _most_turns(self) -> int:
        """Most turns of a query that are to be answered; takes a look at all queries."""
        most = 1
        for query in self.queries:
            if isinstance(query, Query):
                most = max(most, len(query.openings))
        return most

    @property
    def feeders(self) -> Mapping[str, set[str]]:
        """By a stage's digest, the digests of the stages whose results make it work.

        In chain order: those that a walk may still ask while it waits for the other.
        """
        feeders: dict[str, set[str]] = {}
        for system in self.systems:
            self._add_feeders(system, feeders)
        answering = set(feeders)
        for scorer in self.scorers:
            digests = [stage.digest for stage in scorer.stages]
            for i, stage_digest in enumerate(digests):
                feeders.setdefault(stage_digest, set()).update(answering, digests[:i])
        for comparison in self.comparisons:
            for stage in comparison.stages:
                feeders[stage.digest] = set()  # their answers exist already
        for stage_digest, before in feeders.items():
            before.discard(stage_digest)
        return feeders

    def _add_feeders(self, system: System, feeders: dict[str, set[str]]) -> None:
        """Add which stages of a system ask for jobs after which others."""
        digests = [stage.digest for stage in system.stages]
        for stage_digest in digests:
            feeders.setdefault(stage_digest, set())
        for place, stage_digest in enumerate(digests):
            progress = Progress(self._most_turns, tuple(digests[: place + 1]))
            for later in system.jobs_after(progress):
                if later.jobs:
                    feeders[later.stage.digest].add(stage_digest)

    def __len__(self) -> int:
        documents = len(self.systems) * len(self.queries) * self.repeats
        return documents + len(self.comparisons)

    def part(self, shard: Shard | None) -> Plan:
        """What is left for a shard: its queries, and its part of the models' ceilings."""
        if shard is None:
            return self
        own = (i for i, query in enumerate(self.queries) if shard.holds(query.id))
        return replace(
            self,
            queries=select(self.queries, own),
            systems=[system.with_stages(shard.with_share) for system in self.systems],
            scorers=[with_stage(scorer, shard.with_share) for scorer in self.scorers],
        )

    def requests(self) -> Iterator[DocumentRequest]:
        """Every (system, query, repeat); systems that share a stage adjoin."""
        for repeat in range(self.repeats):
            for query in self.queries:
                for system in self.systems:
                    yield system, query, repeat

    def walks(self) -> Iterator[Walk[Any]]:
        """One walk per (system, query, repeat), and one per comparison.

        The first end in an `Evaluation`, the others in an `ItemOutcome`.
        """
        for request in self.requests():
            yield self.evaluation(*request)
        for comparison in self.comparisons:
            yield comparison.walk()

    def evaluation(
        self,
        system: System,
        query: Query | Malformed,
        repeat: int,
        among: Sequence[Scorer] | None = None,
    ) -> Walk[Evaluation]:
        """Return the whole walk: an answer, and where there is one, its scores.

        Of all scorers, or of those `among` them.
        """
        scorers = self.scorers if among is None else among
        document = yield from self.answer(system, query, repeat)
        scores: dict[str, Outcome[Score]] = {}
        if isinstance(document, Result):
            request = system, query, repeat
            judging = [self.judging(s, request, document.value) for s in scorers]
            # All scores are asked for at once: none waits for another.
            outcomes = yield from together(judging)
            for scorer, outcome in zip(scorers, outcomes, strict=True):
                scores[scorer.name] = admit(outcome, scorer.scale)
        return Result(Evaluation(system.name, query, repeat, document, scores))

    def answer(
        self, system: System, query: Query | Malformed, repeat: int
    ) -> Walk[Document]:
        """Return the first part of an evaluation: the document of one system."""
        judged = self.query_judged(query)
        # Given answers to a row that cannot be read may be judged all the same, as the
        # program of a benchmark does; a system that has to read the row cannot answer it.
        if isinstance(query, Malformed) and (judged is None or system.reads_query):
            return Failure(query.reason, Fault.BAD_INPUT)
        assert judged is not None
        repetition = Repetition(self.prompt, self.seed, repeat)
        return (yield from system.answer(judged, repetition))

    def query_judged(self, query: Query | Malformed) -> Query | None:
        """Return what is judged: a query, or a row as a scorer's program takes it."""
        if isinstance(query, Query):
            return query
        return query.released if any(s.as_released for s in self.scorers) else None

    def most_images(self, query: Query) -> int:
        """Return how many images an answer that stages make may hold, of any system."""
        most = 0
        for system in self.systems:
            if system.stages:  # else its answers are given
                most = max(most, system.most_images(query))
        return most

    def judging(
        self, scorer: Scorer, request: DocumentRequest, document: Document
    ) -> Walk[Score]:
        """Walk to one score of a document; a failure where the row cannot be judged."""
        system, asked, repeat = request
        if isinstance(asked, Query):
            query = asked
        elif asked.released is not None and scorer.as_released:
            query = asked.released
        else:
            return Failure(asked.reason, Fault.BAD_INPUT)
        if not scorer.opponent:
            return (yield from scorer.judge(query, document))
        if system.name == scorer.opponent:
            return NotApplicable("the answers of others are judged beside these")
        other = yield from self.opponent_answer(scorer, request)
        if not isinstance(other, Result):
            return Unscored(f"{scorer.opponent} has no answer: {other.reason}")
        return (yield from scorer.judge_beside(query, other.value, document, repeat))

    def opponent_answer(self, scorer: Scorer, request: DocumentRequest) -> Walk[Document]:
        """Walk to the answer beside which a scorer of pairs judges that of a request."""
        _, query, repeat = request
        return (yield from self.answer(self._opponents[scorer.opponent], query, repeat))

    @cached_property
    def _opponents(self) -> Mapping[str, System]:
        """By name, the systems beside whose answers scorers of pairs judge."""
        opponents = dict(self.baselines)
        for system in self.systems:
            opponents[system.name] = system
        return opponents


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How the engine runs; none of it changes a result."""

    executor: ExecutorName | AbstractContextManager[Executor] | None = None
    """Where workers run: a name, or an executor of the caller's own; None for Ray where
    there is an address, else for PLAIT_EXECUTOR, else for Ray where it is installed."""
    address: str | None = None
    """Ray address; on Ray, None for a local one that lives as long as the command."""
    placement_timeout_s: float = 600.0
    """How long a stage may wait for resources before it is given up."""
    grace_s: float = 10.0
    """How long an interrupted run waits for batches in flight."""
    max_cost: float | None = None
    """What all endpoints together may cost over the life of the run directory."""
    only_scorers: bool = False
    """Score existing documents and make no new ones."""
    shard: Shard | None = None
    """The shard that the plan is a part for, with shards beside it in the run directory."""
    joins: str = ""
    """The `run_digest` in the manifest when the run was planned, if there was one."""
    makes: bool = True
    """Make what is missing, before the run directory is compacted and read."""
    remake: bool = False
    """Make answers again whose stored text begins with a thought."""
    sources: Sequence[StageSource] = ()
    """Of the user's own stages, what is noted beside their records."""


def lookup_in(store: Store, *, notes: bool = False) -> Lookup:
    """Look jobs up as a reader does: every record counts.

    With `notes`, results carry what their stages noted and used.
    """

    def lookup(job: Job) -> Outcome[Any] | None:
        row = store.row(job)
        if row is None:
            return None
        outcome = decode(job.spec.kind, row)
        if notes and isinstance(outcome, Result):
            noted, usage = store.notes_and_usage(row)
            return replace(outcome, notes=noted, usage=usage)
        return outcome

    return lookup


def final_lookup(store: Store) -> Lookup:
    """Look jobs up as a run does: failures that will be tried again are missing."""

    def lookup(job: Job) -> Outcome[Any] | None:
        place = store.find(job)
        if place is None or not place.final:
            return None
        row = store.read(job.spec, place)
        # Where its part is gone, this is the record that is under the key by now, and it
        # may have ended otherwise.
        if row is None or not row.final:
            return None
        return decode(job.spec.kind, row)

    return lookup


def evaluations(plan: Plan, store: Store, *, notes: bool = False) -> Iterator[Evaluation]:
    """What the store holds of every (query, repeat, system), in the plan's order.

    With `notes`, documents carry what their stages noted, by the stage's name.
    """
    lookup = lookup_in(store, notes=notes)
    for request in plan.requests():
        yield evaluate(plan, request, lookup)


def thinking_drafts(plan: Plan, store: Store) -> list[Job]:
    """Return the drafts of answers whose stored text begins with a thought.

    Those of a critic are none, unless it is the drafting stage: they are read without it.
    """
    lookup = final_lookup(store)
    found: dict[str, Job] = {}
    for system, query, repeat in plan.requests():
        draft = system.roles.get("draft")
        if draft is None:
            continue
        _, jobs = _read_walk(plan.answer(system, query, repeat), lookup)
        for job in jobs:
            if job.spec.digest != draft.digest:
                continue
            outcome = lookup(job)
            if isinstance(outcome, Result) and outcome.value.holds_thought:
                found[job.key] = job
    return list(found.values())


def evaluate(plan: Plan, request: DocumentRequest, lookup: Lookup) -> Evaluation:
    """Return what `lookup` knows of one document and of its scores."""
    system, query, repeat = request
    document, answer_jobs = _read_walk(plan.answer(*request), lookup)
    asked = {"": answer_jobs}
    scores = dict[str, Outcome[Score] | None]()
    if isinstance(document, Result):
        for scorer in plan.scorers:
            judging = plan.judging(scorer, request, document.value)
            score, jobs = _read_walk(judging, lookup)
            if scorer.opponent:
                # The answer beside which it is judged was asked for by its own system.
                own = {stage.digest for stage in scorer.stages}
                jobs = [job for job in jobs if job.spec.digest in own]
            asked[scorer.name] = jobs
            scores[scorer.name] = None if score is None else admit(score, scorer.scale)
    return Evaluation(system.name, query, repeat, document, scores, asked)


def _read_walk(walk: Walk[T], lookup: Lookup) -> tuple[Outcome[T] | None, list[Job]]:
    """The outcome of a walk, None where it waits for records, and what it asked for."""
    steps: list[list[Job]] = []
    outcome = read(noting(walk, steps), lookup)
    jobs = list(chain.from_iterable(steps))
    if isinstance(outcome, Pending):
        return None, jobs
    return outcome, jobs


def iter_comparisons(plan: Plan, store: Store) -> Iterator[ItemOutcome | Pending]:
    """The outcome of every comparison, in the plan's order."""
    lookup = lookup_in(store)
    for comparison in plan.comparisons:
        outcome = read(comparison.walk(), lookup)
        if isinstance(outcome, Pending):
            yield outcome
        elif isinstance(outcome, Result):
            yield outcome.value
