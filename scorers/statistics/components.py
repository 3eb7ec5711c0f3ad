"""Where the variance of scores comes from: crossed random effects by the method of moments.

    found = variance_components(values, factors, terms, fixed="system")
    found.variances["judge"], found.intervals["judge"]

A score is the mean of its system plus an effect of every term that it belongs to: of its
query, of its judge, of the two together, and so on; what is left is the residual. For the
quadratic forms `|Z_i' Q y|^2` of each term, Q taking the systems' means off, the expected
values are linear in the variances; the estimates solve these equations, for any design,
with scores missing wherever they are (MINQUE with all weight on the residual: Rao 1971,
Journal of Multivariate Analysis 1:445; Searle, Casella and McCulloch 1992, chapter 11).
Where the design is whole they are those of the analysis of variance, which restricted
maximum likelihood gives too as long as none is below 0. An estimate may be below 0 where
the true variance is near it; it then counts as 0.

Intervals are percentiles of a parametric bootstrap: scores drawn anew from normal effects
of these variances on the same design. Few judges leave the variance between them wide open,
and the intervals say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plait.scorers.statistics.estimate import CONFIDENCE, Floats

RESIDUAL = "residual"
DRAWS = 400
_SEED = 0

Codes = npt.NDArray[np.int64]
"""(n,) the group of each score, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceComponents:
    """The variance of each term, and of the residual."""

    variances: Mapping[str, float]
    """By term, as estimated: below 0 where chance has it so."""
    intervals: Mapping[str, tuple[float, float]]
    """By term, 95%, from 0."""
    groups: Mapping[str, int]
    """By term, how many effects there are; of the residual, how many scores."""
    unidentified: Mapping[str, str]
    """By term that cannot be told from another one, why."""
    draws: Mapping[str, Floats]
    """By term, (draws,) estimates of the bootstrap."""

    def variance(self, *terms: str) -> float:
        """Return the sum of some terms' variances, those below 0 and unknown ones as 0."""
        return sum(max(0.0, self.variances.get(term, 0.0)) for term in terms)

    def freedom(self, weights: Mapping[str, float]) -> float:
        """Return the degrees of freedom of a weighted sum of variances.

        Satterthwaite's: twice its square over its variance, which is that of the bootstrap.
        """
        value = sum(weight * self.variance(term) for term, weight in weights.items())
        drawn = []
        for term, weight in weights.items():
            if term in self.draws:
                drawn.append(weight * np.maximum(self.draws[term], 0.0))
        if not drawn or not value:
            return np.inf
        spread = float(np.sum(drawn, axis=0).var(ddof=1))
        return 2 * value**2 / spread if spread > 0 else np.inf


def variance_components(
    values: Floats,
    factors: Mapping[str, Sequence[Any]],
    terms: Mapping[str, Sequence[str]],
    fixed: str,
    *,
    draws: int = DRAWS,
) -> VarianceComponents:
    """Return the variance of each term of a design.

    `values` are (n,) scores and `factors` what each is of, (n,) by name; a term is one or
    several factors whose combinations have an effect each. `fixed` is the factor whose
    means are taken off. A term whose factors have a single level each, or one that groups
    the scores as another term or as the residual does, is not identified.
    """
    codes = {name: _codes([column]) for name, column in factors.items()}
    known: dict[str, Codes] = {}
    unidentified: dict[str, str] = {}
    for term, names in terms.items():
        # A wording is one of a judge, also where there is a single judge.
        several = [codes[name] for name in names if codes[name].max(initial=0) > 0]
        grouped = _codes(several)
        twins = [name for name, own in known.items() if _same(own, grouped)]
        if not several:
            unidentified[term] = f"there is one {names[-1]} only"
        elif grouped.max() + 1 == len(values):
            unidentified[term] = "no two scores share it: it is part of the residual"
        elif _same(grouped, codes[fixed]):
            unidentified[term] = f"it cannot be told from the means by {fixed}"
        elif twins:
            unidentified[term] = f"it cannot be told from {twins[0]}"
        else:
            known[term] = grouped
    design = _Design(known, codes[fixed])
    estimates = design.estimate(values)
    names = [*known, RESIDUAL]
    samples = design.draw(np.maximum(estimates, 0.0), draws)
    tails = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    intervals = {}
    for name, column in zip(names, samples.T, strict=True):
        low, high = np.quantile(np.maximum(column, 0.0), tails)
        intervals[name] = float(low), float(high)
    groups = {name: int(own.max()) + 1 for name, own in known.items()}
    return VarianceComponents(
        variances=dict(zip(names, estimates.tolist(), strict=True)),
        intervals=intervals,
        groups=groups | {RESIDUAL: len(values)},
        unidentified=unidentified,
        draws=dict(zip(names, samples.T, strict=True)),
    )


