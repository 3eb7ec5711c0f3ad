"""The cache of many rows, without a model."""

import torch

from generators.decoding.rows import KeyValueRows


def prefilled(rows: int, columns: int) -> tuple[KeyValueRows, torch.Tensor, torch.Tensor]:
    """A cache of two layers for at most 100 columns, and what its first rows hold."""
    cache = KeyValueRows(most_columns=100)
    cache.reserve(rows, columns)
    keys, values = torch.randn(2, rows, 2, columns, 3)
    cache.begin_prefill(torch.arange(rows))
    for layer in range(2):
        cache.update(keys + layer, values + layer, layer)
    return cache, keys, values


def shape(cache: KeyValueRows) -> tuple[int, int]:
    """Rows and columns in memory."""
    shapes = {states.shape for layer in cache._layers for states in layer}
    ((rows, _, columns, _),) = shapes
    return rows, columns


def test_columns_double_up_to_the_context_and_rows_stay():
    cache, *_ = prefilled(3, 10)
    sizes = []
    for rows, columns in ((3, 64), (2, 65), (1, 90), (4, 20), (2, 101)):
        cache.reserve(rows, columns)
        sizes.append(shape(cache))
    assert sizes == [(3, 64), (3, 100), (3, 100), (4, 100), (4, 101)]


def test_what_is_stored_outlives_every_enlargement():
    cache, keys, values = prefilled(2, 10)
    for rows, columns in ((2, 80), (5, 10)):
        cache.reserve(rows, columns)
    assert shape(cache) == (5, 100)
    new = torch.randn(2, 2, 1, 3)
    cache.begin_step(torch.tensor([[10], [10]]), 11, same=10)
    for layer in range(2):
        for read, stored in zip(
            cache.update(new, -new, layer), (keys, values), strict=True
        ):
            assert torch.equal(read[:, :, :10], stored + layer)
