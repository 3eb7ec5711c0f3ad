"""GenEval 2 (arXiv 2512.16853): Soft-TIFA, the probability of each atom of a prompt.

`official` computes as evaluation.py of facebookresearch/GenEval2@a6e82d2; what that is, and
what `corrected` does instead, stands in benchmarks/tasks/OFFICIAL.md. The published judge
is Qwen/Qwen3-VL-8B-Instruct.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any, ClassVar, Literal, NamedTuple

from plait.generators.base import Outcome, Result
from plait.generators.document import Query, Score
from plait.generators.logprobs import Logprobs
from plait.scorers.base import UNBOUNDED
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.vqa.questions import (
    YES,
    YES_NO,
    ModeSettings,
    Question,
    QuestionScorer,
    forms,
    geometric_mean,
)

ATOMS = "geneval2_atoms"
"""Metadata of a query: `[question, answer, skill]` of each atom, as a JSON list."""
_COUNTING = "How many"
_NUMBERS = (
    *("one", "two", "three", "four", "five"),
    *("six", "seven", "eight", "nine", "ten"),
)
_LONGER = (
    *("fourteen", "sixteen", "sixty", "seventeen", "seventy"),
    *("eighteen", "eighty", "nineteen", "ninety"),
)
"""Numbers whose words begin as one of those does."""
_OTHER = "other"
"""The official numeral of a number beyond ten."""


class GenEval2Settings(ModeSettings):
    """Mode and mean."""

    mean: Literal["geometric", "arithmetic"] = "geometric"
    """Over a prompt's atoms: Soft-TIFA GM, for whole prompts, or AM, for atoms."""


@dataclass(frozen=True, kw_only=True)
class GenEval2Scorer(QuestionScorer):
    """Scores the images of a document by the questions about its prompt, in percent.

    Both means stand among the parts, and as criteria the mean of each skill's atoms.
    """

    settings_of = GenEval2Settings
    about = "0-100; percent of a prompt's atoms (GM; AM beside it); higher is better"
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "probability", "0-1", "criterion"),
        PartScale("arithmetic", "percent", "0-100"),
        PartScale("geometric", "percent", "0-100"),
        PartScale("atoms/*/*", "probability", "0-1"),
    )
    options: GenEval2Settings

    @classmethod
    def scale_of(cls, options: Any) -> str:
        """Return 0-100; a first token that counts twice may exceed it."""
        return UNBOUNDED if options.mode == "official" else "0-100"

    @property
    def manner(self) -> str:
        """Which mean, and which mode."""
        mean = "GM" if self.options.mean == "geometric" else "AM"
        return f"Soft-TIFA {mean} in percent, {self.options.mode} mode"

    def questions(self, query: Query) -> Sequence[Question]:
        """Ask about each atom, in one word."""
        questions: list[Question] = []
        for atom in _atoms(query):
            text = f"{atom.question} Answer in one word."
            questions.append(Question(text, answers_to_read(atom.question, atom.answer)))
        return questions

    def score(self, query: Query, images: Sequence[Sequence[Logprobs]]) -> Outcome[Score]:
        """Return the mean over the images of the mean over the atoms."""
        official = self.options.mode == "official"
        probability = official_probability if official else corrected_probability
        # Of each image: the value of each atom.
        values: list[list[float]] = []
        by_skill: dict[str, list[float]] = {}
        for records in images:
            values.append([])
            for atom, record in zip(_atoms(query), records, strict=True):
                value = probability(atom.question, atom.answer, record)
                values[-1].append(value)
                by_skill.setdefault(atom.skill, []).append(value)
        means = {
            "arithmetic": 100 * fmean([fmean(own) for own in values]),
            "geometric": 100 * fmean([geometric_mean(own) for own in values]),
        }
        skills = {skill: fmean(own) for skill, own in by_skill.items()}
        parts = {**means, "criteria": skills, "atoms": values}
        return Result(Score(means[self.options.mean], parts))


def answers_to_read(question: str, answer: str) -> tuple[str, ...]:
    """Return the answers whose probabilities either mode reads."""
    if not question.startswith(_COUNTING):
        return tuple(dict.fromkeys((*YES_NO, *forms(answer))))
    own = (*forms(answer), *official_answers(question, answer), *_longer(answer))
    return tuple(dict.fromkeys(own))


def official_answers(question: str, answer: str) -> tuple[str, ...]:
    """Return the released program's right answers: yes, or the number in six forms."""
    if not question.startswith(_COUNTING):
        return YES
    words = (answer, answer.capitalize())
    number = _numeral(answer) or _OTHER
    return (*words, *(f" {word}" for word in words), number, f" {number}")


def official_probability(question: str, answer: str, record: Logprobs) -> float:
    """Return the sum of the first tokens' probabilities, each as often as it is listed."""
    return record.first_tokens(official_answers(question, answer))


def corrected_probability(question: str, answer: str, record: Logprobs) -> float:
    """Return the probability that the reply begins with the answer of the data.

    A number that only begins like it (`10`, `seventeen`) is another answer.
    """
    if not question.startswith(_COUNTING):
        return record.probability(forms(answer))
    number = _numeral(answer)
    digits = forms(number) if number else ()
    return record.probability((*forms(answer), *digits), _longer(answer))


def _longer(answer: str) -> tuple[str, ...]:
    """Return how a reply may begin with a number that only begins like `answer`."""
    longer = [word for word in _LONGER if word.startswith(answer)]
    if number := _numeral(answer):
        longer += [f"{number}{digit}" for digit in range(10)]
    return tuple(chain.from_iterable(map(forms, longer)))


def _numeral(word: str) -> str | None:
    """Return a number up to ten in digits; None for another word."""
    return str(_NUMBERS.index(word) + 1) if word in _NUMBERS else None


class _Atom(NamedTuple):
    """What a prompt says about one thing, as a question."""

    question: str
    answer: str
    """`Yes`, or a number in words where the question asks how many."""
    skill: str


def _atoms(query: Query) -> list[_Atom]:
    return [_Atom(*atom) for atom in json.loads(query.metadata.get(ATOMS, "[]"))]