def _codes(columns: Iterable[Iterable[Any]]) -> Codes:
    """Return the number of the combination that each place has in some columns."""
    numbers: dict[tuple[Any, ...], int] = {}
    codes = []
    for combination in zip(*columns, strict=True):
        # Numbered as they come, so that two groupings that are the same have equal codes.
        codes.append(numbers.setdefault(combination, len(numbers)))
    return np.array(codes, dtype=np.int64)


def _same(one: Codes, other: Codes) -> bool:
    """Return whether two groupings, both numbered as they come, are the same."""
    return bool(np.array_equal(one, other))


class _Design:
    """The groups of the terms, and the equations that the variances solve."""

    def __init__(self, terms: Mapping[str, Codes], fixed: Codes) -> None:
        self.terms = [*terms.values()]
        self.fixed = fixed
        self.sizes = np.bincount(fixed).astype(np.float64)
        self.n = len(fixed)
        self.equations = self._equations()

    def _equations(self) -> Floats:
        """Return (k + 1, k + 1) what each variance adds to each quadratic form."""
        size = len(self.terms) + 1
        found = np.empty((size, size))
        for i, own in enumerate(self.terms):
            for j, other in enumerate(self.terms[: i + 1]):
                found[i, j] = found[j, i] = self._overlap(own, other)
            # trace(Z' Q Z), which the residual adds to the form of a term and back.
            found[i, -1] = found[-1, i] = self.n - self._within(own)
        found[-1, -1] = self.n - len(self.sizes)
        return found

    def _within(self, codes: Codes) -> float:
        """Return the sum over systems and groups of count^2 / size of the system."""
        counts = self._counts(codes, self.fixed)
        return float((counts.power(2) / self.sizes).sum())

    def _counts(self, rows: Codes, columns: Codes) -> Any:
        """Return how many scores are of each group of both, as a sparse matrix."""
        from scipy.sparse import coo_array

        ones = np.ones(self.n)
        return coo_array((ones, (rows, columns))).tocsr()

    def _overlap(self, own: Codes, other: Codes) -> float:
        """Return the squared norm of Z_i' Q Z_j."""
        shared = self._counts(own, other)
        left = self._counts(own, self.fixed) / self.sizes
        right = self._counts(other, self.fixed)
        cross = (shared @ right).multiply(left).sum()
        squares = (left.T @ left).multiply(right.T @ right).sum()
        return float(shared.power(2).sum() - 2 * cross + squares)

    def estimate(self, values: Floats) -> Floats:
        """Return (k + 1,) variances that give the quadratic forms of (n,) values."""
        residuals = self.centre(values)
        forms = [float((np.bincount(own, residuals) ** 2).sum()) for own in self.terms]
        forms.append(float(residuals @ residuals))
        solved: Floats = np.linalg.lstsq(self.equations, np.array(forms), rcond=None)[0]
        return solved

    def centre(self, values: Floats) -> Floats:
        """Return values less the mean of their system."""
        means = np.bincount(self.fixed, values) / self.sizes
        centred: Floats = values - means[self.fixed]
        return centred

    def draw(self, variances: Floats, draws: int) -> Floats:
        """Return (draws, k + 1) estimates of scores drawn with these variances."""
        generator = np.random.default_rng(_SEED)
        found = np.empty((draws, len(variances)))
        for i in range(draws):
            values = variances[-1] ** 0.5 * generator.standard_normal(self.n)
            for own, variance in zip(self.terms, variances[:-1], strict=True):
                effects = generator.standard_normal(int(own.max()) + 1)
                values += variance**0.5 * effects[own]
            found[i] = self.estimate(values)
        return found
