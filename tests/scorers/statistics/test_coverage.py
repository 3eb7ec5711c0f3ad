"""How often intervals hold the true mean, wherever one is shown: 0.95 within 0.03."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from plait.scorers.statistics.estimate import LEAST
from plait.scorers.statistics.means import (
    AMOUNT,
    LEAST_OF_TWO,
    UNBOUNDED,
    Stratum,
    of_differences,
    stratified_mean,
)

pytestmark = pytest.mark.slow

SAMPLES = 1000
"""Per case: the standard error of a share near 0.95 is 0.007. A wrong formula shows in many
cases at once."""
NOMINAL, TOLERANCE = 0.95, 0.03
ENOUGH = 200
"""A case that shows fewer intervals than this says nothing about their coverage."""
SHARES = (5005, 11482, 3616)
"""MMIE's queries per category."""
UNIT = (0.0, 1.0)

Population = tuple[Callable[[np.random.Generator, int, int], np.ndarray], Sequence[float]]
"""Values by generator, stratum and n; the true mean of each stratum."""
LEVELS = np.arange(7)
JUDGED = np.array([0.1, 0.1, 0.2, 0.3, 0.2, 0.05, 0.05])


def bernoulli(*shares: float) -> Population:
    return lambda rng, i, n: (rng.random(n) < shares[i]).astype(float), shares


def beta(a: float, b: float) -> Population:
    return lambda rng, i, n: rng.beta(a, b, n), (a / (a + b),) * 3


def levels(*shares: float, of: float = 6) -> Population:
    """0, 1 ... 6 in parts of `of`, as a rubric gives them."""
    values = LEVELS / of
    return lambda rng, i, n: rng.choice(values, n, p=shares), (float(values @ shares),) * 3


def mostly_perfect(share: float) -> Population:
    """1 with this share, else anything below."""

    def draw(rng: np.random.Generator, i: int, n: int) -> np.ndarray:
        return np.where(rng.random(n) < share, 1.0, rng.random(n))

    return draw, ((1 + share) / 2,) * 3


POPULATIONS: dict[str, Population] = {
    "normal": (lambda rng, i, n: rng.normal(i, 1 + i, n), (0, 1, 2)),
    "0-6 even": (lambda rng, i, n: rng.integers(0, 7, n).astype(float), (3, 3, 3)),
    "0-6 judged": levels(*JUDGED, of=1),
    **{f"Bernoulli .{p}": bernoulli(*[p / 10] * 3) for p in (1, 2, 3, 5, 9)},
    "Bernoulli .1 .3 .5": bernoulli(0.1, 0.3, 0.5),
}
SIZES = [(10,), (50,), (500,), (2, 50, 2), (5, 50, 5), (6, 6, 6)]
SIZES += [(25, 50, 25), (25, 25, 500), (50, 50, 50)]
BOUNDED: dict[str, Population] = {
    "even": beta(1, 1),
    "at both ends": beta(0.5, 0.5),
    "near the end": beta(20, 1),
    "nearest the end": beta(20, 0.5),
    "rarely bad": beta(2, 0.2),
    **{f"perfect .{p}": mostly_perfect(p / 100) for p in (50, 80, 95)},
    "judged": levels(*JUDGED),
    "judged high": levels(0, 0, 0.01, 0.04, 0.1, 0.25, 0.6),
    "judged low": levels(0.7, 0.2, 0.05, 0.03, 0.02, 0, 0),
}
PAIRED = ("even", "near the end", "rarely bad", "perfect .80", "judged high")


def coverage(
    population: Population,
    sizes: tuple[int, ...],
    name: str,
    ends: tuple[float, float] = UNBOUNDED,
) -> tuple[float, int]:
    """The share of shown intervals that hold the truth, and how many were shown."""
    draw, means = population
    rng = np.random.default_rng([*name.encode(), *sizes])
    weights = np.array(SHARES[: len(sizes)], dtype=float)
    truth = float(weights @ means[: len(sizes)] / weights.sum())
    held, results = [], {}
    for _ in range(SAMPLES):
        samples = [draw(rng, i, n) for i, n in enumerate(sizes)]
        # Samples of few different values come again and again.
        drawn = b"".join(np.sort(sample).tobytes() for sample in samples)
        if drawn not in results:
            about = zip("abc", weights, samples, strict=False)
            results[drawn] = stratified_mean([Stratum(*stratum) for stratum in about], ends)
        result = results[drawn]
        if result.ci95 is not None:
            assert ends[0] <= result.ci95[0] < result.ci95[1] <= ends[1]
            held.append(result.ci95[0] <= truth <= result.ci95[1])
    return (float(np.mean(held)) if held else float("nan")), len(held)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("population", POPULATIONS)
def test_a_shown_interval_holds_the_true_mean(population, sizes):
    held, shown = coverage(POPULATIONS[population], sizes, population)
    if shown >= ENOUGH:
        assert held == pytest.approx(NOMINAL, abs=TOLERANCE)
    if min(sizes) < LEAST or ("Bernoulli" in population and min(sizes) < LEAST_OF_TWO):
        assert shown == 0, "an interval that the values do not support"
    else:
        assert shown >= SAMPLES / 3, "an interval that the values would support is withheld"


CASES = [(name, (n,)) for name in BOUNDED for n in (5, 8, 12, 25, 100, 300)]
CASES += [
    (name, sizes)
    for name in ("near the end", "perfect .80")
    for sizes in ((8, 50, 8), (25, 25, 500), (50, 50, 50))
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("population", "sizes"), CASES, ids=str)
def test_an_interval_on_a_scale_holds_the_true_mean(population, sizes):
    held, shown = coverage(BOUNDED[population], sizes, population, UNIT)
    # Too wide, for very few values, is no harm.
    if shown >= SAMPLES / 3:
        most = TOLERANCE if sizes[0] > 8 or sizes[1:] else 0.04
        assert NOMINAL - TOLERANCE <= held <= NOMINAL + most


@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", [8, 12, 50, 300])
@pytest.mark.parametrize("population", PAIRED)
def test_an_interval_of_differences_holds_the_true_one(population, n):
    draw, _ = BOUNDED[population]
    both = (lambda rng, i, n: draw(rng, i, n) - draw(rng, i, n)), (0.0,)
    held, shown = coverage(both, (n,), population, of_differences(UNIT))
    if shown >= SAMPLES / 3:
        assert NOMINAL - TOLERANCE <= held <= NOMINAL + (TOLERANCE if n > 12 else 0.04)


@pytest.mark.parametrize("n", [5, 25, 100])
@pytest.mark.parametrize("shape", [1.0, 2.0])
def test_an_interval_of_costs_holds_the_true_mean(shape, n):
    costs = (lambda rng, i, n: rng.gamma(shape, 1.0, n)), (shape,)
    held, shown = coverage(costs, (n,), "costs", AMOUNT)
    assert (held == pytest.approx(NOMINAL, abs=TOLERANCE), shown) == (True, SAMPLES)
