"""Keys of records are found whatever they have in common with others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.benchmarks.results.files.key_index import KeyIndex, numbers_of

ALIKE = "a" * 16


def test_keys_that_begin_alike_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    keys = [f"{ALIKE}{number:016x}" for number in (7, 3, 5)]
    keys += [rng.bytes(16).hex() for _ in range(100)]
    others = [f"{ALIKE}{number:016x}" for number in (4, 8)] + ["f" * 32, "0" * 32]
    asked = [*reversed(keys), *others, keys[1]]
    index = KeyIndex(numbers_of(pa.chunked_array([keys[:50], keys[50:]])))
    place_of = {key: place for place, key in enumerate(keys)}

    places = index.places(pa.chunked_array([asked]))

    assert places.tolist() == [place_of.get(key, -1) for key in asked]


def test_nothing_is_found_among_no_keys() -> None:
    index = KeyIndex(numbers_of(pa.chunked_array([], pa.string())))
    assert index.places(pa.chunked_array([[ALIKE * 2]])).tolist() == [-1]
