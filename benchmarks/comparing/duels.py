"""Two systems' documents on one query, and a plan of the engine that judges them all.

To the engine a pair of documents is one given document and the protocol is a scorer of it,
so judgements are records like any others: what was asked once is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.tasks.published import as_asked
from cluster.plan import Plan, lookup_in
from cluster.store import Store
from cluster.walks import Lookup, Pending, read
from generators.base import Failure, Fault, Outcome, Result, Skip, StageSpec, Walk
from generators.document import Document, Malformed, Sample, Score
from generators.system import System
from scorers.pairwise.protocol import Game, Judgement, Pairwise
from scorers.pairwise.walk import most_questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Two systems' answers to one query, and why there may be nothing to compare."""

    sample: Sample | Malformed
    repeat: int
    first: str
    second: str
    pair: Outcome[tuple[Document, Document]]

    def game(self, outcome: Outcome[Judgement]) -> Game:
        """The game that `outcome` makes of it."""
        about = {"question": self.sample.id, "first": self.first, "second": self.second}
        group = {"category": self.sample.category, "field": self.sample.field}
        return Game(**about, **group, outcome=outcome)


def duels(
    plan: Plan,
    systems: Mapping[str, System],
    pairs: Sequence[tuple[str, str]],
    store: Store,
) -> Iterator[Duel]:
    """Every pair on every query and repeat of `plan`, with what `store` has of them."""
    lookup = lookup_in(store)
    for repeat in range(plan.repeats):
        for sample in plan.samples:
            found = {
                n: _answer(plan, s, sample, repeat, lookup) for n, s in systems.items()
            }
            for first, second in pairs:
                yield Duel(
                    sample=sample,
                    repeat=repeat,
                    first=first,
                    second=second,
                    pair=_both((first, found[first]), (second, found[second])),
                )


def _answer(
    plan: Plan, system: System, sample: Sample | Malformed, repeat: int, lookup: Lookup
) -> Outcome[Document]:
    found = read(plan.answer(system, sample, repeat), lookup)
    return Skip("has not answered yet") if isinstance(found, Pending) else found


def _both(
    *answers: tuple[str, Outcome[Document]],
) -> Outcome[tuple[Document, Document]]:
    """Both documents, or what became of the answer that is lacking."""
    for name, answer in answers:
        if isinstance(answer, Failure):
            return Failure(f"{name}: {answer.reason}", answer.fault)
    for name, answer in answers:
        if not isinstance(answer, Result):
            return Skip(f"{name}: {answer.reason}")
    first, second = (a.value for _, a in answers if isinstance(a, Result))
    return Result((first, second))


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus(Document):
    """Two documents as the one that a plan asks to have scored."""

    first: Document
    second: Document
    drawing: int


@dataclass(frozen=True, kw_only=True)
class Referee:
    """A protocol with the judge it asks. Implements `Scorer` for documents `Versus`."""

    protocol: Pairwise
    chat: StageSpec
    seed: int
    repeats: int
    """Of the run whose documents are judged."""
    scale: str = "levels"

    @property
    def manner(self) -> str:
        """Said in the comparison's title."""
        return ""

    @property
    def name(self) -> str:
        """The protocol's."""
        return self.protocol.name

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The chat stage alone."""
        return (self.chat,)

    @property
    def rounds(self) -> int:
        """Bounds the questions about a pair, some of which may be asked again at once."""
        return most_questions(self.protocol.mode)

    def drawing(self, duel: Duel, judging: int) -> int:
        """Which drawing of the judge's own sampling: its seeds follow from it."""
        return duel.repeat + judging * self.repeats

    def walk(
        self, sample: Sample, pair: tuple[Document, Document], drawing: int
    ) -> Walk[Judgement]:
        """Walk to the judgement of a pair."""
        return self.protocol.judge(sample, *pair, self.chat, seed=self.seed, repeat=drawing)

    def judge(self, sample: Sample, document: Document) -> Walk[Score]:
        """Walk to the mean preference for the second, in levels, for the run's counts.

        A failed reply makes the whole a failure; Unscored where no order can be read.
        """
        if not isinstance(document, Versus):
            raise TypeError(f"a pair of documents is judged, not {type(document).__name__}")
        pair = (document.first, document.second)
        found = yield from self.walk(sample, pair, document.drawing)
        return _score(found.value) if isinstance(found, Result) else found

    def outcome(self, duel: Duel, judging: int, lookup: Lookup) -> Outcome[Judgement]:
        """What is known of a duel's judgement."""
        if not isinstance(duel.sample, Sample):
            return Failure(duel.sample.reason, Fault.BAD_INPUT)
        if not isinstance(duel.pair, Result):
            return duel.pair
        walk = self.walk(duel.sample, duel.pair.value, self.drawing(duel, judging))
        found = read(walk, lookup)
        return Skip("not judged yet") if isinstance(found, Pending) else found


def _score(judgement: Judgement) -> Outcome[Score]:
    outcomes = [r.outcome for r in judgement.readings]
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            return outcome
    told = [
        (1 if swapped else -1) * verdict.preference
        for swapped in (False, True)
        if (verdict := judgement.verdict(swapped)) is not None
    ]
    if told:
        return Result(Score(sum(told) / len(told)))
    return next(o for o in outcomes if not isinstance(o, Result))


def plan_of(found: Sequence[Duel], referee: Referee, judgings: int) -> Plan:
    """The plan that has every duel judged `judgings` times."""
    systems: dict[str, dict[str, Document | Skip]] = {}
    samples: dict[str, Sample] = {}
    for duel in found:
        if not isinstance(duel.sample, Sample):
            continue
        samples.setdefault(duel.sample.id, duel.sample)
        for judging in range(judgings):
            drawing = referee.drawing(duel, judging)
            name = f"{duel.first} : {duel.second}" + (f" #{drawing}" if drawing else "")
            systems.setdefault(name, {})[duel.sample.id] = _as_document(duel, drawing)
    return Plan(
        systems=[System(name=n, draft=None, answers=a) for n, a in systems.items()],
        samples=list(samples.values()),
        scorers=[referee],
        prompt=as_asked,
    )


def _as_document(duel: Duel, drawing: int) -> Document | Skip:
    if not isinstance(duel.pair, Result):
        return Skip(getattr(duel.pair, "reason", "no pair"))
    first, second = duel.pair.value
    return Versus(first=first, second=second, drawing=drawing)
