"""How much is left to do: jobs by stage, and which of them follow from which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.runs.forecast.rates import Sources
from cluster.counts import StageCount
from cluster.plan import Plan
from generators.base import StageSpec


@dataclass(frozen=True, slots=True)
class Flow:
    """Jobs that appear while another stage works, evenly over its jobs."""

    feeder: str
    """Digest of the stage whose results make them."""
    jobs: float


@dataclass(frozen=True, kw_only=True)
class StageWork:
    """What one stage has left to do."""

    spec: StageSpec
    rank: int
    """Position in the chains: lower ranks feed higher ones."""
    known: float
    """Jobs that can start at once."""
    flows: Sequence[Flow] = ()
    feeders: frozenset[str] = frozenset()
    """Digests of the stages that may give it more work."""
    bound: bool = False
    """Whether `flows` are upper bounds, since no run tells how many there will be."""

    @property
    def jobs(self) -> float:
        """All of them."""
        return self.known + sum(flow.jobs for flow in self.flows)


def work_of(
    plan: Plan, counts: Sequence[StageCount], sources: Sources
) -> tuple[StageWork, ...]:
    """The work of every stage that has some, as far as runs before tell how much."""
    expected = _Expected(plan, sources)
    work = []
    for rank, tally in enumerate(counts):
        flows, bound = expected.flows(tally)
        work.append(
            StageWork(
                spec=tally.spec,
                rank=rank,
                known=float(tally.distinct - tally.done),
                flows=flows,
                feeders=frozenset(plan.feeders.get(tally.spec.digest, ())),
                bound=bound,
            )
        )
    return tuple(w for w in work if w.jobs > 0)


class _Expected:
    """Turns upper bounds of later jobs into expectations."""

    def __init__(self, plan: Plan, sources: Sources) -> None:
        self._sources = sources
        self._most: Mapping[str, int] = {
            s.name: s.rounds * max(s.max_images, 1) for s in plan.systems
        }
        self._drawing = {s.digest for y in plan.systems for s in y.stages[1:]}
        self._asked: dict[str, int] = {}
        for scorer in plan.scorers:
            for stage in scorer.stages:
                earlier = self._asked.get(stage.digest, 0)
                self._asked[stage.digest] = earlier + scorer.rounds

    def flows(self, tally: StageCount) -> tuple[list[Flow], bool]:
        """The flows into one stage, and whether one of them is an upper bound."""
        flows: dict[str, float] = {}
        bound = False
        for (system, feeder), jobs in tally.later_of.items():
            share = self._share(tally.spec, system)
            bound = bound or share is None
            expected = jobs * (1.0 if share is None else share)
            flows[feeder] = flows.get(feeder, 0.0) + expected
        return [Flow(feeder, jobs) for feeder, jobs in flows.items()], bound

    def _share(self, spec: StageSpec, system: str) -> float | None:
        """Which part of the bound is to be expected; None where no run tells."""
        if system and spec.digest in self._drawing:
            pictures = self._sources.pictures(system)
            return None if pictures is None else min(1.0, pictures / self._most[system])
        if system and spec.digest in self._asked:
            judged = self._sources.judged(spec)
            asked = self._asked[spec.digest]
            return None if judged is None else min(1.0, judged / asked)
        return 1.0
