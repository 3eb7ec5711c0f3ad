"""The share of answers that people would say yes to, from a judge that says yes or no.

    rogan_gladen([RatedAnswers(queries, judged, rated)])       # both 0 or 1, NaN unrated

A judge with sensitivity se (its yes, of what people say yes to) and specificity sp (its
no, of what people say no to) says yes to p = se * share + (1 - sp) * (1 - share) of all
answers, which gives the share (Rogan and Gladen 1978, American Journal of Epidemiology
107:1):

    share = (p + sp - 1) / (se + sp - 1)

All three are measured in the run: p of all answers, se and sp of the random sample that
was rated. The variance is the delta method's, of influences added up by query as in
`corrected`, whose estimate of the same share is mostly narrower and never undefined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from plait.scorers.statistics.corrected import NO_ANSWER, RatedAnswers
from plait.scorers.statistics.estimate import LEAST, Estimate, Floats
from plait.scorers.statistics.means import SHARE, score_interval

METHOD = "Rogan-Gladen, delta method"
_BY_RATING = {"sensitivity": 1.0, "specificity": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoganGladen:
    """The share of yes among all answers, and what it is made of; all from 0 to 1."""

    judged: float | None
    """The share of answers that the judge says yes to."""
    sensitivity: Estimate
    specificity: Estimate
    share: Estimate
    """Of answers that people would say yes to; None where it is undefined."""


class _Rate(NamedTuple):
    """A share of answers, and what each query adds to its deviation."""

    value: float
    influences: Floats
    """(queries,)"""
    queries: int
    """That have an answer among these."""

    @property
    def variance(self) -> float:
        """Of the share, by query."""
        # Deviations from a mean of their own are too small on average, by (n - 1) / n.
        larger = self.queries / (self.queries - 1) if self.queries > 1 else 1.0
        return larger * float(self.influences @ self.influences)

    @property
    def freedom(self) -> int:
        """The degrees of freedom of the variance."""
        return max(1, self.queries - 1)


class _Answers(NamedTuple):
    """All answers, of all strata."""

    judged: Floats
    rated: Floats
    weights: Floats
    """Answers that each rated one stands for."""
    places: np.ndarray[tuple[int], np.dtype[np.intp]]
    """The row of each answer's query."""


def rogan_gladen(strata: Sequence[RatedAnswers]) -> RoganGladen:
    """Return the share and its parts; each stratum weighs as many answers as it has.

    Undefined, with the reason, where too few are rated yes or no, where sensitivity and
    specificity add up to 1 or less, or are not shown to add up to more (the delta method
    divides by what they exceed it by), and where the share would be below 0 or above 1.
    """
    answers = _join(strata)
    none = Estimate(None, None, 0, NO_ANSWER)
    if not len(answers.judged):
        return RoganGladen(judged=None, sensitivity=none, specificity=none, share=none)
    everything = _rate(answers, np.ones_like(answers.judged), answers.judged)
    rates: dict[str, _Rate] = {}
    estimates: dict[str, Estimate] = {}
    for name, rating in _BY_RATING.items():
        chosen = answers.rated == rating
        if not chosen.any():
            word = "yes" if rating else "no"
            estimates[name] = Estimate(None, None, 0, f"no answer is rated {word}")
            continue
        rate = _rate(answers, chosen * answers.weights, answers.judged == rating)
        rates[name] = rate
        estimates[name] = _estimate(rate)
    share = _share(everything, rates, int((~np.isnan(answers.rated)).sum()))
    return RoganGladen(judged=everything.value, share=share, **estimates)


def _join(strata: Sequence[RatedAnswers]) -> _Answers:
    names: list[str] = []
    for stratum in strata:
        names += stratum.queries
    weights = [np.zeros(0)]
    for stratum in strata:
        rated = stratum.is_rated
        # Strata are rated at rates of their own: se and sp are to be those of all answers.
        each = len(rated) / rated.sum() if rated.any() else 0.0
        weights.append(np.where(rated, each, 0.0))
    return _Answers(
        judged=np.concatenate([np.zeros(0), *(s.judged for s in strata)]),
        rated=np.concatenate([np.zeros(0), *(s.rated for s in strata)]),
        weights=np.concatenate(weights),
        places=np.unique(names, return_inverse=True)[1].reshape(-1),
    )


def _rate(answers: _Answers, weights: Floats, hits: Floats) -> _Rate:
    total = float(weights.sum())
    value = float(weights @ hits) / total
    influences = np.zeros(1 + int(answers.places.max()))
    np.add.at(influences, answers.places, weights * (hits - value) / total)
    queries = len(np.unique(answers.places[weights > 0]))
    return _Rate(value, influences, queries)


def _estimate(rate: _Rate) -> Estimate:
    n = rate.queries
    if n < LEAST:
        return Estimate(rate.value, None, n, f"too few queries (n={n}, fewer than {LEAST})")
    if not 0 < rate.value < 1:
        return Estimate(rate.value, None, n, f"all are equal (n={n})")
    ends = score_interval(rate.value, rate.variance, rate.freedom, SHARE)
    return Estimate(rate.value, ends, n, "", "Wilson score by query")


def _share(everything: _Rate, rates: dict[str, _Rate], rated: int) -> Estimate:
    for name, rating in _BY_RATING.items():
        n = rates[name].queries if name in rates else 0
        if n < LEAST:
            word = "yes" if rating else "no"
            reason = f"too few rated {word} (queries: {n}, fewer than {LEAST})"
            return Estimate(None, None, rated, reason)
    right = rates["sensitivity"]
    wrong = rates["specificity"]
    told = f"{right.value:.3f} + {wrong.value:.3f}"
    informed = right.value + wrong.value - 1
    if informed <= 0:
        reason = f"undefined: sensitivity + specificity <= 1 ({told})"
        return Estimate(None, None, rated, reason)
    error = math.sqrt(_squares(right.influences + wrong.influences))
    if informed < 2 * error:
        reason = f"sensitivity + specificity is not shown to exceed 1 ({told})"
        return Estimate(None, None, rated, reason)
    value = (everything.value + wrong.value - 1) / informed
    if not 0 < value < 1:
        reason = f"the share of yes would be {value:.3f}, which is not between 0 and 1"
        return Estimate(None, None, rated, reason)
    # The derivatives of the share are these over `informed`.
    parts = {
        "judged": (1.0, everything),
        "specificity": (1 - value, wrong),
        "sensitivity": (-value, right),
    }
    influences = np.zeros_like(everything.influences)
    variance = 0.0
    uncertainty = 0.0
    for factor, rate in parts.values():
        influences += factor * rate.influences
        part = factor**2 * rate.variance
        variance += part
        uncertainty += part**2 / rate.freedom
    if not variance > 0:
        return Estimate(value, None, rated, "nothing varies: no interval")
    freedom = variance**2 / uncertainty
    # As much larger as the parts are for being deviations from their own means.
    plain = sum(f**2 * _squares(rate.influences) for f, rate in parts.values())
    whole = _squares(influences) * variance / plain / informed**2
    ends = score_interval(value, whole, freedom, SHARE)
    return Estimate(value, ends, rated, "", METHOD)


def _squares(influences: Floats) -> float:
    return float(influences @ influences)
