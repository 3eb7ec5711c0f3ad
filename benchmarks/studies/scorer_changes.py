"""How a scorer of one name judges otherwise in another run.

Its scores in the two are then not comparable: their difference is one of the judge too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from plait.benchmarks.results.files.about import RecordedScorer
from plait.generators.base import StageSpec
from plait.scorers.base import Scorer


def scorer_changes(one: Scorer, other: Scorer) -> list[str]:
    """Return what differs, such as `tau 1 in the first run, 2 in the second`."""
    changes = []
    if one.manner != other.manner:
        changes.append(_change("", one.manner, other.manner))
    for then, now in zip_longest(one.stages, other.stages):
        if then is None or now is None:
            changes.append("another number of stages")
        elif then.digest != now.digest:
            changes += _stage_changes(then, now)
    # What the manner says in words, the settings say in full: once is enough.
    if not changes:
        changes += _iter_changes("", _settings_of(one), _settings_of(other))
    return changes


def _settings_of(scorer: Scorer) -> Mapping[str, Any]:
    return scorer.settings if isinstance(scorer, RecordedScorer) else {}


def _stage_changes(then: StageSpec, now: StageSpec) -> list[str]:
    changes = [*_iter_changes(f"{now.name}: ", then.settings, now.settings)]
    if (then.identity, then.weights) != (now.identity, now.weights):
        changes.append(f"{now.name}: other weights")
    if then.version != now.version:
        changes.append(_change(f"{now.name}: version ", then.version, now.version))
    return changes or [f"{now.name}: another stage"]


def _iter_changes(
    name: str, then: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[str]:
    for key in {**then, **now}:
        if then.get(key) != now.get(key):
            yield _change(f"{name}{key} ", repr(then.get(key)), repr(now.get(key)))


def _change(name: str, then: object, now: object) -> str:
    return f"{name}{then or 'nothing'} in the first run, {now or 'nothing'} in the second"
