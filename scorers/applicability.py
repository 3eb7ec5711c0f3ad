"""For how many answers of a run its scorers may have a score, before there are any.

Known from the queries and from what the systems' answers may hold: `Scorer.refusal`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from plait.generators.base import StageSpec
from plait.generators.catalogue import Named, by_name
from plait.generators.document import AnswerForm, Query
from plait.scorers import resolve_scorer
from plait.scorers.base import Scorer
from plait.scorers.judging.judge import ChatJudge, RubricJudge

_OTHERS: Mapping[str, Sequence[str]] = {
    "clipscore": ("clipscore-prompt",),
    "geneval2": ("vqascore",),
    "dpg": ("vqascore",),
    "criteria-probability": ("vqascore",),
    "specifications-probability": ("vqascore",),
    "judge": ("criteria", "aspects"),
    "criteria": ("aspects",),
    "specifications": ("criteria", "aspects"),
    "gedit": ("aspects",),
    "imgedit": ("gedit", "aspects"),
    "unison": ("aspects",),
    "isg-block": ("criteria", "aspects"),
    "isg-image": ("criteria", "aspects"),
    "isg-holistic": ("criteria", "aspects"),
}
"""By a scorer's name or prefix: those that judge the same of other data, the nearest first.
A prefix stands for a scorer that asks the same model."""
_MOST_NAMED = 5
_ANY_ANSWER = "aspects:LVLM"
"""The judge that takes any answer to any query."""


class PlannedAnswers(NamedTuple):
    """Answers to one query that may hold the same."""

    query: Query
    form: AnswerForm
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicability:
    """How many answers of a run a scorer can score."""

    scorer: str
    answers: int
    """Answers that the systems may give."""
    refusals: Mapping[str, int]
    """Answers that will have no score, whatever they hold, by the reason."""
    instead: Sequence[str] = ()
    """Scorers that can score answers, where it can score none."""

    @property
    def scorable(self) -> int:
        """Answers that may have a score, which is not known before they are made."""
        return self.answers - sum(self.refusals.values())

    @property
    def counted(self) -> str:
        """How many answers can be scored, and why others cannot."""
        reasons = "; ".join(f"{reason}: {n:,}" for reason, n in self.refusals.items())
        return f"can score {self.scorable:,} of {self.answers:,} answers ({reasons})"

    @property
    def refused(self) -> str:
        """Why it is of no use in the run, and what is; empty where it can score answers."""
        if self.scorable or not self.answers:
            return ""
        return (
            f"{self.scorer} can score none of the {self.answers:,} answers "
            f"({', '.join(self.refusals)}). Use {' or '.join(self.instead)} instead, or "
            "leave it out (with no scorer at all: --set scorers=[])"
        )


def applicability(
    scorers: Iterable[Scorer], planned: Iterable[PlannedAnswers]
) -> list[Applicability]:
    """Return for each scorer how many of the planned answers it can score.

    These are iterated over again where it can score none.
    """
    counters = [_RefusalCounter(scorer) for scorer in scorers]
    answers = 0
    for one in planned:
        answers += one.number
        for counter in counters:
            counter.add(one)
    found = []
    for counter in counters:
        instead: Sequence[str] = ()
        if answers and counter.total == answers:
            instead = _instead(counter.scorer, planned, answers)
        found.append(
            Applicability(
                scorer=counter.scorer.name,
                answers=answers,
                refusals=dict(counter.refusals),
                instead=instead,
            )
        )
    return found


class _RefusalCounter:
    """Counts the planned answers that a scorer cannot score."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.refusals: Counter[str] = Counter()
        """By reason."""

    def add(self, planned: PlannedAnswers) -> None:
        """Count answers to one query."""
        refusal = self.scorer.refusal(planned.query, planned.form)
        if refusal is not None:
            self.refusals[refusal.reason] += planned.number

    @property
    def total(self) -> int:
        """All answers that have no score, for whatever reason."""
        return self.refusals.total()


def _count_refusals(scorer: Scorer, planned: Iterable[PlannedAnswers]) -> int:
    """Return how many of the planned answers a scorer cannot score."""
    counter = _RefusalCounter(scorer)
    for one in planned:
        counter.add(one)
    return counter.total


def _instead(scorer: Scorer, planned: Iterable[PlannedAnswers], answers: int) -> list[str]:
    """Name what can score planned `answers`: the nearest scorer, else those that suit most.

    In place of a judge, and where nothing else is left, the judge that takes any answer.
    """
    rubric = isinstance(scorer, RubricJudge)
    named = [f"{scorer.name} with --rubric FILE for these queries"] if rubric else []
    for other in _others(scorer):
        if _count_refusals(other, planned) < answers:
            return [*named, other.name]
    if isinstance(scorer, ChatJudge):
        return [*named, _ANY_ANSWER]
    refusals: dict[str, int] = {}
    for name in by_name(Named.SCORER):
        # Weights do not matter here: nothing is loaded.
        candidate = resolve_scorer(name, "tiny", {})
        refusals[name] = _count_refusals(candidate, planned)
    fewest = min(refusals.values())
    if fewest >= answers:
        return [_ANY_ANSWER]
    best = [name for name, number in refusals.items() if number == fewest]
    return best[:_MOST_NAMED]


def _others(scorer: Scorer) -> Iterator[Scorer]:
    """Yield the nearest scorers; those that ask a model ask the same."""

    def same_stage(name: str) -> StageSpec:
        return scorer.stage

    prefix, _, model = scorer.name.partition(":")
    own_model = model in by_name(Named.JUDGE)
    # A model that was trained to judge in one form cannot be asked in another.
    for name in () if own_model else _OTHERS.get(prefix, ()):
        whole = name if name in by_name(Named.SCORER) else f"{name}:{model}"
        yield resolve_scorer(whole, "tiny", {}, chat=same_stage, answers=same_stage)


def group_lines(found: Iterable[Applicability]) -> list[str]:
    """Return a line for all scorers that can score the same part of the answers."""
    names: dict[str, list[str]] = defaultdict(list)
    for each in found:
        if each.refusals:
            names[each.counted].append(each.scorer)
    return [f"{', '.join(own)} {counted}" for counted, own in names.items()]
