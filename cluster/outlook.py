"""What is still to come: the jobs that stages will be asked for, as walks so far tell.

Walks are alike. What followed from the answers that have come is expected of those that
are awaited, and of the walks that are not open yet. Before a stage has answered, every
stage that it feeds is expected to be asked once for each of its records.

The engine (`engine.py`) tells an `Outlook` what walks ask and what they are answered; the
allocator (`allocation.py`) gets what follows, as an `Ahead`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """Where walks wait: at their n-th step, for records of a stage."""

    digest: str
    step: int


_START = Place("", 0)
"""Of walks that are not open yet."""


@dataclass(slots=True)
class _Follow:
    """What was asked for at one place after answers at another."""

    walks: int = 0
    jobs: int = 0
    """Fewer: several walks may wait for one job."""


@dataclass(slots=True)
class _Amount:
    """Walks that wait or will at one place, and the jobs they wait for."""

    walks: float = 0.0
    jobs: float = 0.0


@dataclass(frozen=True)
class Ahead:
    """What is to come, by digests of stages."""

    jobs: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """That a stage will be asked for, beside those that wait already."""
    sources: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """Of a stage, the stages from which jobs will come, and the records that these have
    to make for it."""


class Outlook:
    """Counts what follows from what."""

    def __init__(self, feeders: Mapping[str, Collection[str]], walks: int = 0) -> None:
        """`feeders` are by a stage's digest, in the order of the chains; see `Plan`."""
        ranks = {digest: rank for rank, digest in enumerate(feeders)}
        self._fed: dict[str, list[str]] = defaultdict(list)
        """By a stage's digest, those that it feeds and that come after it."""
        for digest, before in feeders.items():
            for feeder in before:
                if ranks.get(feeder, 0) < ranks[digest]:
                    self._fed[feeder].append(digest)
        self._awaited: dict[Place, _Amount] = defaultdict(_Amount)
        """What waits now, by place."""
        self._awaited[_START].walks = walks
        self._answered = Counter[Place]()
        """How many walks have had their answer, by place."""
        self._known: set[str] = set()
        """Digests of stages that have answered."""
        self._follows: dict[Place, dict[Place, _Follow]] = defaultdict(dict)
        """By place, what was asked for next, and where."""
        self._source = _START
        """Where the walk got its answer that asks now."""

    def open_walk(self) -> None:
        """A walk is opened: what it asks for at once is asked at the start."""
        self._awaited[_START].walks -= 1
        self._answered[_START] += 1

    def ask(self, digest: str, step: int, *, is_new: bool) -> None:
        """A walk asks for a job, which `is_new` where no other walk waits for it."""
        place = Place(digest, step)
        # A walk asks right after it was opened, or was answered.
        source = _START if step == 1 else self._source
        awaited = self._awaited[place]
        awaited.walks += 1
        awaited.jobs += is_new
        follow = self._follows[source].setdefault(place, _Follow())
        follow.walks += 1
        follow.jobs += is_new

    def answer(self, digest: str, step: int, *, is_first: bool) -> None:
        """A walk has its answer, and asks next; `is_first` of those that wait for it."""
        place = Place(digest, step)
        awaited = self._awaited[place]
        awaited.walks -= 1
        awaited.jobs -= is_first
        self._answered[place] += 1
        self._known.add(digest)
        self._source = place

    def look(self) -> Ahead:
        """Return what is to come."""
        ahead = Ahead()
        coming = dict[Place, _Amount]()
        last = max(place.step for place in self._awaited)
        step = 0
        # Step by step, since what follows from one step is awaited at a later one.
        while True:
            places = [*self._awaited, *coming]
            here = {place for place in places if place.step == step}
            if not here and step > last:
                return ahead
            for place in sorted(here):
                self._follow(place, coming, ahead)
            step += 1

    def _follow(self, place: Place, coming: dict[Place, _Amount], ahead: Ahead) -> None:
        """Add what follows from the walks that wait at a place or will."""
        here = self._awaited[place]
        later = coming.get(place, _Amount())
        walks = here.walks + later.walks
        jobs = here.jobs + later.jobs
        if walks <= 0:
            return

        def add(target: Place, more_walks: float, more_jobs: float) -> None:
            amount = coming.setdefault(target, _Amount())
            amount.walks += more_walks
            amount.jobs += more_jobs
            ahead.jobs[target.digest] += more_jobs
            if place is not _START:
                sources = ahead.sources[target.digest]
                sources[place.digest] = max(jobs, sources.get(place.digest, 0.0))

        answered = self._answered[place]
        if answered:
            for target, follow in self._follows[place].items():
                add(target, walks * follow.walks / answered, walks * follow.jobs / answered)
        elif place.digest not in self._known:
            # It has never answered: what it feeds is taken to be asked once for each.
            for digest in self._fed[place.digest]:
                add(Place(digest, place.step + 1), jobs, jobs)
