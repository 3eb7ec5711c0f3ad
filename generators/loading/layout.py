"""Where each parameter of a module stands in a published file, and in which form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor


def same(tensor: Tensor) -> Tensor:
    """The stored tensor as it is."""
    return tensor


@dataclass(frozen=True, slots=True)
class Place:
    """The parameter a stored tensor fills, and how the one becomes the other."""

    name: str
    change: Callable[[Tensor], Tensor] = same


Layout = Mapping[str, Place]
"""Name in the file -> place in the module."""


def identical(names: Iterable[str], prefix: str = "") -> Layout:
    """The layout of a file that uses the module's own names, after `prefix`."""
    return {prefix + name: Place(name) for name in names}
