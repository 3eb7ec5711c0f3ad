"""What nothing beats in score and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

from plait.scorers.base import Direction


def frontier(
    costs: Mapping[str, float], scores: Mapping[str, float], better: Direction
) -> list[str]:
    """Return the systems that no other beats in score and cost, the cheapest first.

    Of those with both. By the means alone, whose intervals may overlap; of equally cheap
    ones those with the best score alone.
    """
    sign = 1 if better == "higher" else -1
    places = {}
    for name, cost in costs.items():
        if name in scores:
            places[name] = cost, sign * scores[name]

    def order(name: str) -> tuple[float, float, str]:
        cost, score = places[name]
        return cost, -score, name

    found: list[str] = []
    best = -math.inf
    # From the cheapest on, whatever raises the best score so far is beaten by none.
    for name in sorted(places, key=order):
        _, score = places[name]
        is_equal = bool(found) and places[name] == places[found[-1]]
        if score > best or is_equal:
            found.append(name)
            best = score
    return found
