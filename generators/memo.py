"""A function of batches that remembers its latest results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F")


class Memo(Generic[K, V, F]):
    """Results by key, computed in groups; the latest ones up to `size` are remembered.

    `size_of` says how much of `size` a result takes: by default each counts as one.
    """

    def __init__(
        self,
        compute: Callable[[list[V]], list[F]],
        group: int,
        size: int,
        size_of: Callable[[F], int] = lambda result: 1,
    ) -> None:
        self._compute = compute
        self._group = group
        self._room = size
        """How much of `size` is not taken."""
        self._size_of = size_of
        self._recent: OrderedDict[K, F] = OrderedDict()

    def __call__(self, inputs: Mapping[K, V]) -> dict[K, F]:
        """Return the result of every key; those not remembered are computed in groups."""
        results = {}
        missing = []
        for key in inputs:
            if key in self._recent:
                results[key] = self._recent[key]
            else:
                missing.append(key)
        for first in range(0, len(missing), self._group):
            keys = missing[first : first + self._group]
            computed = self._compute([inputs[key] for key in keys])
            results.update(zip(keys, computed, strict=True))
        self._remember(results)
        return results

    def _remember(self, results: Mapping[K, F]) -> None:
        for key, result in results.items():
            if key not in self._recent:
                self._recent[key] = result
                self._room -= self._size_of(result)
            self._recent.move_to_end(key)
        # Whatever was asked for longest ago goes first.
        while self._room < 0 and self._recent:
            _, oldest = self._recent.popitem(last=False)
            self._room += self._size_of(oldest)
