"""Adds up what results have used. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

PEAKS = frozenset({"peak_memory_mb"})
"""Names of usage of which the largest counts and not the sum."""


def add_usage(total: MutableMapping[str, float], usage: Mapping[str, float]) -> None:
    """Count `usage` towards `total`."""
    for name, amount in usage.items():
        before = total.get(name, 0.0)
        total[name] = max(before, amount) if name in PEAKS else before + amount
