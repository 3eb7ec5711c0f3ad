"""Figures of whole sets of images, from the vectors of each query's images."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from plait.generators.document import Embedding
from plait.generators.extras import require_extra
from plait.scorers.embeddings.records import vectors
from plait.scorers.statistics.estimate import (
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)

UNBIASED = 10_000
"""Images from which on FID's bias is small beside its differences (Chong and Forsyth, CVPR
2020, figure 1)."""
SUBSETS = 100
SUBSET_SIZE = 1000
"""Of KID, as in torchmetrics and in the authors' program."""
SEED = 0
TOO_FEW = "fewer than two images in one of the sets"
Sets = Sequence[Sequence[Embedding]]
"""By query, the vectors of its images."""


def _rows(sets: Sets) -> Floats:
    return vectors(chain.from_iterable(sets))


def _fid(queries: Sequence[str], answer: Sets, truth: Sets) -> Estimate:
    """No interval: resampled images make the distance larger."""
    own = _rows(answer)
    true = _rows(truth)
    few = min(len(own), len(true))
    if few < 2:
        return Estimate(None, n=len(queries), reason=TOO_FEW)
    bias = f", and too large below {UNBIASED:,} images" if few < UNBIASED else ""
    reason = f"{few:,} images: no interval, as resampling raises a distance{bias}"
    return Estimate(frechet_distance(own, true), n=len(queries), reason=reason)


def frechet_distance(x: Floats, y: Floats) -> float:
    """Return the squared Fréchet distance of normal distributions fitted to rows.

        |m_x - m_y|^2 + trace(C_x + C_y - 2 (C_x C_y)^(1/2))

    of their means m and covariances C (Heusel et al. 2017, arXiv:1706.08500).

    torchmetrics takes the eigenvalues of the product of the covariances, which have no
    symmetry: minutes at Inception's width. With roots A'A and B'B of the covariances, the
    trace of the root of their product is the sum of the singular values of AB'.
    """
    shift = x.mean(axis=0) - y.mean(axis=0)
    a = _root(x)
    b = _root(y)
    cross = np.linalg.svd(a @ b.T, compute_uv=False).sum()
    # That of equal sets is below 0 by rounding.
    return max(0.0, float(shift @ shift + (a**2).sum() + (b**2).sum() - 2 * cross))


def _root(rows: Floats) -> Floats:
    """Return A (min(n, width), width), whose A'A is the covariance of (n, width)."""
    centred: Floats = (rows - rows.mean(axis=0)) / (len(rows) - 1) ** 0.5
    if len(rows) > rows.shape[1]:
        # R of a QR decomposition has the same R'R, in fewer rows.
        centred = np.asarray(np.linalg.qr(centred, mode="r"))
    return centred


def _kid(queries: Sequence[str], answer: Sets, truth: Sets) -> Estimate:
    """Torchmetrics' mean over seeded subsets, its interval by resampled queries.

    The squared maximum mean discrepancy under the kernel (x . y / width + 1)^3 (Bińkowski
    et al. 2018, arXiv:1801.01401).
    """
    own = _rows(answer)
    true = _rows(truth)
    size = min(SUBSET_SIZE, len(own), len(true))
    if size < 2:
        return Estimate(None, n=len(queries), reason=TOO_FEW)
    require_extra("models", "KID")
    import torch
    from torchmetrics.image.kid import KernelInceptionDistance

    with torch.random.fork_rng([]), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the features are kept
        torch.manual_seed(SEED)
        network = torch.nn.Identity()  # the features are given already
        network.num_features = own.shape[1]
        metric: Any = KernelInceptionDistance(network, subsets=SUBSETS, subset_size=size)
        metric.update(torch.from_numpy(true), real=True)
        metric.update(torch.from_numpy(own), real=False)
        value, _ = metric.compute()

    def kernel(x: Floats, y: Floats) -> Floats:
        cubic: Floats = (x @ y.T / x.shape[1] + 1) ** 3
        return cubic

    # The metric's own value is of random subsets; an interval is made of all pairs, which
    # have the same expectation and no chance of their own.
    own_own = _over_pairs(queries, answer, answer, kernel)
    true_true = _over_pairs(queries, truth, truth, kernel)
    own_true = _over_pairs(queries, answer, truth, kernel)
    samples = own_own + true_true - 2 * own_true
    return bootstrap_estimate(float(value), samples[1:], len(queries))


def _diversity(queries: Sequence[str], answer: Sets, truth: Sets) -> Estimate:
    if sum(map(len, answer)) < 2:
        return Estimate(None, n=len(queries), reason=TOO_FEW)
    samples = 1 - _over_pairs(queries, answer, answer, _cosine)
    return bootstrap_estimate(float(samples[0]), samples[1:], len(queries))


def _cosine(x: Floats, y: Floats) -> Floats:
    unit_x = x / np.linalg.norm(x, axis=1, keepdims=True)
    unit_y = y / np.linalg.norm(y, axis=1, keepdims=True)
    cosines: Floats = unit_x @ unit_y.T
    return cosines


def _over_pairs(queries: Sequence[str], a: Sets, b: Sets, kernel: Any) -> Floats:
    """Return the mean of a kernel over pairs of different images.

    First as observed, then in every draw of the bootstrap over queries.
    """
    weights = np.vstack([np.ones(len(queries)), bootstrap_weights(queries)])
    sizes_a = np.array([*map(len, a)])
    sizes_b = np.array([*map(len, b)])
    values = kernel(_rows(a), _rows(b))
    counts = np.outer(sizes_a, sizes_b).astype(float)
    if a is b:
        # No image is compared with itself.
        np.fill_diagonal(values, 0.0)
        counts -= np.diag(sizes_a)
    # From images to queries, since a draw takes all images of a query or none.
    by_query = np.add.reduceat(values, _starts(sizes_a), axis=0)
    sums = np.add.reduceat(by_query, _starts(sizes_b), axis=1)
    # 0 / 0 is NaN where all that was drawn is one image: the draw is undefined.
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Floats = _total(sums, weights) / _total(counts, weights)
    return means


def _starts(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the row of the first image of each query."""
    return np.cumsum([0, *sizes[:-1]])


def _total(matrix: Floats, weights: Floats) -> Floats:
    """Return (draws,) sums of (queries, queries) over the pairs that were drawn."""
    # In a draw a query may come several times; its copies are not paired with each other.
    copies = weights - weights**2
    total: Floats = ((weights @ matrix) * weights).sum(axis=1) + copies @ matrix.diagonal()
    return total


FIGURES: Mapping[str, Callable[[Sequence[str], Sets, Sets], Estimate]] = {
    "fid": _fid,
    "kid": _kid,
    "diversity": _diversity,
}
"""By the name of the metric, without its model: of queries, answers and ground truth."""
