"""How often intervals hold the true mean, wherever one is shown: 0.95 within 0.03."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from scorers.statistics.estimate import LEAST
from scorers.statistics.means import LEAST_OF_TWO, Stratum, stratified

pytestmark = pytest.mark.slow

SAMPLES = 4000
"""Per case: the standard error of a share near 0.95 is 0.0034."""
NOMINAL, TOLERANCE = 0.95, 0.03
ENOUGH = 400
"""A case that shows fewer intervals than this says nothing about their coverage."""
SHARES = (5005, 11482, 3616)
"""MMIE's queries per category."""

Draw = Callable[[np.random.Generator, int, int], np.ndarray]
"""(generator, stratum, n) -> values."""
LEVELS = np.arange(7)
JUDGED = np.array([0.1, 0.1, 0.2, 0.3, 0.2, 0.05, 0.05])


def bernoulli(*shares: float) -> tuple[Draw, Sequence[float]]:
    return lambda rng, i, n: (rng.random(n) < shares[i]).astype(float), shares


POPULATIONS: dict[str, tuple[Draw, Sequence[float]]] = {
    "normal": (lambda rng, i, n: rng.normal(i, 1 + i, n), (0, 1, 2)),
    "0-6 even": (lambda rng, i, n: rng.integers(0, 7, n).astype(float), (3, 3, 3)),
    "0-6 judged": (
        lambda rng, i, n: rng.choice(7, n, p=JUDGED).astype(float),
        (float(JUDGED @ LEVELS),) * 3,
    ),
    **{f"Bernoulli .{p}": bernoulli(*[p / 10] * 3) for p in range(1, 10)},
    "Bernoulli .1 .3 .5": bernoulli(0.1, 0.3, 0.5),
}
SIZES = [(10,), (50,), (500,)]
THIN = [(2, 50, 2), (50, 2, 2), (5, 50, 5), (50, 5, 5), (6, 6, 6), (10, 50, 10)]
THIN += [(25, 50, 25), (50, 25, 25), (25, 25, 500), (50, 50, 50)]


def coverage(population: str, sizes: tuple[int, ...]) -> tuple[float, int]:
    """The share of shown intervals that hold the truth, and how many were shown."""
    draw, means = POPULATIONS[population]
    rng = np.random.default_rng([*population.encode(), *sizes])
    weights = np.array(SHARES[: len(sizes)], dtype=float)
    truth = float(weights @ means[: len(sizes)] / weights.sum())
    held, results = [], {}
    for _ in range(SAMPLES):
        samples = [draw(rng, i, n) for i, n in enumerate(sizes)]
        # Samples of few different values come again and again.
        drawn = b"".join(np.sort(sample).tobytes() for sample in samples)
        if drawn not in results:
            about = zip("abc", weights, samples, strict=False)
            results[drawn] = stratified([Stratum(*stratum) for stratum in about])
        result = results[drawn]
        if result.ci95 is not None:
            held.append(result.ci95[0] <= truth <= result.ci95[1])
    return (float(np.mean(held)) if held else float("nan")), len(held)


@pytest.mark.parametrize("sizes", [*SIZES, *THIN], ids=str)
@pytest.mark.parametrize("population", POPULATIONS)
def test_a_shown_interval_holds_the_true_mean(population, sizes):
    held, shown = coverage(population, sizes)
    if shown >= ENOUGH:
        assert held == pytest.approx(NOMINAL, abs=TOLERANCE)
    if min(sizes) < LEAST or ("Bernoulli" in population and min(sizes) < LEAST_OF_TWO):
        assert shown == 0, "an interval that the values do not support"
    else:
        assert shown >= SAMPLES / 3, "an interval that the values would support is withheld"
