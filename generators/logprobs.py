"""The probabilities that a model gives to answers, and what is read off them.

Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """The tokens of one answer, and how likely each is."""

    tokens: tuple[int, ...]
    """Their ids in the model's vocabulary."""
    logprobs: tuple[float, ...]
    """Of each the natural logarithm of its probability after the tokens before it."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """How likely a model's reply begins with each of the answers that were asked for."""

    answers: Mapping[str, AnswerTokens]
    """By answer, in the order in which they were asked for; never empty."""

    @property
    def value(self) -> float:
        """The geometric mean of the probabilities of the first answer's tokens, 0 to 1."""
        return self.geometric_mean(next(iter(self.answers)))

    def geometric_mean(self, answer: str) -> float:
        """Return the geometric mean of the probabilities of an answer's tokens."""
        logprobs = self.answers[answer].logprobs
        return math.exp(sum(logprobs) / len(logprobs))

    def first_tokens(self, answers: Sequence[str]) -> float:
        """Return the sum over `answers` of the probability of the first token of each.

        A token with which two of them begin counts twice, so that 1 may be exceeded.
        """
        return sum(math.exp(self.answers[answer].logprobs[0]) for answer in answers)

    def probability(self, answers: Sequence[str], longer: Sequence[str] = ()) -> float:
        """Return the probability that the reply begins with one of `answers`.

        Not counted is where it goes on as one of `longer`: with `10` where `1` is right.
        """
        right = self._beginnings(answers)
        # One of `longer` that continues none of the answers is in none of their replies.
        within = []
        for ids, probability in self._beginnings(longer).items():
            if _continues(ids, right):
                within.append(probability)
        # Rounding may leave less than nothing where all of an answer's replies go on.
        return max(0.0, sum(right.values()) - sum(within))

    def _beginnings(self, answers: Sequence[str]) -> dict[tuple[int, ...], float]:
        """Return the probability of each answer, by its tokens, that continues no other.

        Two answers may have the same tokens, and a reply that begins with `Yes.` begins
        with `Yes` too: each such reply is to count once.
        """
        logprobs_of = {}
        for answer in answers:
            asked = self.answers[answer]
            logprobs_of[asked.tokens] = asked.logprobs
        beginnings = {}
        for ids, logprobs in logprobs_of.items():
            if not _continues(ids, logprobs_of):
                # The probability of tokens in turn is the product of theirs.
                beginnings[ids] = math.exp(sum(logprobs))
        return beginnings


def _continues(ids: tuple[int, ...], shorter: Container[tuple[int, ...]]) -> bool:
    """Return whether tokens begin with fewer ones that are in `shorter`."""
    return any(ids[:n] in shorter for n in range(len(ids)))
