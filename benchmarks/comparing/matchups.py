"""The match-ups of a run: which answers are compared, and the plan that has them judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.tasks.published import as_asked
from cluster.plan import Plan, lookup_in
from cluster.store import Store
from cluster.walks import Lookup, Pending, read
from generators.base import Outcome, Result, Skip
from generators.document import Document, Malformed, Sample
from generators.system import System
from scorers.pairwise.games import Judgement
from scorers.pairwise.matchup import Matchup, PairComparison, PairwiseJudge


def matchups(
    plan: Plan,
    systems: Mapping[str, System],
    pairs: Sequence[tuple[str, str]],
    store: Store,
) -> Iterator[Matchup]:
    """Every pair on every query and repeat of `plan`, with what `store` has of them."""
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
    """What is known of a judgement."""
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
