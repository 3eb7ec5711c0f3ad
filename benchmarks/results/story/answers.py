"""The answers of a run with their scores, and the pairs that scorers order differently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from benchmarks.results.board import Board, score_value
from benchmarks.tasks.controls import TRUTH as GROUND_TRUTH
from benchmarks.tasks.controls import is_control
from cluster.plan import Evaluation
from generators.base import Result
from generators.document import Document, Sample, Score
from generators.errors import UsageError
from scorers.base import Scorer, bounds

CLIP, JUDGE = "clipscore", "judge:"
TRUTHS = ("truth:answer", "truth:match")
"""Scorers that know the truth, the first of them that a run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryScorers:
    """The three scorers that the story sets beside each other."""

    truth: Scorer
    clip: Scorer | None
    judge: Scorer | None

    @classmethod
    def of(cls, board: Board) -> StoryScorers:
        """Those of a run; UsageError where none of them knows the truth."""
        named = {s.name: s for s in board.scorers}
        truths = [named[name] for name in TRUTHS if name in named]
        if not truths:
            raise UsageError(
                "the story is about a run whose truth is known: score it with "
                f"--scorer {TRUTHS[0]} first (plait run --data miniature does)"
            )
        judges = [s for name, s in named.items() if name.startswith(JUDGE)]
        judge = judges[0] if judges else None
        return cls(truth=truths[0], clip=named.get(CLIP), judge=judge)

    @property
    def all(self) -> list[Scorer]:
        """Those that are there."""
        return [s for s in (self.truth, self.clip, self.judge) if s is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryAnswer:
    """One answer that is there, with its scores."""

    system: str
    sample: Sample
    document: Document
    scores: Mapping[str, Score]
    """By scorer; without those that gave no score."""

    def mark(self, scorer: Scorer | None) -> float | None:
        """A score as a share of its scale; the score itself where the scale has no ends."""
        if scorer is None or scorer.name not in self.scores:
            return None
        value, ends = self.scores[scorer.name].value, bounds(scorer.scale)
        return value if ends is None else (value - ends[0]) / (ends[1] - ends[0])


def story_answers(board: Board, scorers: StoryScorers) -> list[StoryAnswer]:
    """The first answers of systems, and the ground truth, that truth has scored."""
    answers = [_answer(e) for e in board.evaluations if not e.repeat]
    return [a for a in answers if a is not None and a.mark(scorers.truth) is not None]


def _answer(evaluation: Evaluation) -> StoryAnswer | None:
    document, sample = evaluation.document, evaluation.sample
    if not isinstance(document, Result) or not isinstance(sample, Sample):
        return None
    if is_control(evaluation.system):
        return None
    scored = {
        name: outcome.value
        for name, outcome in evaluation.scores.items()
        if isinstance(outcome, Result) and score_value(outcome) is not None
    }
    return StoryAnswer(
        system=evaluation.system, sample=sample, document=document.value, scores=scored
    )


def written(answers: Iterable[StoryAnswer]) -> list[StoryAnswer]:
    """Those of systems, without the ground truth."""
    return [a for a in answers if a.system != GROUND_TRUTH]


@dataclass(frozen=True, slots=True)
class WrongOrder:
    """Two answers to one query that a scorer puts in the wrong order."""

    better: StoryAnswer
    """By truth."""
    preferred: StoryAnswer
    """By the scorer."""


def wrong_order(
    answers: Sequence[StoryAnswer], truth: Scorer, other: Scorer
) -> WrongOrder | None:
    """The pair that truth sets furthest apart and `other` in the opposite order."""
    pairs = list(_wrong_orders(answers, truth, other))
    return max(pairs, key=lambda pair: pair[0])[1] if pairs else None


def _wrong_orders(
    answers: Sequence[StoryAnswer], truth: Scorer, other: Scorer
) -> Iterator[tuple[float, WrongOrder]]:
    by_query: dict[str, list[StoryAnswer]] = {}
    for answer in answers:
        by_query.setdefault(answer.sample.id, []).append(answer)
    for group in by_query.values():
        for a, b in permutations(group, 2):
            apart, against = _gap(a, b, truth), _gap(b, a, other)
            if apart is not None and against is not None and apart > 0 and against > 0:
                yield apart, WrongOrder(a, b)


def _gap(a: StoryAnswer, b: StoryAnswer, scorer: Scorer) -> float | None:
    first, second = a.mark(scorer), b.mark(scorer)
    return None if first is None or second is None else first - second


def most_different(
    answers: Sequence[StoryAnswer], truth: Scorer, other: Scorer
) -> StoryAnswer | None:
    """The answer on whose share of the scale the two scorers differ most."""
    gaps = [(_difference(a, truth, other), a) for a in answers]
    known = [(gap, a) for gap, a in gaps if gap is not None]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _difference(answer: StoryAnswer, truth: Scorer, other: Scorer) -> float | None:
    a, b = answer.mark(truth), answer.mark(other)
    return None if a is None or b is None else abs(a - b)


def best(answers: Sequence[StoryAnswer], scorers: StoryScorers) -> StoryAnswer:
    """The answer with pictures that truth puts highest; of equal ones the longest."""
    shown = [a for a in answers if a.document.images] or list(answers)

    def rank(answer: StoryAnswer) -> tuple[float, int, float]:
        length = len(answer.document.images)
        return answer.mark(scorers.truth) or 0.0, length, answer.mark(scorers.judge) or 0.0

    return max(shown, key=rank)


def worse(
    answers: Sequence[StoryAnswer], than: StoryAnswer, scorers: StoryScorers
) -> StoryAnswer | None:
    """An answer with pictures that truth puts lower, to the same query where there is one.

    Of several the one that has most right: a small mistake shows best what truth sees.
    """
    level = than.mark(scorers.truth) or 0.0
    marked = [(a.mark(scorers.truth) or 0.0, a) for a in answers if a.document.images]
    lower = [(mark, a) for mark, a in marked if mark < level]
    same = [pair for pair in lower if pair[1].sample.id == than.sample.id]
    return max(same or lower, key=lambda pair: pair[0])[1] if lower else None
