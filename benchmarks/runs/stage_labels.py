"""What tables call stages: by name, and by what tells those of one name apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from plait.generators.base import StageSpec


def label_stages(specs: Iterable[StageSpec]) -> dict[str, str]:
    """Return labels by the stages' digests: `SDXL`, or `SDXL (steps=30)` of several.

    A class and its variants have one name; what differs are their settings, or weights.
    """
    by_name: dict[str, list[StageSpec]] = defaultdict(list)
    for spec in specs:
        by_name[spec.name].append(spec)
    labels = {}
    for name, alike in by_name.items():
        differing = _differing_facts(alike)
        for spec in alike:
            labels[spec.digest] = name
            facts = _facts_of(spec)
            told = [f"{key}={facts[key]!r}" for key in differing if key in facts]
            if told:
                labels[spec.digest] = f"{name} ({', '.join(told)})"
    return labels


def _facts_of(spec: StageSpec) -> dict[str, Any]:
    return {**spec.settings, "weights": spec.weights, "version": spec.version}


def _differing_facts(specs: Sequence[StageSpec]) -> list[str]:
    """Return the names of facts that are not the same of all these stages."""
    every = [_facts_of(spec) for spec in specs]
    names: dict[str, None] = {}
    for facts in every:
        names |= dict.fromkeys(facts)
    differing = []
    for name in names:
        if any(facts.get(name) != every[0].get(name) for facts in every):
            differing.append(name)
    return differing
