"""Walks: one generator per (system, query, repeat), advanced as outcomes become known.

A walk yields the jobs that it needs next and is sent their outcomes. The engine has a
`Walker` for each that is open, and waits with it for what is missing; readers and counts
follow a walk by `read`, which gives up where something is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from plait.generators.base import Job, Outcome, Walk
from plait.generators.walks import together as together

T = TypeVar("T")
R = TypeVar("R")
Lookup = Callable[[Job], Outcome[Any] | None]
"""The outcome of a job where it is known, else None."""


def first_of(*lookups: Lookup | None) -> Lookup:
    """Look jobs up in several places: what the first that knows a job says counts."""
    known = [lookup for lookup in lookups if lookup is not None]

    def lookup(job: Job) -> Outcome[Any] | None:
        for look_up in known:
            outcome = look_up(job)
            if outcome is not None:
                return outcome
        return None

    return lookup


@dataclass(frozen=True, slots=True)
class Pending:
    """A walk that waits: the jobs it needs, and those of them without an outcome."""

    jobs: list[Job]
    missing: list[Job]


@dataclass(slots=True)
class Walker(Generic[T]):
    """A walk in progress."""

    walk: Walk[T]
    pending: Pending | None = None
    missing: int = 0
    """How many outcomes it waits for."""
    _outcomes: dict[str, Outcome[Any]] = field(default_factory=dict)
    """Those that are known of what it waits for, by key."""
    steps: int = 0
    """How often it has waited."""
    held: int = 0
    """How many of the missing outcomes only a later command can have."""

    def advance(self, lookup: Lookup) -> Outcome[T] | None:
        """Continue as far as outcomes are known; the walk's outcome once it has ended."""
        while True:
            try:
                if self.pending is None:
                    jobs = next(self.walk)
                else:
                    # Several of the jobs may be the same one.
                    known = self._outcomes
                    jobs = self.walk.send([known[job.key] for job in self.pending.jobs])
            except StopIteration as stop:
                self.pending = None
                return stop.value  # type: ignore[no-any-return]
            self._outcomes = {}
            missing: dict[str, Job] = {}
            for job in jobs:
                outcome = lookup(job)
                if outcome is None:
                    missing[job.key] = job
                else:
                    self._outcomes[job.key] = outcome
            self.pending = Pending(jobs, list(missing.values()))
            self.missing = len(missing)
            self.held = 0
            if missing:
                self.steps += 1
                return None
            # All are known: the walk goes on at once.

    def give(self, key: str, outcome: Outcome[Any]) -> bool:
        """Note an outcome that it waits for; whether it can go on."""
        self._outcomes[key] = outcome
        self.missing -= 1
        return self.missing == 0

    @property
    def is_held(self) -> bool:
        """Whether all that it waits for is left to a later command."""
        return 0 < self.held == self.missing


def read(walk: Walk[T], lookup: Lookup) -> Outcome[T] | Pending:
    """Follow a walk through known outcomes: its own outcome, or what it waits for."""
    walker: Walker[T] = Walker(walk)
    outcome = walker.advance(lookup)
    if outcome is not None:
        return outcome
    assert walker.pending is not None
    return walker.pending


def drive(
    walk: Generator[list[Job], list[Outcome[Any]], R],
    answering: Callable[[Sequence[Job]], list[Outcome[Any]]],
) -> R:
    """Follow a walk, or several that `together` joins, to the end."""
    try:
        jobs = next(walk)
        while True:
            jobs = walk.send(answering(jobs))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def through(
    walk: Generator[list[Job], list[Outcome[Any]], R],
    asked: Callable[[list[Job]], list[Job]] = lambda jobs: jobs,
    told: Callable[[list[Outcome[Any]]], object] = lambda outcomes: None,
) -> Generator[list[Job], list[Outcome[Any]], R]:
    """The same walk, whose jobs are what `asked` makes of them; `told` sees outcomes."""
    try:
        jobs = next(walk)
        while True:
            outcomes = yield asked(jobs)
            told(outcomes)
            jobs = walk.send(outcomes)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def noting(
    walk: Walk[T], steps: list[list[Job]]
) -> Generator[list[Job], list[Outcome[Any]], Outcome[T]]:
    """The same walk, which adds the jobs of each of its steps to `steps`."""

    def note(jobs: list[Job]) -> list[Job]:
        steps.append(jobs)
        return jobs

    return through(walk, note)
