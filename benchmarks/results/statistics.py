"""Means over queries with bootstrap intervals, for many series at a time.

The query is the unit that is drawn again: values of one query (repeats, systems) stay
together. Every query has its own stream of Poisson(1) weights, named by its key, so an
interval depends on nothing but the scored queries of its own series: not on their order,
not on other systems, not on queries that failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

DRAWS = 2000
CONFIDENCE = 0.95
LEAST_FREEDOM = 4.0
"""With fewer degrees of freedom (a mean of under 5 values) no interval is given: the
whole range of 4 values holds the centre of their population in only 7 of 8 cases, and no
resampling reaches beyond that range."""
_CHUNK = 1024
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval, or the reason why there is none."""

    mean: float | None
    ci95: tuple[float, float] | None
    n: int
    """Queries that have a value."""
    reason: str = ""
    """Why the mean or the interval is missing."""

    def as_json(self) -> dict[str, Any]:
        """Rounded so that the last bits of a sum are not written."""
        rounded = self.ci95 and [round(end, _DECIMALS) for end in self.ci95]
        mean = None if self.mean is None else round(self.mean, _DECIMALS)
        found: dict[str, Any] = {"mean": mean, "ci95": rounded, "n": self.n}
        return found | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, slots=True)
class Draws:
    """Sums over one set of queries, as observed and drawn again; sets are added by `+`."""

    n: npt.NDArray[np.int64]
    """(series,) queries with a value."""
    total: Floats
    """(series,) sum of the values."""
    sums: Floats
    """(draws, series) weighted sum of the values."""
    weights: Floats
    """(draws, series) sum of the weights of the queries with a value."""

    def __add__(self, other: Draws) -> Draws:
        return Draws(
            self.n + other.n,
            self.total + other.total,
            self.sums + other.sums,
            self.weights + other.weights,
        )

    def pick(self, series: slice) -> Draws:
        """Some of the series."""
        kept = self.sums[:, series].copy(), self.weights[:, series].copy()
        return Draws(self.n[series], self.total[series], *kept)

    @property
    def means(self) -> Floats:
        """(draws, series); NaN in a draw that took no query of the series."""
        with np.errstate(invalid="ignore"):
            return self.sums / np.where(self.weights > 0, self.weights, np.nan)


def resample(
    keys: Sequence[str], values: Floats, *, draws: int = DRAWS, seed: int = 0
) -> Draws:
    """Draw the queries `keys` again; `values` is (queries, series), NaN for no value.

    The Poisson bootstrap (Hanley & MacGibbon 2006; Chamandy et al. 2012): weights are
    independent instead of multinomial, and their sum divides. In series of few values
    the random sum also widens the interval by about sqrt(n / (n - 1)), which a
    multinomial bootstrap lacks.
    """
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    both = np.hstack([filled, known.astype(np.float64)])
    drawn = np.zeros((draws, both.shape[1]))
    for start in range(0, len(keys), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        weights = np.stack([_stream(key, draws, seed) for key in keys[chunk]])
        drawn += weights.T @ both[chunk]
    series = values.shape[1]
    return Draws(known.sum(0), filled.sum(0), drawn[:, :series], drawn[:, series:])


def _stream(key: str, draws: int, seed: int) -> Floats:
    """The weights of one query in all draws."""
    digest = hashlib.sha256(f"{seed}\n{key}".encode(errors="surrogatepass")).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
    return generator.poisson(1.0, draws).astype(np.float64)


def combined(sets: Iterable[Draws]) -> Draws:
    """The union of disjoint sets of queries."""
    return reduce(Draws.__add__, sets)


def estimates(draws: Draws) -> list[Estimate]:
    """The mean of each series over all its queries."""
    return stratified([(1.0, draws)])


def stratified(strata: Sequence[tuple[float, Draws]]) -> list[Estimate]:
    """Per series, the mean of the strata's means under fixed weights.

    Queries are drawn again within each stratum. Undefined where a stratum has no value.
    """
    return [_estimate(strata, i) for i in range(len(strata[0][1].n))]


def _estimate(strata: Sequence[tuple[float, Draws]], series: int) -> Estimate:
    counts = np.array([d.n[series] for _, d in strata])
    n = int(counts.sum())
    if not counts.all():
        return Estimate(None, None, n, "no scored query")
    shares = np.array([weight for weight, _ in strata], dtype=np.float64)
    shares /= shares.sum()
    observed = np.array([d.total[series] for _, d in strata]) / counts
    mean = float(shares @ observed)
    one = slice(series, series + 1)
    parts = shares[:, None] * np.stack([d.pick(one).means[:, 0] for _, d in strata])
    freedom = _freedom(parts, counts)
    if freedom < LEAST_FREEDOM:
        return Estimate(mean, None, n, "too few scored queries for an interval")
    drawn = parts.sum(0)
    tail = float(special.ndtr(special.stdtrit(freedom, (1 - CONFIDENCE) / 2)))
    low, high = np.quantile(drawn[~np.isnan(drawn)], [tail, 1 - tail])
    return Estimate(mean, (float(low), float(high)), n)


def _freedom(parts: Floats, counts: npt.NDArray[np.int64]) -> float:
    """Welch-Satterthwaite degrees of freedom; n - 1 for a single stratum.

    Percentiles at the level of Student's t instead of the normal's correct the
    bootstrap's short tails in small samples (Hesterberg 2015, The American Statistician
    69:4).
    """
    if counts.min() < 2:
        return 0.0
    variances = np.nanvar(parts, axis=1)
    if not variances.any():
        return float((counts - 1).sum())
    return float(variances.sum() ** 2 / (variances**2 / (counts - 1)).sum())
